//! Approvals with edited arguments: the requested call is refused from then on, and one with the approved arguments is
//! permitted once.

use std::collections::VecDeque;

use super::CallTree;
use crate::domain::{
    call::Proposal,
    control::{Control, ControlEvent, Edit},
    event::JudgmentEvent,
    finding::CallRef,
    fingerprint::ArgsDigest,
    ids::SessionId,
    time::Timestamp,
};

/// Maximum number of them in a tree.
pub const EDITS_MAX: usize = 256;

/// A call approved with edited arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedCall {
    /// The requested call, and the time of the answer.
    pub call: CallRef,
    /// Digest of the requested arguments.
    pub asked: ArgsDigest,
    /// Digest of the approved arguments.
    pub approved: ArgsDigest,
    /// The root's run at the answer, by the `seq` of that run's first event.
    pub root_run: u64,
    /// Expiry.
    pub until: Timestamp,
    /// Version of the policy that required the approval.
    pub policy: String,
    /// The rules that required it.
    pub rules: Vec<String>,
    /// Reason, for the model.
    pub reason: Option<String>,
    /// `seq` of the answer.
    pub seq: u64,
    /// A call with the approved arguments was permitted since.
    pub is_used: bool,
}

/// A stored approval with edited arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredYes {
    /// `seq` of the answer.
    pub seq: u64,
    pub approval_id: String,
    /// Approver.
    pub by: Option<String>,
    pub approved: ArgsDigest,
    pub until: Timestamp,
    pub policy: String,
}

/// A permitted call of the same session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPermit {
    pub seq: u64,
    pub at: Timestamp,
    pub call_id: String,
    pub digest: ArgsDigest,
    pub policy: String,
}

/// Assigns permits to approvals of one session, both in order, like [`CallTree::use_up`]: each permit uses up the
/// oldest approval that covers it. A permit after its expiry, or under another policy, did not need it.
#[must_use]
pub fn let_through<'a>(
    answers: &'a [StoredYes],
    permits: &'a [StoredPermit],
) -> Vec<(&'a StoredYes, &'a StoredPermit)> {
    let mut unused: VecDeque<&StoredYes> = answers.iter().collect();
    let mut found = Vec::new();
    for permit in permits {
        let fits = |yes: &&StoredYes| yes.approved == permit.digest && yes.seq < permit.seq;
        let Some(yes) = unused.iter().position(fits).and_then(|at| unused.remove(at)) else { continue };
        if permit.at < yes.until && permit.policy == yes.policy {
            found.push((yes, permit));
        }
    }
    found
}

impl CallTree {
    /// The edit of the proposed call: of this `call_id` without limit, of the same call under another id until the
    /// root's next run.
    #[must_use]
    pub fn find_edit(&self, proposal: &Proposal, opens_root_run: bool) -> Option<&EditedCall> {
        let request = &proposal.request;
        self.edits.iter().rev().find(|edit| {
            let is_own = edit.call.session == request.session && edit.call.call_id == request.call_id;
            let is_same = edit.asked == proposal.args_digest && edit.root_run == self.root_run() && !opens_root_run;
            is_own || is_same
        })
    }

    /// The unused approval that covers the proposed call as an edit of another one.
    #[must_use]
    pub fn approved_instead(&self, proposal: &Proposal, policy: &str, now: Timestamp) -> Option<&EditedCall> {
        self.edits.iter().find(|edit| {
            !edit.is_used
                && edit.call.session == proposal.request.session
                && edit.approved == proposal.args_digest
                && edit.policy == policy
                && now < edit.until
        })
    }

    /// Records the edit; idempotent.
    pub(super) fn edit(&mut self, event: &ControlEvent, root_run: u64, edit: &Edit) {
        let Control::Answered { call_id, .. } = &event.control else { return };
        if self.edits.iter().any(|known| known.seq == event.seq) {
            return;
        }
        self.edits.push_back(EditedCall {
            call: CallRef { session: event.session.clone(), call_id: call_id.clone(), at: event.at },
            asked: edit.asked,
            approved: edit.edited.digest,
            root_run,
            until: edit.until,
            policy: edit.policy.clone(),
            rules: edit.rules.clone(),
            reason: event.reason.clone(),
            seq: event.seq,
            is_used: edit.is_used,
        });
        if self.edits.len() > EDITS_MAX {
            self.edits.pop_front();
        }
    }

    /// A permit uses up the oldest approval that covers it, even if it did not need one.
    pub(super) fn use_up(&mut self, event: &JudgmentEvent) {
        if event.permit.is_some()
            && let Some(edit) = find_unused(&mut self.edits, &event.session, event.args_digest, event.seq)
        {
            edit.is_used = true;
        }
    }
}

fn find_unused<'a>(
    edits: &'a mut VecDeque<EditedCall>,
    session: &SessionId,
    digest: ArgsDigest,
    seq: u64,
) -> Option<&'a mut EditedCall> {
    let fits = |edit: &&mut EditedCall| edit.call.session == *session && edit.approved == digest && edit.seq < seq;
    edits.iter_mut().filter(fits).find(|edit| !edit.is_used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(seq: u64, digest: u8) -> StoredYes {
        let until = Timestamp::from_millis(1_000);
        let (approval_id, policy) = (format!("a{seq}"), "p".to_owned());
        StoredYes { seq, approval_id, by: None, approved: ArgsDigest([digest; 32]), until, policy }
    }

    fn permit(seq: u64, digest: u8) -> StoredPermit {
        let (at, digest) = (Timestamp::from_millis(999), ArgsDigest([digest; 32]));
        StoredPermit { seq, at, call_id: format!("c{seq}"), digest, policy: "p".to_owned() }
    }

    fn match_edits(answers: &[StoredYes], permits: &[StoredPermit]) -> Vec<(u64, u64)> {
        let_through(answers, permits).into_iter().map(|(yes, permit)| (yes.seq, permit.seq)).collect()
    }

    #[test]
    fn approvals_are_used_by_the_first_call_with_their_arguments_oldest_first() {
        let permits = [permit(1, 7), permit(3, 8), permit(4, 7), permit(6, 7), permit(7, 7)];
        assert_eq!(match_edits(&[approval(2, 7), approval(5, 7)], &permits), [(2, 4), (5, 6)]);
        assert_eq!(match_edits(&[approval(2, 7), approval(3, 7)], &permits[2..]), [(2, 4), (3, 6)]);
        assert_eq!(match_edits(&[approval(2, 9)], &permits), []);
    }

    #[test]
    fn approval_is_used_up_by_a_late_call_or_one_under_another_policy() {
        let late = StoredPermit { at: Timestamp::from_millis(1_000), ..permit(3, 7) };
        assert_eq!(match_edits(&[approval(2, 7)], &[late, permit(4, 7)]), []);
        let other = StoredPermit { policy: "q".to_owned(), ..permit(3, 7) };
        assert_eq!(match_edits(&[approval(2, 7)], &[other, permit(4, 7)]), []);
    }
}
