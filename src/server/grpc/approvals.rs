//! The approval service: decode, ask the gate, encode.

mod bulk;
mod list;
mod notes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tonic::{Request, Response, Status};

use self::list::RequestFilter;
use super::{
    MethodResult,
    decode::{DecodeResult, arguments, maybe_session, note, required_text, wrong},
    encode, identity,
    limits::{DAY_MS, TTL_DAYS_MAX, TTL_MS_DEFAULT},
    malformed::MalformedField,
    service,
    shutdown::Stop,
    status,
    time::{span, timestamp},
    watch::{WatchPoll, WatchStream, watch},
};
use crate::{
    gate::{Approvals, ApproverReply, ChosenArguments},
    grpc::ToWire,
};
use callgate_core::domain::{
    amount::find_amount,
    control::{ClearanceScope, ClearanceTerms},
    fingerprint::ArgsDigest,
    ids::{SessionId, TenantId},
    inbox::{Question, QuestionState},
    json::{self, Json},
    risk,
};
use callgate_proto::v1;

/// The field of edited arguments.
pub(super) const EDITED: &str = "edited_arguments_json";

/// The service.
#[derive(Debug, Clone)]
pub(super) struct ApprovalService {
    approvals: Arc<Approvals>,
    stop: Stop,
}

impl ApprovalService {
    pub(super) fn new(approvals: Arc<Approvals>, stop: Stop) -> Self {
        Self { approvals, stop }
    }

    async fn question(&self, tenant: TenantId, approval_id: &str) -> Result<Question, Status> {
        let found = service::answer_in_time(self.approvals.question(tenant, approval_id)).await?;
        found.ok_or_else(status::approval_unknown)
    }
}

fn encode_approval(question: Question, approvals: &Approvals, tenant: TenantId) -> v1::Approval {
    let (now, route) = (approvals.store.now(), approvals.route(tenant, &question));
    let (declared, tier) = approvals.declared_risk(tenant, &question);
    let (risk, risk_reasons) = risk::of(&question, declared, &route);
    let asked_at = question.asked_at;
    let (resolution, edited) = (question.resolution.as_ref(), question.edited.as_ref());
    let clears = resolution.and_then(|resolution| resolution.clears.as_ref());
    let scope = match clears {
        _ if question.state(now) != QuestionState::Approved => v1::ApprovalScope::Unspecified,
        None => v1::ApprovalScope::Call,
        Some((Some(_), _)) => v1::ApprovalScope::Resource,
        Some((None, _)) => v1::ApprovalScope::Tool,
    };
    v1::Approval {
        findings: question.findings.iter().map(encode::finding).collect(),
        tier: tier.unwrap_or_default(),
        effect: question.effect.kind.as_str().to_owned(),
        effect_resource: question.effect.resource.as_ref().map(|on| on.as_str().to_owned()).unwrap_or_default(),
        once: question.effect.once,
        idempotent: question.effect.idempotent,
        args_digest: hex::encode(question.args_digest.0),
        seq: question.seq,
        amount: find_amount(&question.arguments),
        bulk_refusal: approvals.bulk_objection(tenant, &question).map(bulk::reason).unwrap_or_default(),
        rule: question.asking_rule().map(str::to_owned).unwrap_or_default(),
        risk: risk.to_wire().into(),
        risk_reasons: risk_reasons.into_iter().map(str::to_owned).collect(),
        group: route.group.unwrap_or_default(),
        escalate_time: route.escalation.as_ref().map(|then| timestamp(asked_at.plus_ms(then.after_ms))),
        escalate_group: route.escalation.map(|then| then.group).unwrap_or_default(),
        required_approvals: route.people,
        approved_by: question.seconded_by.clone(),
        edited_args_digest: edited.map(|edited| hex::encode(edited.digest.0)).unwrap_or_default(),
        edited_arguments_json: edited.and_then(|edited| edited.arguments.as_deref()).unwrap_or_default().to_owned(),
        claimed_by: String::new(),
        claim_expire_time: None,
        comments: Vec::new(),
        edited_expire_time: resolution.and_then(|resolution| resolution.edited_until).map(timestamp),
        ran_call_id: String::new(),
        scope: scope.into(),
        scope_expire_time: clears.map(|(_, until)| timestamp(*until)),
        resource: clears.and_then(|(on, _)| on.as_ref()).map(|on| on.as_str().to_owned()).unwrap_or_default(),
        state: question.state(now).to_wire().into(),
        resolved_by: resolution.map(|resolution| resolution.by.clone()).unwrap_or_default(),
        resolution_reason: resolution.and_then(|resolution| resolution.reason.clone()).unwrap_or_default(),
        resolve_time: resolution.map(|resolution| timestamp(resolution.at)),
        reasons: question.findings.iter().map(|one| one.for_people.as_ref().unwrap_or(&one.message).clone()).collect(),
        approval_id: question.approval_id,
        session_id: question.session,
        root_session_id: question.root,
        agent_id: question.agent.unwrap_or_default(),
        requested_by: question.asked_by.unwrap_or_default(),
        host: question.host.unwrap_or_default(),
        call_id: question.call_id,
        tool: question.tool,
        arguments_json: question.arguments,
        justification: question.justification.unwrap_or_default(),
        create_time: Some(timestamp(question.asked_at)),
        expire_time: Some(timestamp(question.expires_at)),
        policy_version: question.policy,
    }
}

