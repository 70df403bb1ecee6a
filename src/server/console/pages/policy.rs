//! `/policy`: the active policy, its history, and another text: checked, tried on stored calls, and activated.

use askama::Template;
use axum::{
    Router,
    extract::{DefaultBodyLimit, Query, State},
    response::{Html, IntoResponse as _, Redirect, Response},
    routing::get,
};
use http::StatusCode;
use serde::Deserialize;
use tokio::try_join;

use super::{
    backtest::{CALLS, DAYS},
    difference::{ChangedKey, difference},
};
use crate::console::{
    Console,
    fault::PageError,
    filters,
    form::FormPost,
    frame::Frame,
    jobs::{self, BacktestJob},
    visitor::Visitor,
};
use callgate_proto::v1::{
    ApplyMode, ApplyPolicyRequest, CheckPolicyRequest, CheckPolicyResponse, GetPolicyRequest, GetPolicyResponse,
    ListPoliciesRequest, PolicyProblemSeverity, PolicyRevision, Role, UnlistedToolsDecision,
    backtest_policy_request::Policy, policy_service_client::PolicyServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/policy";

/// Bytes of a form with a policy of a megabyte, of which some characters take three.
pub(super) const BODY_MAX: usize = 4 << 20;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show).post(change).layer(DefaultBodyLimit::max(BODY_MAX)))
}

#[derive(Template)]
#[template(path = "policy.html")]
struct Page {
    frame: Frame,
    shown: ShownPolicy,
    revisions: Vec<PolicyRevision>,
    next: String,
    active: String,
    /// The active revision, with which a change is compared.
    revision: u64,
    /// May they exchange it?
    is_admin: bool,
    /// May they try one on stored calls?
    tries: bool,
    jobs: Vec<BacktestJob>,
    difference: Vec<ChangedKey>,
    columns: (&'static str, &'static str),
    checked: Option<CheckedText>,
    /// Reason why the action failed.
    fault: Option<String>,
    note: String,
}

/// The policy that is shown.
#[derive(Default)]
struct ShownPolicy {
    hash: String,
    lines: Vec<String>,
    revision: Option<PolicyRevision>,
}

/// A text that was checked.
struct CheckedText {
    text: String,
    found: CheckPolicyResponse,
}

