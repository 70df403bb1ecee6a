//! `/policy`: the policy that judges, its history, what another one would change, and its exchange.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse as _, Redirect, Response},
    routing::get,
};
use serde::Deserialize;
use tonic_types::StatusExt as _;

use crate::{
    console::{Console, fault::Fault, filters, form::Posted, frame::Frame, visitor::Visitor},
    grpc::v1::{
        ActivatePolicyRequest, ApplyMode, ApplyPolicyRequest, GetPolicyRequest, GetPolicyResponse, ListPoliciesRequest,
        PolicyRevision, Role, RollbackPolicyRequest, policy_service_client::PolicyServiceClient,
    },
    policy::differences::{changed, keys},
};

/// Its link.
pub(super) const PATH: &str = "/policy";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show).post(change))
}

#[derive(Template)]
#[template(path = "policy.html")]
struct Page {
    frame: Frame,
    shown: Shown,
    revisions: Vec<PolicyRevision>,
    next: String,
    active: String,
    /// The active revision, which an exchange is held against.
    revision: u64,
    /// May they exchange it?
    is_admin: bool,
    difference: Vec<Change>,
    checked: Option<Checked>,
}

/// The policy that is shown.
#[derive(Default)]
struct Shown {
    hash: String,
    lines: Vec<String>,
    revision: Option<PolicyRevision>,
}

/// A key that differs from the active policy.
struct Change {
    key: String,
    before: String,
    after: String,
}

/// A text that was checked.
struct Checked {
    text: String,
    /// What keeps it from being a policy, with its line, if that is known.
    problems: Vec<Problem>,
    warnings: Vec<String>,
    /// Another fault than the text's.
    fault: Option<String>,
    is_good: bool,
}

struct Problem {
    line: usize,
    text: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wanted {
    hash: String,
    after: String,
}

async fn show(visitor: Visitor, Query(wanted): Query<Wanted>) -> Result<Html<String>, Fault> {
    page(&visitor, wanted, None).await
}

async fn page(visitor: &Visitor, wanted: Wanted, checked: Option<Checked>) -> Result<Html<String>, Fault> {
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let active = policies.get_policy(GetPolicyRequest::default()).await?.into_inner();
    let listed = ListPoliciesRequest { page_size: 20, page_token: wanted.after };
    let listed = policies.list_policies(listed).await?.into_inner();
    let shown = match wanted.hash.as_str() {
        "" => active.clone(),
        hash => policies.get_policy(GetPolicyRequest { hash: hash.to_owned() }).await?.into_inner(),
    };
    let other = checked.as_ref().filter(|checked| checked.is_good).map_or(&shown.text, |checked| &checked.text);
    let page = Page {
        frame: Frame::new(visitor, PATH, "Policy"),
        difference: difference(&active.text, other),
        revision: active.revision.as_ref().map_or(0, |revision| revision.revision),
        active: active.hash,
        shown: told(shown),
        revisions: listed.revisions,
        next: listed.next_page_token,
        is_admin: visitor.is_one_of(&[Role::Admin]),
        checked,
    };
    Ok(Html(page.render()?))
}

fn told(found: GetPolicyResponse) -> Shown {
    Shown { hash: found.hash, lines: found.text.lines().map(str::to_owned).collect(), revision: found.revision }
}

/// What is other in `after`; nothing where one of them cannot be read.
fn difference(before: &str, after: &str) -> Vec<Change> {
    let read = |text: &str| if text.trim().is_empty() { Ok(BTreeMap::new()) } else { keys(text) };
    let (Ok(before), Ok(after)) = (read(before), read(after)) else { return Vec::new() };
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let change = |(key, before, after): (&String, Option<&String>, Option<&String>)| Change {
        key: key.clone(),
        before: text(before),
        after: text(after),
    };
    changed(&before, &after).into_iter().map(change).collect()
}

/// What a form of this page wants.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wish {
    what: String,
    hash: String,
    text: String,
    note: String,
    /// A number; a form has texts.
    revision: String,
    sure: String,
}

async fn change(Posted { visitor, form }: Posted<Wish>) -> Result<Response, Fault> {
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let note = form.note.trim().to_owned();
    let is_sure = !form.sure.is_empty();
    // Browsers end lines by two characters, which would be another policy than the file's.
    let text = form.text.replace("\r\n", "\n");
    match form.what.as_str() {
        "check" => {}
        _ if !is_sure => return Err(Fault::field("tick that you are sure: it holds for every agent at once")),
        "apply" => {
            let expected_revision = Some(seen(&form.revision)?);
            let mode = ApplyMode::Activate.into();
            let asked = ApplyPolicyRequest { text, note, expected_revision, mode };
            policies.apply_policy(asked).await?;
            return Ok(Redirect::to(PATH).into_response());
        }
        "activate" => {
            let expected_revision = Some(seen(&form.revision)?);
            let asked = ActivatePolicyRequest { hash: form.hash, note, expected_revision };
            policies.activate_policy(asked).await?;
            return Ok(Redirect::to(PATH).into_response());
        }
        "rollback" => {
            let expected_revision = Some(seen(&form.revision)?);
            policies.rollback_policy(RollbackPolicyRequest { note, expected_revision }).await?;
            return Ok(Redirect::to(PATH).into_response());
        }
        _ => return Err(Fault::field("the form does not say what is to be done")),
    }
    let asked = ApplyPolicyRequest { text: text.clone(), mode: ApplyMode::Check.into(), ..Default::default() };
    let checked = match policies.apply_policy(asked).await {
        Ok(answer) => {
            Checked { text, problems: Vec::new(), warnings: answer.into_inner().warnings, fault: None, is_good: true }
        }
        Err(status) => {
            let bad = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
            let problem = |one: tonic_types::FieldViolation| Problem {
                line: line(&one.description).unwrap_or(0),
                text: one.description,
            };
            let problems: Vec<Problem> = bad.into_iter().map(problem).collect();
            let fault = problems.is_empty().then(|| status.message().to_owned());
            Checked { text, problems, warnings: Vec::new(), fault, is_good: false }
        }
    };
    Ok(page(&visitor, Wanted::default(), Some(checked)).await?.into_response())
}

/// The revision that was active when the form was made: who exchanges another one has not seen what they exchange.
fn seen(revision: &str) -> Result<u64, Fault> {
    revision.parse().map_err(|_| Fault::field("the form does not say which revision it is about"))
}

/// The line that a problem names.
fn line(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("line ")?;
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

impl Checked {
    /// Its lines, each with whether something is wrong there.
    fn lines(&self) -> Vec<(usize, &str, bool)> {
        let is_wrong = |at: usize| self.problems.iter().any(|problem| problem.line == at);
        let warns = |at: usize| self.warnings.iter().any(|warning| line(warning) == Some(at));
        let numbered = self.text.lines().enumerate().map(|(i, text)| (i + 1, text));
        numbered.map(|(at, text)| (at, text, is_wrong(at) || warns(at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_marked_at_its_line() {
        assert_eq!(line("line 12: budgets.run: is no number"), Some(12));
        assert_eq!(line("budgets.run"), None);
        let changes = difference("a: 1\nb: 2\n", "b: 3\n");
        let told: Vec<_> =
            changes.iter().map(|one| (one.key.as_str(), one.before.as_str(), one.after.as_str())).collect();
        assert_eq!(told, [("a", "1", ""), ("b", "2", "3")]);
        assert_eq!(difference("", "a: 1\n").len(), 1, "against the built-in one");
    }
}
