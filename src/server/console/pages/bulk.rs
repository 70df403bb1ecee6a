//! `/approvals/bulk`: answers to several approval requests at once. Those that the policy lets an approver approve
//! together are shown with their exact arguments; all of a filter can be denied.

use std::collections::BTreeMap;

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use prost_types::Timestamp;
use serde::Deserialize;

use super::approvals::{self, ListQuery, RiskBadge, risk};
use crate::console::{Console, arguments, fault::PageError, filters, form::FormPost, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    Approval, ApprovalResult, ApprovalSelection, ApprovalState, ListApprovalsRequest, ListApprovalsResponse,
    ResolveApprovalsRequest, Role, approval_service_client::ApprovalServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/approvals/bulk";
/// Requests that are read to find those that can be approved.
const READ: u32 = 100;
/// Requests that are shown to be approved: the most of one act.
const SHOWN: usize = 50;
/// Beginning of the name of a field that selects a request; its value is the digest of the shown arguments.
const PICK: &str = "pick-";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show).post(answer))
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Page {
    frame: Frame,
    place: ListQuery,
    rows: Vec<BulkRow>,
    total: u64,
    /// Requests among the first ones that are approved by themselves alone.
    alone: usize,
    may_answer: bool,
    /// Every shown request is selected.
    all: bool,
    /// Time of the page, in milliseconds: later requests are not denied by it.
    until: i64,
    fault: Option<String>,
    reason: String,
    results: Vec<ApprovalResult>,
    remaining: u64,
}

/// A request that can be approved together with others.
struct BulkRow {
    question: Approval,
    risk: Option<RiskBadge>,
    arguments: String,
    until: Option<String>,
}

impl BulkRow {
    /// None where the page cannot show all of the arguments.
    fn new(question: Approval) -> Option<Self> {
        let (arguments, is_whole) = arguments::tree(&question.arguments_json);
        let until = filters::machine_time(question.expire_time.as_ref());
        is_whole.then(|| Self { risk: risk(question.risk()), arguments, until, question })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BulkQuery {
    all: String,
}

/// The form: what is done, to which requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BulkForm {
    what: String,
    reason: String,
    until: String,
    #[serde(flatten)]
    place: BTreeMap<String, String>,
}

async fn show(
    visitor: Visitor,
    Query(place): Query<ListQuery>,
    Query(query): Query<BulkQuery>,
) -> Result<Html<String>, PageError> {
    let page = Page { all: !query.all.is_empty(), ..Page::read(&visitor, place).await? };
    Ok(Html(page.render()?))
}

/// Answers, and shows the result of each.
async fn answer(FormPost { visitor, form }: FormPost<BulkForm>) -> Result<Html<String>, PageError> {
    let place: ListQuery = serde_json::from_value(serde_json::to_value(&form.place).unwrap_or_default())
        .map_err(|problem| PageError::field(problem.to_string()))?;
    let answered = match form.request(&place) {
        Ok(request) => {
            let mut approvals = ApprovalServiceClient::new(visitor.calls.clone());
            approvals.resolve_approvals(request).await.map_err(PageError::from)
        }
        Err(fault) => Err(fault),
    };
    let read = Page::read(&visitor, place.clone()).await;
    let page = match answered {
        Ok(answered) => {
            let answered = answered.into_inner();
            // The results are told also where the list cannot be read.
            let page = read.unwrap_or_else(|_| Page::new(&visitor, place, ListApprovalsResponse::default()));
            Page { results: answered.results, remaining: answered.remaining_size.into(), ..page }
        }
        Err(PageError::Told { message, .. }) => Page { fault: Some(message), reason: form.reason, ..read? },
        Err(fault) => return Err(fault),
    };
    Ok(Html(page.render()?))
}

impl BulkForm {
    fn request(&self, place: &ListQuery) -> Result<ResolveApprovalsRequest, PageError> {
        let reason = self.reason.trim().to_owned();
        match self.what.as_str() {
            "approve" => {
                let picked = self.place.iter().filter_map(|(name, digest)| Some((name.strip_prefix(PICK)?, digest)));
                let approvals: Vec<ApprovalSelection> = picked
                    .map(|(id, digest)| ApprovalSelection { approval_id: id.to_owned(), args_digest: digest.clone() })
                    .collect();
                if approvals.is_empty() {
                    return Err(PageError::field("select the requests to approve"));
                }
                Ok(ResolveApprovalsRequest { approve: true, reason, approvals, ..ResolveApprovalsRequest::default() })
            }
            "deny" if reason.is_empty() => Err(PageError::field("reason: required for a denial; the model gets it")),
            "deny" => {
                let until: i64 = self.until.parse().map_err(|_| PageError::field("until: must be a time"))?;
                let nanos = i32::try_from(until.rem_euclid(1_000)).unwrap_or(0) * 1_000_000;
                Ok(ResolveApprovalsRequest {
                    reason,
                    matching: Some(open(place)?),
                    create_time_max: Some(Timestamp { seconds: until.div_euclid(1_000), nanos }),
                    ..ResolveApprovalsRequest::default()
                })
            }
            _ => Err(PageError::field("what: must be approve or deny")),
        }
    }
}

/// The open requests of a list.
fn open(place: &ListQuery) -> Result<ListApprovalsRequest, PageError> {
    Ok(ListApprovalsRequest { state: ApprovalState::Pending.into(), group_by: 0, ..place.request()? })
}

impl Page {
    async fn read(visitor: &Visitor, place: ListQuery) -> Result<Self, PageError> {
        let asked = ListApprovalsRequest { page_size: READ, ..open(&place)? };
        let found = ApprovalServiceClient::new(visitor.calls.clone()).list_approvals(asked).await?.into_inner();
        Ok(Self::new(visitor, place, found))
    }

    fn new(visitor: &Visitor, place: ListQuery, found: ListApprovalsResponse) -> Self {
        let count = found.approvals.len();
        let able = found.approvals.into_iter().filter(|one| one.bulk_refusal.is_empty()).filter_map(BulkRow::new);
        let able: Vec<BulkRow> = able.collect();
        let alone = count - able.len();
        Self {
            frame: Frame::new(visitor, approvals::PATH, "Answer several approval requests"),
            rows: able.into_iter().take(SHOWN).collect(),
            total: found.total_size.into(),
            alone,
            may_answer: visitor.is_one_of(&[Role::Approver]),
            all: false,
            until: visitor.now.as_millis(),
            fault: None,
            reason: String::new(),
            results: Vec::new(),
            remaining: 0,
            place,
        }
    }

    fn list(&self) -> String {
        self.place.address(approvals::PATH, &[])
    }

    fn select_all(&self) -> String {
        self.place.address(PATH, &[("all", "1")])
    }

    fn done(&self) -> usize {
        self.results.iter().filter(|result| result.error_reason.is_empty()).count()
    }
}

/// Result of one answer, in words.
fn result(result: &ApprovalResult) -> &'static str {
    match result.state() {
        ApprovalState::Approved => "approved",
        ApprovalState::Denied => "denied",
        _ => "not answered",
    }
}
