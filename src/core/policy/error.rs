//! What is wrong with a policy file.

use std::fmt;

/// One thing that is wrong, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Line in the file, from 1, when it is known.
    pub line: Option<u64>,
    /// Column in that line, in characters from 1, when it is known.
    pub column: Option<u64>,
    /// Path of the key: `tool_schemas.pay.effect`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for PolicyError {}
