//! Expectations of a story's verdicts.

use std::fmt::Write as _;

use super::{
    stage::Step,
    step_words::{duration, number},
};
use crate::domain::{
    reason::Reason,
    verdict::Verdict,
    violation::{OnViolation, Violation},
};

pub(super) fn expect_verdict(verdict: &Verdict, expected: &str) -> Step {
    let got = describe(verdict);
    let must = |holds: bool, what: &str| {
        if holds { Ok(()) } else { Err(format!("expected {what}; got {got}")) }
    };
    let (mut has_finding, mut disabled) = (false, false);
    let mut words = expected.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let decision = words.next().unwrap_or_default().to_uppercase();
    must(verdict.decision.as_str() == decision, &decision)?;
    while let Some(word) = words.next() {
        match word {
            "as" => drop(words.next()),
            "disabled" => disabled = true,
            "user" => {
                let is_for_user = |violation: &Violation| violation.on_violation == OnViolation::AskUser;
                must(verdict.findings.iter().flat_map(|f| &f.violations).any(is_for_user), "a question to the user")?;
            }
            "replayed" => must(verdict.replayed, "a replay")?,
            "after" => {
                let after = duration(words.next().unwrap_or_default())?;
                must(verdict.retry_after_ms() == Some(after), &format!("after {after} ms"))?;
            }
            "attempt" => {
                let attempt = number(words.next().unwrap_or_default())?;
                let got = verdict.permit.as_ref().map(|permit| u64::from(permit.attempt));
                must(got == Some(attempt), &format!("attempt {attempt}"))?;
            }
            level @ ("warning" | "critical" | "break") => {
                has_finding = true;
                let (rule, count) = (words.next().unwrap_or_default(), number(words.next().unwrap_or_default())?);
                let found = verdict.findings.iter().any(|f| {
                    f.rule == rule
                        && f.level.is_some_and(|l| l.as_str() == level)
                        && f.count.map(u64::from) == Some(count)
                });
                must(found, &format!("{level} {rule} {count}"))?;
            }
            reason => {
                has_finding = true;
                let known = Reason::from_name(reason).ok_or_else(|| format!("{reason} is no word of a verdict"))?;
                must(verdict.winner().is_some_and(|winner| winner.reason == known), reason)?;
            }
        }
    }
    must(disabled == verdict.tools_disabled, if disabled { "disabled tools" } else { "tools that are not disabled" })
        .or_else(|problem| if decision == "STOP" { Ok(()) } else { Err(problem) })?;
    must(has_finding || verdict.findings.is_empty(), "no finding")
}

pub(super) fn describe(verdict: &Verdict) -> String {
    let mut text = verdict.decision.as_str().to_owned();
    for f in &verdict.findings {
        let level = f.level.map_or("-", |level| level.as_str());
        let _ = write!(text, " [{} {} {} {level} {:?}]", f.rule, f.decision.as_str(), f.reason.as_str(), f.count);
    }
    if let Some(permit) = &verdict.permit {
        let _ = write!(text, " attempt {}", permit.attempt);
    }
    if let Some(after) = verdict.retry_after_ms() {
        let _ = write!(text, " after {after} ms");
    }
    if verdict.tools_disabled {
        text.push_str(" disabled");
    }
    text
}
