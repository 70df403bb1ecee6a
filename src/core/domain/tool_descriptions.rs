//! Descriptions of the tools of MCP servers, as proxies report them. Models follow descriptions as instructions, so a
//! changed one stays visible until an operator accepts or rejects it.

use super::{closed_set::closed_set, ids::ToolName, time::Timestamp};

/// Maximum length of a stored description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 16 << 10;
/// Maximum length of the stored JSON of title, schemas and annotations, in bytes.
pub const SCHEMA_BYTES_MAX: usize = 32 << 10;
/// Maximum number of tools in a report.
pub const REPORTED_MAX: usize = 100;
/// Length of a digest in hexadecimal digits.
pub const DIGEST_DIGITS: usize = 64;

closed_set! {
    /// State of a description.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DescriptionState {
        /// First one of its tool; accepted without anyone's act.
        First = "first",
        /// Later one that nobody has accepted or rejected since its report.
        Changed = "changed",
        Accepted = "accepted",
        Rejected = "rejected",
    }
}

/// The texts of a description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescriptionTexts {
    /// SHA-256 of the whole, hexadecimal.
    pub digest: String,
    /// Possibly cut.
    pub description: String,
    /// JSON of title, schemas and annotations, possibly cut.
    pub schema: String,
}

/// A tool as reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedTool {
    pub tool: ToolName,
    pub texts: DescriptionTexts,
}

/// A stored description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptionVersion {
    pub server: String,
    pub tool: String,
    pub texts: DescriptionTexts,
    pub state: DescriptionState,
    pub first_reported_at: Timestamp,
    pub first_reported_by: String,
    pub last_reported_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    pub resolved_by: String,
    /// Of one that is not accepted: the newest accepted one.
    pub accepted: Option<DescriptionTexts>,
}

/// Page of descriptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescriptionPage {
    pub versions: Vec<DescriptionVersion>,
    /// Number of all changed ones.
    pub changed: u64,
}
