//! `/audit`: the audit log, with filters, export and chain verification.

use askama::Template;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::Query,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use chrono::{Days, NaiveDate, NaiveTime};
use futures_util::{StreamExt as _, stream};
use http::header;
use prost_types::Timestamp;
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::session;
use crate::console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, visitor::Visitor};
use callgate_client::csv;
use callgate_core::domain::audit::AuditOperation;
use callgate_proto::v1::{
    AuditEntry, AuditFilter, ListAuditEntriesRequest, VerifyAuditRequest, VerifyAuditResponse,
    audit_service_client::AuditServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/audit";
/// Entries that an export reads at once.
const EXPORT_PAGE: u32 = 500;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list).post(verify)).route("/audit/export", get(export))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    search: AuditSearch,
    entries: Vec<AuditEntry>,
    /// Address of the next page; empty on the last one.
    next: String,
    /// Address of the entries as a file.
    export: String,
    /// Result of the chain verification, where it was asked for.
    verified: Option<VerifyAuditResponse>,
}

/// Search by the parameters of the page's address.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AuditSearch {
    by: String,
    kind: String,
    subject: String,
    /// The first and the last UTC day.
    from: String,
    to: String,
    after: String,
}

impl AuditSearch {
    fn is_empty(&self) -> bool {
        [&self.by, &self.kind, &self.subject, &self.from, &self.to].into_iter().all(String::is_empty)
    }

    fn filter(&self) -> Result<AuditFilter, PageError> {
        let day = |field: &str, text: &str, later: u64| {
            let day = text.parse::<NaiveDate>().ok().and_then(|day| day.checked_add_days(Days::new(later)));
            let day = day.ok_or_else(|| PageError::field(format!("{field}: {text} is no day such as 2026-01-31")))?;
            Ok::<_, PageError>(Timestamp { seconds: day.and_time(NaiveTime::MIN).and_utc().timestamp(), nanos: 0 })
        };
        let given = |field, text: &str, later| (!text.is_empty()).then(|| day(field, text, later)).transpose();
        Ok(AuditFilter {
            by: self.by.trim().to_owned(),
            kind: self.kind.clone(),
            subject: self.subject.trim().to_owned(),
            start_time: given("from", &self.from, 0)?,
            end_time: given("to", &self.to, 1)?,
        })
    }

    /// An address with this search.
    fn address(&self, path: &str, after: &str) -> String {
        let mut query = Serializer::new(String::new());
        let fields = [("by", &*self.by), ("kind", &self.kind), ("subject", &self.subject), ("from", &self.from)];
        for (name, value) in fields.into_iter().chain([("to", &*self.to), ("after", after)]) {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        match query.finish() {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }
}

async fn list(visitor: Visitor, Query(search): Query<AuditSearch>) -> Result<Html<String>, PageError> {
    page(&visitor, search, None).await
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
    page(&visitor, AuditSearch::default(), Some(verified)).await
}

async fn page(
    visitor: &Visitor,
    search: AuditSearch,
    verified: Option<VerifyAuditResponse>,
) -> Result<Html<String>, PageError> {
    let filter = Some(search.filter()?);
    let asked = ListAuditEntriesRequest { page_size: 50, page_token: search.after.clone(), filter };
    let found = AuditServiceClient::new(visitor.calls.clone()).list_audit_entries(asked).await?.into_inner();
    let frame = Frame::new(visitor, PATH, "Audit log");
    let next = match found.next_page_token.as_str() {
        "" => String::new(),
        after => search.address(PATH, after),
    };
    let export = search.address("/audit/export", "");
    Ok(Html(Page { frame, search, entries: found.entries, next, export, verified }.render()?))
}

/// The entries as CSV, read page by page while the browser takes them. An error cuts the file off.
async fn export(visitor: Visitor, Query(search): Query<AuditSearch>) -> Result<Response, PageError> {
    let filter = Some(search.filter()?);
    let first = ListAuditEntriesRequest { page_size: EXPORT_PAGE, page_token: String::new(), filter };
    let mut client = AuditServiceClient::new(visitor.calls.clone());
    // An error of the first page is still a page.
    let found = client.list_audit_entries(first.clone()).await?.into_inner();
    let pages = stream::try_unfold(Some((client, first, Some(found))), async |state| {
        let Some((mut client, mut asked, found)) = state else { return Ok::<_, tonic::Status>(None) };
        let found = match found {
            Some(found) => found,
            None => client.list_audit_entries(asked.clone()).await?.into_inner(),
        };
        let lines: String = found.entries.iter().map(csv::audit_line).collect();
        asked.page_token = found.next_page_token;
        let rest = (!asked.page_token.is_empty()).then_some((client, asked, None));
        Ok(Some((Bytes::from(lines), rest)))
    });
    let header = stream::once(async { Ok(Bytes::from(csv::audit_header())) });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"audit.csv\""),
    ];
    Ok((headers, Body::from_stream(header.chain(pages))).into_response())
}
