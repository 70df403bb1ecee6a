//! `callgate policy rollout`: a stored policy judges a part of the sessions, is compared with the active one, and is
//! promoted or aborted.

use anstyle::Style;
use anyhow::anyhow;
use clap::{Args, Subcommand};

use super::stored::short;
use crate::cli::server_args::{ReadArgs, WriteArgs};
use callgate_client::{
    json::OutputFormat,
    remote::{Remote, at, into_response, member_name, refusal},
};
use callgate_core::domain::rollout::SESSIONS_MIN;
use callgate_proto::v1::{
    BacktestPolicyRequest, BacktestResult, Decision, EndPolicyRolloutRequest, GetPolicyRolloutRequest, PolicyRollout,
    PolicyRolloutComparison, PolicyRolloutCount, PolicyRolloutDecisions, PolicyRolloutEnd, PolicyRolloutState,
    StartPolicyRolloutRequest, backtest_policy_request::Policy, backtest_policy_response::Event,
    policy_service_client::PolicyServiceClient,
};

/// Arguments of `callgate policy rollout`.
#[derive(Debug, Args)]
pub(super) struct RolloutArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Begin the rollout of a stored policy, or change its part; without a part it is in shadow
    Start {
        /// The policy's hash, or its beginning; `policy apply --store-only FILE` prints it
        hash: String,
        /// Share of the sessions that begin from now on, such as 10%
        #[arg(long, value_name = "PERCENT", value_parser = basis_points)]
        share: Option<u32>,
        /// An agent whose call trees are in it as a whole; may be repeated
        #[arg(long = "agent", value_name = "NAME")]
        agents: Vec<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Show the last rollout, and its policy's decisions next to those of the other sessions
    Status(ReadArgs),
    /// Activate its policy for all sessions
    Promote(EndArgs),
    /// End it: the active policy judges its sessions from the next call on
    Abort(EndArgs),
}

/// Of a change.
#[derive(Debug, Args)]
struct ChangeArgs {
    /// Note, stored with the change
    #[arg(long, default_value = "")]
    note: String,
    #[command(flatten)]
    server: WriteArgs,
}

