//! Commands on sessions: answers to approval requests, phases, compactions, grants.

use super::bulk::{self, BulkSubject};
use crate::{
    domain::{
        budget::{BudgetScope, Dimension, RAISED_MAX, Raise},
        call::{Approval, ApprovalStatus, Call},
        control::{
            Clearance, ClearanceScope, ClearanceTerms, Command, Control, ControlEvent, Edit, EditedArguments,
            Operation, PLAN_MAX, is_same_name, is_same_side,
        },
        finding,
        grant::{GRANTS_MAX, Grant},
        ids::{AgentId, CallId, SessionId},
        rejection::{BudgetNotRaised, BulkRejection, CommandRejection, EditRejection},
        time::Timestamp,
        tree::CallTree,
    },
    policy::Policy,
    rules::{budget, phase, same_call, tier},
};

/// Executes a command on a session. The gate decides which operations may create one.
///
/// # Errors
/// [`CommandRejection`]: nothing was done.
pub fn control(
    policy: &Policy,
    tree: &CallTree,
    command: &Command,
    now: Timestamp,
) -> Result<ControlEvent, CommandRejection> {
    let now = now.max(tree.last_at);
    let phase = tree.sessions.get(&command.session).and_then(|session| session.phase.as_deref());
    let control = match &command.operation {
        Operation::Answer { approval_id, approve, clears, edited } => {
            let said = ApproverDecision { approve: *approve, clears: *clears, edited: edited.as_ref() };
            answer(policy, tree, command, (approval_id, said), now)?
        }
        Operation::ApproveInBulk { approval_id, seen, may_have_amount } => {
            let call = waiting(tree, command, approval_id, now)?;
            let subject =
                BulkSubject { effect: &call.effect, findings: &call.findings, may_have_amount: *may_have_amount };
            let changed = (call.args_digest != *seen).then_some(BulkRejection::ArgumentsChanged);
            if let Some(rejection) = changed.or_else(|| bulk::objection(policy, &call.tool, &subject)) {
                return Err(CommandRejection::Bulk(rejection));
            }
            let said = ApproverDecision { approve: true, clears: None, edited: None };
            answer(policy, tree, command, (approval_id, said), now)?
        }
        Operation::HostApprove { call_id } => host_approve(policy, tree, command, call_id, now)?,
        Operation::Withdraw { approval_id } => withdraw(tree, command, approval_id, now)?,
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
            let (id, by, tools) = (id.clone(), command.by.name.clone(), tools.clone());
            Control::Granted(Grant { id, by, session, tools, ceiling: *ceiling, expires_at })
        }
        Operation::Revoke { id } => {
            if !tree.grants.iter().any(|grant| grant.id == *id) {
                return Err(CommandRejection::UnknownGrant);
            }
            Control::Revoked { id: id.clone() }
        }
        Operation::RaiseBudget { scope, dimension, extra } => {
            let raised = raise(policy, tree, command, (*scope, *dimension, *extra));
            Control::BudgetRaised(raised.map_err(CommandRejection::NotRaised)?)
        }
    };
    Ok(ControlEvent {
        seq: tree.version + 1,
        at: now,
        session: command.session.clone(),
        by: Some(command.by.clone()),
        reason: command.reason.as_deref().map(|reason| policy.without_secrets(reason)),
        control,
    })
}

fn raise(
    policy: &Policy,
    tree: &CallTree,
    command: &Command,
    (scope, dimension, extra): (BudgetScope, Dimension, u64),
) -> Result<Raise, BudgetNotRaised> {
    if policy.rules.get::<budget::Params>().of(scope).of(dimension).is_none() {
        return Err(BudgetNotRaised::NoSuchLimit { scope, dimension });
    }
    let run = match scope {
        BudgetScope::Run => {
            let session = tree.sessions.get(&command.session);
            Some(session.and_then(|session| session.current_run()).ok_or(BudgetNotRaised::NoRun)?.from)
        }
        BudgetScope::CallTree | BudgetScope::Agent | BudgetScope::Tenant => None,
    };
    let raise = Raise { run, dimension, extra };
    let is_further = extra > 0 && !tree.raised.iter().any(|known| known.is_of_same(&raise));
    if is_further && tree.raised.len() >= RAISED_MAX {
        return Err(BudgetNotRaised::TooMany);
    }
    Ok(raise)
}

