//! `/learning`: the outcomes of retries, and `/learning/{tool}/{kind}`: one curve of chance against wait.

use std::cmp::Ordering;

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query},
    response::Html,
    routing::get,
};
use http::StatusCode;
use prost_types::Duration;
use serde::Deserialize;
use tokio::try_join;

use super::retries::{DAYS, History};
use crate::{
    console::{Console, fault::PageError, filters, frame::Frame, labels, visitor::Visitor},
    grpc::ToWire,
};
use callgate_core::domain::failure;
use callgate_proto::v1::{
    EstimateBasis, FailureKind, GetRetryProfileRequest, ListRetryProfilesRequest, RetryChance, RetryProfile,
    profile_service_client::ProfileServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/learning";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list)).route("/learning/{tool}/{kind}", get(render_profile))
}

/// A profile as a row of the list.
struct ProfileRow {
    profile: RetryProfile,
    kind: String,
    path: String,
}

impl ProfileRow {
    fn new(profile: RetryProfile) -> Self {
        let kind = labels::failure(profile.failure());
        let path =
            format!("{PATH}/{}/{}", super::session::encode_segment(&profile.tool), profile.failure().as_str_name());
        Self { path, kind, profile }
    }

    /// The best chance, with its interval and its wait.
    fn best(&self) -> String {
        // Of waits that are as good, to a percent, the one that most is known of.
        let worth = |chance: &RetryChance| [(chance.p * 100.0).round(), chance.p_low - chance.p_high];
        let order = |a: &RetryChance, b: &RetryChance| worth(a).partial_cmp(&worth(b)).unwrap_or(Ordering::Equal);
        let best = self.profile.chances.iter().max_by(|a, b| order(a, b));
        best.map_or_else(String::new, |chance| {
            let (p, low, high) =
                (filters::share(chance.p), filters::share(chance.p_low), filters::share(chance.p_high));
            format!("{p} ({low} to {high}) after {}", labels::span(chance.wait.as_ref()))
        })
    }

    fn advice(&self) -> String {
        match self.profile.retryable {
            true => format!("retry after {}", labels::span(self.profile.retry_after.as_ref())),
            false => "do not retry".to_owned(),
        }
    }

    /// The prior, in words.
    fn flag(&self) -> String {
        match self.profile.hint {
            Some(true) => format!("retryable, by the policy ({})", filters::share(self.profile.prior)),
            Some(false) => format!("not retryable, by the policy ({})", filters::share(self.profile.prior)),
            None => format!("default for {}: {}", self.kind, filters::share(self.profile.prior)),
        }
    }

    fn basis(&self) -> &'static str {
        match self.profile.basis() {
            EstimateBasis::Unspecified => "",
            EstimateBasis::Cell => "trials of this tool after this failure, with this wait",
            EstimateBasis::Tool => "trials of this tool after this failure",
            EstimateBasis::Kind => "trials of other tools after this failure",
            EstimateBasis::Prior => "the static flag, adjusted by few trials",
        }
    }

    /// The chance after the wait of that place, as the chart takes it.
    fn p(&self, at: usize) -> String {
        self.profile.chances.get(at).map_or_else(String::new, |chance| format!("{:.3}", chance.p))
    }

    fn trials(&self) -> String {
        format!("{:.1}", self.profile.trials)
    }
}

/// A wait in seconds; the shortest, none at all, has no place on a logarithmic axis, and stands at a tenth.
fn seconds(wait: Option<&Duration>) -> String {
    let seconds = wait.map_or(0.0, |wait| wait.seconds as f64 + f64::from(wait.nanos) / 1e9);
    format!("{}", seconds.max(0.1))
}

/// The list of retry profiles.
#[derive(Template)]
#[template(path = "learning.html")]
struct List {
    frame: Frame,
    rows: Vec<ProfileRow>,
    next: String,
    tool: String,
    kinds: Vec<(String, String)>,
    /// The requested kind of failure, by its name in the contract.
    kind: String,
    history: History,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ProfilesQuery {
    tool: String,
    kind: String,
    after: String,
    days: Option<u32>,
}

impl ProfilesQuery {
    fn days_or(&self, default: u32) -> u32 {
        self.days.filter(|days| *days > 0).unwrap_or(default)
    }

    fn failure(&self) -> Result<FailureKind, PageError> {
        match self.kind.as_str() {
            "" => Ok(FailureKind::Unspecified),
            kind => FailureKind::from_str_name(kind).ok_or_else(|| PageError::field("kind: unknown kind of failure")),
        }
    }
}

async fn list(visitor: Visitor, Query(wanted): Query<ProfilesQuery>) -> Result<Html<String>, PageError> {
    let (tool, failure) = (wanted.tool.trim().to_owned(), wanted.failure()?);
    let history = History::read(&visitor, (&tool, failure), wanted.days_or(7));
    let asked = ListRetryProfilesRequest {
        tool: tool.clone(),
        failure: failure.into(),
        page_size: 50,
        page_token: wanted.after,
    };
    let mut profiles = ProfileServiceClient::new(visitor.calls.clone());
    let found = async { Ok(profiles.list_retry_profiles(asked).await?.into_inner()) };
    let (history, found) = try_join!(history, found)?;
    let rows = found.profiles.into_iter().map(ProfileRow::new).collect();
    let frame = Frame::new(&visitor, PATH, "Retries");
    let kinds = failure::FailureKind::ALL
        .map(ToWire::to_wire)
        .map(|kind| (kind.as_str_name().to_owned(), labels::failure(kind)))
        .into();
    let page = List { frame, rows, next: found.next_page_token, tool, kinds, kind: wanted.kind, history };
    Ok(Html(page.render()?))
}

#[derive(Template)]
#[template(path = "learning_one.html")]
struct ProfileQuery {
    frame: Frame,
    row: ProfileRow,
    attempts: Vec<ProfileRow>,
    history: History,
}

/// Attempts with a row of their own on a page.
const ATTEMPTS: u32 = 3;

async fn render_profile(
    visitor: Visitor,
    Path((tool, kind)): Path<(String, String)>,
    Query(wanted): Query<ProfilesQuery>,
) -> Result<Html<String>, PageError> {
    let failure = FailureKind::from_str_name(&kind)
        .ok_or_else(|| PageError::new(StatusCode::NOT_FOUND, "unknown kind of failure"))?;
    let mut profiles = ProfileServiceClient::new(visitor.calls.clone());
    let attempts = async {
        let mut attempts = Vec::new();
        for attempt in 1..=ATTEMPTS {
            let (tool, failure) = (tool.clone(), failure.into());
            let request = GetRetryProfileRequest { tool, failure, attempt, tool_state: 0 };
            let found = profiles.get_retry_profile(request).await?.into_inner().profile;
            attempts.push(ProfileRow::new(found.unwrap_or_default()));
        }
        Ok(attempts)
    };
    let history = History::read(&visitor, (&tool, failure), wanted.days_or(30));
    let (mut attempts, history) = try_join!(attempts, history)?;
    let row = attempts.remove(0);
    let title = format!("{tool}: {}", row.kind);
    Ok(Html(ProfileQuery { frame: Frame::new(&visitor, PATH, title), row, attempts, history }.render()?))
}