/// Decodes the further calls that an approval lets through.
fn clears(message: &v1::ResolveApprovalRequest) -> DecodeResult<Option<ClearanceTerms>> {
    let ttl_ms = span("ttl", message.ttl.as_ref(), 1..=TTL_DAYS_MAX * DAY_MS)?;
    let scope = match v1::ApprovalScope::try_from(message.scope) {
        Ok(v1::ApprovalScope::Unspecified | v1::ApprovalScope::Call) if ttl_ms.is_some() => {
            return wrong("ttl", "goes with an answer for a resource or a tool only");
        }
        Ok(v1::ApprovalScope::Unspecified | v1::ApprovalScope::Call) => return Ok(None),
        Ok(_) if !message.approve => return wrong("scope", "goes with a yes only: a no holds for the run"),
        Ok(v1::ApprovalScope::Resource) => ClearanceScope::Resource,
        Ok(v1::ApprovalScope::Tool) => ClearanceScope::Tool,
        Err(_) => return Err(MalformedField::no_member::<v1::ApprovalScope>("scope", message.scope)),
    };
    Ok(Some(ClearanceTerms { scope, ttl_ms: ttl_ms.unwrap_or(TTL_MS_DEFAULT) }))
}

/// The arguments that a yes is for instead of those that were asked about.
fn decode_edit(message: &v1::ResolveApprovalRequest) -> DecodeResult<Option<ChosenArguments>> {
    if message.edited_arguments_json.is_empty() {
        return match (message.validate_only, message.edited_args_digest.is_empty()) {
            (true, _) => wrong("validate_only", "goes with edited arguments only"),
            (_, false) => wrong("edited_args_digest", "goes with edited arguments only"),
            (false, true) => Ok(None),
        };
    }
    if !message.approve {
        return wrong(EDITED, "goes with a yes only");
    }
    if !matches!(message.scope(), v1::ApprovalScope::Unspecified | v1::ApprovalScope::Call) {
        return wrong("scope", "is for the call alone where its arguments are edited");
    }
    match arguments(EDITED, &message.edited_arguments_json)? {
        arguments @ Json::Object(_) => {
            let seen = message.edited_args_digest.as_str();
            let mut digest = [0; 32];
            if !seen.is_empty() && hex::decode_to_slice(seen, &mut digest).is_err() {
                return wrong("edited_args_digest", "is no digest: 64 hexadecimal digits");
            }
            let seen = (!seen.is_empty()).then_some(ArgsDigest(digest));
            Ok(Some(ChosenArguments { arguments, seen, only_looks: message.validate_only }))
        }
        _ => wrong(
            EDITED,
            match json::parse(&message.edited_arguments_json) {
                Ok(_) => "is no JSON object: it begins with { and ends with }".to_owned(),
                Err(problem) => problem.to_string(),
            },
        ),
    }
}

