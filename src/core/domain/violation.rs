//! Violations of a tool's argument schema.

use super::ids::ToolName;

/// Party that can fix a violation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// The model, from the message.
    #[default]
    SelfCorrect,
    /// The user, whom the model must ask.
    AskUser,
}

/// Keyword of an argument condition of the policy.
pub const CONDITION: &str = "condition";

/// One violation in the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The field, as a path: `items[0].sku`.
    pub field: String,
    /// The problem and its fix, in one line.
    pub message: String,
    /// Keyword: of JSON Schema, `unknown_field` or [`CONDITION`].
    pub keyword: String,
    /// Party that can fix it.
    pub on_violation: OnViolation,
    /// Text for the user.
    pub user_facing_hint: Option<String>,
    /// True when models have hardly ever fixed it.
    pub is_hopeless: bool,
}

/// A coerced value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoercedField {
    /// Field.
    pub field: String,
    /// Given value.
    pub from: String,
    /// Coerced value.
    pub to: String,
}

/// Outcome of a violation in the model's next call of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfCorrection {
    /// The field without item indexes: `items[].sku`.
    pub field: String,
    /// The violated keyword, as in [`Violation::keyword`].
    pub rule: String,
    /// True when it was fixed.
    pub ok: bool,
}

/// Counts of refusals of one tool for one field and keyword.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfCorrectionCount {
    pub tool: ToolName,
    /// The field, as in [`SelfCorrection::field`].
    pub field: String,
    /// The violated keyword.
    pub rule: String,
    /// Refusals after which the model called the tool again.
    pub refusals: u64,
    /// Those after which the field was valid.
    pub corrected: u64,
}

/// The path without item indexes: `items[0].sku` as `items[].sku`.
#[must_use]
pub fn any_item(path: &str) -> String {
    let mut any = String::with_capacity(path.len());
    let mut parts = path.split('[');
    any.push_str(parts.next().unwrap_or_default());
    for part in parts {
        any.push('[');
        any.push_str(
            part.split_once(']')
                .filter(|(at, _)| at.parse::<usize>().is_ok())
                .map_or(part, |(at, _)| &part[at.len()..]),
        );
    }
    any
}

#[cfg(test)]
mod tests {
    use super::any_item;

    #[test]
    fn only_places_of_items_are_left_out() {
        let any = ["items[0].sku", "a[12][3]", "name", "x[y].z", "open[1"].map(any_item);
        assert_eq!(any, ["items[].sku", "a[][]", "name", "x[y].z", "open[1"]);
    }
}
