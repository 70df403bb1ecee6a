//! Tools with an open or half-open circuit breaker, or with lasting failures, as pages show them.

use super::now::{encode_query, link, one_or_many, span};
use crate::console::frame::Frame;
use callgate_proto::{time::unix_ms, v1::ToolTrouble};

/// One of them, as a row of `troubles.html`.
pub(super) struct TroubleRow {
    pub(super) name: String,
    pub(super) tone: &'static str,
    pub(super) state: String,
    /// Its calls, and those of the last hour that failed.
    pub(super) link: Option<String>,
    pub(super) failed: Option<String>,
}

/// Does everybody leave it alone now?
pub(super) fn is_cooling(tool: &ToolTrouble, at: i64) -> bool {
    tool.circuit_breaker_open_end_time.as_ref().is_some_and(|end| unix_ms(Some(end)) > at)
}

impl TroubleRow {
    pub(super) fn new(frame: &Frame, trouble: &ToolTrouble, at: i64) -> Self {
        let kind = trouble.circuit_breaker_failure().as_str_name().trim_start_matches("FAILURE_KIND_").to_lowercase();
        let kind = kind.replace('_', " ");
        let left = span(unix_ms(trouble.circuit_breaker_open_end_time.as_ref()) - at);
        let state = match (&trouble.circuit_breaker_open_end_time, is_cooling(trouble, at)) {
            (Some(_), true) => format!("circuit breaker open for another {left} ({kind}): calls wait or are refused"),
            (Some(_), false) => format!("circuit breaker half-open ({kind}): one probe at a time"),
            (None, _) => {
                let since = unix_ms(trouble.failing_start_time.as_ref());
                let failures = one_or_many(trouble.failures.into(), "failure", "failures");
                format!("{failures} in a row, for {}", span(at - since))
            }
        };
        let tone = if is_cooling(trouble, at) { "bad" } else { "warn" };
        let calls = format!("?tool={}", encode_query(&trouble.tool));
        let failed = link(frame, "/sessions", &format!("{calls}&outcome=error&hours=1"));
        Self { name: trouble.tool.clone(), tone, state, link: link(frame, "/sessions", &calls), failed }
    }
}
