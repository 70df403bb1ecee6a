//! same_result: other arguments, and the identical result again.
//!
//! Fires when a tool's last calls in a row had other arguments than the proposed one and the identical result, names
//! included: four are a warning, 12 are refused, 30 close the tool. Calls that differ in an identity alone (twenty
//! services, each healthy) are only warned of, once. Another result or a failure of the tool ends the row; other tools
//! and refused calls do not. A result counts fully only if it lists something, or is a declared read's of more than 64
//! bytes. Others of more than 64 bytes and empty lists only warn; shorter ones do not count. Not for declared writes,
//! polls and `repeatable` calls.
//!
//! Why: a tool that ignores its arguments answers every question alike, and each answer looks new because the question
//! is. On 32,000 recorded calls this warns twice and refuses nothing; counting every long answer would refuse batches
//! of writes that a provider answers with the same sentence.
//!
//! Known problems: an agent that calls a tool which ignores its arguments for one identity after the other is warned
//! once and not refused.

use crate::domain::{
    call::Call,
    effect::EffectKind,
    finding::{Finding, Level, Wording},
    outcome::OutcomeStatus,
    reason::Reason,
};

use super::{
    BreakScope, RecordedCall, Rule, RuleContext,
    evidence::{Weight, gave_the_same, weight},
    levels::{DetectorLevels, still_broken},
};

/// The rule.
pub const RULE: Rule =
    Rule::detector("same_result", DetectorLevels::new(4, 12, 30), check, silent).closes(BreakScope::Tool).per_tool();

fn is_exempt(kind: EffectKind) -> bool {
    matches!(kind, EffectKind::Write | EffectKind::Poll)
}

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    if is_exempt(cx.proposal.effect.kind) || cx.proposal.effect.repeatable {
        return None;
    }
    if let Some(broken) = still_broken(&RULE, Reason::SameResult, cx) {
        return Some(broken);
    }
    let mut row: Vec<&Call> = Vec::new();
    for call in cx.calls().filter(|call| call.tool == cx.proposal.request.tool) {
        match call.outcome.as_ref().map(|outcome| outcome.status) {
            None | Some(OutcomeStatus::Cancelled | OutcomeStatus::Running) => continue,
            Some(OutcomeStatus::Error | OutcomeStatus::Unknown) => break,
            Some(OutcomeStatus::Success) => {}
        }
        if row.first().is_some_and(|newest| !gave_the_same(newest, call)) {
            break;
        }
        if !cx.is_same(call) && !row.iter().any(|known| known.fingerprint == call.fingerprint) {
            row.push(call);
        }
    }
    let weight = weight(row.first()?);
    let (all, tool) = (row.len() as u32, cx.tool());
    if weight == Weight::Nothing || levels.reached_level(all).is_none() {
        return None;
    }
    let is_sweep = cx.sweeps(&row);
    if is_sweep && levels.was_warned_at(all) {
        return None;
    }
    let full = if weight == Weight::Full && !is_sweep { all } else { 0 };
    let field = describe_varied_field(&row, cx);
    levels.weigh_counts(&RULE, Reason::SameResult, (full, all), row.iter().copied(), |level| match level {
        Level::Warning => format!(
            "{tool} gave the identical result for {all} different calls{field}. If you expected different ones, check \
             the names of the arguments."
        )
        .into(),
        _ => Wording::new(
            format!("{tool} was not run: it gave the identical result for {all} different calls{field}."),
            "Ask in another way, or tell the user what cannot be found out.",
        ),
    })
}

/// The only varied field, as text.
fn describe_varied_field(row: &[&Call], cx: &RuleContext<'_>) -> String {
    let fields = row.iter().map(|call| cx.proposal.shape.only_difference(call.shape.as_deref()?));
    let fields: Option<Vec<&str>> = fields.collect();
    let one = fields.and_then(|fields| fields.first().copied().filter(|first| fields.iter().all(|f| f == first)));
    one.map(|field| format!(" that differ in {field}")).unwrap_or_default()
}

fn silent(levels: &DetectorLevels, asked: &RecordedCall<'_>) -> String {
    match asked.effect_kind() {
        Some(kind) if is_exempt(kind) => "looks at neither writes nor polls".to_owned(),
        _ => levels.silent(asked),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    const LONG: &str = "\"the price list of the shop is not available for this customer at the moment\"";
    /// A different question each time, by its number.
    const ASKED: &str = "{\"text\":\"a price $n please\",\"at\":new}";

    #[test]
    fn eighty_prices_with_one_answer_are_told_refused_and_closed() {
        check(
            "rules same_result
             get_limit {\"text\":\"price $n of it\",\"unit\":\"EUR\",\"at\":new} -> ok {\"limits\":[100]} => allow x4
             get_limit {\"text\":\"price of it\",\"at\":1} -> ok {\"limits\":[100]} => allow, warning same_result 4
             other {} -> ok new
             get_limit {\"text\":\"the price $n of it\",\"at\":new} -> ok {\"limits\":[100]} x7
             get_limit {\"text\":\"what it costs\"} => deny same_result, critical same_result 12 x9
             run next
             get_limit {\"text\":\"what it costs\"} => allow",
        );
    }

    #[test]
    fn a_sweep_over_identities_is_warned_of_once() {
        check(
            "rules same_result
             get_limit {\"product\":new,\"unit\":\"EUR\"} -> ok {\"limits\":[100]} => allow x4
             get_limit {\"product\":new,\"unit\":\"EUR\"} -> ok {\"limits\":[100]} => allow, warning same_result 4
             get_limit {\"product\":new,\"unit\":\"EUR\"} -> ok {\"limits\":[100]} => allow x40",
        );
    }

    #[test]
    fn a_declared_read_counts_by_its_length_and_others_warn() {
        check(&format!(
            "rules same_result
             tool get_price read
             get_price {ASKED} -> ok {LONG} x12
             get_price {{\"text\":\"what does it cost\"}} => deny same_result, critical same_result 12
             session undeclared
             ask_price {{\"of\":new}} -> ok {LONG} => allow x4
             ask_price {{\"of\":new}} -> ok {LONG} => allow, warning same_result 4
             ask_price {{\"of\":new}} -> ok {LONG} x14
             ask_price {{\"of\":new}} => allow
             session empty
             find {{\"name\":new}} -> ok [] => allow x4
             find {{\"name\":new}} -> ok [] => allow, warning same_result 4
             find {{\"name\":new}} -> ok [] x14
             find {{\"name\":new}} => allow"
        ));
    }

    #[test]
    fn acknowledgements_other_results_and_other_names_are_not_it() {
        check(
            "rules same_result
             lint {\"path\":new} -> ok clean => allow x29
             session batch
             create {\"title\":new} -> ok {\"id\":\"$u\",\"labels\":[\"bug\"]} => allow x20
             session mixed
             get {\"n\":new} -> ok {\"rows\":[1]} => allow x3
             get {\"n\":new} -> ok {\"rows\":[2]} => allow
             get {\"n\":new} -> ok {\"rows\":[1]} => allow x3
             get {\"n\":new} => allow
             tool put write
             put {\"n\":new} -> ok {\"rows\":[1]} => allow x20",
        );
    }
}
