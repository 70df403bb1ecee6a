//! `/approvals/{id}`: one approval request: the call as it would run, the reason, the requester, the history before it;
//! the answer.

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use prost_types::{Duration, Timestamp};
use serde::Deserialize;
use url::form_urlencoded::byte_serialize;

use super::{
    approvals::{self, RiskBadge, risk, state},
    edit::{EditForm, editable, why_not_editable},
    history::{EarlierCalls, before},
};
use crate::console::{
    Console, arguments, fault::PageError, filters, form::FormPost, frame::Frame, labels, visitor::Visitor,
};
use callgate_core::domain::control::is_same_name;
use callgate_proto::v1::{
    Approval, ApprovalScope, ApprovalState, CallEntry, ClaimApprovalRequest, CommentApprovalRequest, CredentialKind,
    Decision, Finding, GetApprovalRequest, ResolveApprovalRequest, Role,
    approval_service_client::ApprovalServiceClient,
};

pub(super) fn router() -> Router<Console> {
    Router::new().route("/approvals/{id}", get(show).post(answer))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApprovalPageQuery {
    part: String,
    /// State of the request when the page was rendered that asks for a part of itself.
    seen: String,
}

#[derive(Template)]
#[template(path = "approval.html", blocks = ["standing"])]
struct Page {
    frame: Frame,
    question: Approval,
    path: String,
    state: &'static str,
    risk: Option<RiskBadge>,
    /// Time at which it counts as denied.
    until: Option<String>,
    arguments: String,
    is_whole: bool,
    /// Size of the arguments, in bytes.
    bytes: u64,
    /// Findings of the rules, those with ASK first.
    findings: Vec<FindingRow>,
    before: EarlierCalls,
    /// Reason why the user cannot answer it.
    cannot: Option<String>,
    may_comment: bool,
    /// The claim is the user's own.
    is_mine: bool,
    /// The resource that an approval may cover, where it has a name.
    thing: Option<String>,
    fault: Option<String>,
    form: Answer,
    /// The edited arguments that were approved, or have a first approval.
    chosen: Option<EditForm>,
    /// The edited arguments to be confirmed.
    confirm: Option<EditForm>,
    /// Reason why its arguments cannot be edited here.
    hidden: Option<String>,
}

/// Finding of a rule.
struct FindingRow {
    rule: String,
    asks: bool,
    enforced: bool,
    message: String,
    decision: &'static str,
}

/// The answer form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    what: String,
    scope: String,
    minutes: String,
    reason: String,
    /// Other arguments, and the digest by which they were seen.
    edited: String,
    digest: String,
    comment: String,
}

/// Lifetimes of an approval that covers more than the call.
const TERMS: [(u32, &str); 6] =
    [(15, "15 minutes"), (60, "an hour"), (240, "4 hours"), (480, "8 hours"), (1_440, "a day"), (10_080, "a week")];

/// Makes htmx load the whole page again.
const HX_REFRESH: HeaderName = HeaderName::from_static("hx-refresh");

fn path(id: &str) -> String {
    let id: String = byte_serialize(id.as_bytes()).collect();
    format!("{}/{id}", approvals::PATH)
}

async fn question(visitor: &Visitor, id: String) -> Result<Approval, PageError> {
    let asked = GetApprovalRequest { approval_id: id };
    let found = ApprovalServiceClient::new(visitor.calls.clone()).get_approval(asked).await?.into_inner();
    Ok(found.approval.unwrap_or_default())
}

async fn show(
    visitor: Visitor,
    Path(id): Path<String>,
    Query(place): Query<ApprovalPageQuery>,
) -> Result<Response, PageError> {
    let question = question(&visitor, id).await?;
    match place.part.as_str() {
        "edited" => {
            Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], question.edited_arguments_json).into_response())
        }
        "json" => Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], question.arguments_json).into_response()),
        // Answered meanwhile: the page has other actions now.
        "standing" if state(&question) != place.seen => {
            Ok((StatusCode::OK, [(HX_REFRESH, HeaderValue::from_static("true"))]).into_response())
        }
        "standing" => {
            let page = Page::new(&visitor, question, EarlierCalls::default());
            Ok(Html(page.as_standing().render()?).into_response())
        }
        _ => {
            let before = before(&visitor, &question).await?;
            Ok(Html(Page::new(&visitor, question, before).render()?).into_response())
        }
    }
}

