//! The policy service: decode, ask the gate, encode.

use std::sync::Arc;

use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status};

use super::{
    MethodResult, backtest,
    decode::{DecodeResult, note, page_size, require_field, wrong},
    identity,
    limits::{HASH_DIGITS_MIN, PAGE_MAX, POLICY_BYTES_MAX, SHORT_PAGE_DEFAULT},
    page, rollouts, service,
    shutdown::Stop,
    status,
    streamed::{ResponseStream, stream_messages},
    time::timestamp,
};
use crate::gate::{ActivationOutcome, Apply, ApplyOutcome, Author, Policies};
use callgate_core::domain::{audit::Actor, ids::TenantId, revision::Revision};
use callgate_proto::v1::{self, backtest_policy_request::Policy as Tried};

/// Digits of a whole hash.
const HASH_DIGITS: usize = 64;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct PolicyService {
    policies: Arc<Policies>,
    stop: Stop,
}

impl PolicyService {
    pub(super) fn new(policies: Arc<Policies>, stop: Stop) -> Self {
        Self { policies, stop }
    }

    async fn load_stored(&self, tenant: TenantId, prefix: &str) -> Result<(String, String), Status> {
        let found = service::answer_in_time(self.policies.stored_policy(tenant, prefix)).await?;
        found.ok_or_else(|| status::policy_unknown(prefix))
    }

    /// The policy to compare with: a stored one, or the active one; none where none was ever active.
    async fn against(&self, tenant: TenantId, hash: &str) -> Result<Option<String>, Status> {
        if !hash.is_empty() {
            return Ok(Some(self.load_stored(tenant, &hash.to_ascii_lowercase()).await?.1));
        }
        let active = service::answer_in_time(self.policies.operators.revisions(tenant, None, 1)).await?;
        let Some(active) = active.into_iter().next() else { return Ok(None) };
        Ok(Some(self.load_stored(tenant, &active.hash).await?.1))
    }
}

fn encode_revision(revision: Revision) -> v1::PolicyRevision {
    v1::PolicyRevision {
        revision: revision.number,
        hash: revision.hash,
        activated_by: revision.by,
        note: revision.note,
        activate_time: Some(timestamp(revision.at)),
    }
}

fn is_text(text: &str) -> DecodeResult<()> {
    if text.is_empty() || text.len() > POLICY_BYTES_MAX {
        return wrong("text", format!("must be 1 to {POLICY_BYTES_MAX} bytes of YAML"));
    }
    Ok(())
}

fn prefix(field: &str, hash: &str) -> DecodeResult<()> {
    let is_hash = (HASH_DIGITS_MIN..=HASH_DIGITS).contains(&hash.len()) && hash.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hash {
        Ok(())
    } else {
        wrong(field, format!("must be {HASH_DIGITS_MIN} to {HASH_DIGITS} hexadecimal digits"))
    }
}

pub(super) fn encode_activation(
    activated: ActivationOutcome,
    unknown: impl FnOnce() -> Status,
) -> Result<v1::PolicyRevision, Status> {
    match activated {
        ActivationOutcome::Active(revision) => Ok(encode_revision(revision)),
        ActivationOutcome::Invalid(errors) => Err(status::invalid_policy(&errors)),
        ActivationOutcome::Changed { revision } => Err(status::revision_conflict_status(revision)),
        ActivationOutcome::Unknown => Err(unknown()),
    }
}

/// The note of an activation.
fn decode_note(given: &str) -> DecodeResult<String> {
    Ok(note("note", given)?.unwrap_or_default())
}