/// Of an end.
#[derive(Debug, Args)]
struct EndArgs {
    /// Fail unless it is the rollout of this policy: its hash, or the first 8 digits
    hash: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// A percentage as basis points.
fn basis_points(text: &str) -> Result<u32, String> {
    let percent: Option<f64> = text.trim_end_matches('%').trim().parse().ok();
    let points = percent.map(|percent| percent * 100.0).filter(|points| (1.0..=10_000.0).contains(points));
    points.map(|points| points.round() as u32).ok_or_else(|| "must be a percentage from 0.01% to 100%".to_owned())
}

pub(super) async fn run(args: RolloutArgs) -> anyhow::Result<()> {
    match args.action {
        Action::Start { hash, share, agents, change: ChangeArgs { note, server } } => {
            let mut client = PolicyServiceClient::new(server.remote.connect().await?);
            let share_basis_points = share.unwrap_or(0);
            let start = StartPolicyRolloutRequest { hash, share_basis_points, agent_ids: agents, note };
            let started = into_response(client.start_policy_rollout(server.by.sign_request(start)?).await)?;
            server.form.print_items(started.rollout.as_slice(), print_rollout)
        }
        Action::Status(ReadArgs { form, remote }) => status(form, &remote).await,
        Action::Promote(args) => end(args, PolicyRolloutEnd::Promote).await,
        Action::Abort(args) => end(args, PolicyRolloutEnd::Abort).await,
    }
}

async fn end(args: EndArgs, end: PolicyRolloutEnd) -> anyhow::Result<()> {
    let ChangeArgs { note, server } = args.change;
    let mut client = PolicyServiceClient::new(server.remote.connect().await?);
    let request = EndPolicyRolloutRequest { end: end.into(), hash: args.hash.unwrap_or_default(), note };
    let ended = into_response(client.end_policy_rollout(server.by.sign_request(request)?).await)?;
    server.form.print_items(ended.rollout.as_slice(), print_rollout)
}

async fn status(form: OutputFormat, remote: &Remote) -> anyhow::Result<()> {
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let found = into_response(client.get_policy_rollout(GetPolicyRolloutRequest {}).await)?;
    form.print_item(&found, |found| match &found.rollout {
        Some(rollout) => print_rollout(rollout),
        None => outln!("There was no rollout yet."),
    })?;
    let Some(rollout) = found.rollout else { return Ok(()) };
    if is_shadow(&rollout) && rollout.state() == PolicyRolloutState::Running {
        let result = shadow(remote, &rollout).await?;
        return form.print_item(&result, print_shadow);
    }
    if !form.json {
        print_comparison(&found.comparison.unwrap_or_default());
    }
    Ok(())
}

fn is_shadow(rollout: &PolicyRollout) -> bool {
    rollout.share_basis_points == 0 && rollout.agent_ids.is_empty()
}

/// The calls since its start, judged by its policy too.
async fn shadow(remote: &Remote, rollout: &PolicyRollout) -> anyhow::Result<BacktestResult> {
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let request = BacktestPolicyRequest {
        policy: Some(Policy::Hash(rollout.hash.clone())),
        baseline_hash: rollout.baseline_hash.clone(),
        start_time: rollout.start_time,
        ..BacktestPolicyRequest::default()
    };
    let mut told = into_response(client.backtest_policy(request).await)?;
    while let Some(told) =
        told.message().await.map_err(|status| refusal(&status).context("the backtest ended early"))?
    {
        if let Some(Event::Result(result)) = told.event {
            return Ok(result);
        }
    }
    Err(anyhow!("the backtest ended without a result"))
}

fn print_rollout(rollout: &PolicyRollout) {
    let mut part: Vec<String> = rollout.agent_ids.iter().map(|agent| format!("agent {agent}")).collect();
    if rollout.share_basis_points > 0 {
        part.insert(0, format!("{} % of sessions", f64::from(rollout.share_basis_points) / 100.0));
    }
    let part = if part.is_empty() { "in shadow".to_owned() } else { part.join(", ") };
    let state = member_name(rollout.state().as_str_name(), "POLICY_ROLLOUT_STATE_");
    let baseline = if rollout.baseline_hash.is_empty() { "the built-in policy" } else { short(&rollout.baseline_hash) };
    outln!(
        "rollout of {} next to {baseline}: {state}, {part} (since {}, last change by {} at {})",
        short(&rollout.hash),
        at(rollout.start_time.as_ref()),
        rollout.changed_by,
        at(rollout.change_time.as_ref())
    );
}

fn print_shadow(result: &BacktestResult) {
    outln!("{} calls of {} sessions since, judged by it too:", result.calls, result.sessions);
    if result.changes.is_empty() {
        outln!("No decision would differ.");
    }
    for change in &result.changes {
        let kind = member_name(change.kind().as_str_name(), "BACKTEST_CHANGE_KIND_").replace('_', " ");
        outln!("{:>7}  {kind:<18} {:<16} {}", change.calls, change.rule, change.tool);
        change.examples.iter().for_each(|example| outln!("         {} {}", example.session_id, example.call_id));
    }
}

/// `12 of 300 (4.0 %) in 5`.
fn count(count: Option<&PolicyRolloutCount>, all: &PolicyRolloutCount) -> String {
    let PolicyRolloutCount { calls, sessions } = count.copied().unwrap_or_default();
    format!("{calls} ({:.1} %) in {sessions}", calls as f64 * 100.0 / all.calls.max(1) as f64)
}

fn print_comparison(compared: &PolicyRolloutComparison) {
    const BOLD: Style = Style::new().bold();
    let (rollout, baseline) = (compared.rollout.unwrap_or_default(), compared.baseline.unwrap_or_default());
    if compared.decisions.is_empty() {
        outln!("No call of either policy yet.");
        return;
    }
    let of = |all: &PolicyRolloutCount| format!("{} calls in {} sessions", all.calls, all.sessions);
    let only = if compared.more_calls { ", of the newest calls" } else { "" };
    outln!("rollout: {}; baseline: {}{only}\n", of(&rollout), of(&baseline));
    outln!("{BOLD}{:<22} {:<22} decision, rule, reason: calls, and their sessions{BOLD:#}", "rollout", "baseline");
    let line = |decisions: &PolicyRolloutDecisions| {
        let what = member_name(decisions.decision().as_str_name(), "DECISION_").to_uppercase();
        let what = [what.as_str(), &decisions.rule, &decisions.reason].join(" ");
        let (here, there) =
            (count(decisions.rollout.as_ref(), &rollout), count(decisions.baseline.as_ref(), &baseline));
        let differs = if decisions.differs { "  differs" } else { "" };
        outln!("{here:<22} {there:<22} {}{differs}", what.trim_end());
        if decisions.differs || decisions.decision() != Decision::Allow {
            decisions.examples.iter().for_each(|example| outln!("    {} {}", example.session_id, example.call_id));
        }
    };
    compared.decisions.iter().for_each(line);
    if rollout.sessions.min(baseline.sessions) < SESSIONS_MIN {
        outln!("\nNo difference is marked: that needs {SESSIONS_MIN} sessions of both.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage() {
        assert_eq!(["10%", "0.5%", "100", "2.25 %"].map(basis_points), [Ok(1_000), Ok(50), Ok(10_000), Ok(225)]);
        assert!(["0%", "101%", "ten", "", "-1%", "NaN"].iter().all(|text| basis_points(text).is_err()));
    }
}
