//! `/calls/{session}/{call}`: a call with all stored data, and the explanation of its decision.

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use http::StatusCode;
use serde::Deserialize;

use super::{
    session,
    sessions::{PATH, describe_action},
    timeline::{Note, Step, notes, path},
};
use crate::console::{
    Console,
    fault::PageError,
    filters,
    form::FormPost,
    frame::Frame,
    labels::{self, StyledWord},
    visitor::Visitor,
};
use callgate_proto::v1::{
    CallAnswer, CallReport, ExplainCallRequest, ExplainCallResponse, GetCallRequest, GetCallResponse, Judgement,
    OutcomeStatus, Role, SettleOutcomeRequest, session_service_client::SessionServiceClient,
};

/// Texts from this size on, in bytes, are folded.
const LONG: usize = 2_000;
/// A call's arguments and answer, its rows with them again, and its judgements and reports.
const MESSAGE_MAX: usize = 64 << 20;

pub(super) fn router() -> Router<Console> {
    Router::new().route("/calls/{session}/{call}", get(show).post(settle))
}

#[derive(Template)]
#[template(path = "call.html")]
struct Page {
    frame: Frame,
    path: String,
    session_path: String,
    step: Step,
    call: GetCallResponse,
    judgements: Vec<JudgmentRow>,
    reports: Vec<ReportRow>,
    followed_by: Vec<(String, String)>,
    rows: Vec<String>,
    /// Rule by rule, where that was asked for.
    explained: Option<ExplainCallResponse>,
    may_settle: bool,
    done: &'static str,
    fault: Option<String>,
    form: SettlementForm,
}

/// The part with the explanation of each rule, loaded on demand.
#[derive(Template)]
#[template(path = "call.html", block = "rules")]
struct Rules {
    path: String,
    explained: Option<ExplainCallResponse>,
}

struct JudgmentRow {
    judgement: Judgement,
    decision: StyledWord,
    /// The policy's decision in shadow mode, where it differs.
    would: Option<StyledWord>,
    notes: Vec<Note>,
}

struct ReportRow {
    report: CallReport,
    outcome: Option<StyledWord>,
    failure: String,
    took: String,
    /// Advice on a retry.
    advice: String,
}

impl ReportRow {
    fn new(report: CallReport) -> Self {
        let advice = report.advice.as_ref().map(|advice| {
            let chance = (advice.p_success * 100.0).round();
            let (low, high) = ((advice.p_low * 100.0).round(), (advice.p_high * 100.0).round());
            let what = labels::repeat(advice.repeat()).describe(&labels::span(advice.retry_after.as_ref()));
            format!("{what}: success probability of a retry {chance} % ({low} to {high} %)")
        });
        Self {
            outcome: labels::status(report.status()),
            failure: labels::failure(report.failure()),
            took: labels::span(report.duration.as_ref()),
            advice: advice.unwrap_or_default(),
            report,
        }
    }
}

impl Page {
    fn pretty(&self, text: &str) -> String {
        pretty(text)
    }

    fn is_long(&self, text: &str) -> bool {
        text.len() > LONG
    }

    /// Action of a person, in words.
    fn did(&self, answer: &CallAnswer) -> &'static str {
        match (answer.kind.as_str(), answer.approved) {
            ("answered", _) if answer.edited => "approved other arguments; this call does not run",
            ("seconded", _) if answer.edited => "approved other arguments; a second approval was required",
            ("answered", true) => "approved it",
            ("answered", false) => "denied it",
            ("seconded", _) => "approved it; a second approval was required",
            ("withdrawn", _) => "withdrew the request",
            ("outcome_settled", _) => "settled the outcome",
            _ => "changed it",
        }
    }
}

/// JSON with a line a member; anything else as it is.
pub(super) fn pretty(text: &str) -> String {
    // Numbers keep their digits, exactly as they are stored.
    let value = serde_json::from_str::<Box<serde_json::value::RawValue>>(text);
    match value {
        Ok(_) => indent_json(text),
        Err(_) => text.to_owned(),
    }
}

