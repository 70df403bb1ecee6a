//! Invariants that the server breaks on purpose, so that the harness of faults (`tests/faults`) shows that it would
//! notice. Only in a build with the feature `break-invariants`, and only the one that `CALLGATE_BREAK` names.

use std::sync::LazyLock;

/// Whether this process breaks the invariant.
#[must_use]
pub fn is_broken(invariant: &str) -> bool {
    static BROKEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("CALLGATE_BREAK").ok());
    BROKEN.as_deref() == Some(invariant)
}
