//! Problems of a policy file.

use std::fmt;

/// One problem, its place, and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Line in the file, from 1, when it is known.
    pub line: Option<u64>,
    /// Column in that line, in characters from 1, when it is known.
    pub column: Option<u64>,
    /// Path of the key: `tool_schemas.pay.effect`.
    pub path: String,
    /// The problem and its fix.
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