/// Sound JSON with white space between its tokens, and nothing else changed.
fn indent_json(json: &str) -> String {
    let (mut out, mut depth, mut in_string, mut is_escaped) =
        (String::with_capacity(json.len() * 2), 0_usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut chars = json.chars().peekable();
    while let Some(char) = chars.next() {
        if in_string {
            out.push(char);
            in_string = is_escaped || char != '"';
            is_escaped = !is_escaped && char == '\\';
            continue;
        }
        match char {
            ' ' | '\n' | '\r' | '\t' => {}
            '"' => {
                out.push(char);
                in_string = true;
            }
            '{' | '[' => {
                out.push(char);
                while chars.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(char);
            }
            ',' => {
                out.push(char);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            char => out.push(char),
        }
    }
    out
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallPageQuery {
    done: String,
    explain: String,
    part: String,
}

async fn show(
    visitor: Visitor,
    Path((session, call_id)): Path<(String, String)>,
    Query(place): Query<CallPageQuery>,
) -> Result<Response, PageError> {
    let explained = match place.explain.is_empty() {
        true => None,
        false => Some(fetch_explanation(&visitor, &session, &call_id).await?),
    };
    if place.part == "rules" {
        let path = path(&session, &call_id);
        return Ok(Html(Rules { path, explained }.render()?).into_response());
    }
    page(&visitor, (session, call_id), (describe_action(&place.done), explained), None, SettlementForm::default()).await
}

async fn fetch_explanation(visitor: &Visitor, session: &str, call: &str) -> Result<ExplainCallResponse, PageError> {
    let asked = ExplainCallRequest { session_id: session.to_owned(), call_id: call.to_owned() };
    Ok(SessionServiceClient::new(visitor.calls.clone()).explain_call(asked).await?.into_inner())
}

async fn page(
    visitor: &Visitor,
    (session_id, call_id): (String, String),
    (done, explained): (&'static str, Option<ExplainCallResponse>),
    fault: Option<PageError>,
    form: SettlementForm,
) -> Result<Response, PageError> {
    let include_rows = visitor.is_one_of(&[Role::Operator, Role::Analyst]);
    let asked = GetCallRequest { session_id: session_id.clone(), call_id: call_id.clone(), include_rows };
    let mut sessions = SessionServiceClient::new(visitor.calls.clone()).max_decoding_message_size(MESSAGE_MAX);
    let mut call = sessions.get_call(asked).await?.into_inner();
    let step = Step::new(call.call.take().unwrap_or_default());
    let judged = |judgement: Judgement| JudgmentRow {
        decision: labels::decision(judgement.decision()),
        would: (judgement.policy_decision() != judgement.decision())
            .then(|| labels::decision(judgement.policy_decision())),
        notes: notes(&judgement.findings, judgement.decision(), &judgement.rule, &judgement.reason),
        judgement,
    };
    let follower = |id: &String| (id.clone(), path(&session_id, id));
    let page = Page {
        frame: Frame::new(visitor, PATH, format!("Call {call_id}")),
        path: path(&session_id, &call_id),
        session_path: session::path(&session_id),
        judgements: std::mem::take(&mut call.judgements).into_iter().map(judged).collect(),
        reports: std::mem::take(&mut call.reports).into_iter().map(ReportRow::new).collect(),
        followed_by: call.followed_by_call_ids.iter().map(follower).collect(),
        rows: std::mem::take(&mut call.rows).iter().map(|row| pretty(row)).collect(),
        may_settle: step.call.status() == OutcomeStatus::Unknown && visitor.is_one_of(&[Role::Operator]),
        explained,
        done,
        fault: fault.as_ref().map(|fault| fault.message().to_owned()),
        form,
        step,
        call,
    };
    Ok((fault.map_or(StatusCode::OK, |fault| fault.code()), Html(page.render()?)).into_response())
}

/// The form of an outcome.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SettlementForm {
    came: String,
    with: String,
    reason: String,
}

async fn settle(
    Path((session_id, call_id)): Path<(String, String)>,
    FormPost { visitor, form }: FormPost<SettlementForm>,
) -> Result<Response, PageError> {
    match settle_outcome(&visitor, (&session_id, &call_id), &form).await {
        Ok(()) => Ok(Redirect::to(&format!("{}?done=settled", path(&session_id, &call_id))).into_response()),
        Err(fault) => page(&visitor, (session_id, call_id), ("", None), Some(fault), form).await,
    }
}

async fn settle_outcome(
    visitor: &Visitor,
    (session, call): (&str, &str),
    form: &SettlementForm,
) -> Result<(), PageError> {
    let with = form.with.trim();
    let (status, result, error) = match form.came.as_str() {
        "happened" => (OutcomeStatus::Success, (!with.is_empty()).then(|| with.to_owned()), String::new()),
        "not" => (OutcomeStatus::Cancelled, None, String::new()),
        "failed" => (OutcomeStatus::Error, None, with.to_owned()),
        _ => return Err(PageError::field("came: choose the outcome")),
    };
    let asked = SettleOutcomeRequest {
        session_id: session.to_owned(),
        call_id: call.to_owned(),
        status: status.into(),
        result,
        error_message: error,
        reason: form.reason.trim().to_owned(),
    };
    SessionServiceClient::new(visitor.calls.clone()).settle_outcome(asked).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_shown_with_lines_and_every_digit() {
        let told = pretty(r#"{"a":[1.10,{}],"b":"x,\"{","c":18446744073709551617}"#);
        assert_eq!(
            told,
            "{\n  \"a\": [\n    1.10,\n    {}\n  ],\n  \"b\": \"x,\\\"{\",\n  \"c\": 18446744073709551617\n}"
        );
        assert_eq!(pretty("no {JSON"), "no {JSON");
    }
}
