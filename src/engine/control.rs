//! What people and systems do to a session from outside its calls: answer, set a phase, mark a compaction, grant.

use crate::{
    domain::{
        call::{ApprovalStatus, Call},
        control::{Clearance, ClearanceScope, Clears, Command, Control, Controlled, Operation, PLAN_MAX, is_same_name},
        finding::Decision,
        grant::{GRANTS_MAX, Grant},
        ids::SessionId,
        rejection::CommandRejection,
        time::Timestamp,
        tree::CallTree,
    },
    policy::Policy,
    rules::{phase, same_call, tier},
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
        Operation::Answer { approval_id, approve, clears } => {
            answer(policy, tree, command, (approval_id, *approve, *clears), now)?
        }
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
    (id, approve, clears): (&str, bool, Option<Clears>),
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
        clears: clears.filter(|_| approve).map(|clears| clearance(&command.session, call, clears, now)).transpose()?,
    })
}

/// What a yes to this call lets through beside it. That something is done a second time is asked each time.
fn clearance(session: &SessionId, call: &Call, clears: Clears, now: Timestamp) -> Result<Clearance, CommandRejection> {
    let named = call.effect.resource.as_ref().filter(|resource| resource.is_named());
    let asks = call.findings.iter().filter(|finding| finding.decision == Decision::Ask);
    Ok(Clearance {
        session: session.clone(),
        tool: call.tool.clone(),
        resource: match clears.scope {
            ClearanceScope::Tool => None,
            ClearanceScope::Resource => Some(named.cloned().ok_or(CommandRejection::NothingNamed)?),
        },
        until: now.plus_ms(clears.ttl_ms),
        policy: call.policy.clone(),
        rules: asks.map(|finding| finding.rule.to_string()).filter(|rule| rule != same_call::RULE.id).collect(),
    })
}
