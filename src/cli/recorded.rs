//! Input of recorded calls, from trace files or a running server.

use std::{fs::File, path::PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{ArgGroup, Args};

use super::source::RowSource;
use callgate_client::remote::{Remote, into_response, refusal};
use callgate_core::{
    domain::{
        budget::Usage,
        failure::FailureKind,
        ids::{AgentId, CallId, RunId, SessionId, ToolName},
        json, outcome,
        time::Timestamp,
    },
    offline::trace::{RecordedResult, TraceRow},
};
use callgate_net::clock::Clock;
use callgate_proto::{
    time::{millis, unix_ms},
    v1::{
        self, Decision, ExportCallsRequest, ExportCallsResponse, OutcomeStatus,
        session_service_client::SessionServiceClient,
    },
};
use callgate_server::grpc::{FromWire, time::timestamp};

/// Which calls.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("calls").required(true).args(["since", "traces"]))]
pub(super) struct RecordedArgs {
    /// Use the server's stored calls of this period: 90m, 24h, 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Use recorded traces in JSON lines, plain or gzipped
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl RecordedArgs {
    /// True for calls of a running server.
    pub(super) fn are_stored(&self) -> bool {
        self.since.is_some()
    }

    /// The calls, by session and in order.
    pub(super) async fn rows(&self) -> anyhow::Result<Vec<TraceRow>> {
        if let Some(since) = &self.since {
            let back_ms = duration_ms(since)?;
            let now_ms = Clock::System.now().as_millis();
            let since = ExportCallsRequest {
                start_time: Some(timestamp(Timestamp::from_millis(now_ms - back_ms))),
                ..ExportCallsRequest::default()
            };
            return Ok(fetch_calls(&self.remote, since).await?.iter().filter_map(row).collect());
        }
        let mut rows = Vec::new();
        for path in &self.traces {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| anyhow!("{name}: cannot be opened: {error}"))?;
            let mut source = RowSource::new(name, file)?;
            while let Some(row) = source.next_row()? {
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// A duration such as `7d`, in milliseconds.
pub(super) fn duration_ms(text: &str) -> anyhow::Result<i64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[at..] {
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => bail!("--since {text}: expected a number with m, h or d, such as 7d"),
    };
    let amount: i64 = text[..at].parse().with_context(|| format!("--since {text} is not a period such as 7d"))?;
    Ok(amount.saturating_mul(unit))
}

/// Stored calls of a server.
pub(super) async fn fetch_calls(
    remote: &Remote,
    wanted: ExportCallsRequest,
) -> anyhow::Result<Vec<ExportCallsResponse>> {
    let mut client = SessionServiceClient::new(remote.connect().await?);
    let mut calls = into_response(client.export_calls(wanted).await)?;
    let mut all = Vec::new();
    while let Some(call) = calls.message().await.map_err(|status| refusal(&status).context("the export ended early"))? {
        all.push(call);
    }
    Ok(all)
}

fn failure_name(failure: v1::FailureKind) -> Option<String> {
    FailureKind::from_wire(failure).ok().map(|kind| kind.as_str().to_owned())
}

const fn decode_usage(usage: &v1::Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        cost_micros: usage.cost_micros,
    }
}

fn parse_witness(witness: &str) -> Option<Box<str>> {
    (!witness.is_empty()).then(|| witness.into())
}

/// A stored call as a recorded one; none if its arguments were not stored whole.
pub(super) fn row(call: &ExportCallsResponse) -> Option<TraceRow> {
    let result = match call.status() {
        OutcomeStatus::Success | OutcomeStatus::Error => Some(RecordedResult {
            text: call.result.clone().unwrap_or_default(),
            sha256: Some(call.result_whole_sha256.clone()).filter(|sha256| !sha256.is_empty()),
            is_cut: call.result_truncated,
            is_error: call.status() == OutcomeStatus::Error,
            error_type: failure_name(call.failure()),
        }),
        _ => None,
    };
    let ended = match call.status() {
        OutcomeStatus::Unknown => Some(outcome::OutcomeStatus::Unknown),
        OutcomeStatus::Cancelled => Some(outcome::OutcomeStatus::Cancelled),
        _ => None,
    };
    let trace = SessionId::parse("session_id", &call.session_id).ok()?;
    let root = SessionId::parse("root_session_id", &call.root_session_id).ok()?;
    Some(TraceRow {
        root: (root != trace).then_some(root),
        trace,
        seq: call.seq,
        call_id: CallId::parse("call_id", &call.call_id).ok()?,
        run: RunId::parse("run_id", &call.run_id).ok(),
        agent: AgentId::parse("agent_id", &call.agent_id).ok(),
        tool: ToolName::parse("tool", &call.tool).ok()?,
        arguments: json::parse(&call.arguments_json).ok()?,
        justification: Some(call.justification.clone()).filter(|why| !why.is_empty()),
        usage: call.usage.as_ref().map(decode_usage).unwrap_or_default(),
        at: Some(Timestamp::from_millis(unix_ms(call.judge_time.as_ref()))),
        refused: call.decision() != Decision::Allow,
        approved: call.approved,
        result,
        ended,
        reported: call.reported_usage.as_ref().map(decode_usage).unwrap_or_default(),
        estimated: call.retryable.map(|retryable| (retryable, millis(call.retry_after.as_ref()))),
        is_complete: call.is_complete,
        total_matches: call.total_matches,
        witness: parse_witness(&call.witness),
        witness_after: parse_witness(&call.witness_after),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_call_keeps_its_tree_its_agent_and_its_reason() {
        let stored = ExportCallsResponse {
            session_id: "child".to_owned(),
            root_session_id: "root".to_owned(),
            seq: 7,
            call_id: "c7".to_owned(),
            agent_id: "clerk".to_owned(),
            tool: "pay".to_owned(),
            arguments_json: "{}".to_owned(),
            decision: Decision::Deny.into(),
            justification: "the customer asked".to_owned(),
            ..ExportCallsResponse::default()
        };
        let refused = row(&stored).expect("a good row");
        assert_eq!((refused.root().as_str(), refused.trace.as_str()), ("root", "child"));
        assert_eq!(refused.agent.as_ref().map(AgentId::as_str), Some("clerk"));
        assert_eq!(refused.justification.as_deref(), Some("the customer asked"));
        assert!(refused.refused);
        let ran = row(&ExportCallsResponse { decision: Decision::Allow.into(), ..stored }).expect("a good row");
        assert!(!ran.refused);
        assert_eq!(ran.ended, None, "it may still run");
    }
}
