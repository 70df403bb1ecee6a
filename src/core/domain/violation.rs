//! What is wrong with the arguments of a call.

use super::ids::ToolName;

/// Who can mend it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// The model, from the message.
    #[default]
    SelfCorrect,
    /// The user, whom the model must ask.
    AskUser,
}

/// The keyword of a condition over the arguments that does not hold.
pub const CONDITION: &str = "condition";

/// One thing that is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The field, as a path: `items[0].sku`.
    pub field: String,
    /// What is wrong with it and what would be right, in one line.
    pub message: String,
    /// What was violated: a JSON Schema keyword, `unknown_field` or [`CONDITION`].
    pub keyword: String,
    /// Who can mend it.
    pub on_violation: OnViolation,
    /// What the user should be asked or told.
    pub user_facing_hint: Option<String>,
    /// True when models that were told hardly ever mended it.
    pub is_hopeless: bool,
}

/// A value that had another type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoercedField {
    /// Where.
    pub field: String,
    /// As it was given.
    pub from: String,
    /// As it was read.
    pub to: String,
}

/// Whether a model mended what it was told is wrong, by its next call of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfCorrection {
    /// The field, with the places of items left out: `items[].sku`.
    pub field: String,
    /// What had been violated, as in [`Violation::keyword`].
    pub rule: String,
    /// True when it is not violated any more.
    pub ok: bool,
}

/// What refusals of one tool over one field and one rule came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfCorrectionCount {
    pub tool: ToolName,
    /// The field, as in [`SelfCorrection::field`].
    pub field: String,
    /// What was violated.
    pub rule: String,
    /// Refusals after which the model called the tool again.
    pub refusals: u64,
    /// Those after which the field was right.
    pub corrected: u64,
}

/// The path with the places of items left out: `items[0].sku` as `items[].sku`.
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
