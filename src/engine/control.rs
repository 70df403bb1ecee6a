//! What people and systems do to a session from outside its calls: answer, set a phase, mark a compaction, grant.

use super::Misuse;
use crate::{
    domain::{
        call::{Answer, Call},
        control::{Control, Controlled, PLAN_MAX},
        event::{Change, Event},
        grant::{GRANTS_MAX, Grant},
        ids::{SessionId, ToolName},
        pattern::Pattern,
        time::Timestamp,
        tree::CallTree,
    },
    policy::Policy,
};

/// Something to be done to a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Whose session.
    pub session: SessionId,
    /// Who wants it.
    pub by: String,
    /// Why, in words.
    pub reason: Option<String>,
    /// What.
    pub wish: Wish,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Answer the question that a call waits for.
    Answer {
        /// The question.
        approval_id: String,
        /// Yes or no.
        approve: bool,
    },
    /// Enter a phase, perhaps with the order of the writes to come.
    SetPhase {
        /// The phase.
        phase: String,
        /// The plan; none leaves the one there was.
        plan: Option<Vec<ToolName>>,
    },
    /// The model's context was compacted.
    MarkCompacted,
    /// Give calls.
    Grant {
        /// Names the grant.
        id: String,
        /// For which tools.
        tools: Pattern,
        /// How many.
        ceiling: u64,
        /// For how long, in milliseconds.
        ttl_ms: u64,
    },
    /// Take a grant back.
    Revoke {
        /// The grant.
        id: String,
    },
}

/// Does something to a session; one that has not called anything yet is there from then on, as a root.
///
/// # Errors
/// [`Misuse`]: nothing was done.
pub fn control(policy: &Policy, tree: &CallTree, order: &Order, now: Timestamp) -> Result<Change, Misuse> {
    let now = now.max(tree.last_at);
    let phase = tree.sessions.get(&order.session).and_then(|session| session.phase.as_deref());
    let control = match &order.wish {
        Wish::Answer { approval_id, approve } => answer(policy, tree, order, approval_id, *approve, now)?,
        Wish::SetPhase { phase: wanted, plan } => {
            if let Some(objection) = policy.rules.phase.forbids(phase, wanted) {
                return Err(Misuse::PhaseForbidden(objection));
            }
            if plan.as_ref().is_some_and(|plan| plan.len() > PLAN_MAX) {
                return Err(Misuse::PhaseForbidden(format!("A plan has at most {PLAN_MAX} writes.")));
            }
            Control::PhaseSet { phase: wanted.clone(), plan: plan.clone() }
        }
        Wish::MarkCompacted => Control::Compacted,
        Wish::Grant { id, tools, ceiling, ttl_ms } => {
            if tree.grants.iter().filter(|grant| now < grant.expires_at).count() >= GRANTS_MAX {
                return Err(Misuse::TooManyGrants);
            }
            let (session, expires_at) = (order.session.clone(), now.plus_ms(*ttl_ms));
            Control::Granted(Grant { id: id.clone(), session, tools: tools.clone(), ceiling: *ceiling, expires_at })
        }
        Wish::Revoke { id } => {
            if !tree.grants.iter().any(|grant| grant.id == *id) {
                return Err(Misuse::UnknownGrant);
            }
            Control::Revoked { id: id.clone() }
        }
    };
    let event = Controlled {
        seq: tree.version + 1,
        at: now,
        session: order.session.clone(),
        by: Some(order.by.clone()),
        reason: order.reason.clone(),
        control,
    };
    Ok(Change { events: vec![Event::Controlled(Box::new(event))], ledger: Vec::new(), counters: Vec::new() })
}

fn answer(
    policy: &Policy,
    tree: &CallTree,
    order: &Order,
    id: &str,
    approve: bool,
    now: Timestamp,
) -> Result<Control, Misuse> {
    let session = tree.sessions.get(&order.session).ok_or(Misuse::UnknownApproval)?;
    let asks = |call: &&Call| call.approval.as_ref().is_some_and(|approval| approval.id == id);
    let call = session.calls.iter().rev().find(asks).ok_or(Misuse::UnknownApproval)?;
    let approval = call.approval.as_ref().ok_or(Misuse::UnknownApproval)?;
    if approval.answer != Answer::Pending || call.permit.is_some() {
        return Err(Misuse::AlreadyAnswered { approved: approval.answer == Answer::Approved });
    }
    if now >= approval.expires_at {
        return Err(Misuse::ApprovalExpired);
    }
    // Whoever wants the call, or works for the same end, is not the one to allow it.
    let asked = tree.calls().filter_map(|call| call.agent.as_ref()).any(|agent| agent.as_str() == order.by);
    if asked || tree.sessions.keys().any(|session| session.as_str() == order.by) {
        return Err(Misuse::SelfApproval);
    }
    let tier = policy.rules.tier.tier(call.tool.as_str());
    let says_why = order.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
    if !approve && !says_why && tier.is_some_and(|tier| tier.require_reason) {
        return Err(Misuse::ReasonMissing);
    }
    let answer = if approve { Answer::Approved } else { Answer::Denied };
    Ok(Control::Answered { approval_id: id.to_owned(), call_id: call.call_id.clone(), answer })
}
