//! What people and systems do to a session from outside its calls: answer, set a phase, mark a compaction, grant.

use crate::{
    domain::{
        call::{ApprovalStatus, Call},
        control::{Command, Control, Controlled, Operation, PLAN_MAX, is_same_name},
        grant::{GRANTS_MAX, Grant},
        rejection::CommandRejection,
        time::Timestamp,
        tree::CallTree,
    },
    policy::Policy,
    rules::{phase, tier},
};

/// Does something to a session. Which operations may begin one is the gate's to know.
///
/// # Errors
/// [`CommandRejection`]: nothing was done.
pub fn control(
    policy: &Policy,
    tree: &CallTree,
    command: &Command,
    now: Timestamp,
) -> Result<Controlled, CommandRejection> {
    let now = now.max(tree.last_at);
    let phase = tree.sessions.get(&command.session).and_then(|session| session.phase.as_deref());
    let control = match &command.operation {
        Operation::Answer { approval_id, approve } => answer(policy, tree, command, approval_id, *approve, now)?,
        Operation::SetPhase { phase: wanted, plan } => {
            if let Some(objection) = policy.rules.get::<phase::Params>().forbids(phase, wanted) {
                return Err(CommandRejection::PhaseForbidden(objection));
            }
            if plan.as_ref().is_some_and(|plan| plan.len() > PLAN_MAX) {
                return Err(CommandRejection::PhaseForbidden(format!("A plan has at most {PLAN_MAX} writes.")));
            }
            Control::PhaseSet { phase: wanted.clone(), plan: plan.clone() }
        }
        Operation::MarkCompacted => Control::Compacted,
        Operation::Grant { id, tools, ceiling, ttl_ms } => {
            if tree.grants.iter().filter(|grant| now < grant.expires_at).count() >= GRANTS_MAX {
                return Err(CommandRejection::TooManyGrants);
            }
            let (session, expires_at) = (command.session.clone(), now.plus_ms(*ttl_ms));
            let (id, by, tools) = (id.clone(), command.by.clone(), tools.clone());
            Control::Granted(Grant { id, by, session, tools, ceiling: *ceiling, expires_at })
        }
        Operation::Revoke { id } => {
            if !tree.grants.iter().any(|grant| grant.id == *id) {
                return Err(CommandRejection::UnknownGrant);
            }
            Control::Revoked { id: id.clone() }
        }
    };
    Ok(Controlled {
        seq: tree.version + 1,
        at: now,
        session: command.session.clone(),
        by: Some(command.by.clone()),
        reason: command.reason.clone(),
        control,
    })
}

fn answer(
    policy: &Policy,
    tree: &CallTree,
    command: &Command,
    id: &str,
    approve: bool,
    now: Timestamp,
) -> Result<Control, CommandRejection> {
    let session = tree.sessions.get(&command.session).ok_or(CommandRejection::UnknownApproval)?;
    let asks = |call: &&Call| call.approval.as_ref().is_some_and(|approval| approval.id == id);
    let call = session.calls.iter().rev().find(asks).ok_or(CommandRejection::UnknownApproval)?;
    let approval = call.approval.as_ref().ok_or(CommandRejection::UnknownApproval)?;
    if approval.answer != ApprovalStatus::Pending || call.permit.is_some() {
        return Err(CommandRejection::AlreadyAnswered {
            approved: approval.answer == ApprovalStatus::Approved,
            by: None,
        });
    }
    if now >= approval.expires_at {
        return Err(CommandRejection::ApprovalExpired);
    }
    // Whoever wants the call, or works for the same end, is not the one to allow it.
    let is_by = |name: &str| is_same_name(name, &command.by);
    let asked = tree.calls().filter_map(|call| call.agent.as_ref()).any(|agent| is_by(agent.as_str()));
    if asked || tree.sessions.keys().any(|session| is_by(session.as_str())) {
        return Err(CommandRejection::SelfApproval);
    }
    let tier = policy.rules.get::<tier::Params>().tier(call.tool.as_str());
    let says_why = command.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
    if !approve && !says_why && tier.is_some_and(|tier| tier.require_reason) {
        return Err(CommandRejection::ReasonMissing);
    }
    let answer = if approve { ApprovalStatus::Approved } else { ApprovalStatus::Denied };
    Ok(Control::Answered {
        approval_id: id.to_owned(),
        call_id: call.call_id.clone(),
        answer,
        fingerprint: call.fingerprint,
        root_run: tree.root_run(),
    })
}