/// State of the page beside the stored policies.
#[derive(Default)]
struct PageState {
    checked: Option<CheckedText>,
    fault: Option<PageError>,
    note: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PolicyQuery {
    hash: String,
    after: String,
    /// A backtest with the text to show again.
    r#try: String,
}

async fn show(
    State(console): State<Console>,
    visitor: Visitor,
    Query(wanted): Query<PolicyQuery>,
) -> Result<Response, PageError> {
    let mut told = PageState::default();
    if !wanted.r#try.is_empty()
        && let Policy::Text(text) = console.jobs.find(&visitor, &wanted.r#try)?.policy
    {
        told.checked = Some(check_policy(&visitor, text).await?);
    }
    page(&console, &visitor, wanted, told).await
}

async fn page(
    console: &Console,
    visitor: &Visitor,
    wanted: PolicyQuery,
    told: PageState,
) -> Result<Response, PageError> {
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let mut revisions = policies.clone();
    let (active, listed) = try_join!(
        policies.get_policy(GetPolicyRequest::default()),
        revisions.list_policies(ListPoliciesRequest { page_size: 20, page_token: wanted.after }),
    )?;
    let (active, listed) = (active.into_inner(), listed.into_inner());
    let shown = match wanted.hash.as_str() {
        "" => active.clone(),
        hash => policies.get_policy(GetPolicyRequest { hash: hash.to_owned() }).await?.into_inner(),
    };
    let PageState { checked, fault, note } = told;
    let other = checked.as_ref().filter(|checked| checked.found.valid).map_or(&shown.text, |checked| &checked.text);
    let page = Page {
        frame: Frame::new(visitor, PATH, "Policy"),
        difference: difference(&active.text, other),
        columns: ("Active", "This version"),
        revision: active.revision.as_ref().map_or(0, |revision| revision.revision),
        active: active.hash,
        shown: of(shown),
        revisions: listed.revisions,
        next: listed.next_page_token,
        is_admin: visitor.is_one_of(&[Role::Admin]),
        tries: visitor.is_one_of(jobs::ROLES),
        jobs: console.jobs.of(visitor),
        checked,
        fault: fault.as_ref().map(|fault| fault.message().to_owned()),
        note,
    };
    let code = fault.map_or(StatusCode::OK, |fault| fault.code());
    Ok((code, Html(page.render()?)).into_response())
}

fn of(found: GetPolicyResponse) -> ShownPolicy {
    ShownPolicy { hash: found.hash, lines: found.text.lines().map(str::to_owned).collect(), revision: found.revision }
}

async fn check_policy(visitor: &Visitor, text: String) -> Result<CheckedText, PageError> {
    let asked = CheckPolicyRequest { text: text.clone() };
    let found = PolicyServiceClient::new(visitor.calls.clone()).check_policy(asked).await?.into_inner();
    Ok(CheckedText { text, found })
}

/// The page after a refused action on a text, or on a stored policy.
pub(super) async fn render_refusal(
    console: &Console,
    visitor: &Visitor,
    text: &str,
    hash: &str,
    fault: PageError,
) -> Result<Response, PageError> {
    let told = PageState { checked: check_text(visitor, text).await?, fault: Some(fault), note: String::new() };
    page(console, visitor, PolicyQuery { hash: hash.to_owned(), ..PolicyQuery::default() }, told).await
}

/// The submitted text, checked; one that cannot be checked is kept as it is.
async fn check_text(visitor: &Visitor, text: &str) -> Result<Option<CheckedText>, PageError> {
    if text.is_empty() {
        return Ok(None);
    }
    Ok(match check_policy(visitor, text.to_owned()).await {
        Err(fault) if fault.is_unauthenticated() => return Err(fault),
        Err(_) => Some(CheckedText { text: text.to_owned(), found: CheckPolicyResponse::default() }),
        Ok(checked) => Some(checked),
    })
}

/// A form of this page.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PolicyTextForm {
    what: String,
    text: String,
    note: String,
    /// A number; a form has texts.
    revision: String,
    sure: String,
}

async fn change(
    State(console): State<Console>,
    FormPost { visitor, form }: FormPost<PolicyTextForm>,
) -> Result<Response, PageError> {
    // Browsers end lines by two characters, which would be another policy than the file's.
    let text = form.text.replace("\r\n", "\n");
    let done = match form.what.as_str() {
        "check" => match check_policy(&visitor, text.clone()).await {
            Ok(checked) => {
                let told = PageState { checked: Some(checked), ..PageState::default() };
                return page(&console, &visitor, PolicyQuery::default(), told).await;
            }
            Err(fault) => Err(fault),
        },
        "apply" => apply(&visitor, &text, &form).await,
        _ => Err(PageError::field("what: is no action of this form")),
    };
    match done {
        Ok(()) => Ok(Redirect::to(PATH).into_response()),
        Err(fault) if fault.is_unauthenticated() => Err(fault),
        Err(fault) => {
            let told = PageState { checked: check_text(&visitor, &text).await?, fault: Some(fault), note: form.note };
            page(&console, &visitor, PolicyQuery::default(), told).await
        }
    }
}

async fn apply(visitor: &Visitor, text: &str, form: &PolicyTextForm) -> Result<(), PageError> {
    if form.sure.is_empty() {
        return Err(PageError::field("sure: confirm that it applies to every agent at once"));
    }
    let asked = ApplyPolicyRequest {
        text: text.to_owned(),
        note: form.note.trim().to_owned(),
        expected_revision: Some(parse_revision(&form.revision)?),
        mode: ApplyMode::Activate.into(),
    };
    PolicyServiceClient::new(visitor.calls.clone()).apply_policy(asked).await?;
    Ok(())
}

/// The revision that was active when the form was rendered: a change of another one would be unseen.
pub(super) fn parse_revision(revision: &str) -> Result<u64, PageError> {
    revision.parse().map_err(|_| PageError::field("revision: must be a whole number"))
}

impl CheckedText {
    /// Its lines, each with its problem and severity.
    fn lines(&self) -> Vec<(u64, &str, Option<&'static str>)> {
        let worst = |at: u64| {
            let here = self.found.problems.iter().filter(|problem| problem.line == at);
            here.map(|problem| match problem.severity() {
                PolicyProblemSeverity::Error => "bad",
                PolicyProblemSeverity::Warning | PolicyProblemSeverity::Unspecified => "warn",
            })
            .min()
        };
        (1..).zip(self.text.lines()).map(|(at, text)| (at, text, worst(at))).collect()
    }

    /// Its decision on unlisted tools.
    fn unlisted_decision(&self) -> Option<&'static str> {
        Some(match self.found.unlisted_tools() {
            UnlistedToolsDecision::Unspecified => return None,
            UnlistedToolsDecision::Allow => "are allowed",
            UnlistedToolsDecision::Grant => "are allowed as often as a tier grants",
            UnlistedToolsDecision::Ask => "need approval (ASK)",
            UnlistedToolsDecision::Deny => "are refused (DENY)",
        })
    }

    fn left_out(&self) -> u32 {
        self.found.problem_count.saturating_sub(u32::try_from(self.found.problems.len()).unwrap_or(u32::MAX))
    }
}
