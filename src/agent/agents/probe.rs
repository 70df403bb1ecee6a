//! Probe of an installed hook: a harmless call, sent as the host would send it.

use std::{
    future::poll_fn,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};
use tonic::{body::Body, client::GrpcService as _, codegen::Bytes};

use super::{
    plan::HTTP_PATH,
    sample::{HookEffect, Sample, of_command, of_http},
    settings::HostSettings,
};
use crate::hosts::Host;
use callgate_client::remote::{Remote, into_response};
use callgate_proto::v1::{GetSessionStateRequest, gate_service_client::GateServiceClient};

/// Timeout of a probe; a policy that requires approval of reads delays it.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum size of a response.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Result of a probe.
#[derive(Debug)]
pub(super) struct ProbeResult {
    /// Description in a sentence.
    pub(super) words: String,
    /// True when the hook permits the call and the server has recorded it.
    pub(super) works: bool,
}

/// Runs the installed hook for a call, and checks the server's record.
pub(super) async fn probe(host: Host, path: &Path, folder: &Path, remote: &Remote) -> anyhow::Result<ProbeResult> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let session = format!("callgate-install-test-{}", uuid::Uuid::now_v7());
    let sample = Sample { host, session: &session, file: path, folder };
    let settings = HostSettings::read(host, &text)?;
    let [before, after, end] = sample.inputs();
    let handlers = settings.handlers();
    let of_event = |name: &str| handlers.iter().find(|handler| handler.is_ours && handler.event == name);
    let fire = async |(event, input): &(&str, String)| match of_event(event) {
        Some(handler) => run_hook(host, &handler.value, input, folder, remote).await,
        None => HookEffect::Broken(format!("callgate has no hook for {event}")),
    };
    let saw = fire(&before).await;
    let connected = remote.connect().await;
    let told =
        |words: String, works: bool| Ok(ProbeResult { words: format!("{}: {words}", sample.describe_call()), works });
    match (saw, connected) {
        (HookEffect::Allowed, Ok(wire)) => {
            // Only a permitted call has an outcome.
            let rest = [fire(&after).await, fire(&end).await];
            let request = GetSessionStateRequest { session_id: session.clone(), ..Default::default() };
            let state = into_response(GateServiceClient::new(wire).get_session_state(request).await);
            match (state, rest.into_iter().find(|saw| matches!(saw, HookEffect::Broken(_)))) {
                (_, Some(HookEffect::Broken(why))) => {
                    told(format!("allowed, but its outcome could not be reported: {why}"), false)
                }
                (Ok(state), _) if state.state.as_ref().is_some_and(|state| !state.calls.is_empty()) => {
                    told(format!("allowed, and recorded by the server as session {session}"), true)
                }
                (Ok(_), _) => {
                    told("allowed, but the server has no record of it: the hook uses another server".into(), false)
                }
                (Err(error), _) => told(format!("allowed, but its record could not be read: {error}"), true),
            }
        }
        (HookEffect::Allowed, Err(error)) => told(format!("allowed without a record: {error}"), false),
        (HookEffect::Refused(why), Ok(_)) => told(format!("refused: {why}"), false),
        (HookEffect::Refused(_), Err(error)) => {
            told(format!("refused, because the server is unavailable: {error}"), false)
        }
        (HookEffect::Broken(why), _) => told(format!("the hook failed: {why}"), false),
    }
}

/// The hook's response to an input.
async fn run_hook(host: Host, handler: &Value, input: &str, folder: &Path, remote: &Remote) -> HookEffect {
    let saw = async {
        if handler.get("url").is_some() {
            let (status, body) = post_input(input, remote).await?;
            return anyhow::Ok(of_http(status, &body));
        }
        let output = ran(handler, input, folder).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(of_command(host, output.status.code(), &text(&output.stdout), &text(&output.stderr)))
    };
    match timeout(LIMIT, saw).await {
        Ok(Ok(saw)) => saw,
        Ok(Err(error)) => HookEffect::Broken(format!("{error:#}")),
        Err(_) => HookEffect::Broken(format!("no output within {} s", LIMIT.as_secs())),
    }
}

/// Runs a command as hosts do: as a list of words if given, otherwise by a shell.
async fn ran(handler: &Value, input: &str, folder: &Path) -> anyhow::Result<Output> {
    let line = handler.get("command").and_then(Value::as_str).unwrap_or_default();
    let mut command = match handler.get("args").and_then(Value::as_array) {
        Some(args) => {
            let mut command = Command::new(line);
            command.args(args.iter().filter_map(Value::as_str));
            command
        }
        None => {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        }
    };
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {line}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A hook that does not read its input reports that itself.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    Ok(child.wait_with_output().await?)
}

/// Sends an HTTP hook request with this command's token.
async fn post_input(input: &str, remote: &Remote) -> anyhow::Result<(u16, String)> {
    let mut wire = remote.connect().await?;
    let request = http::Request::post(HTTP_PATH)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::new(Full::new(Bytes::copy_from_slice(input.as_bytes()))))?;
    poll_fn(|context| wire.poll_ready(context)).await?;
    let response = wire.call(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("cannot read its answer: {error}"))?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
