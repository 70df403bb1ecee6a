//! Raising a budget of a session: the choice of budgets, and the amount.

use super::super::{fault::PageError, labels};
use callgate_core::domain::budget::micros;
use callgate_proto::v1::{BudgetDimension, BudgetScope, BudgetUsage, RaiseBudgetRequest};

/// A budget that may be raised.
pub(super) struct RaisableBudget {
    /// Its place in the contract: scope and dimension.
    pub(super) value: String,
    pub(super) name: String,
}

/// Those of a session's budgets that are its own, the nearest to their end first.
pub(super) fn choices(budgets: &[BudgetUsage]) -> Vec<RaisableBudget> {
    let mut own: Vec<&BudgetUsage> =
        budgets.iter().filter(|left| matches!(left.scope(), BudgetScope::Run | BudgetScope::CallTree)).collect();
    own.sort_by_key(|left| std::cmp::Reverse(left.used.saturating_mul(1_000).checked_div(left.limit)));
    let choice = |left: &BudgetUsage| RaisableBudget {
        value: format!("{}.{}", left.scope, left.dimension),
        name: format!(
            "{}: {} of {}{}",
            labels::budget(left),
            labels::amount(left.dimension(), left.used),
            labels::amount(left.dimension(), left.limit),
            unit(left.dimension())
        ),
    };
    own.into_iter().map(choice).collect()
}

/// Unit of a typed amount, where it is not plain.
const fn unit(dimension: BudgetDimension) -> &'static str {
    match dimension {
        BudgetDimension::CostMicros => ", in US dollars",
        BudgetDimension::ElapsedMs => ", in minutes",
        _ => "",
    }
}

/// The request of the form.
pub(super) fn request(
    session: &str,
    budget: &str,
    more: &str,
    reason: String,
) -> Result<RaiseBudgetRequest, PageError> {
    let place =
        budget.split_once('.').and_then(|(scope, dimension)| Some((scope.parse().ok()?, dimension.parse().ok()?)));
    let (scope, dimension) = place.ok_or_else(|| PageError::field("budget: must be one of the session's own"))?;
    let mut request = RaiseBudgetRequest { session_id: session.to_owned(), scope, dimension, extra: 0, reason };
    request.extra = amount(request.dimension(), more.trim()).ok_or_else(|| {
        PageError::field("more: must be a number from 0 on, within the range of the budget; 0 removes the raise")
    })?;
    Ok(request)
}

fn amount(dimension: BudgetDimension, typed: &str) -> Option<u64> {
    match dimension {
        BudgetDimension::CostMicros => typed.parse().ok().and_then(micros),
        BudgetDimension::ElapsedMs => typed.parse::<u64>().ok()?.checked_mul(60_000),
        _ => typed.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_typed_as_people_say_it() {
        use BudgetDimension::{CostMicros, ElapsedMs, Steps};
        assert_eq!(amount(Steps, "50"), Some(50));
        assert_eq!(amount(CostMicros, "2.50"), Some(2_500_000));
        assert_eq!(amount(ElapsedMs, "30"), Some(1_800_000));
        for (dimension, typed) in [(Steps, "-1"), (Steps, "1.5"), (CostMicros, "NaN"), (ElapsedMs, ""), (Steps, "many")]
        {
            assert_eq!(amount(dimension, typed), None, "{typed}");
        }
    }

    #[test]
    fn only_the_sessions_own_budgets_may_be_raised() {
        let left = |scope: BudgetScope, used| BudgetUsage {
            scope: scope.into(),
            dimension: BudgetDimension::Steps.into(),
            used,
            limit: 100,
            extra: 0,
        };
        let budgets = [left(BudgetScope::Agent, 99), left(BudgetScope::Run, 5), left(BudgetScope::CallTree, 50)];
        let choices: Vec<String> = choices(&budgets).into_iter().map(|choice| choice.value).collect();
        assert_eq!(choices, ["2.1", "1.1"]);
        let asked = request("s", &choices[0], "7", String::new()).map_err(|fault| fault.message().to_owned());
        let asked = asked.expect("a request");
        assert_eq!((asked.scope(), asked.dimension(), asked.extra), (BudgetScope::CallTree, BudgetDimension::Steps, 7));
        assert!(request("s", "2", "7", String::new()).is_err());
    }
}
