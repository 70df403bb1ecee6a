//! Self-correction rates of models after refusals for their arguments: counted per tool, field and keyword
//! (docs/learning.md#self-correction). Violations that are hardly ever corrected become questions to the user.

use std::collections::BTreeMap;

use super::advice::wilson;
use crate::domain::{
    ids::ToolName,
    retries::FieldCorrections,
    violation::{SelfCorrection, SelfCorrectionCount},
};

/// Correction rate below which, with 95 % certainty, the user is asked: after eleven refusals without one, or
/// twenty-eight with two. Low, because a needless round trip is cheaper than a needless question to a person.
const ASK_BELOW: f64 = 0.2;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    refusals: u64,
    corrected: u64,
}

/// Counts of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelfCorrections(BTreeMap<ToolName, BTreeMap<(String, String), Tally>>);

impl SelfCorrections {
    /// From stored counts.
    #[must_use]
    pub fn restore(counts: Vec<SelfCorrectionCount>) -> Self {
        let mut learned = Self::default();
        for count in counts {
            let tally = learned.of(&count.tool, count.field, count.rule);
            *tally = Tally { refusals: count.refusals, corrected: count.corrected };
        }
        learned
    }

    /// Counts the outcome of one refusal.
    pub fn learn(&mut self, tool: &ToolName, of: &SelfCorrection) {
        let tally = self.of(tool, of.field.clone(), of.rule.clone());
        tally.refusals += 1;
        tally.corrected += u64::from(of.ok);
    }

    /// True when models cannot fix it themselves.
    #[must_use]
    pub fn is_for_the_user(&self, tool: &ToolName, field: &str, rule: &str) -> bool {
        let tally = self.0.get(tool).and_then(|fields| fields.get(&(field.to_owned(), rule.to_owned())));
        tally.is_some_and(|tally| tally.is_hopeless())
    }

    /// The counts, the most refused first.
    #[must_use]
    pub fn counts(&self) -> Vec<FieldCorrections> {
        let all = self.0.iter().flat_map(|(tool, fields)| fields.iter().map(move |(of, tally)| (tool, of, *tally)));
        let told = |(tool, (field, rule), tally): (&ToolName, &(String, String), Tally)| FieldCorrections {
            count: SelfCorrectionCount {
                tool: tool.clone(),
                field: field.clone(),
                rule: rule.clone(),
                refusals: tally.refusals,
                corrected: tally.corrected,
            },
            is_for_the_user: tally.is_hopeless(),
        };
        let mut counts: Vec<FieldCorrections> = all.map(told).collect();
        counts.sort_by_key(|known| std::cmp::Reverse(known.count.refusals));
        counts
    }

    fn of(&mut self, tool: &ToolName, field: String, rule: String) -> &mut Tally {
        self.0.entry(tool.clone()).or_default().entry((field, rule)).or_default()
    }
}

impl Tally {
    fn is_hopeless(self) -> bool {
        let refusals = self.refusals as f64;
        self.refusals > 0 && wilson(self.corrected as f64 / refusals, refusals).1 < ASK_BELOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_much_evidence_of_few_corrections_asks_the_user() {
        let asks = |refusals, corrected| Tally { refusals, corrected }.is_hopeless();
        assert_eq!([(0, 0), (10, 0), (11, 0)].map(|(n, k)| asks(n, k)), [false, false, true]);
        assert_eq!([(27, 2), (28, 2), (100, 13), (100, 50)].map(|(n, k)| asks(n, k)), [false, true, true, false]);
    }

    #[test]
    fn every_tool_field_and_rule_is_counted_for_itself() {
        let tool = |name| ToolName::parse("tool", name).expect("a good name");
        let mut learned = SelfCorrections::default();
        for _ in 0..11 {
            let of = SelfCorrection { field: "to".to_owned(), rule: "format".to_owned(), ok: false };
            learned.learn(&tool("send"), &of);
        }
        assert!(learned.is_for_the_user(&tool("send"), "to", "format"));
        for (other, field, rule) in [("post", "to", "format"), ("send", "cc", "format"), ("send", "to", "type")] {
            assert!(!learned.is_for_the_user(&tool(other), field, rule), "{other} {field} {rule}");
        }
    }
}
