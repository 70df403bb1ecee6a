//! Targets of log lines, for filters: `callgate::decision=debug`.

/// Of decisions.
pub const TARGET_DECISION: &str = "callgate::decision";
/// Of audit entries, and the scope of their records.
pub const TARGET_AUDIT: &str = "callgate::audit";
/// Of reports.
pub const TARGET_RECORD: &str = "callgate::record";
