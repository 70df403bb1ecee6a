//! Use of a session's budgets: now, and over its last calls.

use crate::console::labels;
use callgate_proto::v1::{BudgetDimension, BudgetScope, BudgetUsage, CallEntry};

/// A remaining budget.
pub(super) struct Budget {
    pub(super) name: String,
    pub(super) used: String,
    pub(super) limit: String,
    /// Amount of the limit beyond the policy's; empty: none.
    pub(super) extra: String,
    pub(super) percent: u64,
    pub(super) class: &'static str,
}

impl Budget {
    pub(super) fn new(left: &BudgetUsage) -> Self {
        let percent = share(left.used, left.limit);
        Self {
            name: labels::budget(left),
            used: labels::amount(left.dimension(), left.used),
            limit: labels::amount(left.dimension(), left.limit),
            extra: if left.extra > 0 { labels::amount(left.dimension(), left.extra) } else { String::new() },
            percent,
            class: match percent {
                100.. => "bad",
                80.. => "warn",
                _ => "",
            },
        }
    }
}

fn share(used: u64, limit: u64) -> u64 {
    used.saturating_mul(100).checked_div(limit).unwrap_or(100)
}

/// The use of the session's own budgets over its last steps, in percent: computed backwards from the present use.
#[derive(Default)]
pub(super) struct Chart {
    pub(super) names: Vec<String>,
    /// The place of a call, and the use of each budget after it.
    pub(super) rows: Vec<(u64, Vec<u64>)>,
}

impl Chart {
    pub(super) fn new(budgets: &[BudgetUsage], calls: &[CallEntry]) -> Self {
        let is_own =
            |left: &&BudgetUsage| left.scope() == BudgetScope::CallTree && spending_of(left.dimension()).is_some();
        let mut own: Vec<&BudgetUsage> = budgets.iter().filter(is_own).collect();
        own.sort_by_key(|left| std::cmp::Reverse(share(left.used, left.limit)));
        own.truncate(4);
        let mut used: Vec<u64> = own.iter().map(|left| left.used).collect();
        let mut rows = Vec::with_capacity(calls.len());
        if own.is_empty() {
            return Self::default();
        }
        // The newest first.
        for call in calls {
            rows.push((call.seq, own.iter().zip(&used).map(|(left, used)| share(*used, left.limit)).collect()));
            for (left, used) in own.iter().zip(&mut used) {
                let of = spending_of(left.dimension()).map_or(0, |spent| spent(call));
                *used = used.saturating_sub(of);
            }
        }
        rows.reverse();
        Self { names: own.into_iter().map(labels::budget).collect(), rows }
    }
}

/// Use of a budget by one call; none for budgets that are no sum over calls.
fn spending_of(dimension: BudgetDimension) -> Option<fn(&CallEntry) -> u64> {
    Some(match dimension {
        BudgetDimension::Steps => |_| 1,
        BudgetDimension::ToolCalls => |call| u64::from(call.attempt > 0),
        BudgetDimension::CostMicros => |call| call.usage.as_ref().map_or(0, |usage| usage.cost_micros),
        BudgetDimension::Tokens => |call| {
            call.usage.as_ref().map_or(0, |usage| {
                let cached = usage.cache_read_tokens + usage.cache_write_tokens;
                usage.input_tokens + usage.output_tokens + cached
            })
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_budgets_is_told_backwards_from_now() {
        let left = |dimension: BudgetDimension, used, limit| BudgetUsage {
            scope: BudgetScope::CallTree.into(),
            dimension: dimension.into(),
            used,
            limit,
            extra: 0,
        };
        let budgets = [left(BudgetDimension::ToolCalls, 5, 10), left(BudgetDimension::Steps, 6, 100)];
        let call = |seq, attempt| CallEntry { seq, attempt, ..CallEntry::default() };
        let chart = Chart::new(&budgets, &[call(9, 1), call(7, 0), call(4, 1)]);
        assert_eq!(chart.names.len(), 2);
        assert_eq!(chart.rows, [(4, vec![40, 4]), (7, vec![40, 5]), (9, vec![50, 6])]);
    }
}
