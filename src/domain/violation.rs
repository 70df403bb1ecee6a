//! What is wrong with the arguments of a call.

/// Who can mend it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// The model, from the message.
    #[default]
    SelfCorrect,
    /// The user, whom the model must ask.
    AskUser,
}

/// One thing that is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The field, as a path: `items[0].sku`.
    pub field: String,
    /// What is wrong with it and what would be right, in one line.
    pub message: String,
    /// What was violated: a JSON Schema keyword, `unknown_field` or `condition`.
    pub keyword: String,
    /// Who can mend it.
    pub on_violation: OnViolation,
    /// What the user should be asked or told.
    pub user_facing_hint: Option<String>,
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
