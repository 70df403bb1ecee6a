//! Coverage of a policy by recorded calls: rules with a finding, tools and tiers with a call.

use std::collections::BTreeMap;

use super::{judge::OfflineJudge, trace::TraceRow};
use crate::{
    policy::Policy,
    rules::{Mode, bulkhead, requires, schema, tier},
};

/// Rules that recorded calls cannot reach: they depend on operators, compactions and reported phases.
const UNREACHABLE: [&str; 3] = ["halted", "after_compaction", "phase"];

/// A part of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredPart {
    /// `rule`, `tool` or `tier`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Number of calls with a finding of the rule, of the tool, or of a tool in the tier.
    pub calls: u64,
}

/// Coverage of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// Number of judged calls.
    pub calls: u64,
    /// Rules that the policy runs, declared tools and tiers, each by its own order.
    pub parts: Vec<CoveredPart>,
}

impl Coverage {
    /// Number of reached parts, and of all, of a kind; of all kinds, when absent.
    #[must_use]
    pub fn reached(&self, section: Option<&str>) -> (usize, usize) {
        let of_kind = || self.parts.iter().filter(|part| section.is_none_or(|kind| part.kind == kind));
        (of_kind().filter(|part| part.calls > 0).count(), of_kind().count())
    }

    /// Percentage of reached parts; 100 without any.
    #[must_use]
    pub fn percent(&self) -> f64 {
        let (reached, all) = self.reached(None);
        if all == 0 { 100.0 } else { reached as f64 * 100.0 / all as f64 }
    }
}

/// True for a rule that the policy runs, and that has something to check.
fn can_find(policy: &Policy, rule: &str) -> bool {
    let (rules, mut tools) = (&policy.rules, policy.tools());
    let is_used = match rule {
        "bulkhead" => !rules.get::<bulkhead::Params>().is_empty(),
        "requires" => !rules.get::<requires::Params>().by_tool.is_empty(),
        "schema" => !rules.get::<schema::Params>().by_tool.is_empty() || policy.has_any_schema(),
        "tier" => !rules.get::<tier::Params>().tiers.is_empty() || tools.any(|(_, spec)| spec.risk.is_some()),
        other => !UNREACHABLE.contains(&other),
    };
    is_used && rules.mode(rule) != Mode::Off
}

/// Judges the calls, and counts the parts of the policy that they reach.
///
/// # Errors
/// A call that cannot be judged, by its session and id.
pub fn coverage(rows: &[TraceRow], policy: Policy) -> Result<Coverage, String> {
    let mut judge = OfflineJudge::new(policy.clone(), false);
    let (mut rules, mut tools): (BTreeMap<String, u64>, BTreeMap<&str, u64>) = Default::default();
    for row in rows {
        let judged = judge.judge(row).map_err(|problem| format!("{} {}: {problem}", row.trace, row.call_id))?;
        for finding in &judged.verdict.findings {
            *rules.entry(finding.rule.to_string()).or_default() += 1;
        }
        *tools.entry(row.tool.as_str()).or_default() += 1;
    }
    let part = |kind, name: &str, calls| CoveredPart { kind, name: name.to_owned(), calls };
    let of_rule = |name: &str| rules.get(name).copied().unwrap_or(0);
    let run = policy.rules.iter().map(|slot| slot.rule.id).filter(|rule| can_find(&policy, rule));
    let mut parts: Vec<CoveredPart> = run.map(|rule| part("rule", rule, of_rule(rule))).collect();
    let declared = policy.tools().map(|(tool, _)| part("tool", tool, tools.get(tool).copied().unwrap_or(0)));
    parts.extend(declared);
    let tiers = policy.rules.get::<tier::Params>();
    parts.extend(tiers.tiers.iter().map(|of| {
        let is_in = |tool: &str| tiers.tier(tool).is_some_and(|tier| tier.name == of.name);
        part("tier", &of.name, tools.iter().filter(|(tool, _)| is_in(tool)).map(|(_, calls)| calls).sum())
    }));
    Ok(Coverage { calls: rows.len() as u64, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_tools_and_tiers_are_counted_by_calls() {
        let policy = crate::policy::compile(
            "policy_engine:
               rules: {growth: {mode: off}}
               tool_schemas: {look: {effect: read}, drop: {effect: write, risk_level: HIGH}, idle: {effect: read}}
               authorization: {tiers: [
                 {name: drops, pattern: drop, action: deny}, {name: none, pattern: 'n*', action: deny}]}",
        );
        let row = |seq, tool| TraceRow::success("s", seq, tool, "a");
        let rows = [row(0, "look"), row(1, "look"), row(2, "drop")];
        let coverage = coverage(&rows, policy.expect("a good policy")).expect("good rows");
        let of = |kind: &str, name: &str| {
            coverage.parts.iter().find(|part| part.kind == kind && part.name == name).map(|part| part.calls)
        };
        assert_eq!([of("tool", "look"), of("tool", "drop"), of("tool", "idle")], [Some(2), Some(1), Some(0)]);
        assert_eq!([of("tier", "drops"), of("tier", "none")], [Some(1), Some(0)]);
        assert_eq!([of("rule", "same_call"), of("rule", "tier"), of("rule", "cycle")], [Some(1), Some(3), Some(0)]);
        assert_eq!(of("rule", "growth"), None, "it is off");
        assert_eq!([of("rule", "halted"), of("rule", "requires"), of("rule", "schema")], [None; 3], "nothing to check");
        assert_eq!((coverage.reached(Some("tool")), coverage.reached(Some("tier"))), ((2, 3), (1, 2)));
        let (reached, all) = coverage.reached(None);
        assert!((coverage.percent() - reached as f64 * 100.0 / all as f64).abs() < 1e-9);
    }
}
