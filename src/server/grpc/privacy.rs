//! The privacy service: decode, have the gate forget, export or re-encrypt, and stream its progress.

use std::sync::Arc;

use tokio_stream::StreamExt as _;
use tonic::{
    Request, Response,
    service::{Interceptor, interceptor::InterceptedService},
};

use super::{
    MethodResult,
    decode::{DecodeResult, note, require_field, wrong},
    identity,
    shutdown::Stop,
    streamed::{ResponseStream, stream_messages},
};
use crate::gate::{ExportRow, Privacy, ResealProgress};
use callgate_core::domain::{
    forgetting::{ErasureProgress, ErasureSubject},
    ids::{AgentId, SessionId, TenantId, UserId},
};
use callgate_proto::v1::{
    self, privacy_service_client::PrivacyServiceClient, privacy_service_server::PrivacyServiceServer, subject::Subject,
};

/// The service.
#[derive(Debug, Clone)]
pub struct PrivacyService {
    privacy: Arc<Privacy>,
    stop: Stop,
}

impl PrivacyService {
    pub(super) const fn new(privacy: Arc<Privacy>, stop: Stop) -> Self {
        Self { privacy, stop }
    }
}

/// The service without a server, for holders of the database: as an admin of this tenant.
#[must_use]
pub fn privacy_of(
    privacy: Arc<Privacy>,
    tenant: TenantId,
) -> PrivacyServiceClient<InterceptedService<PrivacyServiceServer<PrivacyService>, impl Interceptor + Clone>> {
    let service = PrivacyService::new(privacy, Stop::default());
    PrivacyServiceClient::new(PrivacyServiceServer::with_interceptor(service, identity::admin_of(tenant)))
}

fn decode_subject(subject: Option<&v1::Subject>) -> DecodeResult<ErasureSubject> {
    Ok(match require_field("subject", subject.and_then(|subject| subject.subject.as_ref()))? {
        Subject::SessionId(name) => ErasureSubject::Session(SessionId::parse("subject.session_id", name)?),
        Subject::AgentId(name) => ErasureSubject::Agent(AgentId::parse("subject.agent_id", name)?),
        Subject::UserId(name) => ErasureSubject::User(UserId::parse("subject.user_id", name)?),
    })
}

const fn encode_forgotten(forgot: ErasureProgress) -> v1::ForgetResponse {
    let ErasureProgress { trees, sessions, others, percent } = forgot;
    v1::ForgetResponse { call_trees: trees, sessions, other_rows: others, percent: percent as u32 }
}

fn encode_reseal(resealed: ResealProgress) -> v1::ReencryptResponse {
    let ResealProgress { rows, mut uses, here, percent } = resealed;
    let unencrypted_rows = uses.remove("").unwrap_or_default();
    let here: Vec<_> = here.into_iter().map(|key| (uses.remove(&key).unwrap_or_default(), key, true)).collect();
    let missing = uses.into_iter().map(|(key, rows)| (rows, key, false));
    let keys = here.into_iter().chain(missing);
    let keys = keys.map(|(rows, key_id, is_available)| v1::StorageKey { key_id, rows, is_available }).collect();
    v1::ReencryptResponse { rows, percent: percent.into(), keys, unencrypted_rows }
}

#[tonic::async_trait]
impl v1::privacy_service_server::PrivacyService for PrivacyService {
    type ForgetStream = ResponseStream<v1::ForgetResponse>;

    async fn forget(&self, request: Request<v1::ForgetRequest>) -> MethodResult<Self::ForgetStream> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let stop = self.stop.of(request.extensions());
        let message = request.into_inner();
        let (whom, why) =
            (decode_subject(message.subject.as_ref())?, note("reason", &message.reason)?.unwrap_or_default());
        if whom.is_named_in(&why) {
            return Ok(wrong("reason", "names whom it is about, and is kept; say why without the name")?);
        }
        let privacy = Arc::clone(&self.privacy);
        let forgot = stream_messages(stop, move |told| async move {
            if message.validate_only {
                return privacy.would_forget(tenant, &whom, &told).await.map(Some);
            }
            privacy.forget(tenant, &whom, (&by, &why), &told).await.map(Some)
        });
        Ok(Response::new(Box::pin(forgot.map(|forgot| forgot.map(encode_forgotten)))))
    }

    type ExportSubjectStream = ResponseStream<v1::ExportSubjectResponse>;

    async fn export_subject(
        &self,
        request: Request<v1::ExportSubjectRequest>,
    ) -> MethodResult<Self::ExportSubjectStream> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let stop = self.stop.of(request.extensions());
        let message = request.into_inner();
        let (whom, why) =
            (decode_subject(message.subject.as_ref())?, note("reason", &message.reason)?.unwrap_or_default());
        let privacy = Arc::clone(&self.privacy);
        let rows = stream_messages(stop, move |rows| async move {
            privacy.export(tenant, &whom, (&by, &why), &rows).await.map(|()| None::<ExportRow>)
        });
        let encoded = |row: ExportRow| v1::ExportSubjectResponse { kind: row.kind.to_owned(), row_json: row.json };
        Ok(Response::new(Box::pin(rows.map(move |row| row.map(encoded)))))
    }

    type ReencryptStream = ResponseStream<v1::ReencryptResponse>;

    async fn reencrypt(&self, request: Request<v1::ReencryptRequest>) -> MethodResult<Self::ReencryptStream> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let stop = self.stop.of(request.extensions());
        let is_dry = request.into_inner().validate_only;
        let privacy = Arc::clone(&self.privacy);
        let answers = stream_messages(stop, move |told| async move {
            let done =
                if is_dry { privacy.key_uses(tenant, &told).await } else { privacy.reseal(tenant, &by, &told).await };
            done.map(Some)
        });
        Ok(Response::new(Box::pin(answers.map(|answer| answer.map(encode_reseal)))))
    }
}
