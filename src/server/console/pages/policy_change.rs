//! `/policy/activate` and `/policy/rollback`: the changes that it would make, and then the change itself, on
//! confirmation.

use askama::Template;
use axum::{
    Router,
    extract::Query,
    response::{Html, IntoResponse as _, Redirect, Response},
    routing::get,
};
use http::StatusCode;
use serde::Deserialize;

use super::{
    difference::{ChangedKey, difference, versions},
    policy,
};
use crate::console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    ActivatePolicyRequest, GetPolicyRequest, PolicyRevision, Role, RollbackPolicyRequest,
    policy_service_client::PolicyServiceClient,
};

pub(super) fn router() -> Router<Console> {
    let rollback = get(async |visitor: Visitor| ask(visitor, None, RefusedForm::default()).await);
    let activate = get(async |visitor: Visitor, Query(wanted): Query<ActivationForm>| {
        ask(visitor, Some(wanted.hash), RefusedForm::default()).await
    });
    Router::new()
        .route("/policy/rollback", rollback.post(roll_back))
        .route("/policy/activate", activate.post(activate_one))
}

/// A form of this page.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ActivationForm {
    hash: String,
    note: String,
    /// A number; a form has texts.
    revision: String,
}

/// A refused change, with its error and note.
#[derive(Default)]
struct RefusedForm {
    fault: Option<(StatusCode, String)>,
    note: String,
}

#[derive(Template)]
#[template(path = "policy_change.html")]
struct Page {
    frame: Frame,
    is_rollback: bool,
    is_admin: bool,
    hash: String,
    /// Its last activation.
    last: Option<PolicyRevision>,
    /// The active revision, with which the change is compared.
    revision: u64,
    difference: Vec<ChangedKey>,
    columns: (&'static str, &'static str),
    fault: Option<String>,
    note: String,
}

/// The page that asks for confirmation, by the present state. Without a hash it is a rollback.
async fn ask(visitor: Visitor, hash: Option<String>, refused: RefusedForm) -> Result<Response, PageError> {
    let mut policies = PolicyServiceClient::new(visitor.calls.clone());
    let active = policies.get_policy(GetPolicyRequest::default()).await?.into_inner();
    let is_rollback = hash.is_none();
    let hash = match hash {
        Some(hash) => hash,
        None => {
            let before = versions(&visitor).await?.into_iter().find(|one| one.hash != active.hash);
            let none = || PageError::new(StatusCode::NOT_FOUND, "no other policy was active before this one");
            before.ok_or_else(none)?.hash
        }
    };
    let wanted = policies.get_policy(GetPolicyRequest { hash }).await?.into_inner();
    let title = if is_rollback { "Roll back the policy" } else { "Activate a policy" };
    let (code, fault) = refused.fault.unzip();
    let page = Page {
        frame: Frame::new(&visitor, policy::PATH, title),
        is_rollback,
        is_admin: visitor.is_one_of(&[Role::Admin]),
        difference: difference(&active.text, &wanted.text),
        hash: wanted.hash,
        last: wanted.revision,
        revision: active.revision.map_or(0, |revision| revision.revision),
        columns: ("Active", "This version"),
        fault,
        note: refused.note,
    };
    Ok((code.unwrap_or(StatusCode::OK), Html(page.render()?)).into_response())
}

async fn activate_one(FormPost { visitor, form }: FormPost<ActivationForm>) -> Result<Response, PageError> {
    let expected_revision = Some(policy::parse_revision(&form.revision)?);
    let note = form.note.trim().to_owned();
    let asked = ActivatePolicyRequest { hash: form.hash.clone(), note, expected_revision };
    let done = PolicyServiceClient::new(visitor.calls.clone()).activate_policy(asked).await.map(drop);
    redirect_after_change(visitor, Some(form.hash), form.note, done).await
}

async fn roll_back(FormPost { visitor, form }: FormPost<ActivationForm>) -> Result<Response, PageError> {
    let expected_revision = Some(policy::parse_revision(&form.revision)?);
    let asked = RollbackPolicyRequest { note: form.note.trim().to_owned(), expected_revision };
    let done = PolicyServiceClient::new(visitor.calls.clone()).rollback_policy(asked).await.map(drop);
    redirect_after_change(visitor, None, form.note, done).await
}

/// Redirects after a change; a refused one gets the present page, with its error and note.
async fn redirect_after_change(
    visitor: Visitor,
    hash: Option<String>,
    note: String,
    done: Result<(), tonic::Status>,
) -> Result<Response, PageError> {
    let Err(status) = done else { return Ok(Redirect::to(policy::PATH).into_response()) };
    let fault = PageError::from(status);
    if fault.is_unauthenticated() {
        return Err(fault);
    }
    let fault = Some((fault.code(), fault.message().to_owned()));
    ask(visitor, hash, RefusedForm { fault, note }).await
}
