//! Claims and comments on approval requests, as entries of the audit log. A claim tells others who works on a request,
//! and binds nobody.

use super::{audit::AuditOperation, control::is_same_name, time::Timestamp};

/// Duration of a claim, in milliseconds: 15 minutes.
pub const CLAIM_MS: u64 = 900_000;
/// Maximum number of comments on a request.
pub const COMMENTS_MAX: usize = 50;

/// A claim, its release, or a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalNote {
    pub kind: AuditOperation,
    /// The request.
    pub approval_id: String,
    /// Actor; empty where it was erased.
    pub by: String,
    pub at: Timestamp,
    /// Comment; none where it was erased.
    pub text: Option<String>,
}

/// A claim in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalClaim {
    pub by: String,
    /// Expiry.
    pub until: Timestamp,
}

/// The claim in force at `now`, by a request's notes, the oldest first. Of two claims at once, the first one holds.
#[must_use]
pub fn find_claim(notes: &[ApprovalNote], now: Timestamp) -> Option<ApprovalClaim> {
    let mut claim: Option<ApprovalClaim> = None;
    for note in notes {
        let is_others = |claim: &ApprovalClaim| note.at < claim.until && !is_same_name(&claim.by, &note.by);
        match note.kind {
            _ if claim.as_ref().is_some_and(is_others) => {}
            AuditOperation::ApprovalClaimed => {
                claim = Some(ApprovalClaim { by: note.by.clone(), until: note.at.plus_ms(CLAIM_MS) });
            }
            AuditOperation::ApprovalReleased => claim = None,
            _ => {}
        }
    }
    claim.filter(|claim| now < claim.until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_the_first_claimers_until_it_is_released_or_expires() {
        let note = |kind, by: &str, at| ApprovalNote {
            kind,
            approval_id: "a".to_owned(),
            by: by.to_owned(),
            at: Timestamp::from_millis(at),
            text: None,
        };
        let (claimed, released) = (AuditOperation::ApprovalClaimed, AuditOperation::ApprovalReleased);
        let of = |notes: &[ApprovalNote], now| find_claim(notes, Timestamp::from_millis(now)).map(|claim| claim.by);
        let ms = i64::try_from(CLAIM_MS).unwrap();
        let eve = Some("eve".to_owned());
        let both = [note(claimed, "eve", 0), note(claimed, "bob", 1), note(released, "bob", 2)];
        assert_eq!((of(&both, 3), of(&both, ms)), (eve.clone(), None));
        let renewed = [note(claimed, "eve", 0), note(claimed, "Eve", ms - 1)];
        assert_eq!(of(&renewed, ms), Some("Eve".to_owned()));
        assert_eq!(
            of(&[note(claimed, "eve", 0), note(released, "eve", 1), note(claimed, "bob", 2)], 3),
            Some("bob".into())
        );
        assert_eq!(of(&[note(claimed, "eve", 0), note(claimed, "bob", ms)], ms), Some("bob".into()));
        assert_eq!(of(&[note(AuditOperation::ApprovalCommented, "eve", 0)], 1), None);
    }
}
