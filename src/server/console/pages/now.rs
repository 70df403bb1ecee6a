//! `/`: the overview of the fleet: its present state, its severity, and links to act. A user who may not see it is
//! redirected to the first page that they may.

mod cards;
pub(super) mod usage;

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use http::StatusCode;
use prost_types::Timestamp;
use serde::Deserialize;
use tonic::{Code, Status};
use url::form_urlencoded::byte_serialize;

use self::{cards::Card, usage::DayUsage};
use super::{LINKS, charts::Hour, session::encode_segment, unhealthy_tools::TroubleRow};
use crate::{
    console::{Console, fault::PageError, filters, frame::Frame, visitor::Visitor},
    grpc::FromWire,
};
use callgate_core::domain::{budget::Dimension, time::wait_in_words};
use callgate_proto::{
    time::{millis, unix_ms},
    v1::{
        BudgetScope, Decision, DecisionCount, Fleet, FleetPart, GetFleetRequest, HaltScope, HaltState, NearBudget,
        Role, Savings, ServerHealth, fleet_service_client::FleetServiceClient,
    },
};

/// Its link.
pub(super) const PATH: &str = "/";

/// Roles that see it.
pub(super) const ROLES: &[Role] = &[Role::Approver, Role::Operator, Role::Analyst];

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show))
}

/// Parts of the fleet that the page shows: all but those of other charts.
const PARTS: [FleetPart; 7] = [
    FleetPart::Decisions,
    FleetPart::Approvals,
    FleetPart::Running,
    FleetPart::Stopped,
    FleetPart::Tools,
    FleetPart::Budgets,
    FleetPart::Savings,
];

#[derive(Template)]
#[template(path = "now.html")]
struct Page {
    frame: Frame,
    now: OverviewFigures,
    day: DayUsage,
}

/// The part that is refreshed each ten seconds.
#[derive(Template)]
#[template(path = "now.html", block = "usage")]
struct UsagePart {
    day: DayUsage,
}

/// The part that is refreshed each second.
#[derive(Template)]
#[template(path = "now.html", block = "live")]
struct LivePart {
    now: OverviewFigures,
}

struct OverviewFigures {
    /// Reason why nothing is known, where nothing is.
    problem: Option<String>,
    /// Figures that could not be read.
    unknown: bool,
    /// Items that need attention, a sentence each.
    needs: Vec<String>,
    /// Items that are worth a look, and can wait.
    looks: Vec<String>,
    cards: Vec<Card>,
    hour: Hour,
    tools: Vec<TroubleRow>,
    budgets: Vec<Budget>,
    halts: Vec<Halt>,
    saved: Option<SavingsRow>,
    saved_problem: Option<String>,
    plane: Vec<(&'static str, String)>,
}

struct Budget {
    whose: String,
    link: Option<String>,
    used: String,
    percent: u64,
    is_over: bool,
}

struct Halt {
    what: String,
    by: String,
    reason: String,
    at: Option<Timestamp>,
}

struct SavingsRow {
    calls: u64,
    reused: u64,
    denied: u64,
    stopped: u64,
    money: Option<u64>,
    priced: u64,
    tokens: Option<u64>,
    with_tokens: u64,
    /// Still being counted; up to when that is done.
    behind: Option<Option<Timestamp>>,
}

#[derive(Deserialize)]
pub(super) struct OverviewQuery {
    #[serde(default)]
    pub(super) part: String,
}

async fn show(visitor: Result<Visitor, PageError>, Query(asked): Query<OverviewQuery>) -> Result<Response, PageError> {
    let is_part = asked.part == "live";
    let visitor = match visitor {
        Ok(visitor) => visitor,
        // The page is loaded already, and its user was known a second ago: it stays, shows the error, and polls again.
        Err(PageError::Told { code: StatusCode::SERVICE_UNAVAILABLE, message, .. }) if is_part => {
            return Ok(Html(LivePart { now: OverviewFigures::unknown(&message) }.render()?).into_response());
        }
        Err(fault) => return Err(fault),
    };
    if !visitor.is_one_of(ROLES) {
        let first = LINKS.iter().find(|link| visitor.is_one_of(link.roles));
        let none = "your credential has no role for a page of the console; sign in with another one";
        let first = first.ok_or_else(|| PageError::new(StatusCode::FORBIDDEN, none))?;
        return Ok(Redirect::to(first.path).into_response());
    }
    let frame = Frame::new(&visitor, PATH, "Overview");
    let html = match asked.part.as_str() {
        "live" => LivePart { now: OverviewFigures::read(&visitor, &frame).await? }.render()?,
        "usage" => UsagePart { day: DayUsage::read(&visitor, &frame).await? }.render()?,
        _ => {
            let (now, day) =
                tokio::try_join!(OverviewFigures::read(&visitor, &frame), DayUsage::read(&visitor, &frame))?;
            Page { frame, now, day }.render()?
        }
    };
    Ok(Html(html).into_response())
}

/// An outage has to be visible on the page, which polls again; any other error ends it.
pub(super) fn is_outage(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded)
}

/// Problem of one of these parts, where it could not be read.
pub(super) fn find_problem(fleet: &Fleet, parts: &[FleetPart]) -> Option<String> {
    let one = fleet.unavailable.iter().find(|one| parts.contains(&one.part()));
    one.map(|one| one.problem.clone())
}

impl OverviewFigures {
    async fn read(visitor: &Visitor, frame: &Frame) -> Result<Self, PageError> {
        let request = GetFleetRequest { parts: PARTS.map(Into::into).to_vec(), ..Default::default() };
        match FleetServiceClient::new(visitor.calls.clone()).get_fleet(request).await {
            Ok(fleet) => Ok(Self::of(frame, fleet.into_inner().fleet.unwrap_or_default())),
            Err(status) if is_outage(&status) => Ok(Self::unknown(status.message())),
            Err(status) => Err(status.into()),
        }
    }

