//! Approval requests: read and answered. However many callers wait for answers (`waiting.rs`), the database is polled
//! once each quarter of a second; and not at all while none waits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::{
    Approvals, ChosenArguments, CommandError, Decisions, GateError, NoAnswer,
    approval_notes::{RecentNotes, session_of},
};
use callgate_core::{
    domain::{
        amount::may_have_amount,
        audit::Actor,
        control::{ClearanceTerms, Command, Control, ControlEvent, Operation, is_same_name},
        fingerprint::ArgsDigest,
        ids::{CallId, SessionId, TenantId, ToolName},
        inbox::{ApprovalQuery, Question, QuestionState, Resolution},
        rejection::{BulkRejection, CommandRejection},
        risk,
        route::ApprovalRoute,
        tool::RiskLevel,
    },
    engine::bulk::{self, BulkSubject},
};
use callgate_net::clock::Tick;
use callgate_store::{DecisionStore, StoreError};

/// Interval at which open approval requests are polled while a caller waits.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Open approval requests that are read; of more, the newest.
pub const OPEN_MAX: usize = 10_000;

/// Open approval requests by tenant, as they were read last: one read serves all waiting callers.
#[derive(Debug, Default)]
pub(super) struct OpenApprovals {
    read: Mutex<BTreeMap<TenantId, LastRead>>,
    /// Time of the last answer here: a list is not from before it. Callers that wait need none as new.
    answered: parking_lot::Mutex<BTreeMap<TenantId, Tick>>,
    pub(super) noted: Mutex<BTreeMap<TenantId, RecentNotes>>,
}

/// Start and result of the last read.
type LastRead = (Tick, Arc<[Question]>);

/// An approver's answer to an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApproverReply {
    /// Id of the approval request.
    pub approval_id: String,
    /// Yes or no.
    pub approve: bool,
    /// The approver.
    pub by: Actor,
    /// Reason, as text.
    pub reason: Option<String>,
    /// Further calls that an approval lets through.
    pub clears: Option<ClearanceTerms>,
    /// The approved arguments, where not those of the call.
    pub edited: Option<ChosenArguments>,
}

impl Decisions {
    /// The open approval requests by a read of the last quarter of a second, and not from before `since`.
    pub(super) async fn looked_at(&self, tenant: TenantId, since: Option<Tick>) -> Result<Arc<[Question]>, NoAnswer> {
        // Ends watches and waits here when the tenant was suspended meanwhile.
        self.server.admits(tenant)?;
        let mut known = self.open.read.lock().await;
        known.retain(|_, (looked, _)| self.server.clock.elapsed_since(*looked) < LOOK_EVERY);
        if let Some((_, open)) = known.get(&tenant).filter(|(looked, _)| since.is_none_or(|since| since <= *looked)) {
            return Ok(Arc::clone(open));
        }
        let looked = self.server.clock.tick();
        let wanted = ApprovalQuery { state: Some(QuestionState::Pending), max: OPEN_MAX, ..ApprovalQuery::default() };
        let open: Arc<[Question]> = self.store.questions(tenant, &wanted).await?.into();
        known.insert(tenant, (looked, Arc::clone(&open)));
        Ok(open)
    }
}

