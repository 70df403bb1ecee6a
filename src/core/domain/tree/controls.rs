//! Fold of control events, and of kept answers.

use std::{collections::VecDeque, sync::Arc};

use super::{
    CLEARANCES_MAX, CallTree, DENIALS_MAX, Denial, KEPT_BYTES_MAX, KEPT_MAX, RetainedSuccess, Session, WritePlan,
};
use crate::domain::{
    call::ApprovalStatus,
    control::{Control, ControlEvent, is_same_name},
    event::SettledEvent,
    grant::GRANTS_MAX,
    ids::ToolName,
    json,
};

impl CallTree {
    pub(super) fn apply_control(&mut self, event: &ControlEvent) {
        let session = self.sessions.or_insert_with(&event.session, Box::default);
        match &event.control {
            Control::Answered { approval_id: _, call_id: _, answer, fingerprint, root_run, clears, edit } => {
                push_bounded(&mut self.clearances, clears.clone(), CLEARANCES_MAX);
                self.close_request(event);
                if *answer == ApprovalStatus::Denied {
                    let (fingerprint, root_run, reason) = (*fingerprint, *root_run, event.reason.clone());
                    push_bounded(&mut self.denials, Some(Denial { fingerprint, root_run, reason }), DENIALS_MAX);
                }
                if let Some(edit) = edit {
                    self.edit(event, *root_run, edit);
                }
            }
            Control::Withdrawn { .. } | Control::Seconded { .. } => self.close_request(event),
            Control::PhaseSet { phase, plan } => {
                session.phase = Some(phase.clone());
                if let Some(order) = plan {
                    session.plan = Some(WritePlan { order: order.clone(), done: 0, seq: event.seq });
                }
            }
            Control::Compacted => session.compacted = event.seq,
            // The outcome is an event of its own, before this one.
            Control::OutcomeSettled { call_id, .. } => {
                let call =
                    session.calls.iter_mut().rev().find(|call| call.call_id == *call_id && call.permit.is_some());
                if let Some(outcome) = call.and_then(|call| call.outcome.as_mut()) {
                    outcome.is_by_operator = true;
                }
            }
            Control::Granted(grant) => {
                self.grants.retain(|known| known.id != grant.id);
                self.grants.push(grant.clone());
                if self.grants.len() > GRANTS_MAX {
                    self.grants.remove(0);
                }
            }
            Control::Revoked { id } => self.grants.retain(|grant| grant.id != *id),
            Control::BudgetRaised(raise) => {
                self.raised.retain(|known| !known.is_of_same(raise));
                self.raised.extend((raise.extra > 0).then_some(*raise));
            }
        }
    }

    /// An approval request was answered, withdrawn or partially approved; several call_ids may share it. Idempotent.
    pub(super) fn close_request(&mut self, event: &ControlEvent) {
        let (id, answer, edited) = match &event.control {
            Control::Answered { approval_id, answer, .. } => (approval_id, Some(*answer), None),
            Control::Withdrawn { approval_id, .. } => (approval_id, Some(ApprovalStatus::Withdrawn), None),
            Control::Seconded { approval_id, edited, .. } => (approval_id, None, edited.as_ref()),
            _ => return,
        };
        let calls = self.sessions.values_mut().flat_map(|session| &mut session.calls);
        let approvals = calls.filter_map(|call| call.approval.as_mut());
        for approval in approvals.filter(|approval| approval.id == *id) {
            match answer {
                Some(answer) => {
                    approval.answer = answer;
                    approval.reason.clone_from(&event.reason);
                }
                None => {
                    let by = event.by.as_ref().map(|by| &by.name);
                    let is_new = |by: &&String| !approval.seconded_by.iter().any(|(known, _)| is_same_name(known, by));
                    let by = by.filter(is_new).map(|by| (by.clone(), edited.map(|edited| edited.digest)));
                    approval.seconded_by.extend(by);
                }
            }
        }
    }

    /// Keeps a success for dependent calls.
    pub(super) fn keep(&mut self, event: &SettledEvent, tool: ToolName, arguments: Option<&str>) {
        self.kept.push_back(RetainedSuccess {
            seq: event.seq,
            session: event.session.clone(),
            tool,
            arguments: arguments.and_then(kept_json),
            result: event.result.as_deref().and_then(kept_json),
        });
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }
}

/// Appends, and evicts the oldest beyond `max`.
fn push_bounded<T>(all: &mut VecDeque<T>, one: Option<T>, max: usize) {
    all.extend(one);
    if all.len() > max {
        all.pop_front();
    }
}

/// Parses a text to keep.
pub(super) fn kept_json(text: &str) -> Option<Arc<json::Json>> {
    (text.len() <= KEPT_BYTES_MAX).then(|| json::parse(text).ok().map(Arc::new)).flatten()
}

impl Session {
    /// Advances the plan after a successful write.
    pub(super) fn advance_plan(&mut self, tool: &ToolName, seq: u64) {
        if let Some(plan) = self.plan.as_mut().filter(|plan| seq > plan.seq)
            && plan.order.get(plan.done) == Some(tool)
        {
            plan.done += 1;
        }
    }
}
