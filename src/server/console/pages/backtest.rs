//! `/policy/backtests/{id}`: a backtest of a policy: its progress, and its result.

use std::sync::Arc;

use askama::Template;
use axum::{
    Router,
    extract::{DefaultBodyLimit, Path, Query, State},
    response::{Html, IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::policy;
use crate::{
    console::{
        Console,
        fault::PageError,
        filters,
        form::FormPost,
        frame::Frame,
        jobs::{BacktestJob, JobStatus},
        labels,
        visitor::Visitor,
    },
    grpc::time::timestamp,
};
use callgate_core::domain::time::Timestamp;
use callgate_proto::v1::{
    BacktestChangeKind, BacktestPolicyRequest, BacktestProgress, BacktestResult, backtest_policy_request::Policy,
};

const DAY_MS: i64 = 86_400_000;
/// Choices of the span of tried calls, in days.
pub(super) const DAYS: [(i64, &str); 4] = [(1, "last day"), (7, "last week"), (30, "last 30 days"), (365, "last year")];
/// Choices of the number of calls.
pub(super) const CALLS: [u64; 4] = [1_000, 5_000, 20_000, 100_000];

/// Makes htmx load the whole page again.
const HX_REFRESH: HeaderName = HeaderName::from_static("hx-refresh");

pub(super) fn router() -> Router<Console> {
    Router::new()
        .route("/policy/backtests", post(begin).layer(DefaultBodyLimit::max(policy::BODY_MAX)))
        .route("/policy/backtests/{id}", get(show).post(cancel))
}

/// The form of a new backtest.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BacktestForm {
    text: String,
    hash: String,
    days: String,
    calls: String,
}

#[derive(Template)]
#[template(path = "backtest.html", blocks = ["standing"])]
struct Page {
    frame: Frame,
    job: BacktestJob,
    running: Option<BacktestProgress>,
    done: Option<Arc<BacktestResult>>,
    fault: Option<String>,
}

impl Page {
    fn new(visitor: &Visitor, job: BacktestJob) -> Self {
        let (mut running, mut done, mut fault) = (None, None, None);
        match &job.standing {
            JobStatus::Running(how_far) => running = Some(*how_far),
            JobStatus::Done(result) => done = Some(Arc::clone(result)),
            JobStatus::Failed(why) => fault = Some(why.clone()),
            JobStatus::Cancelled => {}
        }
        Self { frame: Frame::new(visitor, policy::PATH, "Backtest"), job, running, done, fault }
    }
}

/// The kind of change, in words.
const fn style_change(kind: BacktestChangeKind) -> labels::StyledWord {
    let (class, text) = match kind {
        BacktestChangeKind::Unspecified => ("muted", "other"),
        BacktestChangeKind::NewlyRefused => ("bad", "newly refused"),
        BacktestChangeKind::NewlyAsked => ("ask", "newly sent to approval"),
        BacktestChangeKind::NewlyDelayed => ("warn", "newly delayed (WAIT)"),
        BacktestChangeKind::NewlyAllowed => ("good", "newly allowed"),
        BacktestChangeKind::OtherwiseRefused => ("muted", "not allowed, by another decision"),
    };
    labels::StyledWord { class, text }
}

/// Calls that become so, and those of them that had brought something.
fn count(result: &BacktestResult, of: BacktestChangeKind) -> (u64, u64) {
    let changes = result.changes.iter().filter(|change| change.kind() == of);
    changes.fold((0, 0), |(calls, lost), change| (calls + change.calls, lost + change.lost))
}

/// The calls that are not newly refused.
fn count_others(result: &BacktestResult) -> Vec<(labels::StyledWord, u64)> {
    use BacktestChangeKind::{NewlyAllowed, NewlyAsked, NewlyDelayed, OtherwiseRefused};
    let all = [NewlyAsked, NewlyDelayed, NewlyAllowed, OtherwiseRefused];
    all.into_iter().map(|of| (style_change(of), count(result, of).0)).filter(|(_, calls)| *calls > 0).collect()
}

async fn begin(
    State(console): State<Console>,
    FormPost { visitor, form }: FormPost<BacktestForm>,
) -> Result<Response, PageError> {
    let request = request(&form, visitor.now)?;
    match console.jobs.begin(&visitor, request, timestamp(visitor.now)).await {
        Ok(id) => Ok(Redirect::to(&format!("/policy/backtests/{id}")).into_response()),
        Err(fault) if fault.is_unauthenticated() => Err(fault),
        // Shown beside the submitted text.
        Err(fault) => {
            policy::render_refusal(&console, &visitor, &form.text.replace("\r\n", "\n"), &form.hash, fault).await
        }
    }
}

fn request(form: &BacktestForm, now: Timestamp) -> Result<BacktestPolicyRequest, PageError> {
    let days = form.days.parse().ok().filter(|days| (1..=365).contains(days));
    let days: i64 = days.ok_or_else(|| PageError::field("days: must be 1 to 365"))?;
    let max_calls = form.calls.parse().map_err(|_| PageError::field("calls: must be a whole number"))?;
    let policy = match form.hash.as_str() {
        // Browsers end lines by two characters, which would be another policy than the file's.
        "" => Policy::Text(form.text.replace("\r\n", "\n")),
        hash => Policy::Hash(hash.to_owned()),
    };
    Ok(BacktestPolicyRequest {
        policy: Some(policy),
        start_time: Some(timestamp(Timestamp::from_millis(now.as_millis() - days * DAY_MS))),
        max_calls,
        ..BacktestPolicyRequest::default()
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BacktestPageQuery {
    part: String,
}

async fn show(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(place): Query<BacktestPageQuery>,
) -> Result<Response, PageError> {
    let page = Page::new(&visitor, console.jobs.find(&visitor, &id)?);
    match place.part.as_str() {
        // It has ended: the page has more than its progress.
        "standing" if page.running.is_none() => Ok([(HX_REFRESH, HeaderValue::from_static("true"))].into_response()),
        "standing" => Ok(Html(page.as_standing().render()?).into_response()),
        _ => Ok(Html(page.render()?).into_response()),
    }
}

#[derive(Deserialize)]
struct EmptyForm {}

async fn cancel(
    State(console): State<Console>,
    Path(id): Path<String>,
    FormPost { visitor, form: EmptyForm {} }: FormPost<EmptyForm>,
) -> Result<Redirect, PageError> {
    console.jobs.cancel(&visitor, &id)?;
    Ok(Redirect::to(&format!("/policy/backtests/{id}")))
}