/// Watch of approval requests: new ones, and each again when it is claimed, commented on, answered or withdrawn, or
/// expires.
struct Questions {
    service: ApprovalService,
    tenant: TenantId,
    session: Option<SessionId>,
    /// Requests that were sent as open, with the count of groups that may answer, and of approvals.
    open: BTreeMap<String, (usize, usize)>,
    /// Newest entry of the audit log whose claims and comments were sent; none before the first poll.
    noted: Option<u64>,
}

impl Questions {
    /// The open requests with a new claim, release or comment.
    async fn poll_notes(&mut self) -> Result<BTreeSet<String>, Status> {
        let recent = self.service.approvals.recent_notes(self.tenant).await.map_err(status::gate)?;
        let before = self.noted.replace(recent.newest).unwrap_or(recent.newest);
        let new = recent.notes.iter().take_while(|(number, _)| *number > before);
        Ok(new.map(|(_, id)| id.clone()).collect())
    }
}

impl WatchPoll for Questions {
    type Message = v1::WatchApprovalsResponse;

    async fn poll_changes(&mut self) -> Result<Vec<Self::Message>, Status> {
        // One read serves all watchers, and all waiting callers.
        let found = self.service.approvals.open_questions(self.tenant).await.map_err(status::gate)?;
        let noted = self.poll_notes().await?;
        let now = self.service.approvals.store.now();
        let listed: BTreeSet<&String> = found.iter().map(|question| &question.approval_id).collect();
        let gone: Vec<String> = self.open.keys().filter(|id| !listed.contains(id)).cloned().collect();
        let mut told = Vec::new();
        for id in gone {
            let closed = service::answer_in_time(self.service.approvals.question(self.tenant, &id)).await?;
            // Beyond the longest page a request may be open and not listed.
            if closed.as_ref().is_some_and(|question| question.state(now) == QuestionState::Pending) {
                continue;
            }
            self.open.remove(&id);
            told.extend(closed);
        }
        let is_watched = |question: &&Question| self.session.as_ref().is_none_or(|id| id.as_str() == question.session);
        let listed = found.iter().filter(is_watched);
        let stands = |question: &Question| {
            let groups = self.service.approvals.route(self.tenant, question).groups(question.asked_at, now).len();
            (groups, question.seconded_by.len())
        };
        let is_news = |question: &&Question| {
            let stands = stands(question);
            self.open.insert(question.approval_id.clone(), stands) != Some(stands)
        };
        let (news, others): (Vec<&Question>, Vec<&Question>) = listed.partition(is_news);
        told.extend(news.into_iter().cloned());
        let (tenant, approvals) = (self.tenant, &self.service.approvals);
        let response = |question| v1::WatchApprovalsResponse {
            approval: Some(encode_approval(question, approvals, tenant)),
            noted: false,
        };
        let mut responses: Vec<v1::WatchApprovalsResponse> = told.into_iter().map(response).collect();
        for question in others.into_iter().filter(|question| noted.contains(&question.approval_id)) {
            // Where its comments cannot be read, the watch goes on.
            let noted = self.service.encode_with_stored_notes(tenant, question.clone()).await;
            let approval = Some(noted.unwrap_or_else(|_| encode_approval(question.clone(), approvals, tenant)));
            responses.push(v1::WatchApprovalsResponse { approval, noted: true });
        }
        Ok(responses)
    }
}

