//! `/approvals`: the approval requests. The open ones by risk and age, and all former ones.

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use prost_types::Timestamp;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::bulk;
use crate::console::{Console, arguments, fault::PageError, filters, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    Approval, ApprovalFilter, ApprovalGroup, ApprovalGrouping, ApprovalOrder, ApprovalRisk, ApprovalState, Decision,
    ListApprovalsRequest, approval_service_client::ApprovalServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/approvals";
/// Requests on one page.
const PAGE: u32 = 25;
/// Characters of arguments in a line.
const LINE: usize = 160;
/// Characters of a reason or a justification in a line.
const REASON: usize = 240;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list))
}

/// Filter, order and page of the list.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ListQuery {
    /// Empty for the open ones, `all` for all.
    state: String,
    /// `mine` for those that the user may answer, by their groups.
    whose: String,
    session: String,
    tool: String,
    agent: String,
    rule: String,
    min: String,
    max: String,
    /// Of the open ones: empty by risk, or `amount`, `time`.
    order: String,
    /// Of the open ones: empty, or `tool`, `agent`, `rule`, `amount`.
    by: String,
    after: String,
    part: String,
}

impl ListQuery {
    fn state(&self) -> Result<ApprovalState, PageError> {
        let known = STATES.iter().find(|(name, ..)| *name == self.state);
        known.map(|(_, state, _)| *state).ok_or_else(|| PageError::field("state: unknown state of an approval request"))
    }

    /// Its fields, by their names in an address.
    pub(super) fn fields(&self) -> [(&'static str, &str); 10] {
        [
            ("state", &self.state),
            ("whose", &self.whose),
            ("session", &self.session),
            ("tool", &self.tool),
            ("agent", &self.agent),
            ("rule", &self.rule),
            ("min", &self.min),
            ("max", &self.max),
            ("order", &self.order),
            ("by", &self.by),
        ]
    }

    /// The address of this list on a page, with more fields.
    pub(super) fn address(&self, path: &str, more: &[(&str, &str)]) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in self.fields().iter().chain(more).filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        format!("{path}?{}", query.finish())
    }

    fn is_filtered(&self) -> bool {
        self.fields().iter().any(|(name, value)| !matches!(*name, "state" | "order" | "by") && !value.is_empty())
    }

    /// The list narrowed to a group.
    fn narrowed(&self, filter: &ApprovalFilter) -> Self {
        let amount = |amount: Option<f64>| amount.map(|amount| amount.to_string()).unwrap_or_default();
        Self {
            tool: filter.tool.clone(),
            agent: filter.agent_id.clone(),
            rule: filter.rule.clone(),
            min: amount(filter.min_amount),
            max: amount(filter.max_amount),
            by: String::new(),
            ..self.clone()
        }
    }

    /// The request for this list.
    pub(super) fn request(&self) -> Result<ListApprovalsRequest, PageError> {
        let amount = |field: &str, text: &str| match text.trim() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| PageError::field(format!("{field}: must be a number"))),
        };
        let text = |text: &str| text.trim().to_owned();
        let filter = ApprovalFilter {
            tool: text(&self.tool),
            agent_id: text(&self.agent),
            rule: text(&self.rule),
            min_amount: amount("min", &self.min)?,
            max_amount: amount("max", &self.max)?,
        };
        let state = self.state()?;
        let is_open = state == ApprovalState::Pending;
        let order = ORDERS.iter().find(|(name, ..)| *name == self.order).filter(|_| is_open);
        let group_by = GROUPINGS.iter().find(|(name, ..)| *name == self.by).filter(|_| is_open);
        Ok(ListApprovalsRequest {
            state: state.into(),
            order: order.map_or(ApprovalOrder::Unspecified, |(_, order, _)| *order).into(),
            group_by: group_by.map_or(ApprovalGrouping::Unspecified, |(_, by, _)| *by).into(),
            session_id: text(&self.session),
            mine: self.whose == "mine",
            filter: Some(filter),
            page_size: PAGE,
            ..ListApprovalsRequest::default()
        })
    }
}

