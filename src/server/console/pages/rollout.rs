//! `/policy/rollout`: the last rollout, its policy's decisions next to those of the baseline, and its start and end.

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse as _, Redirect, Response},
    routing::get,
};
use serde::Deserialize;

use super::{policy, timeline};
use crate::console::{
    Console,
    fault::PageError,
    filters,
    form::FormPost,
    frame::Frame,
    jobs,
    labels::{self, StyledWord},
    visitor::Visitor,
};
use callgate_core::domain::rollout::SESSIONS_MIN;
use callgate_proto::v1::{
    EndPolicyRolloutRequest, GetPolicyRolloutRequest, PolicyRollout, PolicyRolloutComparison, PolicyRolloutCount,
    PolicyRolloutEnd, PolicyRolloutState, Role, StartPolicyRolloutRequest, policy_service_client::PolicyServiceClient,
};

pub(super) const PATH: &str = "/policy/rollout";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show).post(change))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RolloutQuery {
    /// The policy to begin with.
    hash: String,
    part: String,
}

/// What was typed.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RolloutForm {
    what: String,
    hash: String,
    /// In percent.
    share: String,
    /// One a line.
    agents: String,
    note: String,
}

#[derive(Template)]
#[template(path = "rollout.html", blocks = ["standing"])]
struct Page {
    frame: Frame,
    is_admin: bool,
    /// May they try a policy on stored calls?
    tries: bool,
    rollout: Option<PolicyRollout>,
    compared: PolicyRolloutComparison,
    fault: Option<String>,
    form: RolloutForm,
}

impl Page {
    fn is_running(&self) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.state() == PolicyRolloutState::Running)
    }

    fn is_shadow(&self) -> bool {
        self.rollout.as_ref().is_some_and(|one| one.share_basis_points == 0 && one.agent_ids.is_empty())
    }

    /// Both policies have sessions, but too few for a difference to be marked.
    fn is_small(&self) -> bool {
        let (rollout, baseline) = self.sums();
        rollout.sessions.min(baseline.sessions) < SESSIONS_MIN
    }

    fn sums(&self) -> (PolicyRolloutCount, PolicyRolloutCount) {
        (self.compared.rollout.unwrap_or_default(), self.compared.baseline.unwrap_or_default())
    }
}

fn state(rollout: &PolicyRollout) -> StyledWord {
    let (class, text) = match rollout.state() {
        PolicyRolloutState::Running => ("ask", "running"),
        PolicyRolloutState::Promoted => ("good", "promoted"),
        PolicyRolloutState::Aborted => ("muted", "aborted"),
        PolicyRolloutState::Unspecified => ("muted", "unknown"),
    };
    StyledWord { class, text }
}

/// Basis points as a percentage.
fn percent(basis_points: u32) -> String {
    format!("{} %", f64::from(basis_points) / 100.0)
}

/// A count with its share of all calls: `12 (4.0 %)`.
fn share(count: Option<&PolicyRolloutCount>, all: PolicyRolloutCount) -> String {
    let calls = count.map_or(0, |count| count.calls);
    let of_all = calls as f64 * 100.0 / all.calls.max(1) as f64;
    format!("{} ({of_all:.1} %)", filters::group_thousands(calls))
}

fn sessions(count: Option<&PolicyRolloutCount>) -> String {
    filters::group_thousands(count.map_or(0, |count| count.sessions))
}

async fn show(visitor: Visitor, Query(asked): Query<RolloutQuery>) -> Result<Response, PageError> {
    let form = RolloutForm { hash: asked.hash, ..RolloutForm::default() };
    let page = page(&visitor, None, form).await?;
    Ok(match asked.part.as_str() {
        "standing" => Html(page.as_standing().render()?).into_response(),
        _ => Html(page.render()?).into_response(),
    })
}

async fn page(visitor: &Visitor, fault: Option<String>, form: RolloutForm) -> Result<Page, PageError> {
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let found = policies.get_policy_rollout(GetPolicyRolloutRequest {}).await?.into_inner();
    Ok(Page {
        frame: Frame::new(visitor, policy::PATH, "Policy rollout"),
        is_admin: visitor.is_one_of(&[Role::Admin]),
        tries: visitor.is_one_of(jobs::ROLES),
        rollout: found.rollout,
        compared: found.comparison.unwrap_or_default(),
        fault,
        form,
    })
}

async fn change(FormPost { visitor, form }: FormPost<RolloutForm>) -> Result<Response, PageError> {
    let done = match form.what.as_str() {
        "start" => start(&visitor, &form).await,
        "promote" => end(&visitor, &form, PolicyRolloutEnd::Promote).await,
        "abort" => end(&visitor, &form, PolicyRolloutEnd::Abort).await,
        _ => Err(PageError::field("what: is no action of this form")),
    };
    match done {
        Ok(()) => Ok(Redirect::to(PATH).into_response()),
        Err(fault) if fault.is_unauthenticated() => Err(fault),
        Err(fault) => {
            let page = page(&visitor, Some(fault.message().to_owned()), form).await?;
            Ok((fault.code(), Html(page.render()?)).into_response())
        }
    }
}

async fn start(visitor: &Visitor, form: &RolloutForm) -> Result<(), PageError> {
    let asked = StartPolicyRolloutRequest {
        hash: form.hash.trim().to_owned(),
        share_basis_points: basis_points(&form.share)?,
        agent_ids: form.agents.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        note: form.note.trim().to_owned(),
    };
    PolicyServiceClient::new(visitor.calls.clone()).start_policy_rollout(asked).await?;
    Ok(())
}

async fn end(visitor: &Visitor, form: &RolloutForm, end: PolicyRolloutEnd) -> Result<(), PageError> {
    // The rollout that the page showed: another one may have begun meanwhile.
    if form.hash.is_empty() {
        return Err(PageError::field("hash: must be that of the rollout"));
    }
    let asked = EndPolicyRolloutRequest { end: end.into(), hash: form.hash.clone(), note: form.note.trim().to_owned() };
    PolicyServiceClient::new(visitor.calls.clone()).end_policy_rollout(asked).await?;
    Ok(())
}

/// A typed percentage; nothing is none.
fn basis_points(typed: &str) -> Result<u32, PageError> {
    let text = typed.trim().trim_end_matches('%').trim();
    if text.is_empty() {
        return Ok(0);
    }
    let points = text.parse::<f64>().ok().map(|percent| (percent * 100.0).round());
    match points.filter(|points| (0.0..=10_000.0).contains(points)) {
        Some(points) => Ok(points as u32),
        None => Err(PageError::field("share: must be a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_typed_as_a_percentage_and_none_is_shadow() {
        let told: Vec<_> = ["", "10", " 2.25 % ", "0", "100%"].iter().map(|typed| basis_points(typed).ok()).collect();
        assert_eq!(told, [Some(0), Some(1_000), Some(225), Some(0), Some(10_000)]);
        assert!(["ten", "-1", "101", "NaN", "inf"].iter().all(|typed| basis_points(typed).is_err()));
        assert_eq!((percent(225), percent(1_000)), ("2.25 %".to_owned(), "10 %".to_owned()));
        let all = PolicyRolloutCount { calls: 3_000, sessions: 9 };
        assert_eq!(share(Some(&PolicyRolloutCount { calls: 1_200, sessions: 5 }), all), "1,200 (40.0 %)");
        assert_eq!(share(None, PolicyRolloutCount::default()), "0 (0.0 %)");
    }
}
