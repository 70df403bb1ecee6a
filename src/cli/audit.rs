//! `callgate audit`: audit log entries, and verification of their hash chain.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::server_args::ReadArgs;
use callgate_client::{
    json::OutputFormat,
    remote::{AuthenticatedChannel, at, into_response},
};
use callgate_proto::v1::{
    AuditEntry, ListAuditEntriesRequest, VerifyAuditRequest, audit_service_client::AuditServiceClient,
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
        Action::List { all, server: ReadArgs { form, remote } } => {
            list(all, form, AuditServiceClient::new(remote.connect().await?)).await
        }
        Action::Verify { anchors, server: ReadArgs { form, remote } } => {
            verify(anchors, form, AuditServiceClient::new(remote.connect().await?)).await
        }
    }
}

async fn list(
    all: bool,
    form: OutputFormat,
    mut client: AuditServiceClient<AuthenticatedChannel>,
) -> anyhow::Result<ExitCode> {
    let mut request = ListAuditEntriesRequest { page_size: if all { PAGE } else { SHOWN }, ..Default::default() };
    loop {
        let page = into_response(client.list_audit_entries(request.clone()).await)?;
        if page.entries.is_empty() && !form.json && request.page_token.is_empty() {
            outln!("The audit log is empty.");
        }
        form.print_items(&page.entries, print_entry)?;
        match page.next_page_token {
            end if end.is_empty() => return Ok(ExitCode::SUCCESS),
            _ if !all => {
                errln!("note: only the newest {SHOWN} entries are shown; --all shows all");
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
