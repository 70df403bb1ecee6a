//! Detection of changes since an earlier call (docs/semantics.md#world-changed).

use super::Previous;
use crate::domain::{
    call::Call,
    effect::{Effect, EffectKind},
    failure::FailureKind,
    fingerprint::Fingerprint,
    ids::ToolName,
    outcome::{Outcome, OutcomeStatus},
    tree::CallTree,
};

impl CallTree {
    /// True when the world has changed since `previous` (docs/semantics.md#world-changed). Events that are no longer
    /// remembered count as changes: a wrong refusal costs more than a needless call.
    #[must_use]
    pub fn world_changed_since(&self, previous: &Previous, fingerprint: Fingerprint, effect: &Effect) -> bool {
        if previous.foreign {
            return false;
        }
        if self.forgotten_change > previous.seq {
            return true;
        }
        // The effect of a shell line depends on more than the resource it writes: `git diff > patch`.
        if effect.in_steps && effect.kind == EffectKind::Write {
            let acts = |call: &Call| !call.looks() && call.may_have_happened_after(previous.seq);
            return self.acted_since(previous, fingerprint)
                || self.calls().any(|call| call.fingerprint != fingerprint && acts(call));
        }
        if self.conflicts_since(previous, fingerprint) {
            return true;
        }
        self.calls().filter(|call| call.fingerprint != fingerprint).any(|call| {
            let since = call.success().filter(|outcome| outcome.seq > previous.seq);
            let writes = effect.kind != EffectKind::Unknown
                && call.effect.kind == EffectKind::Write
                && (since.is_some() || call.may_have_happened_after(previous.seq))
                && call.effect.overlaps(effect);
            writes
                || match (effect.kind, call.effect.kind) {
                    (_, EffectKind::Read | EffectKind::Check) => false,
                    (_, EffectKind::Unknown) if call.may_have_acted_after(previous.seq) => true,
                    (EffectKind::Unknown, _) => since.is_some_and(|outcome| outcome.news || outcome.says_little()),
                    // New, empty, or the same result: a second `git checkout` prints the same as the first.
                    (_, EffectKind::Unknown) => since.is_some(),
                    (_, EffectKind::Write | EffectKind::Poll) => false,
                }
        })
    }

    /// True when another call has failed since with a conflict, which reveals a change from outside.
    #[must_use]
    pub fn conflicts_since(&self, previous: &Previous, fingerprint: Fingerprint) -> bool {
        let reports_change = |outcome: &Outcome| outcome.failure == Some(FailureKind::Conflict);
        self.calls().filter(|call| call.fingerprint != fingerprint).any(|call| {
            let outcome = call.outcome.as_ref();
            outcome.is_some_and(|outcome| outcome.seq > previous.seq && reports_change(outcome))
        })
    }

    /// True when this tree executed anything but declared reads and checks since `previous`. An equal result does not
    /// make a call redundant: in `open A; open B; open A` skipping the last leaves the editor on B.
    #[must_use]
    pub fn acted_since(&self, previous: &Previous, fingerprint: Fingerprint) -> bool {
        let after = |call: &Call| {
            call.success().is_some_and(|outcome| outcome.seq > previous.seq) || call.may_have_acted_after(previous.seq)
        };
        !previous.foreign
            && (self.forgotten_change > previous.seq
                || self.calls().any(|call| call.fingerprint != fingerprint && !call.looks() && after(call)))
    }

    /// True when a write of another tool was permitted since `previous` on a declared, overlapping resource.
    #[must_use]
    pub fn written_by_another_since(&self, previous: &Previous, tool: &ToolName, effect: &Effect) -> bool {
        let writes = |call: &Call| {
            call.tool != *tool
                && call.effect.kind == EffectKind::Write
                && call.effect.resource.is_some()
                && call.effect.overlaps(effect)
                && call.may_have_happened_after(previous.seq)
        };
        !previous.foreign && self.calls().any(writes)
    }
}

impl Call {
    /// True for effects without changes.
    const fn looks(&self) -> bool {
        matches!(self.effect.kind, EffectKind::Read | EffectKind::Check)
    }

    /// True when it did not succeed after that event and may have had an effect: it timed out, or was partially
    /// executed.
    fn may_have_acted_after(&self, seq: u64) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| {
            let acted = match outcome.status {
                OutcomeStatus::Unknown => true,
                OutcomeStatus::Error => self.effect.in_steps,
                _ => false,
            };
            acted && outcome.seq > seq
        })
    }

    /// True when it was permitted after that event and did not fail cleanly.
    fn may_have_happened_after(&self, seq: u64) -> bool {
        let status = self.outcome.as_ref().map(|outcome| outcome.status);
        let failed_cleanly = match status {
            Some(OutcomeStatus::Error) => !self.effect.in_steps,
            status => status == Some(OutcomeStatus::Cancelled),
        };
        !failed_cleanly && self.permit.as_ref().is_some_and(|permit| permit.seq > seq)
    }
}