/// Each order of open requests as it is chosen, and as people call it.
const ORDERS: [(&str, ApprovalOrder, &str); 3] = [
    ("", ApprovalOrder::Risk, "risk"),
    ("amount", ApprovalOrder::Amount, "amount"),
    ("time", ApprovalOrder::Expiry, "time left"),
];

/// Each grouping of open requests as it is chosen, and as people call it.
const GROUPINGS: [(&str, ApprovalGrouping, &str); 5] = [
    ("", ApprovalGrouping::Unspecified, "nothing"),
    ("tool", ApprovalGrouping::Tool, "tool"),
    ("agent", ApprovalGrouping::Agent, "agent"),
    ("rule", ApprovalGrouping::Rule, "rule"),
    ("amount", ApprovalGrouping::Amount, "amount"),
];

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
    rows: Vec<ApprovalRow>,
    groups: Vec<GroupRow>,
    is_open: bool,
    total: u64,
    next: String,
}

impl Page {
    fn live(&self) -> String {
        self.place.address(PATH, &[("after", &self.place.after), ("part", "queue")])
    }

    fn older(&self) -> String {
        self.place.address(PATH, &[("after", &self.next)])
    }

    fn bulk(&self) -> String {
        self.place.address(bulk::PATH, &[])
    }
}

/// A request in the list.
struct ApprovalRow {
    question: Approval,
    risk: Option<RiskBadge>,
    line: String,
    left_out: usize,
    /// Message of the rule that requests.
    reason: String,
    /// The agent's justification, shortened.
    justification: String,
    until: Option<String>,
    state: &'static str,
}

/// A group of open requests.
struct GroupRow {
    name: String,
    /// Address of the list narrowed to it.
    path: Option<String>,
    count: u64,
    risk: Option<RiskBadge>,
    amount: Option<f64>,
    until: Option<String>,
    expire_time: Option<Timestamp>,
}

/// Badge of a risk.
#[derive(Debug, Clone, Copy)]
pub(super) struct RiskBadge {
    pub(super) text: &'static str,
    pub(super) class: &'static str,
}

pub(super) fn risk(risk: ApprovalRisk) -> Option<RiskBadge> {
    match risk {
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
        let short = |text: &str| match arguments::first_line(text, REASON) {
            (text, 0) => text,
            (text, _) => text + "…",
        };
        let asks = question.findings.iter().position(|one| one.decision() == Decision::Ask && one.enforced);
        let reason = asks.and_then(|at| question.reasons.get(at)).map(|text| short(text)).unwrap_or_default();
        let (risk, justification) = (risk(question.risk()), short(&question.justification));
        Self { risk, line, left_out, reason, justification, until, state: state(&question), question }
    }
}

impl GroupRow {
    fn new(place: &ListQuery, group: ApprovalGroup) -> Self {
        Self {
            path: group.filter.as_ref().map(|filter| place.narrowed(filter).address(PATH, &[])),
            count: group.count.into(),
            risk: risk(group.risk()),
            amount: group.amount,
            until: filters::machine_time(group.expire_time.as_ref()),
            expire_time: group.expire_time,
            name: group.name,
        }
    }
}

async fn list(visitor: Visitor, Query(place): Query<ListQuery>) -> Result<Response, PageError> {
    let mut asked = place.request()?;
    let is_count = place.part == "count";
    asked.page_size = if is_count { 1 } else { PAGE };
    asked.page_token.clone_from(&place.after);
    let is_open = asked.state() == ApprovalState::Pending;
    let found = ApprovalServiceClient::new(visitor.calls.clone()).list_approvals(asked).await?.into_inner();
    if is_count {
        return Ok(Html(count(found.total_size.into())).into_response());
    }
    let page = Page {
        frame: Frame::new(&visitor, PATH, "Approvals"),
        rows: found.approvals.into_iter().map(ApprovalRow::new).collect(),
        groups: found.groups.into_iter().map(|group| GroupRow::new(&place, group)).collect(),
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
