//! The audit service: decode, ask the gate, encode.

use std::sync::Arc;

use tonic::{Request, Response};

use super::{
    MethodResult,
    decode::{DecodeResult, maybe_text, page_size, wrong},
    identity,
    limits::PAGE_DEFAULT,
    page, service, status,
    time::point_in_time,
};
use crate::gate::Privacy;
use callgate_core::domain::audit::{Anchor, AuditFilter, ChainEntry};
use callgate_proto::v1;

/// Anchors that a chain is held against at once.
pub(super) const ANCHORS_MAX: usize = 100;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct AuditService {
    privacy: Arc<Privacy>,
}

impl AuditService {
    pub(super) fn new(privacy: Arc<Privacy>) -> Self {
        Self { privacy }
    }
}

fn encode_entry(entry: ChainEntry) -> v1::AuditEntry {
    let [by, credential, origin, session_id, what, why] = entry.words.map(|word| word.text.unwrap_or_default());
    let nanos = i32::try_from(entry.at_us.rem_euclid(1_000_000) * 1_000).unwrap_or_default();
    v1::AuditEntry {
        number: entry.number,
        create_time: Some(prost_types::Timestamp { seconds: entry.at_us.div_euclid(1_000_000), nanos }),
        kind: entry.kind,
        by,
        credential,
        origin,
        session_id,
        action: what,
        reason: why,
        erased_by: entry.erased_by.unwrap_or_default(),
        hash: hex::encode(entry.hash),
    }
}

/// A number of an entry, which the database can compare with.
fn is_number(number: &u64) -> bool {
    i64::try_from(*number).is_ok()
}

fn decode_filter(filter: &v1::AuditFilter) -> DecodeResult<AuditFilter> {
    let time = |field: &str, at: &Option<prost_types::Timestamp>| {
        at.as_ref().map(|at| point_in_time(field, Some(at))).transpose()
    };
    Ok(AuditFilter {
        by: maybe_text("filter.by", &filter.by)?,
        kind: maybe_text("filter.kind", &filter.kind)?,
        subject: maybe_text("filter.subject", &filter.subject)?,
        from: time("filter.start_time", &filter.start_time)?,
        until: time("filter.end_time", &filter.end_time)?,
    })
}

fn anchors(given: &[String]) -> DecodeResult<Vec<Anchor>> {
    if given.len() > ANCHORS_MAX {
        return wrong("anchors", format!("has {} anchors; at most {ANCHORS_MAX} are allowed", given.len()));
    }
    let read = |(i, text): (usize, &String)| match Anchor::parse(text) {
        Some(anchor) => Ok(anchor),
        None => wrong(&format!("anchors[{i}]"), "must be a number, a colon and 64 hexadecimal digits, as it was given"),
    };
    given.iter().enumerate().map(read).collect()
}

#[tonic::async_trait]
impl v1::audit_service_server::AuditService for AuditService {
    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> MethodResult<v1::ListAuditEntriesResponse> {
        let tenant = identity::tenant(&request)?;
        let message = request.into_inner();
        let size = page_size(message.page_size, PAGE_DEFAULT)?;
        let filter = decode_filter(&message.filter.unwrap_or_default())?;
        let before = page::after(&message.page_token, |[number]| number.parse().ok().filter(is_number))?;
        let found = self.privacy.operators.audit(tenant, &filter, before, size + 1);
        let (entries, rest) = service::answer_in_time(Box::pin(found)).await?;
        let (entries, mut next_page_token) =
            page::split_page(entries, size, |last: &ChainEntry| page::token([&last.number.to_string()]));
        if let (true, Some(rest)) = (next_page_token.is_empty(), rest) {
            next_page_token = page::token([&rest.to_string()]);
        }
        let entries = entries.into_iter().map(encode_entry).collect();
        Ok(Response::new(v1::ListAuditEntriesResponse { entries, next_page_token }))
    }

    async fn verify_audit(&self, request: Request<v1::VerifyAuditRequest>) -> MethodResult<v1::VerifyAuditResponse> {
        let tenant = identity::tenant(&request)?;
        let anchors = anchors(&request.into_inner().anchors)?;
        // It may take longer than an answer to an agent may; the store bounds it.
        let checked = self.privacy.verify_audit(tenant, anchors).await.map_err(status::gate)?;
        Ok(Response::new(v1::VerifyAuditResponse {
            problems: checked.problems,
            anchor: checked.last.map(|last| last.to_string()).unwrap_or_default(),
            erased_texts: checked.erased,
        }))
    }
}
