//! Findings: objections and warnings of a rule about a call.

use std::borrow::Cow;

use super::{
    closed_set::closed_set, ids::CallId, ids::SessionId, reason::Reason, time::Timestamp, tool::RiskLevel,
    violation::Violation,
};

closed_set! {
    /// Decision on a call, the mildest first.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Decision {
        /// Execute.
        #[default]
        Allow = "ALLOW",
        /// Needs approval.
        Ask = "ASK",
        /// Wait, then ask again.
        Wait = "WAIT",
        /// Already done; here is the result.
        Reuse = "REUSE",
        /// Refused with these arguments in this state.
        Deny = "DENY",
        /// Tools are disabled; give the final answer.
        Stop = "STOP",
    }
}

closed_set! {
    /// Escalation level of a loop.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Level {
        /// The model is warned.
        Warning = "warning",
        /// The call is refused.
        Critical = "critical",
        /// The rest of the run is refused.
        Break = "break",
    }
}

/// Names one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRef {
    pub session: SessionId,
    pub call_id: CallId,
    /// When it was permitted.
    pub at: Timestamp,
}

/// An objection or a warning of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule: its file's name.
    pub rule: Cow<'static, str>,
    /// The decision that this rule requires.
    pub decision: Decision,
    /// The stable reason.
    pub reason: Reason,
    /// For loop detectors.
    pub level: Option<Level>,
    /// Counted value, for loop detectors and budgets.
    pub count: Option<u32>,
    /// For the model: what happened, why, what to do next. One line.
    pub message: String,
    /// Next step, alone.
    pub next_action: Option<String>,
    /// Message for people in place of `message`, for faults of the policy that the model should not see.
    pub for_people: Option<String>,
    /// For WAIT and an expiring REUSE: milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// The call whose result is returned, or that a person approved with other arguments.
    pub reuse: Option<CallRef>,
    /// Violations of the argument schema, per field.
    pub violations: Vec<Violation>,
    /// The risk to which a condition of the policy raised the call's.
    pub raised_risk: Option<RiskLevel>,
    /// False in shadow mode: recorded, not applied.
    pub enforced: bool,
}

/// The findings that require an approval.
pub fn asking(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|finding| finding.decision == Decision::Ask && finding.enforced)
}

/// A text for the model: what happened, and one next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wording {
    situation: String,
    next_step: Option<String>,
}

impl Wording {
    /// A refusal's text.
    #[must_use]
    pub fn new(situation: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { situation: situation.into(), next_step: Some(next_step.into()) }
    }
}

/// A text without a step of its own: a hint, or a policy owner's.
impl<T: Into<String>> From<T> for Wording {
    fn from(text: T) -> Self {
        Self { situation: text.into(), next_step: None }
    }
}

impl Finding {
    /// A finding with the fields that every finding has.
    #[must_use]
    pub fn new(rule: &'static str, decision: Decision, reason: Reason, message: impl Into<Wording>) -> Self {
        let Wording { situation, next_step } = message.into();
        Self {
            rule: Cow::Borrowed(rule),
            decision,
            reason,
            level: None,
            count: None,
            message: next_step.as_ref().map_or_else(|| situation.clone(), |step| format!("{situation} {step}")),
            next_action: next_step,
            for_people: None,
            retry_after_ms: None,
            reuse: None,
            violations: Vec::new(),
            raised_risk: None,
            enforced: true,
        }
    }

    /// With the level and count of a loop.
    #[must_use]
    pub fn at_level(mut self, level: Level, count: u32) -> Self {
        self.level = Some(level);
        self.count = Some(count);
        self
    }

    /// The message without the next step.
    #[must_use]
    pub fn situation(&self) -> &str {
        let step = self.next_action.as_deref().unwrap_or_default();
        self.message.strip_suffix(step).unwrap_or(&self.message).trim_end()
    }

    /// With what to do next, where that is no part of the message.
    #[must_use]
    pub fn next(mut self, action: impl Into<String>) -> Self {
        self.next_action = Some(action.into());
        self
    }

    /// With the message for people.
    #[must_use]
    pub fn telling_people(mut self, text: impl Into<String>) -> Self {
        self.for_people = Some(text.into());
        self
    }

    /// With the time until it may be asked again.
    #[must_use]
    pub fn retry_after(mut self, millis: u64) -> Self {
        self.retry_after_ms = Some(millis);
        self
    }

    /// With the argument violations.
    #[must_use]
    pub fn violating(mut self, violations: Vec<Violation>) -> Self {
        self.violations = violations;
        self
    }

    /// With the call whose result is returned.
    #[must_use]
    pub fn reusing(mut self, call: CallRef) -> Self {
        self.reuse = Some(call);
        self
    }
}
