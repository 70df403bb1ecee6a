//! `/audit`: the audit log, with chain verification.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use serde::Deserialize;

use crate::console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    AuditEntry, ListAuditEntriesRequest, VerifyAuditRequest, VerifyAuditResponse,
    audit_service_client::AuditServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/audit";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list).post(verify))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    entries: Vec<AuditEntry>,
    next: String,
    /// Result of the chain verification, where it was asked for.
    verified: Option<VerifyAuditResponse>,
}

#[derive(Deserialize)]
struct AuditQuery {
    #[serde(default)]
    after: String,
}

async fn list(visitor: Visitor, Query(place): Query<AuditQuery>) -> Result<Html<String>, PageError> {
    page(&visitor, place.after, None).await
}

#[derive(Deserialize)]
struct Verify {
    #[serde(default)]
    anchor: String,
}

async fn verify(FormPost { visitor, form }: FormPost<Verify>) -> Result<Html<String>, PageError> {
    let anchors = form.anchor.split_whitespace().map(str::to_owned).collect();
    let asked = VerifyAuditRequest { anchors };
    let verified = AuditServiceClient::new(visitor.calls.clone()).verify_audit(asked).await?.into_inner();
    page(&visitor, String::new(), Some(verified)).await
}

async fn page(
    visitor: &Visitor,
    page_token: String,
    verified: Option<VerifyAuditResponse>,
) -> Result<Html<String>, PageError> {
    let asked = ListAuditEntriesRequest { page_size: 50, page_token, filter: None };
    let found = AuditServiceClient::new(visitor.calls.clone()).list_audit_entries(asked).await?.into_inner();
    let frame = Frame::new(visitor, PATH, "Audit log");
    Ok(Html(Page { frame, entries: found.entries, next: found.next_page_token, verified }.render()?))
}