#[tonic::async_trait]
impl v1::policy_service_server::PolicyService for PolicyService {
    async fn apply_policy(&self, request: Request<v1::ApplyPolicyRequest>) -> MethodResult<v1::ApplyPolicyResponse> {
        let tenant = identity::tenant(&request)?;
        // A check needs no actor.
        let only_checks = request.get_ref().mode() == v1::ApplyMode::Check;
        let by = if only_checks { Actor::from("") } else { identity::actor(&request)? };
        let message = request.into_inner();
        is_text(&message.text)?;
        let apply = match message.mode() {
            v1::ApplyMode::Unspecified | v1::ApplyMode::Activate => Apply::Activate,
            v1::ApplyMode::Store => Apply::Store,
            v1::ApplyMode::Check => Apply::Check,
        };
        let note = decode_note(&message.note)?;
        let author = Author { by: &by, note: &note, expected: message.expected_revision };
        let applied = self.policies.apply_policy(tenant, &message.text, &author, apply);
        match service::answer_in_time(Box::pin(applied)).await? {
            ApplyOutcome::Stored { hash, revision, warnings } => Ok(Response::new(v1::ApplyPolicyResponse {
                hash,
                revision: revision.map(encode_revision),
                warnings: warnings.iter().map(ToString::to_string).collect(),
            })),
            ApplyOutcome::Invalid(errors) => Err(status::invalid_policy(&errors)),
            ApplyOutcome::Changed { revision } => Err(status::revision_conflict_status(revision)),
        }
    }

    async fn get_policy(&self, request: Request<v1::GetPolicyRequest>) -> MethodResult<v1::GetPolicyResponse> {
        let tenant = identity::tenant(&request)?;
        let hash = request.into_inner().hash;
        let all = service::answer_in_time(self.policies.operators.revisions(tenant, None, PAGE_MAX as usize)).await?;
        if hash.is_empty() {
            let Some(active) = all.into_iter().next() else {
                return Ok(Response::new(v1::GetPolicyResponse::default()));
            };
            let (hash, text) = self.load_stored(tenant, &active.hash).await?;
            return Ok(Response::new(v1::GetPolicyResponse { hash, text, revision: Some(encode_revision(active)) }));
        }
        prefix("hash", &hash)?;
        let (hash, text) = self.load_stored(tenant, &hash.to_ascii_lowercase()).await?;
        let revision = all.into_iter().find(|revision| revision.hash == hash).map(encode_revision);
        Ok(Response::new(v1::GetPolicyResponse { hash, text, revision }))
    }

    async fn list_policies(&self, request: Request<v1::ListPoliciesRequest>) -> MethodResult<v1::ListPoliciesResponse> {
        let tenant = identity::tenant(&request)?;
        let message = request.into_inner();
        let size = page_size(message.page_size, SHORT_PAGE_DEFAULT)?;
        let before = page::after(&message.page_token, |[number]| number.parse().ok())?;
        let revisions = service::answer_in_time(self.policies.operators.revisions(tenant, before, size + 1)).await?;
        let token = |last: &Revision| page::token([&last.number.to_string()]);
        let (revisions, next_page_token) = page::split_page(revisions, size, token);
        let revisions = revisions.into_iter().map(encode_revision).collect();
        Ok(Response::new(v1::ListPoliciesResponse { revisions, next_page_token }))
    }