impl Approvals {
    /// The open approval requests, the newest first, read within the last quarter of a second, and after the last
    /// answer here.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn open_questions(&self, tenant: TenantId) -> Result<Arc<[Question]>, NoAnswer> {
        let since = self.decisions.open.answered.lock().get(&tenant).copied();
        self.decisions.looked_at(tenant, since).await
    }

    /// Keeps what was answered until now from later lists.
    fn note_answered(&self, tenant: TenantId) {
        let mut answered = self.decisions.open.answered.lock();
        answered.retain(|_, at| self.server.clock.elapsed_since(*at) < LOOK_EVERY);
        answered.insert(tenant, self.server.clock.tick());
    }

    /// The approval route by the active policy.
    #[must_use]
    pub fn route(&self, tenant: TenantId, question: &Question) -> ApprovalRoute {
        let tool = ToolName::parse("tool", &question.tool);
        tool.map_or(ApprovalRoute::ANYBODY, |tool| self.server.policy_of(tenant, &question.policy).route(&tool).clone())
    }

    /// The active policy's risk level of a request's tool, and the first tier that names it.
    #[must_use]
    pub fn declared_risk(&self, tenant: TenantId, question: &Question) -> (Option<RiskLevel>, Option<String>) {
        let Ok(tool) = ToolName::parse("tool", &question.tool) else { return (None, None) };
        let policy = self.server.policy_of(tenant, &question.policy);
        (policy.tool(&tool).risk, policy.tier(&tool).map(str::to_owned))
    }

    /// Risk of an approval by the active policy, with its reasons.
    #[must_use]
    pub fn risk(&self, tenant: TenantId, question: &Question) -> (RiskLevel, Vec<&'static str>) {
        risk::of(question, self.declared_risk(tenant, question).0, &self.route(tenant, question))
    }

    /// One approval request; none for an unknown id.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn question(&self, tenant: TenantId, approval_id: &str) -> Result<Option<Question>, NoAnswer> {
        Ok(read_question(&*self.store, tenant, approval_id).await?)
    }

    /// Answers an approval request; returns it with the answer in force. The same answer by the same person may be sent
    /// again, as after an error that leaves open whether it was stored.
    ///
    /// # Errors
    /// [`CommandError`]: it has another answer already, or cannot be answered.
    pub async fn resolve(&self, tenant: TenantId, reply: &ApproverReply) -> Result<Question, CommandError> {
        let ApproverReply { approval_id, approve, by, reason, clears, edited } = reply.clone();
        let edited = match edited.filter(|_| approve) {
            Some(choice) => {
                let question = self.known(tenant, &approval_id).await?;
                let only_looks = choice.only_looks;
                let edited = Box::pin(self.choose(tenant, &question, choice)).await?;
                match edited {
                    edited if only_looks && question.resolution.is_none() => {
                        return Ok(Question { edited, ..question });
                    }
                    edited => edited,
                }
            }
            None => None,
        };
        let state = match (approve, &edited) {
            (true, None) => QuestionState::Approved,
            (true, Some(_)) => QuestionState::Edited,
            (false, _) => QuestionState::Denied,
        };
        let operation = Operation::Answer { approval_id, approve, clears, edited };
        let question = self.known(tenant, &reply.approval_id).await?;
        self.conclude(tenant, question, (state, by, reason), operation).await
    }

    /// Approves a request together with others, with the arguments of which the approver saw the digest.
    ///
    /// # Errors
    /// [`CommandError`], also when the policy does not permit it.
    pub async fn approve_in_bulk(
        &self,
        tenant: TenantId,
        (approval_id, seen): (String, ArgsDigest),
        by: Actor,
        reason: Option<String>,
    ) -> Result<Question, CommandError> {
        let question = self.known(tenant, &approval_id).await?;
        let may_have_amount = may_have_amount(&question.arguments);
        let operation = Operation::ApproveInBulk { approval_id, seen, may_have_amount };
        self.conclude(tenant, question, (QuestionState::Approved, by, reason), operation).await
    }

    /// Cause for which a request cannot be approved together with others under its policy; none where it can.
    #[must_use]
    pub fn bulk_objection(&self, tenant: TenantId, question: &Question) -> Option<BulkRejection> {
        let Ok(tool) = ToolName::parse("tool", &question.tool) else { return Some(BulkRejection::NotPermitted) };
        let may_have_amount = may_have_amount(&question.arguments);
        let subject = BulkSubject { effect: &question.effect, findings: &question.findings, may_have_amount };
        bulk::objection(&self.server.policy_of(tenant, &question.policy), &tool, &subject)
    }

    /// Approves a waiting call for the user of the agent's host, where the policy lets them. A call that does not wait,
    /// or is not theirs to answer, stays as it is.
    ///
    /// # Errors
    /// [`NoAnswer`] when it is not known whether that was stored.
    pub async fn approve_for_host(
        &self,
        tenant: TenantId,
        session: SessionId,
        call_id: CallId,
        by: Actor,
    ) -> Result<(), NoAnswer> {
        let command = Command { session, by, reason: None, operation: Operation::HostApprove { call_id } };
        match self.decisions.control(tenant, &command).await {
            Ok(_) | Err(GateError::Rejected(_)) => Ok(()),
            Err(GateError::NoAnswer(none)) => Err(none),
        }
    }

    /// Withdraws an approval request for its requester `by`; returns it in its new state. It may be sent again.
    ///
    /// # Errors
    /// [`CommandError`]: it was answered before, or is not theirs.
    pub async fn withdraw(
        &self,
        tenant: TenantId,
        approval_id: &str,
        by: Actor,
        reason: Option<String>,
    ) -> Result<Question, CommandError> {
        let operation = Operation::Withdraw { approval_id: approval_id.to_owned() };
        let question = self.known(tenant, approval_id).await?;
        self.conclude(tenant, question, (QuestionState::Withdrawn, by, reason), operation).await
    }

    /// An approval request that exists.
    pub(super) async fn known(&self, tenant: TenantId, approval_id: &str) -> Result<Question, CommandError> {
        let question = read_question(&*self.store, tenant, approval_id).await?;
        question.ok_or(GateError::Rejected(CommandRejection::UnknownApproval))
    }

    /// Closes an approval request with a state, an actor and a reason.
    async fn conclude(
        &self,
        tenant: TenantId,
        question: Question,
        (state, by, reason): (QuestionState, Actor, Option<String>),
        operation: Operation,
    ) -> Result<Question, CommandError> {
        let digest = match &operation {
            Operation::Answer { edited: Some(edited), .. } => Some(edited.digest),
            _ => None,
        };
        if question.resolution.is_some() {
            return as_closed(question, (state, digest), &by.name);
        }
        let is_same = question.edited.as_ref().map(|edited| edited.digest) == digest;
        let is_yes = matches!(state, QuestionState::Approved | QuestionState::Edited);
        let is_single = matches!(operation, Operation::Answer { .. });
        if is_single && is_yes && is_same && question.seconded_by.iter().any(|known| is_same_name(known, &by.name)) {
            return Ok(question);
        }
        let session = session_of(&question)?;
        let command = Command { session, by: by.clone(), reason: reason.clone(), operation };
        match self.decisions.control(tenant, &command).await {
            // Another yes is needed: it stays open.
            Ok(ControlEvent { control: Control::Seconded { .. }, .. }) => {
                self.known(tenant, &question.approval_id).await
            }
            Ok(done) => {
                self.note_answered(tenant);
                self.server.metrics.record_approval(state, done.at.since_ms(question.asked_at));
                let edited = done.edit().map(|edit| edit.edited.clone());
                let edited_until = done.edit().map(|edit| edit.until);
                let (by, at, clears) = (by.name, done.at, done.clears());
                let resolution = Some(Resolution { state, by, reason, at, clears, edited_until });
                Ok(Question { resolution, edited, ..question })
            }
            Err(GateError::Rejected(rejection)) => {
                // The call tree holds only a call's present state; its approver is in its past.
                match read_question(&*self.store, tenant, &question.approval_id).await? {
                    Some(question) if question.resolution.is_some() => as_closed(question, (state, digest), &by.name),
                    Some(question) if rejection == CommandRejection::SaidBefore => Ok(question),
                    _ => Err(GateError::Rejected(rejection)),
                }
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) async fn read_question(
    store: &dyn DecisionStore,
    tenant: TenantId,
    approval_id: &str,
) -> Result<Option<Question>, StoreError> {
    let wanted = ApprovalQuery { approval_id: Some(approval_id.to_owned()), max: 1, ..ApprovalQuery::default() };
    Ok(store.questions(tenant, &wanted).await?.pop())
}

/// A request that was closed before. The same answer by the same person succeeds again, and so does a withdrawal by any
/// actor.
fn as_closed(
    question: Question,
    (state, digest): (QuestionState, Option<ArgsDigest>),
    by: &str,
) -> Result<Question, CommandError> {
    let Some(first) = &question.resolution else { return Ok(question) };
    let is_same = first.state == state && question.edited.as_ref().map(|edited| edited.digest) == digest;
    if is_same && (state == QuestionState::Withdrawn || is_same_name(by, &first.by)) {
        return Ok(question);
    }
    let by = Some(first.by.clone());
    Err(GateError::Rejected(match first.state {
        QuestionState::Withdrawn => CommandRejection::Withdrawn { by },
        first => CommandRejection::AlreadyAnswered {
            approved: matches!(first, QuestionState::Approved | QuestionState::Edited),
            edited: first == QuestionState::Edited,
            by,
        },
    }))
}
