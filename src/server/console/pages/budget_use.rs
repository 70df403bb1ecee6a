//! Use of a session's budgets.

use crate::console::labels;
use callgate_proto::v1::BudgetUsage;

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