    async fn activate_policy(
        &self,
        request: Request<v1::ActivatePolicyRequest>,
    ) -> MethodResult<v1::ActivatePolicyResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        prefix("hash", &message.hash)?;
        let note = decode_note(&message.note)?;
        let (hash, _) = self.load_stored(tenant, &message.hash.to_ascii_lowercase()).await?;
        let author = Author { by: &by, note: &note, expected: message.expected_revision };
        let activation = self.policies.activate_policy(tenant, &hash, &author);
        let activation = service::answer_in_time(Box::pin(activation)).await?;
        let revision = Some(encode_activation(activation, || status::policy_unknown(&hash))?);
        Ok(Response::new(v1::ActivatePolicyResponse { revision }))
    }

    async fn rollback_policy(
        &self,
        request: Request<v1::RollbackPolicyRequest>,
    ) -> MethodResult<v1::RollbackPolicyResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let note = decode_note(&message.note)?;
        let author = Author { by: &by, note: &note, expected: message.expected_revision };
        let activation = service::answer_in_time(Box::pin(self.policies.rollback_policy(tenant, &author))).await?;
        let revision = Some(encode_activation(activation, status::no_policy_before)?);
        Ok(Response::new(v1::RollbackPolicyResponse { revision }))
    }

    async fn check_policy(&self, request: Request<v1::CheckPolicyRequest>) -> MethodResult<v1::CheckPolicyResponse> {
        let tenant = identity::tenant(&request)?;
        let text = request.into_inner().text;
        is_text(&text)?;
        let checked = service::answer_in_time(Box::pin(self.policies.check_policy(tenant, &text))).await?;
        Ok(Response::new(backtest::encode_check(checked, encode_revision)))
    }

    async fn start_policy_rollout(
        &self,
        request: Request<v1::StartPolicyRolloutRequest>,
    ) -> MethodResult<v1::StartPolicyRolloutResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let message = request.into_inner();
        prefix("hash", &message.hash)?;
        let (part, note) = (rollouts::decode_part(&message)?, decode_note(&message.note)?);
        let (hash, text) = self.load_stored(tenant, &message.hash.to_ascii_lowercase()).await?;
        let author = Author { by: &by, note: &note, expected: None };
        let started = self.policies.start_rollout(tenant, (&hash, &text), &part, &author);
        let rollout = Some(rollouts::encode_outcome(service::answer_in_time(Box::pin(started)).await?, &hash)?);
        Ok(Response::new(v1::StartPolicyRolloutResponse { rollout }))
    }

    async fn get_policy_rollout(
        &self,
        request: Request<v1::GetPolicyRolloutRequest>,
    ) -> MethodResult<v1::GetPolicyRolloutResponse> {
        let compared = service::answer_in_time(self.policies.compare_rollout(identity::tenant(&request)?)).await?;
        Ok(Response::new(rollouts::encode_comparison(compared)))
    }

    async fn end_policy_rollout(
        &self,
        request: Request<v1::EndPolicyRolloutRequest>,
    ) -> MethodResult<v1::EndPolicyRolloutResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let message = request.into_inner();
        let promotes = rollouts::decode_end(&message)?;
        let (note, hash) = (decode_note(&message.note)?, message.hash.to_ascii_lowercase());
        if !hash.is_empty() {
            prefix("hash", &hash)?;
        }
        let author = Author { by: &by, note: &note, expected: None };
        let ended = self.policies.end_rollout(tenant, &hash, promotes, &author);
        let rollout = Some(rollouts::encode_outcome(service::answer_in_time(Box::pin(ended)).await?, &hash)?);
        Ok(Response::new(v1::EndPolicyRolloutResponse { rollout }))
    }

    type BacktestPolicyStream = ResponseStream<v1::BacktestPolicyResponse>;

    async fn backtest_policy(
        &self,
        request: Request<v1::BacktestPolicyRequest>,
    ) -> MethodResult<Self::BacktestPolicyStream> {
        let tenant = identity::tenant(&request)?;
        let stop = self.stop.of(request.extensions());
        let message = request.into_inner();
        let wanted = backtest::decode_query(&message, self.policies.operators.now())?;
        let tried = require_field("policy", message.policy.clone())?;
        match &tried {
            Tried::Text(text) => is_text(text)?,
            Tried::Hash(hash) => prefix("hash", hash)?,
        }
        if !message.baseline_hash.is_empty() {
            prefix("baseline_hash", &message.baseline_hash)?;
        }
        let Some(slot) = self.policies.backtest_slot(tenant) else { return Err(status::backtest_running()) };
        let text = match tried {
            Tried::Text(text) => text,
            Tried::Hash(hash) => self.load_stored(tenant, &hash.to_ascii_lowercase()).await?.1,
        };
        let against = Box::pin(self.against(tenant, &message.baseline_hash)).await?;
        let compared = self.policies.compile_pair(tenant, &text, against.as_deref()).await;
        let compared = compared.map_err(|errors| status::invalid_policy(&errors))?;
        let policies = Arc::clone(&self.policies);
        let answers = stream_messages(stop, move |told| async move {
            policies.backtest(tenant, compared, &wanted, slot, &told).await
        });
        Ok(Response::new(Box::pin(answers.map(|answer| answer.map(backtest::encode_progress)))))
    }
}
