//! Self-corrections: the model's next call of a tool after a refusal for its arguments, and whether it fixed them.

use crate::{
    domain::{
        finding::Finding,
        profile::{FOLLOW_UP_CALLS, FOLLOW_UP_MS},
        violation::{CONDITION, OnViolation, SelfCorrection, Violation, any_item},
    },
    rules::{RuleContext, schema},
};

/// The self-corrections that this call shows. Only violations for the model count, and only its first call of another
/// turn after the first such refusal, no later than a retry must come to count: an agent that insists counts no more
/// than one that retries once.
pub(super) fn self_corrections(cx: &RuleContext<'_>, findings: &[Finding]) -> Vec<SelfCorrection> {
    if !cx.is_new {
        return Vec::new();
    }
    let recent = cx.session().into_iter().flat_map(|session| session.calls.iter().rev()).take(FOLLOW_UP_CALLS);
    let mut of_tool = recent.filter(|call| call.tool == cx.proposal.request.tool && Some(call.batch) != cx.batch);
    let Some(last) = of_tool.next().filter(|call| cx.now.since_ms(call.at) <= FOLLOW_UP_MS) else {
        return Vec::new();
    };
    let now = violations(findings, |_| true);
    // Conditions are checked only on arguments of valid form.
    let form_is_wrong = now.iter().any(|violation| violation.keyword != CONDITION);
    let told = violations(&last.findings, |finding| finding.enforced).iter();
    let told = told.filter(|violation| violation.on_violation == OnViolation::SelfCorrect);
    let before = of_tool.next().filter(|call| last.at.since_ms(call.at) <= FOLLOW_UP_MS);
    let told_before = before.map_or(&[][..], |call| violations(&call.findings, |_| true));
    let is_same = |a: &Violation, b: &Violation| a.field == b.field && a.keyword == b.keyword;
    told.filter(|violation| violation.keyword != CONDITION || !form_is_wrong)
        .filter(|violation| !told_before.iter().any(|before| is_same(before, violation)))
        .map(|violation| SelfCorrection {
            field: any_item(&violation.field),
            rule: violation.keyword.clone(),
            ok: !now.iter().any(|now| is_same(now, violation)),
        })
        .collect()
}

fn violations(findings: &[Finding], counts: impl Fn(&Finding) -> bool) -> &[Violation] {
    let of_schema = findings.iter().find(|finding| finding.rule == schema::RULE.id && counts(finding));
    of_schema.map_or(&[], |finding| &finding.violations)
}
