//! `/approvals`: the approval requests. The open ones by risk and age, and all former ones.

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use crate::console::{Console, arguments, fault::PageError, filters, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    Approval, ApprovalOrder, ApprovalRisk, ApprovalState, ListApprovalsRequest,
    approval_service_client::ApprovalServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/approvals";
/// Requests on one page.
const PAGE: u32 = 25;
/// Characters of arguments in a line.
const LINE: usize = 160;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list))
}

/// Filter and page of the list.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ListQuery {
    /// Empty for the open ones, `all` for all.
    state: String,
    /// `mine` for those that the user may answer, by their groups.
    whose: String,
    session: String,
    after: String,
    part: String,
}

impl ListQuery {
    fn state(&self) -> Result<ApprovalState, PageError> {
        let known = STATES.iter().find(|(name, ..)| *name == self.state);
        known.map(|(_, state, _)| *state).ok_or_else(|| PageError::field("state: unknown state of an approval request"))
    }

    /// The address of this place, with another part or page.
    fn path(&self, part: &str, after: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let all = [
            ("state", &*self.state),
            ("whose", &self.whose),
            ("session", &self.session),
            ("after", after),
            ("part", part),
        ];
        for (name, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        format!("{PATH}?{}", query.finish())
    }

    fn is_filtered(&self) -> bool {
        !self.whose.is_empty() || !self.session.is_empty()
    }
}

/// Each state as it is chosen, and as people call it.
const STATES: [(&str, ApprovalState, &str); 7] = [
    ("", ApprovalState::Pending, "open"),
    ("approved", ApprovalState::Approved, "approved"),
    ("edited", ApprovalState::Edited, "approved with other arguments"),
    ("denied", ApprovalState::Denied, "denied"),
    ("expired", ApprovalState::Expired, "expired"),
    ("withdrawn", ApprovalState::Withdrawn, "withdrawn by the requester"),
    ("all", ApprovalState::Unspecified, "all, newest first"),
];

#[derive(Template)]
#[template(path = "approvals.html", blocks = ["queue"])]
struct Page {
    frame: Frame,
    place: ListQuery,
    states: [(&'static str, ApprovalState, &'static str); 7],
    rows: Vec<ApprovalRow>,
    is_open: bool,
    total: u64,
    next: String,
}

impl Page {
    fn live(&self) -> String {
        self.place.path("queue", &self.place.after)
    }

    fn older(&self) -> String {
        self.place.path("", &self.next)
    }
}

/// A request in the list.
struct ApprovalRow {
    question: Approval,
    risk: Option<RiskBadge>,
    line: String,
    left_out: usize,
    until: Option<String>,
    state: &'static str,
}

/// Badge of a risk.
#[derive(Debug, Clone, Copy)]
pub(super) struct RiskBadge {
    pub(super) text: &'static str,
    pub(super) class: &'static str,
}

pub(super) fn risk(question: &Approval) -> Option<RiskBadge> {
    match question.risk() {
        ApprovalRisk::High => Some(RiskBadge { text: "high risk", class: "bad" }),
        ApprovalRisk::Medium => Some(RiskBadge { text: "medium risk", class: "warn" }),
        ApprovalRisk::Low => Some(RiskBadge { text: "low risk", class: "good" }),
        ApprovalRisk::Unspecified => None,
    }
}

/// State of a request, in words.
pub(super) fn state(question: &Approval) -> &'static str {
    match question.state() {
        ApprovalState::Approved => "approved",
        ApprovalState::Edited => "approved with other arguments",
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Withdrawn => "withdrawn",
        ApprovalState::Pending | ApprovalState::Unspecified => "open",
    }
}

impl ApprovalRow {
    fn new(question: Approval) -> Self {
        let (line, left_out) = arguments::first_line(&question.arguments_json, LINE);
        let until = filters::machine_time(question.expire_time.as_ref());
        Self { risk: risk(&question), line, left_out, until, state: state(&question), question }
    }
}

async fn list(visitor: Visitor, Query(place): Query<ListQuery>) -> Result<Response, PageError> {
    let state = place.state()?;
    let is_open = state == ApprovalState::Pending;
    let order = if is_open { ApprovalOrder::Risk } else { ApprovalOrder::Unspecified };
    let is_count = place.part == "count";
    let asked = ListApprovalsRequest {
        state: state.into(),
        order: order.into(),
        session_id: place.session.trim().to_owned(),
        mine: place.whose == "mine",
        page_size: if is_count { 1 } else { PAGE },
        page_token: place.after.clone(),
        ..ListApprovalsRequest::default()
    };
    let found = ApprovalServiceClient::new(visitor.calls.clone()).list_approvals(asked).await?.into_inner();
    if is_count {
        return Ok(Html(count(found.total_size.into())).into_response());
    }
    let page = Page {
        frame: Frame::new(&visitor, PATH, "Approvals"),
        states: STATES,
        rows: found.approvals.into_iter().map(ApprovalRow::new).collect(),
        is_open,
        total: found.total_size.into(),
        next: found.next_page_token,
        place,
    };
    let html = match page.place.part.as_str() {
        "queue" => page.as_queue().render()?,
        _ => page.render()?,
    };
    Ok(Html(html).into_response())
}

/// Count of open requests, as the link to this page shows it.
fn count(open: u64) -> String {
    match open {
        0 => String::new(),
        open => format!("{}<span class=\"hidden\"> open</span>", filters::group_thousands(open)),
    }
}