#[tonic::async_trait]
impl v1::approval_service_server::ApprovalService for ApprovalService {
    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> MethodResult<v1::ListApprovalsResponse> {
        let tenant = identity::tenant(&request)?;
        let person = request.get_ref().mine.then(|| identity::actor(&request)).transpose()?;
        let message = request.into_inner();
        let filter = RequestFilter::decode(&message, person)?;
        self.list(tenant, &filter, &message).await.map(Response::new)
    }

    async fn get_approval(&self, request: Request<v1::GetApprovalRequest>) -> MethodResult<v1::GetApprovalResponse> {
        let tenant = identity::tenant(&request)?;
        let id = required_text("approval_id", &request.into_inner().approval_id)?;
        let question = self.question(tenant, &id).await?;
        let ran = service::answer_in_time(Box::pin(self.approvals.ran_instead(tenant, &question))).await?;
        let approval = self.encode_with_stored_notes(tenant, question).await?;
        let approval = v1::Approval { ran_call_id: ran.unwrap_or_default(), ..approval };
        Ok(Response::new(v1::GetApprovalResponse { approval: Some(approval) }))
    }

    async fn resolve_approval(
        &self,
        request: Request<v1::ResolveApprovalRequest>,
    ) -> MethodResult<v1::ResolveApprovalResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let approval_id = required_text("approval_id", &message.approval_id)?;
        let reason = note("reason", &message.reason)?;
        let (clears, edited) = (clears(&message)?, decode_edit(&message)?);
        let reply = ApproverReply { approval_id, approve: message.approve, by, reason, clears, edited };
        let question = service::answer_in_time(Box::pin(self.approvals.resolve(tenant, &reply))).await?;
        let approval = Some(encode_approval(question, &self.approvals, tenant));
        Ok(Response::new(v1::ResolveApprovalResponse { approval }))
    }

    async fn resolve_approvals(
        &self,
        request: Request<v1::ResolveApprovalsRequest>,
    ) -> MethodResult<v1::ResolveApprovalsResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        self.resolve_all(tenant, by, request.into_inner()).await.map(Response::new)
    }

    async fn claim_approval(
        &self,
        request: Request<v1::ClaimApprovalRequest>,
    ) -> MethodResult<v1::ClaimApprovalResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let approval = Some(self.claim(tenant, by, request.into_inner()).await?);
        Ok(Response::new(v1::ClaimApprovalResponse { approval }))
    }

    async fn comment_approval(
        &self,
        request: Request<v1::CommentApprovalRequest>,
    ) -> MethodResult<v1::CommentApprovalResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let approval = Some(self.comment(tenant, by, request.into_inner()).await?);
        Ok(Response::new(v1::CommentApprovalResponse { approval }))
    }

    async fn withdraw_approval(
        &self,
        request: Request<v1::WithdrawApprovalRequest>,
    ) -> MethodResult<v1::WithdrawApprovalResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let approval_id = required_text("approval_id", &message.approval_id)?;
        let reason = note("reason", &message.reason)?;
        let question =
            service::answer_in_time(Box::pin(self.approvals.withdraw(tenant, &approval_id, by, reason))).await?;
        let approval = Some(encode_approval(question, &self.approvals, tenant));
        Ok(Response::new(v1::WithdrawApprovalResponse { approval }))
    }

    type WatchApprovalsStream = WatchStream<v1::WatchApprovalsResponse>;

    async fn watch_approvals(
        &self,
        request: Request<v1::WatchApprovalsRequest>,
    ) -> MethodResult<Self::WatchApprovalsStream> {
        let tenant = identity::tenant(&request)?;
        let stop = self.stop.of(request.extensions());
        let session = maybe_session(&request.into_inner().session_id)?;
        let questions = Questions { service: self.clone(), tenant, session, open: BTreeMap::new(), noted: None };
        Ok(Response::new(watch(questions, stop)))
    }
}
