//! Lists of sessions and calls: the filters, and the entries that were found.

use std::fmt::Debug;

use super::{
    decode::{DecodeResult, maybe_session, maybe_text, page_size, wrong},
    encode,
    limits::{SEARCH_MS, SHORT_PAGE_DEFAULT},
    malformed::MalformedField,
    page,
    time::{point_in_time, timestamp},
};
use crate::{
    gate::{ModelResponse, RuleExplanation, StoredCallExplanation},
    grpc::{FromWire, ToWire},
};
use callgate_core::domain::{
    calls::{
        CallAnswer, CallFilter, CallJudgment, CallLine, CallPlace, CallQuery, CallReport, NameKind, NamePage,
        SearchPage, SessionQuery, WholeCall,
    },
    digest,
    ids::CallId,
    inbox::{SessionLine, SessionPlace, TreeTotals},
    time::Timestamp,
};
use callgate_proto::{time::duration, v1};

/// One of a closed set; none where it is left open.
pub(super) fn member<M, T>(field: &str, given: i32) -> DecodeResult<Option<T>>
where
    M: TryFrom<i32> + Default + PartialEq + Debug,
    T: FromWire<M>,
{
    let Ok(mirror) = M::try_from(given) else { return Err(MalformedField::no_member::<M>(field, given)) };
    if mirror == M::default() {
        return Ok(None);
    }
    match T::from_wire(mirror) {
        Ok(member) => Ok(Some(member)),
        Err(_) => Err(MalformedField::no_member::<M>(field, given)),
    }
}

fn filter(field: &str, filter: Option<&v1::CallFilter>) -> DecodeResult<CallFilter> {
    let Some(filter) = filter else { return Ok(CallFilter::default()) };
    let name = |part: &str| format!("{field}.{part}");
    let text = |part: &str, text: &str| maybe_text(&name(part), text);
    let time =
        |part: &str, at: Option<&prost_types::Timestamp>| at.map(|at| point_in_time(&name(part), Some(at))).transpose();
    Ok(CallFilter {
        agent: text("agent_id", &filter.agent_id)?,
        tool: text("tool", &filter.tool)?,
        decision: member::<v1::Decision, _>(&name("decision"), filter.decision)?,
        rule: text("rule", &filter.rule)?,
        reason: text("reason", &filter.reason)?,
        status: member::<v1::OutcomeStatus, _>(&name("status"), filter.status)?,
        failure: member::<v1::FailureKind, _>(&name("failure"), filter.failure)?,
        text: text("text", &filter.text)?,
        since: time("start_time", filter.start_time.as_ref())?,
        until: time("end_time", filter.end_time.as_ref())?,
        user: text("user_id", &filter.user_id)?,
        refused: filter.refused,
        name: text("name", &filter.name)?,
    })
}

pub(super) fn decode_session_query(message: &v1::ListSessionsRequest) -> DecodeResult<SessionQuery> {
    let after = page::after(&message.page_token, |[key, root, depth, session]| {
        let (root, session) = (root.to_owned(), session.to_owned());
        Some(SessionPlace { key: page::micros(key)?, root, depth: depth.parse().ok()?, session })
    })?;
    Ok(SessionQuery {
        id: None,
        order: member::<v1::SessionOrder, _>("order", message.order)?.unwrap_or_default(),
        time_ms: SEARCH_MS,
        calls: filter("calls", message.calls.as_ref())?,
        standing: member::<v1::SessionStatus, _>("status", message.status)?,
        after,
        max: page_size(message.page_size, SHORT_PAGE_DEFAULT)?,
    })
}

pub(super) fn decode_call_query(message: &v1::ListCallsRequest) -> DecodeResult<CallQuery> {
    let after = page::after(&message.page_token, |[last_us, root, seq]| {
        Some(CallPlace { last_us: page::micros(last_us)?, root: root.to_owned(), seq: seq.parse().ok()? })
    })?;
    let session = maybe_session(&message.session_id)?;
    if session.is_none() && (message.oldest_first || message.exclude_child_sessions) {
        return wrong("session_id", "is required with `alone` and `oldest_first`, which are about one call tree");
    }
    Ok(CallQuery {
        session,
        alone: message.exclude_child_sessions,
        filter: filter("filter", message.filter.as_ref())?,
        oldest_first: message.oldest_first,
        after,
        max: page_size(message.page_size, SHORT_PAGE_DEFAULT)?,
    })
}

