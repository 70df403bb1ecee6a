//! `callgate profiles`: retry profiles of a fleet, with a small curve of success by wait.

use anstyle::{AnsiColor, Style};
use clap::{Args, Subcommand};

use super::server_args::ReadArgs;
use callgate_client::remote::{AuthenticatedChannel, into_response, member_name};
use callgate_core::domain::{failure::FailureKind, profile::WAITS_MS, time::wait_in_words};
use callgate_proto::{
    time::millis,
    v1::{
        ListRetryProfilesRequest, RebuildRetryProfilesRequest, RetryProfile,
        profile_service_client::ProfileServiceClient,
    },
};

/// Arguments of `callgate profiles`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ProfilesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show this tool only
    tool: Option<String>,
    #[command(flatten)]
    server: ReadArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Rebuild the profiles from the calls of the last 40 days
    Rebuild {
        #[command(flatten)]
        server: ReadArgs,
    },
}

/// Prints or rebuilds profiles.
pub(super) async fn run(args: ProfilesArgs) -> anyhow::Result<()> {
    if let Some(Action::Rebuild { server: ReadArgs { form, remote } }) = &args.action {
        let mut client = ProfileServiceClient::new(remote.connect().await?);
        let rebuilt = into_response(client.rebuild_retry_profiles(RebuildRetryProfilesRequest {}).await)?;
        return form
            .print_item(&rebuilt, |rebuilt| outln!("Profiles rebuilt from {} follow-ups on failures", rebuilt.trials));
    }
    let mut client = ProfileServiceClient::new(args.server.remote.connect().await?);
    let profiles = fetch_profiles(&mut client, args.tool.as_deref().unwrap_or_default()).await?;
    if args.server.form.json {
        args.server.form.print_items(&profiles, |_| ())?;
    } else if profiles.is_empty() {
        outln!("No profiles yet: no call followed up on a failure{}.", of(args.tool.as_deref()));
    } else {
        show(&profiles);
    }
    Ok(())
}

fn of(tool: Option<&str>) -> String {
    tool.map(|tool| format!(" of {tool}")).unwrap_or_default()
}

async fn fetch_profiles(
    client: &mut ProfileServiceClient<AuthenticatedChannel>,
    tool: &str,
) -> anyhow::Result<Vec<RetryProfile>> {
    let mut request = ListRetryProfilesRequest { tool: tool.to_owned(), ..ListRetryProfilesRequest::default() };
    let mut profiles = Vec::new();
    loop {
        let page = into_response(client.list_retry_profiles(request.clone()).await)?;
        profiles.extend(page.profiles);
        if page.next_page_token.is_empty() {
            return Ok(profiles);
        }
        request.page_token = page.next_page_token;
    }
}

fn failure_name(profile: &RetryProfile) -> String {
    member_name(profile.failure().as_str_name(), "FAILURE_KIND_")
}

fn show(profiles: &[RetryProfile]) {
    const DIM: Style = Style::new().dimmed();
    const BOLD: Style = Style::new().bold();
    let longest = profiles.iter().map(|profile| profile.tool.chars().count()).max().unwrap_or(4).clamp(4, 40);
    let kinds = FailureKind::ALL.iter().map(|kind| kind.as_str().len()).max().unwrap_or(8);
    outln!(
        "{BOLD}{:<longest$}  {:<kinds$}  {:>6}  waits  {:>5}  {:<12}  {:<9}  corrected{BOLD:#}",
        "tool",
        "failure",
        "trials",
        "p",
        "advice",
        "evidence"
    );
    for profile in profiles {
        let best = profile.chances.iter().map(|chance| chance.p).fold(0.0, f64::max);
        let (colour, advice) = if profile.retryable {
            (AnsiColor::Green, format!("after {}", wait_in_words(millis(profile.retry_after.as_ref()))))
        } else {
            (AnsiColor::Red, "do not retry".to_owned())
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let corrected = if profile.corrections >= 1.0 {
            format!("{:.0} % of {:.0}", profile.corrected * 100.0, profile.corrections)
        } else {
            "-".to_owned()
        };
        let evidence = evidence(profile);
        let (kind, curve, trials) = (failure_name(profile), curve(profile), profile.trials);
        outln!(
            "{:<longest$}  {kind:<kinds$}  {trials:>6.1}  {curve}  {best:>5.2}  {style}{advice:<12}{style:#}  \
             {evidence:<9}  {corrected}",
            profile.tool,
        );
    }
    let waits: Vec<String> = WAITS_MS.iter().map(|ms| wait_in_words(*ms)).collect();
    outln!(
        "\n{DIM}waits: the chance of a retry after {}, after a first failure of a healthy tool; p: the best of them.\n\
         trials: retries counted, older ones less. corrected: follow-ups with changed arguments that worked.{DIM:#}",
        waits.join(", ")
    );
}

fn evidence(profile: &RetryProfile) -> &'static str {
    match profile.trials {
        trials if trials >= 30.0 => "high",
        trials if trials >= 8.0 => "medium",
        _ => "low",
    }
}

/// One block per wait, its height is the probability.
fn curve(profile: &RetryProfile) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let block = |p: f64| BLOCKS[((p * BLOCKS.len() as f64) as usize).min(BLOCKS.len() - 1)];
    profile.chances.iter().map(|chance| block(chance.p)).collect()
}
