//! `callgate audit`: audit log entries, and verification of their hash chain.

use std::process::ExitCode;

use anyhow::bail;
use chrono::{DateTime, NaiveDate, NaiveTime};
use clap::{Args, Subcommand};

use super::{recorded::duration_ms, server_args::ReadArgs};
use callgate_client::{
    csv,
    json::OutputFormat,
    remote::{AuthenticatedChannel, at, into_response},
};
use callgate_net::clock::Clock;
use callgate_proto::v1::{
    AuditEntry, AuditFilter, ListAuditEntriesRequest, VerifyAuditRequest, audit_service_client::AuditServiceClient,
};

/// Page size: the server's maximum.
const PAGE: u32 = 500;
/// Default number of shown entries.
const SHOWN: u32 = 50;

/// Arguments of `callgate audit`.
#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List entries, the newest first
    List {
        /// List all entries
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        filter: FilterArgs,
        /// Print all of them as CSV for spreadsheets
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Verify the chain of entries; exit code 1 if one was changed or removed
    Verify {
        /// Anchor printed by an earlier verification: detects removed entries at the end
        #[arg(long = "anchor", value_name = "NUMBER:HASH")]
        anchors: Vec<String>,
        #[command(flatten)]
        server: ReadArgs,
    },
}

/// Runs it.
pub(super) async fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { all, filter, csv, server: ReadArgs { form, remote } } => {
            let filter = filter.into_message()?;
            let client = AuditServiceClient::new(remote.connect().await?);
            if csv { list_csv(filter, client).await } else { list(all, filter, form, client).await }
        }
        Action::Verify { anchors, server: ReadArgs { form, remote } } => {
            verify(anchors, form, AuditServiceClient::new(remote.connect().await?)).await
        }
    }
}

/// Conditions on entries.
#[derive(Debug, Args)]
struct FilterArgs {
    /// Entries by this user or credential, or a part of it
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    by: String,
    /// Entries of this kind, such as policy_activated
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    kind: String,
    /// Entries about this session, agent, tool or tenant, or a part of its name
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    subject: String,
    /// Entries of this period, or since this time: 24h, 7d, 2026-11-01, 2026-11-01T09:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Entries before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl FilterArgs {
    fn into_message(self) -> anyhow::Result<AuditFilter> {
        let time = |option: &str, text: Option<String>| text.map(|text| parse_time(option, &text)).transpose();
        Ok(AuditFilter {
            by: self.by,
            kind: self.kind,
            subject: self.subject,
            start_time: time("--since", self.since)?,
            end_time: time("--until", self.until)?,
        })
    }
}

/// A time: so long ago, the begin of a UTC day, or RFC 3339.
fn parse_time(option: &str, text: &str) -> anyhow::Result<prost_types::Timestamp> {
    let day = || text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let exact = || DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc());
    let ms = match (duration_ms(text), day().or_else(exact)) {
        (Ok(back_ms), _) => Clock::System.now().as_millis() - back_ms,
        (_, Some(at)) => at.timestamp_millis(),
        (Err(_), None) => bail!("{option} {text}: expected 24h, 7d, 2026-11-01 or 2026-11-01T09:00:00Z"),
    };
    Ok(callgate_proto::time::timestamp(ms))
}

async fn list_csv(
    filter: AuditFilter,
    mut client: AuditServiceClient<AuthenticatedChannel>,
) -> anyhow::Result<ExitCode> {
    let mut request = ListAuditEntriesRequest { page_size: PAGE, filter: Some(filter), ..Default::default() };
    out!("{}", csv::audit_header());
    loop {
        let page = into_response(client.list_audit_entries(request.clone()).await)?;
        page.entries.iter().for_each(|entry| out!("{}", csv::audit_line(entry)));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

async fn list(
    all: bool,
    filter: AuditFilter,
    form: OutputFormat,
    mut client: AuditServiceClient<AuthenticatedChannel>,
) -> anyhow::Result<ExitCode> {
    let page_size = if all { PAGE } else { SHOWN };
    let is_filtered = filter != AuditFilter::default();
    let mut shown = 0;
    let mut request = ListAuditEntriesRequest { page_size, filter: Some(filter), ..Default::default() };
    loop {
        let page = into_response(client.list_audit_entries(request.clone()).await)?;
        // A search with a filter ends after so many entries, and goes on by the token.
        let goes_on = page.entries.is_empty() && is_filtered && !page.next_page_token.is_empty();
        if page.entries.is_empty() && !goes_on && !form.json && shown == 0 {
            outln!("{}", if is_filtered { "No entry matches." } else { "The audit log is empty." });
        }
        shown += page.entries.len();
        form.print_items(&page.entries, print_entry)?;
        match page.next_page_token {
            end if end.is_empty() => return Ok(ExitCode::SUCCESS),
            _ if !all && !goes_on => {
                errln!("note: only the newest {shown} entries are shown; --all shows all");
                return Ok(ExitCode::SUCCESS);
            }
            next => request.page_token = next,
        }
    }
}

fn print_entry(entry: &AuditEntry) {
    let with = |label: &str, text: &str| if text.is_empty() { String::new() } else { format!("{label}{text}") };
    let erased = if entry.erased_by == 0 { String::new() } else { format!("  (texts erased by {})", entry.erased_by) };
    outln!(
        "{:>6}  {}  {:<16}  {}{}{}{}{}{erased}",
        entry.number,
        at(entry.create_time.as_ref()),
        entry.kind,
        entry.action,
        with("  session ", &entry.session_id),
        with("  by ", &entry.by),
        match (entry.credential.as_str(), entry.origin.as_str()) {
            ("" | "local", "") => String::new(),
            (credential, "") => format!(" ({credential})"),
            ("", origin) => format!(" (from {origin})"),
            (credential, origin) => format!(" ({credential}, from {origin})"),
        },
        with(": ", &entry.reason),
    );
}

async fn verify(
    anchors: Vec<String>,
    form: OutputFormat,
    mut client: AuditServiceClient<AuthenticatedChannel>,
) -> anyhow::Result<ExitCode> {
    let held = anchors.len();
    let found = into_response(client.verify_audit(VerifyAuditRequest { anchors }).await)?;
    form.print_item(&found, |found| {
        found.problems.iter().for_each(|problem| outln!("{problem}"));
        if found.anchor.is_empty() {
            outln!("The audit log is empty.");
        } else {
            outln!("anchor {}", found.anchor);
        }
        if found.erased_texts > 0 {
            outln!("{} texts were erased, each with its own audit entry", found.erased_texts);
        }
    })?;
    if !found.problems.is_empty() {
        errln!("callgate: the audit log was tampered with; the problems are listed above");
        return Ok(ExitCode::FAILURE);
    }
    if form.json {
        return Ok(ExitCode::SUCCESS);
    }
    outln!("The audit chain is intact.");
    if held == 0 {
        errln!("note: store the anchor outside the database, and pass it to the next verification with --anchor");
    }
    Ok(ExitCode::SUCCESS)
}