pub(super) fn call_id(given: &str) -> DecodeResult<CallId> {
    Ok(CallId::parse("call_id", given)?)
}

fn encode_searched<T, P>(page: &SearchPage<T, P>) -> Option<v1::SearchedRange> {
    let since_time = page.since_us.map(|us| timestamp(Timestamp::from_millis(us.div_euclid(1_000))));
    let (has_encrypted_arguments, remaining_call_trees) = (page.is_sealed, page.trees_left);
    let name_prefix_only = page.is_name_prefix;
    Some(v1::SearchedRange { since_time, has_encrypted_arguments, remaining_call_trees, name_prefix_only })
}

pub(super) fn names(found: NamePage) -> v1::ListNamesResponse {
    let name = |(kind, name): (NameKind, String)| v1::NameEntry { kind: kind.to_wire().into(), name };
    v1::ListNamesResponse { names: found.names.into_iter().map(name).collect(), prefix_only: found.is_prefix }
}

fn summary(line: SessionLine, is_halted: impl Fn(&str) -> bool) -> v1::SessionSummary {
    v1::SessionSummary {
        halted: is_halted(&line.place.session),
        create_time: Some(timestamp(line.created_at)),
        update_time: Some(timestamp(line.last_at)),
        depth: u32::try_from(line.place.depth).unwrap_or(0),
        session_id: line.place.session,
        root_session_id: line.place.root,
        steps: line.steps,
        calls: line.calls,
        open_calls: line.open_calls,
        cost_micros: line.cost_micros,
        parent_session_id: line.parent.unwrap_or_default(),
        status: line.standing.to_wire().into(),
        agent_id: line.agent.unwrap_or_default(),
        last_tool: line.last_tool.unwrap_or_default(),
        last_decision: line.last_decision.map_or(0, encode::decision),
        last_reason: line.last_reason.unwrap_or_default(),
    }
}

pub(super) fn session(
    (line, totals): (SessionLine, TreeTotals),
    is_halted: impl Fn(&str) -> bool,
) -> v1::GetSessionResponse {
    let TreeTotals { tokens, refused_calls } = totals;
    v1::GetSessionResponse { session: Some(summary(line, is_halted)), tokens, refused_calls }
}

pub(super) fn sessions(
    looked: SearchPage<SessionLine, SessionPlace>,
    is_halted: impl Fn(&str) -> bool,
) -> v1::ListSessionsResponse {
    let token = |place: SessionPlace| {
        page::token([&place.key.to_string(), &place.root, &place.depth.to_string(), &place.session])
    };
    v1::ListSessionsResponse {
        searched_range: encode_searched(&looked),
        next_page_token: looked.next.map(token).unwrap_or_default(),
        sessions: looked.found.into_iter().map(|line| summary(line, &is_halted)).collect(),
    }
}

pub(super) fn calls(looked: SearchPage<CallLine, CallPlace>) -> v1::ListCallsResponse {
    let token = |place: CallPlace| page::token([&place.last_us.to_string(), &place.root, &place.seq.to_string()]);
    v1::ListCallsResponse {
        searched_range: encode_searched(&looked),
        next_page_token: looked.next.map(token).unwrap_or_default(),
        calls: looked.found.into_iter().map(entry).collect(),
    }
}

fn entry(line: CallLine) -> v1::CallEntry {
    let (retry_of, follow_up) = line.retry_of.unzip();
    let last = line.judgement;
    v1::CallEntry {
        session_id: line.session,
        root_session_id: line.place.root,
        parent_session_id: line.parent.unwrap_or_default(),
        depth: line.depth,
        seq: line.place.seq,
        batch: line.batch,
        call_id: line.call_id,
        run_id: line.run.unwrap_or_default(),
        agent_id: line.agent.unwrap_or_default(),
        tool: line.tool,
        arguments: line.arguments.unwrap_or_default(),
        first_judge_time: Some(timestamp(line.first_at)),
        judge_time: Some(timestamp(last.at)),
        judgements: line.rounds,
        decision: encode::decision(last.decision),
        rule: last.rule.unwrap_or_default(),
        reason: last.reason.unwrap_or_default(),
        findings: last.findings.iter().map(encode::finding).collect(),
        enforced: last.decision == last.would,
        attempt: last.attempt.unwrap_or(0),
        status: line.status.map_or(0, encode::status),
        failure: encode::failure(line.failure),
        error_message: line.error.unwrap_or_default(),
        result_summary: line.gist.unwrap_or_default(),
        record_time: line.recorded_at.map(timestamp),
        duration: line.duration_ms.map(duration),
        usage: Some(encode::usage(line.usage)),
        retry_of_call_id: retry_of.unwrap_or_default(),
        follow_up: follow_up.map_or(v1::FollowUpKind::Unspecified, ToWire::to_wire).into(),
        waited: line.waited_ms.map(duration),
        approval_id: last.approval.unwrap_or_default(),
        observed: line.observed,
        fingerprint: line.fingerprint,
        policy_version: last.policy,
        trace_id: last.trace.unwrap_or_default(),
        report_trace_id: line.report_trace.unwrap_or_default(),
        effect: line.effect.to_owned(),
        resource: line.resource.unwrap_or_default(),
        result_bytes: line.result_bytes,
    }
}

