//! History before an approval request: the calls of its call tree, and the last call of its tool on its resource.

use crate::console::{
    arguments::{self, ArgumentChange},
    fault::PageError,
    visitor::Visitor,
};
use callgate_core::domain::effect::Resource;
use callgate_proto::v1::{
    Approval, CallEntry, CallFilter, GetCallRequest, ListCallsRequest, OutcomeStatus,
    session_service_client::SessionServiceClient,
};

/// Limit of scanned calls.
const LOOKED_AT: u32 = 100;
/// Calls of the timeline.
const TIMELINE: usize = 12;
/// Effects that are listed.
const EFFECTS: usize = 20;

/// All of it.
#[derive(Default)]
pub(super) struct EarlierCalls {
    /// The last calls of the call tree, the newest first; the call that waits among them.
    pub(super) timeline: Vec<CallEntry>,
    /// Calls that changed something or read the same resource, the newest first.
    pub(super) effects: Vec<CallEntry>,
    /// There were calls that were not scanned.
    pub(super) has_more: bool,
    /// The last call of the same tool on the same resource, and the changes since.
    pub(super) similar: Option<SimilarCall>,
    /// The call as it stands: its last Evaluate, and its outcome.
    pub(super) call: Option<CallEntry>,
}

/// An earlier call of the same tool on the same resource.
pub(super) struct SimilarCall {
    pub(super) call: CallEntry,
    /// It is of another call tree.
    pub(super) is_elsewhere: bool,
    /// Changed arguments, and the count of equal ones; none where they cannot be compared.
    pub(super) other: Option<(Vec<ArgumentChange>, usize)>,
}

pub(super) async fn before(visitor: &Visitor, question: &Approval) -> Result<EarlierCalls, PageError> {
    let mut sessions = SessionServiceClient::new(visitor.calls.clone());
    let asked = ListCallsRequest {
        session_id: question.session_id.clone(),
        page_size: LOOKED_AT,
        ..ListCallsRequest::default()
    };
    let found = sessions.list_calls(asked).await?.into_inner();
    let has_more = !found.next_page_token.is_empty();
    let calls = found.calls;
    let is_itself = |call: &CallEntry| call.session_id == question.session_id && call.call_id == question.call_id;
    let similar = similar(visitor, question, &calls).await?;
    let was = |call: &&CallEntry| call.seq < question.seq && call.attempt > 0 && !is_itself(call);
    let on = (!question.effect_resource.is_empty()).then(|| Resource::new(&*question.effect_resource));
    let touches_it = |call: &CallEntry| {
        let touched = (!call.resource.is_empty()).then(|| Resource::new(&*call.resource));
        touched.zip(on.as_ref()).is_some_and(|(touched, on)| touched.overlaps(on))
    };
    let matters = |call: &&CallEntry| matches!(call.effect.as_str(), "write" | "unknown") || touches_it(call);
    let effects = calls.iter().filter(was).filter(matters).take(EFFECTS).cloned().collect();
    let call = calls.iter().find(|call| is_itself(call)).cloned();
    let timeline = calls.into_iter().take(TIMELINE).collect();
    Ok(EarlierCalls { timeline, effects, has_more, similar, call })
}

/// The last call of the same tool on the same resource that was let through: of the same call tree, else of the same
/// agent. None where the policy names no resource of the call: two of its calls may have nothing in common.
async fn similar(
    visitor: &Visitor,
    question: &Approval,
    calls: &[CallEntry],
) -> Result<Option<SimilarCall>, PageError> {
    let mut sessions = SessionServiceClient::new(visitor.calls.clone());
    let on = Resource::new(&*question.effect_resource);
    if !on.is_named() {
        return Ok(None);
    }
    let fits = |call: &&CallEntry| {
        let is_other = call.root_session_id != question.root_session_id;
        let is_before = call.attempt > 0 && (is_other || call.seq < question.seq);
        is_before && call.tool == question.tool && Resource::new(&*call.resource) == on
    };
    let mut found = calls.iter().find(fits).cloned();
    for here in [true, false] {
        if found.is_none() {
            let agent_id = if here { String::new() } else { question.agent_id.clone() };
            let filter = CallFilter { tool: question.tool.clone(), agent_id, ..CallFilter::default() };
            let session_id = if here { question.session_id.clone() } else { String::new() };
            let asked = ListCallsRequest {
                session_id,
                filter: Some(filter),
                page_size: LOOKED_AT,
                ..ListCallsRequest::default()
            };
            found = sessions.list_calls(asked).await?.into_inner().calls.iter().find(fits).cloned();
        }
    }
    let Some(call) = found else { return Ok(None) };
    let asked = GetCallRequest {
        session_id: call.session_id.clone(),
        call_id: call.call_id.clone(),
        ..GetCallRequest::default()
    };
    let whole = sessions.get_call(asked).await?.into_inner();
    let other = arguments::difference(&whole.arguments_json, &question.arguments_json);
    Ok(Some(SimilarCall { is_elsewhere: call.root_session_id != question.root_session_id, call, other }))
}

/// Outcome of a call, in words.
pub(super) fn outcome(call: &CallEntry) -> &'static str {
    match call.status() {
        OutcomeStatus::Success => "success",
        OutcomeStatus::Error => "error",
        OutcomeStatus::Cancelled => "cancelled",
        OutcomeStatus::Unknown => "outcome unknown",
        OutcomeStatus::Running => "running",
        OutcomeStatus::Unspecified => "not run",
    }
}