/// A person's answer.
#[derive(Clone, Copy)]
struct ApproverDecision<'a> {
    approve: bool,
    clears: Option<ClearanceTerms>,
    edited: Option<&'a EditedArguments>,
}

fn answer(
    policy: &Policy,
    tree: &CallTree,
    command: &Command,
    (id, ApproverDecision { approve, clears, edited }): (&str, ApproverDecision<'_>),
    now: Timestamp,
) -> Result<Control, CommandRejection> {
    let call = waiting(tree, command, id, now)?;
    // The requester and its side cannot approve.
    if is_asker(tree, &command.by.name) {
        return Err(CommandRejection::SelfApproval);
    }
    let route = policy.route(&call.tool);
    let approval = call.approval.as_deref().ok_or(CommandRejection::UnknownApproval)?;
    let asked_at = policy.asked_at(approval.expires_at);
    if !route.admits(&command.by, asked_at, now) {
        let groups = route.groups(asked_at, now).into_iter().map(str::to_owned).collect();
        let later = route.escalation.as_ref().map(|then| (then.group.clone(), asked_at.plus_ms(then.after_ms)));
        return Err(CommandRejection::NotInGroup { groups, later: later.filter(|(_, at)| now < *at) });
    }
    if approve && clears.is_some() && route.people > 1 {
        return Err(CommandRejection::ScopeForTwo);
    }
    let tier = policy.rules.get::<tier::Params>().tier(call.tool.as_str());
    let says_why = command.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
    if !approve && !says_why && tier.is_some_and(|tier| tier.require_reason) {
        return Err(CommandRejection::ReasonMissing);
    }
    // The same arguments are a plain yes.
    let edited = edited.filter(|edited| approve && edited.digest != call.args_digest);
    // A prompt of the host's does not hear of it, and its user might let the call run that was asked about.
    if edited.is_some() && policy.host_may_approve(&call.tool) {
        return Err(CommandRejection::Edit(EditRejection::AtHost));
    }
    if approve && seconds(approval, &command.by.name, edited)? + 1 < route.people as usize {
        // Also of answers that several replicas take at once there is one.
        if approval.seconded_by.iter().any(|(known, _)| is_same_name(known, &command.by.name)) {
            return Err(CommandRejection::SaidBefore);
        }
        let (approval_id, call_id) = (id.to_owned(), call.call_id.clone());
        return Ok(Control::Seconded { approval_id, call_id, edited: edited.cloned() });
    }
    let status = match (approve, edited) {
        (true, None) => ApprovalStatus::Approved,
        (true, Some(_)) => ApprovalStatus::Edited,
        (false, _) => ApprovalStatus::Denied,
    };
    let clears = clears.filter(|_| approve).map(|clears| clearance(&command.session, call, clears, now)).transpose()?;
    let edit = edited.map(|edited| Edit {
        asked: call.args_digest,
        edited: edited.clone(),
        until: now.plus_ms(policy.approval_ttl_ms),
        policy: approval.policy.to_string(),
        rules: asking(call),
        is_used: false,
    });
    Ok(answer_request(tree, call, (id, status), clears, edit))
}

/// Number of other approvers of the same arguments: each of two approvers must have seen them.
fn seconds(approval: &Approval, by: &str, edited: Option<&EditedArguments>) -> Result<usize, CommandRejection> {
    let digest = edited.map(|edited| edited.digest);
    let (same, differ): (Vec<_>, Vec<_>) = approval.seconded_by.iter().partition(|(_, said)| *said == digest);
    let is_own = |known: &str| is_same_name(known, by);
    let others = same.iter().filter(|(known, _)| !is_own(known)).count();
    let contradicts = differ.iter().find(|(known, _)| is_own(known)).or(differ.first().filter(|_| others == 0));
    match contradicts {
        Some((by, _)) => Err(CommandRejection::Edit(EditRejection::OtherArguments { by: by.clone() })),
        None => Ok(others),
    }
}

/// Approval by the user of the agent's host, where the policy accepts it.
fn host_approve(
    policy: &Policy,
    tree: &CallTree,
    command: &Command,
    call_id: &CallId,
    now: Timestamp,
) -> Result<Control, CommandRejection> {
    let call = tree.sessions.get(&command.session).and_then(|session| session.call(call_id));
    let id =
        call.and_then(|call| Some(call.approval.as_deref()?.id.clone())).ok_or(CommandRejection::UnknownApproval)?;
    let call = waiting(tree, command, &id, now)?;
    if !policy.host_may_approve(&call.tool) {
        return Err(CommandRejection::UnknownApproval);
    }
    Ok(answer_request(tree, call, (&id, ApprovalStatus::Approved), None, None))
}

fn answer_request(
    tree: &CallTree,
    call: &Call,
    (id, answer): (&str, ApprovalStatus),
    clears: Option<Clearance>,
    edit: Option<Edit>,
) -> Control {
    let (approval_id, call_id) = (id.to_owned(), call.call_id.clone());
    let (fingerprint, root_run, edit) = (call.fingerprint, tree.root_run(), edit.map(Box::new));
    Control::Answered { approval_id, call_id, answer, fingerprint, root_run, clears, edit }
}

/// Only the requesting side, which cannot answer, can withdraw; an approver denies instead.
fn withdraw(tree: &CallTree, command: &Command, id: &str, now: Timestamp) -> Result<Control, CommandRejection> {
    let call = waiting(tree, command, id, now)?;
    if !is_asker(tree, &command.by.name) {
        return Err(CommandRejection::NotTheAsker);
    }
    Ok(Control::Withdrawn { approval_id: id.to_owned(), call_id: call.call_id.clone() })
}

/// The call that waits for this approval request.
fn waiting<'a>(tree: &'a CallTree, command: &Command, id: &str, now: Timestamp) -> Result<&'a Call, CommandRejection> {
    let session = tree.sessions.get(&command.session).ok_or(CommandRejection::UnknownApproval)?;
    let asks = |call: &&Call| call.approval.as_ref().is_some_and(|approval| approval.id == id);
    let call = session.calls.iter().rev().find(asks).ok_or(CommandRejection::UnknownApproval)?;
    let approval = call.approval.as_deref().ok_or(CommandRejection::UnknownApproval)?;
    match approval.answer {
        ApprovalStatus::Withdrawn => Err(CommandRejection::Withdrawn { by: None }),
        ApprovalStatus::Pending if call.permit.is_none() && now >= approval.expires_at => {
            Err(CommandRejection::ApprovalExpired)
        }
        ApprovalStatus::Pending if call.permit.is_none() => Ok(call),
        answer => {
            let edited = answer == ApprovalStatus::Edited;
            let approved = edited || answer == ApprovalStatus::Approved;
            Err(CommandRejection::AlreadyAnswered { approved, edited, by: None })
        }
    }
}