    fn unknown(problem: &str) -> Self {
        Self {
            problem: Some(problem.to_owned()),
            unknown: true,
            needs: Vec::new(),
            looks: Vec::new(),
            cards: Vec::new(),
            hour: Hour::unknown(),
            tools: Vec::new(),
            budgets: Vec::new(),
            halts: Vec::new(),
            saved: None,
            saved_problem: None,
            plane: Vec::new(),
        }
    }

    fn of(frame: &Frame, fleet: Fleet) -> Self {
        let at = unix_ms(fleet.as_of_time.as_ref());
        let plane = fleet.server.clone().unwrap_or_default();
        let cards = cards::list_cards(frame, &fleet, &plane, at);
        let needs = cards.iter().filter(|card| matches!(card.tone, "bad" | "ask")).map(Card::need).collect();
        let looks = cards.iter().filter(|card| card.tone == "warn").map(Card::need).collect();
        Self {
            problem: None,
            unknown: !fleet.unavailable.is_empty(),
            needs,
            looks,
            cards,
            hour: Hour::of(&fleet, at, 1),
            tools: fleet.tools.iter().map(|tool| TroubleRow::new(frame, tool, at)).collect(),
            budgets: fleet.budgets.iter().map(|budget| Budget::new(frame, budget)).collect(),
            halts: fleet.halts.iter().map(Halt::new).collect(),
            saved_problem: find_problem(&fleet, &[FleetPart::Savings]),
            saved: fleet.saved.map(|saved| SavingsRow::new(&saved, at)),
            plane: pairs(&plane),
        }
    }
}

/// A path with a query, where the page that it leads to is one of theirs.
pub(super) fn link(frame: &Frame, path: &str, rest: &str) -> Option<String> {
    frame.links.iter().any(|link| link.path == path).then(|| format!("{path}{rest}"))
}

pub(super) fn encode_query(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

pub(super) fn count(counts: &[DecisionCount], decision: Decision) -> u64 {
    counts.iter().filter(|one| one.decision() == decision).map(|one| one.count).sum()
}

/// As the page's script counts on.
pub(super) fn span(ms: i64) -> String {
    match ms.max(0) / 1_000 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
    }
}

pub(super) fn one_or_many(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", filters::group_thousands(count), if count == 1 { one } else { many })
}

fn pairs(plane: &ServerHealth) -> Vec<(&'static str, String)> {
    let revision = plane.policy_revision.map(|number| format!(", revision {number}")).unwrap_or_default();
    let policy = match plane.policy_version.as_str() {
        "default" => format!("built-in{revision}"),
        hash => format!("{hash}{revision}"),
    };
    let load = [
        ("Calls in evaluation", plane.judging),
        ("Calls queued", plane.queued),
        ("Uncommitted changes", plane.uncommitted),
    ];
    let load = load.into_iter().filter_map(|(name, count)| Some((name, filters::group_thousands(count?))));
    let mode = if plane.enforced { "enforce" } else { "shadow" };
    let mut pairs = vec![("Policy", policy), ("Mode", mode.to_owned())];
    pairs.extend(load);
    pairs.extend([
        ("Database response time", wait_in_words(millis(plane.database_time.as_ref()))),
        ("Version", plane.version.clone()),
    ]);
    pairs
}

impl Budget {
    fn new(frame: &Frame, budget: &NearBudget) -> Self {
        let (whose, link) = match budget.scope() {
            BudgetScope::Tenant => ("tenant, today (UTC)".to_owned(), None),
            BudgetScope::Agent => {
                let path = link(frame, "/sessions", &format!("?agent={}", encode_query(&budget.name)));
                (format!("agent {}, today (UTC)", budget.name), path)
            }
            _ => {
                let path = link(frame, "/sessions", &format!("/{}", encode_segment(&budget.name)));
                (format!("session {} and its sub-agents", budget.name), path)
            }
        };
        let used = match Dimension::from_wire(budget.dimension()) {
            Ok(Dimension::Cost) => format!("{} of {}", filters::dollars(budget.used), filters::dollars(budget.limit)),
            Ok(dimension) => {
                format!("{} of {}", dimension.describe_amount(budget.used), dimension.describe_amount(budget.limit))
            }
            Err(_) => format!("{} of {}", budget.used, budget.limit),
        };
        let percent = budget.used.saturating_mul(100).checked_div(budget.limit).unwrap_or(100);
        Self { whose, link, used, percent, is_over: budget.used >= budget.limit }
    }
}

impl Halt {
    fn new(halt: &HaltState) -> Self {
        let kind = match halt.scope() {
            HaltScope::Session => "session ",
            HaltScope::Agent => "agent ",
            HaltScope::Tool => "tool ",
            HaltScope::Tenant | HaltScope::Unspecified => "everything",
        };
        let what = format!("{kind}{}", halt.name);
        Self { what, by: halt.by.clone(), reason: halt.reason.clone(), at: halt.create_time }
    }
}

impl SavingsRow {
    fn new(saved: &Savings, at: i64) -> Self {
        let is_behind = at - unix_ms(saved.end_time.as_ref()) > 1_000;
        Self {
            calls: saved.reused_calls + saved.denied_calls + saved.stopped_calls,
            reused: saved.reused_calls,
            denied: saved.denied_calls,
            stopped: saved.stopped_calls,
            money: saved.cost_micros,
            priced: saved.priced_calls,
            tokens: saved.tokens,
            with_tokens: saved.token_calls,
            behind: is_behind.then_some(saved.end_time),
        }
    }
}