fn judgement(judgement: CallJudgment) -> v1::Judgement {
    v1::Judgement {
        seq: judgement.seq,
        judge_time: Some(timestamp(judgement.at)),
        decision: encode::decision(judgement.decision),
        policy_decision: encode::decision(judgement.would),
        rule: judgement.rule.unwrap_or_default(),
        reason: judgement.reason.unwrap_or_default(),
        findings: judgement.findings.iter().map(encode::finding).collect(),
        attempt: judgement.attempt.unwrap_or(0),
        lease_expire_time: judgement.lease_until.map(timestamp),
        approval_id: judgement.approval.unwrap_or_default(),
        policy_version: judgement.policy,
        trace_id: judgement.trace.unwrap_or_default(),
    }
}

fn report(report: CallReport) -> v1::CallReport {
    v1::CallReport {
        seq: report.seq,
        record_time: Some(timestamp(report.at)),
        status: encode::status(report.status),
        failure: encode::failure(report.failure),
        error_message: report.error.unwrap_or_default(),
        by_lease: report.by_lease,
        duration: report.duration_ms.map(duration),
        advice: report.advice.as_ref().map(encode::advice),
        progress_note: report.note.unwrap_or_default(),
        trace_id: report.trace.unwrap_or_default(),
    }
}

fn answer(answer: CallAnswer) -> v1::CallAnswer {
    v1::CallAnswer {
        create_time: Some(timestamp(answer.at)),
        kind: answer.kind,
        by: answer.by.unwrap_or_default(),
        reason: answer.why.unwrap_or_default(),
        approved: answer.approved,
        edited: answer.edited,
    }
}

pub(super) fn encode_explanation(call: StoredCallExplanation) -> v1::ExplainCallResponse {
    let rule = |explained: RuleExplanation| v1::ExplainedRule {
        rule: explained.rule,
        mode: explained.mode.unwrap_or_default().to_owned(),
        finding: explained.finding.as_ref().map(encode::finding),
        no_finding_reason: explained.silence.unwrap_or_default(),
    };
    let (seen, unseen) = call.seen.map_or_else(|why| (Vec::new(), why), |seen| (seen, String::new()));
    let fact = |(name, text): (&str, String)| v1::RuleInput { name: name.to_owned(), text };
    v1::ExplainCallResponse {
        rules: call.rules.into_iter().map(rule).collect(),
        inputs: seen.into_iter().map(fact).collect(),
        inputs_missing: unseen,
        policy_version: call.policy,
    }
}

pub(super) fn whole_call(call: WholeCall, told: ModelResponse) -> v1::GetCallResponse {
    v1::GetCallResponse {
        call: Some(entry(call.line)),
        arguments_json: call.arguments.unwrap_or_default(),
        justification: call.justification.unwrap_or_default(),
        result: call.result,
        result_truncated: call.whole.is_some(),
        result_whole_bytes: call.whole.map_or(0, |whole| whole.bytes),
        result_whole_sha256: call.whole.map(|whole| digest::in_hexadecimal(&whole.sha256)).unwrap_or_default(),
        error_message: call.error.unwrap_or_default(),
        judgements: call.judgements.into_iter().map(judgement).collect(),
        reports: call.reports.into_iter().map(report).collect(),
        answers: call.answers.into_iter().map(answer).collect(),
        tool_result_json: told.instead.unwrap_or_default(),
        next_context_hint: told.hint.unwrap_or_default(),
        followed_by_call_ids: call.followed_by,
        rows: call.rows,
        chosen_by_approval_id: String::new(),
    }
}
