//! `callgate report`: tool quality, by retries, loops and repeated calls, with design advice.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use chrono::DateTime;
use clap::Args;

use super::server_args::ReadArgs;
use callgate_client::remote::into_response;
use callgate_proto::{
    time::unix_ms,
    v1::{
        CallName, GetToolQualityRequest, GetToolQualityResponse, LoopLevel, NearPair, ToolQuality, UnknownTool,
        profile_service_client::ProfileServiceClient,
    },
};

/// Arguments of `callgate report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Report on this tool only
    tool: Option<String>,
    /// The period in days
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=90))]
    days: u32,
    #[command(flatten)]
    server: ReadArgs,
}

/// Poll interval while the server counts.
const PAUSE: Duration = Duration::from_millis(500);

/// Progress of the server's counting.
#[derive(Default)]
struct Progress(Option<i64>);

impl Progress {
    fn print_progress(&mut self, from_ms: i64) {
        let hour = from_ms.div_euclid(3_600_000);
        if self.0.is_some_and(|told| told - hour < 24) {
            return;
        }
        self.0 = Some(hour);
        let at = DateTime::from_timestamp_millis(from_ms).unwrap_or_default();
        errln!("the server is counting: back to {} so far", at.format("%Y-%m-%d %H:%M UTC"));
    }
}

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// Prints the quality of tools.
pub(super) async fn run(args: ReportArgs) -> anyhow::Result<()> {
    let mut client = ProfileServiceClient::new(args.server.remote.connect().await?);
    let request = GetToolQualityRequest { tool: args.tool.clone().unwrap_or_default(), days: args.days };
    let mut progress = Progress::default();
    let report = loop {
        let report = into_response(client.get_tool_quality(request.clone()).await)?;
        let Some(from) = &report.counted_from_time else { break report };
        progress.print_progress(unix_ms(Some(from)));
        tokio::time::sleep(PAUSE).await;
    };
    if args.server.form.json {
        return args.server.form.print_item(&report, |_| ());
    }
    if report.tools.is_empty() && report.unknown_tools.is_empty() {
        let of = args.tool.map(|tool| format!(" of {tool}")).unwrap_or_default();
        outln!("Nothing to report: no calls{of} in the {}.", last(args.days));
        return Ok(());
    }
    outln!("{BOLD}Tools, worst first{BOLD:#} {DIM}({}){DIM:#}", last(args.days));
    report.tools.iter().for_each(show_tool);
    if !report.unknown_tools.is_empty() {
        outln!("\n{BOLD}Calls of unknown tools{BOLD:#}");
        report.unknown_tools.iter().for_each(show_unknown);
    }
    if !report.near_pairs.is_empty() {
        outln!("\n{BOLD}Calls with different arguments and the same result{BOLD:#}");
        report.near_pairs.iter().for_each(show_pair);
    }
    show_loops(&report);
    Ok(())
}

fn last(days: u32) -> String {
    if days == 1 { "last day".to_owned() } else { format!("last {days} days") }
}

fn rates(tool: &ToolQuality) -> [(&'static str, f64); 7] {
    [
        ("failures", tool.failure_rate),
        ("retries", tool.retry_rate),
        ("loops", tool.loop_rate),
        ("duplicates", tool.duplicate_rate),
        ("bad arguments", tool.validation_failure_rate),
        ("unknown outcomes", tool.unknown_outcome_rate),
        ("no is_complete", tool.missing_is_complete_rate),
    ]
}

fn show_tool(tool: &ToolQuality) {
    let bad = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
    outln!("\n  {BOLD}{}{BOLD:#}  {} calls, {} permits", tool.tool, tool.calls, tool.permitted);
    let shares = rates(tool).into_iter().filter(|(_, rate)| *rate > 0.0);
    let of_budgets = Some(("refused by a budget", tool.budget_refusal_rate)).filter(|(_, rate)| *rate > 0.0);
    let shares: Vec<String> =
        shares.chain(of_budgets).map(|(name, rate)| format!("{name} {}", percent(rate))).collect();
    if shares.is_empty() {
        outln!("    no problems");
        return;
    }
    outln!("    {}", shares.join(", "));
    if !tool.worst.is_empty() {
        outln!("    {bad}{}{bad:#}", tool.design_problem);
        outln!("    → {}", tool.remedy);
    }
    let calls: Vec<String> = tool.evidence.iter().map(call).collect();
    if !calls.is_empty() {
        outln!("    {DIM}seen in {}{DIM:#}", calls.join(", "));
    }
}

fn show_unknown(unknown: &UnknownTool) {
    let calls = if unknown.calls == 1 { "1 call".to_owned() } else { format!("{} calls", unknown.calls) };
    let sessions =
        if unknown.sessions == 1 { "1 session".to_owned() } else { format!("{} sessions", unknown.sessions) };
    outln!("  {BOLD}{}{BOLD:#}  {calls} in {sessions}", unknown.tool);
}

fn percent(rate: f64) -> String {
    let percent = rate * 100.0;
    if percent >= 1.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

fn call(name: &CallName) -> String {
    format!("{}/{}", name.session_id, name.call_id)
}

fn show_pair(pair: &NearPair) {
    let example = pair.first.as_ref().zip(pair.second.as_ref());
    let example = example.map(|(first, second)| format!("{} and {}", call(first), call(second))).unwrap_or_default();
    outln!(
        "  {BOLD}{}{BOLD:#}  {} pairs; normalize {}  {DIM}{example}{DIM:#}",
        pair.tool,
        pair.pairs,
        pair.fields.join(", ")
    );
}

fn show_loops(report: &GetToolQualityResponse) {
    let all: u64 = report.loop_ends.iter().map(|end| end.loops).sum();
    if all == 0 {
        return;
    }
    let ended = report.loop_ends.iter().map(|end| {
        let level = match end.level() {
            LoopLevel::Warning => "a warning",
            LoopLevel::Critical => "a refusal",
            LoopLevel::Break => "a stopped run",
            LoopLevel::Unspecified => "no level",
        };
        format!("{} at {level}", percent(end.loops as f64 / all as f64))
    });
    outln!("\n{BOLD}Loops{BOLD:#}  {all}, ended {}", ended.collect::<Vec<_>>().join(", "));
}
