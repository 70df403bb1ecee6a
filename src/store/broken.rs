//! Deliberate violations of invariants, so that the fault harness (`tests/faults`) proves that it detects them. Only in
//! a build with the feature `break-invariants`, and only the one that `CALLGATE_BREAK` names.

use std::sync::LazyLock;

/// True when this process violates the invariant.
#[must_use]
pub fn is_broken(invariant: &str) -> bool {
    static BROKEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("CALLGATE_BREAK").ok());
    BROKEN.as_deref() == Some(invariant)
}