/// Answers, and redirects to the request in its new state. A refused answer shows its error there too.
async fn answer(Path(id): Path<String>, FormPost { visitor, form }: FormPost<Answer>) -> Result<Response, PageError> {
    let mut approvals = ApprovalServiceClient::new(visitor.calls.clone());
    let answered = match form.what.as_str() {
        "look" => return preview_edit(&id, &visitor, form).await,
        "claim" | "release" => {
            let asked = ClaimApprovalRequest { approval_id: id.clone(), release: form.what == "release" };
            approvals.claim_approval(asked).await.map(|_| ()).map_err(PageError::from)
        }
        "comment" => {
            let asked = CommentApprovalRequest { approval_id: id.clone(), text: form.comment.clone() };
            approvals.comment_approval(asked).await.map(|_| ()).map_err(PageError::from)
        }
        _ => match resolution(&id, &form) {
            Ok(asked) => approvals.resolve_approval(asked).await.map(|_| ()).map_err(PageError::from),
            Err(fault) => Err(fault),
        },
    };
    let Err(fault) = answered else { return Ok(Redirect::to(&path(&id)).into_response()) };
    let PageError::Told { code, message, .. } = fault else { return Err(fault) };
    let question = question(&visitor, id).await?;
    let before = before(&visitor, &question).await?;
    let page = Page { fault: Some(message), ..Page::new(&visitor, question, before).with(form) };
    Ok((code, Html(page.render()?)).into_response())
}

/// Shows the changes by edited arguments, before their approval. Their faults stand beside the typed text.
async fn preview_edit(id: &str, visitor: &Visitor, form: Answer) -> Result<Response, PageError> {
    let asked = ResolveApprovalRequest { validate_only: true, ..resolution(id, &form)? };
    let told = ApprovalServiceClient::new(visitor.calls.clone()).resolve_approval(asked).await;
    let (code, confirm, fault) = match told.map_err(PageError::from) {
        Ok(told) => {
            let told = told.into_inner().approval.unwrap_or_default();
            let same = "The arguments are unchanged: approve the call as it is.".to_owned();
            match EditForm::of(&told) {
                Some(chosen) => (StatusCode::OK, Some(chosen), None),
                None => (StatusCode::BAD_REQUEST, None, Some(same)),
            }
        }
        // The field has another name here.
        Err(PageError::Told { code, message, .. }) => {
            (code, None, Some(message.replacen("edited_arguments_json", "the input", 1)))
        }
        Err(fault) => return Err(fault),
    };
    let question = question(visitor, id.to_owned()).await?;
    let before = before(visitor, &question).await?;
    let page = Page { confirm, fault, ..Page::new(visitor, question, before).with(form) };
    Ok((code, Html(page.render()?)).into_response())
}

fn resolution(id: &str, form: &Answer) -> Result<ResolveApprovalRequest, PageError> {
    let approve = match form.what.as_str() {
        "approve" => true,
        "look" | "edit" if form.edited.trim().is_empty() => {
            return Err(PageError::field("edited: enter the arguments as a JSON object"));
        }
        "look" => true,
        "edit" if form.digest.is_empty() => {
            return Err(PageError::field("digest: preview the arguments before you approve them"));
        }
        "edit" => true,
        "deny" if form.reason.trim().is_empty() => {
            return Err(PageError::field("reason: required for a denial; the model gets it"));
        }
        "deny" => false,
        _ => return Err(PageError::field("what: must be approve, deny, look or edit")),
    };
    let scope = match form.scope.as_str() {
        "resource" if approve => ApprovalScope::Resource,
        "tool" if approve => ApprovalScope::Tool,
        _ => ApprovalScope::Unspecified,
    };
    let ttl = match scope {
        ApprovalScope::Unspecified | ApprovalScope::Call => None,
        ApprovalScope::Resource | ApprovalScope::Tool => {
            let minutes = form.minutes.trim().parse::<u32>();
            let minutes = minutes.map_err(|_| PageError::field("minutes: must be a whole number"))?;
            Some(Duration { seconds: i64::from(minutes) * 60, nanos: 0 })
        }
    };
    let reason = form.reason.trim().to_owned();
    let (edits, sees) = (matches!(form.what.as_str(), "look" | "edit"), form.what == "edit");
    Ok(ResolveApprovalRequest {
        approval_id: id.to_owned(),
        approve,
        reason,
        scope: scope.into(),
        ttl,
        edited_arguments_json: if edits { form.edited.trim().to_owned() } else { String::new() },
        edited_args_digest: if sees { form.digest.clone() } else { String::new() },
        validate_only: false,
    })
}

