//! Approval requests in memory: each appended event updates the request that it names.

use std::collections::BTreeMap;

use callgate_core::{
    domain::{
        approval_notes::ApprovalNote,
        call::{Approval, ApprovalStatus},
        control::{Control, ControlEvent},
        event::{Event, JudgmentEvent},
        ids::SessionId,
        inbox::{ApprovalQuery, Question, QuestionState, Resolution},
        time::Timestamp,
        tree::{StoredPermit, StoredYes},
    },
    offline::event_store::EventStore,
};

/// Approval requests of one tenant by id, with their claims and comments.
#[derive(Debug, Default)]
pub(super) struct ApprovalRequests {
    requests: BTreeMap<String, Question>,
    /// Oldest first.
    pub(super) notes: Vec<ApprovalNote>,
}

impl ApprovalRequests {
    /// Takes over an event of a tree.
    pub(super) fn apply(&mut self, root: &SessionId, event: &Event) {
        match event {
            // Later rounds of the call repeat its request.
            Event::Judged(judged) => {
                if let Some(approval) = &judged.approval {
                    self.requests.entry(approval.id.clone()).or_insert_with(|| ask(root, judged, approval));
                }
            }
            Event::Controlled(controlled) => self.control(controlled),
            Event::Settled(_) => {}
        }
    }

    fn control(&mut self, event: &ControlEvent) {
        let (Control::Answered { approval_id, .. }
        | Control::Seconded { approval_id, .. }
        | Control::Withdrawn { approval_id, .. }) = &event.control
        else {
            return;
        };
        let Some(question) = self.requests.get_mut(approval_id).filter(|known| known.resolution.is_none()) else {
            return;
        };
        let by = event.by.as_ref().map(|by| by.name.clone());
        let state = match &event.control {
            Control::Seconded { edited, .. } => {
                question.seconded_by.extend(by);
                question.edited = question.edited.take().or_else(|| edited.clone());
                return;
            }
            Control::Answered { edit: Some(_), .. } => QuestionState::Edited,
            Control::Answered { answer: ApprovalStatus::Approved, .. } => QuestionState::Approved,
            Control::Answered { .. } => QuestionState::Denied,
            _ => QuestionState::Withdrawn,
        };
        question.edited = event.edit().map(|edit| edit.edited.clone());
        question.resolution = Some(Resolution {
            state,
            by: by.unwrap_or_default(),
            reason: event.reason.clone(),
            at: event.at,
            clears: event.clears(),
            edited_until: event.edit().map(|edit| edit.until),
        });
    }

    /// The requests of a query, the newest first.
    pub(super) fn find(&self, wanted: &ApprovalQuery, now: Timestamp) -> Vec<Question> {
        let is_wanted = |question: &&Question| {
            wanted.approval_id.as_ref().is_none_or(|id| *id == question.approval_id)
                && wanted.session.as_ref().is_none_or(|session| session.as_str() == question.session)
                && wanted.tool.as_ref().is_none_or(|tool| *tool == question.tool)
                && wanted.agent.as_ref().is_none_or(|agent| question.agent.as_ref() == Some(agent))
                && wanted.state.is_none_or(|state| question.state(now) == state)
                && wanted.after.as_ref().is_none_or(|(at, id)| {
                    question.asked_at < *at || question.asked_at == *at && question.approval_id > *id
                })
        };
        let mut found: Vec<&Question> = self.requests.values().filter(is_wanted).collect();
        // By id they are in order.
        found.sort_by_key(|question| std::cmp::Reverse(question.asked_at));
        found.into_iter().take(wanted.max).cloned().collect()
    }
}

fn ask(root: &SessionId, judged: &JudgmentEvent, approval: &Approval) -> Question {
    Question {
        approval_id: approval.id.clone(),
        session: judged.session.to_string(),
        root: root.to_string(),
        seq: judged.seq,
        agent: judged.agent.as_ref().map(ToString::to_string),
        asked_by: approval.asked_by.as_deref().map(str::to_owned),
        host: judged.host.as_ref().map(ToString::to_string),
        call_id: judged.call_id.to_string(),
        tool: judged.tool.to_string(),
        arguments: judged.arguments.as_deref().unwrap_or("{}").to_owned(),
        args_digest: judged.args_digest,
        effect: judged.effect.clone(),
        justification: judged.justification.clone(),
        findings: judged.findings.to_vec(),
        asked_at: judged.at,
        expires_at: approval.expires_at,
        policy: judged.policy.to_string(),
        seconded_by: Vec::new(),
        edited: None,
        resolution: None,
    }
}

/// The edits of a session, and the permits of their arguments since; both in order.
pub(super) fn chosen_since(events: &EventStore, session: &SessionId) -> (Vec<StoredYes>, Vec<StoredPermit>) {
    let (mut answers, mut permits): (Vec<StoredYes>, Vec<StoredPermit>) = Default::default();
    for event in events.root(session).map_or(&[][..], |root| events.events(root)) {
        match event {
            Event::Controlled(event) if event.session == *session => {
                let Control::Answered { approval_id, edit: Some(edit), .. } = &event.control else { continue };
                answers.push(StoredYes {
                    seq: event.seq,
                    approval_id: approval_id.clone(),
                    by: event.by.as_ref().map(|by| by.name.clone()),
                    approved: edit.edited.digest,
                    until: edit.until,
                    policy: edit.policy.clone(),
                });
            }
            Event::Judged(judged)
                if judged.session == *session
                    && judged.permit.is_some()
                    && answers.iter().any(|yes| yes.approved == judged.args_digest) =>
            {
                permits.push(StoredPermit {
                    seq: judged.seq,
                    at: judged.at,
                    call_id: judged.call_id.to_string(),
                    digest: judged.args_digest,
                    policy: judged.policy.to_string(),
                });
            }
            _ => {}
        }
    }
    (answers, permits)
}