/// True for the agents and sessions of the call tree, regardless of case, and for the owners of its credentials with
/// their delegates.
fn is_asker(tree: &CallTree, name: &str) -> bool {
    let agents = tree.calls().filter_map(|call| call.agent.as_ref()).map(AgentId::as_str);
    let asked_by = |call: &Call| call.approval.as_ref().and_then(|approval| approval.asked_by.clone());
    agents.chain(tree.sessions.keys().map(SessionId::as_str)).any(|known| is_same_name(known, name))
        || tree.calls().filter_map(asked_by).any(|by| is_same_side(&by, name))
}

/// The clearance of an approval. Repetition of an effect is never cleared.
fn clearance(
    session: &SessionId,
    call: &Call,
    clears: ClearanceTerms,
    now: Timestamp,
) -> Result<Clearance, CommandRejection> {
    let named = call.effect.resource.as_ref().filter(|resource| resource.is_named());
    Ok(Clearance {
        session: session.clone(),
        tool: call.tool.clone(),
        resource: match clears.scope {
            ClearanceScope::Tool => None,
            ClearanceScope::Resource => Some(named.cloned().ok_or(CommandRejection::NothingNamed)?),
        },
        until: now.plus_ms(clears.ttl_ms),
        policy: call.policy.to_string(),
        rules: asking(call).into_iter().filter(|rule| rule != same_call::RULE.id).collect(),
    })
}

/// The rules that required approval of the call.
fn asking(call: &Call) -> Vec<String> {
    finding::asking(&call.findings).map(|finding| finding.rule.to_string()).collect()
}