impl Page {
    fn new(visitor: &Visitor, question: Approval, before: EarlierCalls) -> Self {
        let (arguments, is_whole) = arguments::tree(&question.arguments_json);
        let is_pending = question.state() == ApprovalState::Pending;
        let on = &question.effect_resource;
        let is_named = on.rsplit_once('/').is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty());
        Self {
            frame: Frame::new(visitor, approvals::PATH, format!("Approval request: {}", question.tool)),
            path: path(&question.approval_id),
            state: state(&question),
            risk: risk(question.risk()),
            until: filters::machine_time(question.expire_time.as_ref()),
            arguments,
            is_whole,
            bytes: question.arguments_json.len() as u64,
            findings: list_findings(&question),
            before,
            may_comment: visitor.is_one_of(&[Role::Approver, Role::Operator]),
            is_mine: is_same_name(&question.claimed_by, &visitor.known.caller.name),
            cannot: is_pending.then(|| cannot(visitor, &question)).flatten(),
            thing: is_named.then(|| on.clone()),
            fault: None,
            chosen: EditForm::of(&question),
            confirm: None,
            hidden: why_not_editable(&question),
            form: Answer { edited: editable(&question.arguments_json), ..Answer::default() },
            question,
        }
    }

    /// With what was typed.
    fn with(mut self, form: Answer) -> Self {
        let edited = if form.edited.is_empty() { std::mem::take(&mut self.form.edited) } else { form.edited };
        self.form = Answer { edited, ..form };
        self
    }

    fn is_open(&self) -> bool {
        self.question.state() == ApprovalState::Pending
    }

    /// Decision on the call after its approval, if it was refused.
    fn turned_away(&self, call: &CallEntry) -> Option<String> {
        let answered = self.question.resolve_time.as_ref()?;
        let at = call.judge_time.as_ref()?;
        let is_after = (at.seconds, at.nanos) > (answered.seconds, answered.nanos);
        let is_refused = self.question.state() == ApprovalState::Approved && call.attempt == 0 && is_after;
        is_refused.then(|| format!("{} {}", labels::decision(call.decision()).text, call.reason))
    }

    fn is_for_more(&self) -> bool {
        self.question.required_approvals < 2
    }

    /// The form for other arguments is unfolded: something was wrong with them, or they are to be confirmed.
    fn is_editing(&self) -> bool {
        matches!(self.form.what.as_str(), "look" | "edit")
    }
}

/// Reason why a user cannot answer a request, as far as it is known before they try.
fn cannot(visitor: &Visitor, question: &Approval) -> Option<String> {
    let caller = &visitor.known.caller;
    if !visitor.is_one_of(&[Role::Approver]) {
        return Some("Your roles may only view approval requests. An answer needs the role approver.".to_owned());
    }
    let is_me = |name: &String| name.to_lowercase() == caller.name.to_lowercase();
    if question.approved_by.iter().any(is_me) {
        return Some("You have approved it. One more approval is required before it runs.".to_owned());
    }
    if caller.credential() == CredentialKind::None {
        return None;
    }
    if is_me(&question.requested_by) {
        return Some("Your own credential made this request. Another approver must answer it.".to_owned());
    }
    let is_past = |at: &Timestamp| at.seconds.saturating_mul(1_000) <= visitor.now.as_millis();
    let late = question.escalate_time.as_ref().is_some_and(is_past);
    let groups = [Some(&question.group), late.then_some(&question.escalate_group)];
    let groups: Vec<&String> = groups.into_iter().flatten().filter(|group| !group.is_empty()).collect();
    if groups.is_empty() || groups.iter().any(|group| caller.groups.contains(group)) {
        return None;
    }
    let names: Vec<&str> = groups.iter().map(|group| group.as_str()).collect();
    Some(format!("Only members of the group {} may answer. You are not a member.", names.join(" or ")))
}

/// Findings of the rules, in the words for people, those with ASK first.
fn list_findings(question: &Approval) -> Vec<FindingRow> {
    let one = |(finding, message): (&Finding, &String)| FindingRow {
        rule: finding.rule.clone(),
        asks: finding.decision() == Decision::Ask,
        enforced: finding.enforced,
        message: message.clone(),
        decision: labels::decision(finding.decision()).text,
    };
    let mut said: Vec<FindingRow> = question.findings.iter().zip(&question.reasons).map(one).collect();
    said.sort_by_key(|one| !one.asks);
    said
}
