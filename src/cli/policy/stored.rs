//! Policies of a running server.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use tonic_types::StatusExt as _;

use crate::cli::server_args::ReadArgs;
use callgate_client::{
    json::OutputFormat,
    remote::{ActorArgs, Remote, at, into_response},
};
use callgate_proto::v1::{
    ActivatePolicyRequest, ApplyMode, ApplyPolicyRequest, GetPolicyRequest, ListPoliciesRequest, PolicyRevision,
    RollbackPolicyRequest, policy_service_client::PolicyServiceClient,
};
use callgate_server::policy_file::read_policy;

/// Page size: the server's maximum.
const PAGE: u32 = 500;

/// Arguments of a change of the active policy: actor, note and expected revision.
#[derive(Debug, Args)]
pub(super) struct ActivationArgs {
    #[command(flatten)]
    by: ActorArgs,
    /// Note, stored with the revision
    #[arg(long, default_value = "")]
    note: String,
    /// Fail unless this revision is the active one
    #[arg(long, value_name = "REVISION")]
    expect: Option<u64>,
    #[command(flatten)]
    server: ReadArgs,
}

/// Arguments of `callgate policy apply`.
#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The policy file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Store the policy without activating it
    #[arg(long)]
    store_only: bool,
    #[command(flatten)]
    change: ActivationArgs,
}

fn print_revision(revision: &PolicyRevision) {
    outln!(
        "revision {} is active: {} (by {} at {})",
        revision.revision,
        short(&revision.hash),
        revision.activated_by,
        at(revision.activate_time.as_ref())
    );
}

pub(super) fn short(hash: &str) -> &str {
    hash.get(..16).unwrap_or(hash)
}

pub(super) async fn apply(args: &ApplyArgs) -> anyhow::Result<()> {
    let text = read_policy(&args.file)?;
    let mode = if args.store_only { ApplyMode::Store } else { ApplyMode::Activate };
    let change = &args.change;
    let mut client = PolicyServiceClient::new(change.server.remote.connect().await?);
    let request =
        ApplyPolicyRequest { text, note: change.note.clone(), expected_revision: change.expect, mode: mode.into() };
    let answer = client.apply_policy(change.by.sign_request(request)?).await;
    if let Err(status) = &answer {
        let problems = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
        problems.iter().for_each(|problem| errln!("{}: {}", args.file.display(), problem.description));
    }
    let applied = into_response(answer)?;
    change.server.form.print_item(&applied, |applied| {
        applied.warnings.iter().for_each(|warning| outln!("warning: {warning}"));
        match &applied.revision {
            Some(revision) => print_revision(revision),
            None => outln!("stored: {}", short(&applied.hash)),
        }
    })
}

pub(super) async fn list(form: OutputFormat, remote: &Remote) -> anyhow::Result<()> {
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let mut request = ListPoliciesRequest { page_size: PAGE, ..ListPoliciesRequest::default() };
    let mut state = "active";
    loop {
        let page = into_response(client.list_policies(request.clone()).await)?;
        if page.revisions.is_empty() && request.page_token.is_empty() && !form.json {
            outln!("No policy was applied yet: the built-in one is active, which declares no tools.");
        }
        form.print_items(&page.revisions, |revision| {
            let state = std::mem::take(&mut state);
            let (at, hash) = (at(revision.activate_time.as_ref()), short(&revision.hash));
            let PolicyRevision { revision, activated_by, note, .. } = revision;
            outln!("{revision:>5}  {hash}  {at}  {state:<6}  {activated_by}  {note}");
        })?;
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = page.next_page_token;
    }
}

/// Hash and text of a stored policy; for an empty hash of the active one, none for the built-in one.
pub(super) async fn policy(hash: &str, remote: &Remote) -> anyhow::Result<Option<(String, String)>> {
    let mut client = PolicyServiceClient::new(remote.connect().await?);
    let found = into_response(client.get_policy(GetPolicyRequest { hash: hash.to_owned() }).await)?;
    Ok((!found.hash.is_empty()).then_some((found.hash, found.text)))
}

/// The text of a stored policy; of the active one for an empty hash.
pub(super) async fn text(hash: &str, remote: &Remote) -> anyhow::Result<String> {
    match policy(hash, remote).await? {
        Some((_, text)) => Ok(text),
        None => bail!("no policy was applied yet: the built-in one is active, which has no text"),
    }
}

pub(super) async fn show(hash: Option<&str>, form: OutputFormat, remote: &Remote) -> anyhow::Result<()> {
    let hash = hash.unwrap_or_default();
    if form.json {
        let mut client = PolicyServiceClient::new(remote.connect().await?);
        let found = into_response(client.get_policy(GetPolicyRequest { hash: hash.to_owned() }).await)?;
        return form.print_item(&found, |_| ());
    }
    out!("{}", text(hash, remote).await?);
    Ok(())
}

pub(super) async fn activate(hash: &str, change: &ActivationArgs) -> anyhow::Result<()> {
    let mut client = PolicyServiceClient::new(change.server.remote.connect().await?);
    let request =
        ActivatePolicyRequest { hash: hash.to_owned(), note: change.note.clone(), expected_revision: change.expect };
    let activated = into_response(client.activate_policy(change.by.sign_request(request)?).await)?;
    change.server.form.print_items(activated.revision.as_slice(), print_revision)
}

pub(super) async fn rollback(change: &ActivationArgs) -> anyhow::Result<()> {
    let mut client = PolicyServiceClient::new(change.server.remote.connect().await?);
    let request = RollbackPolicyRequest { note: change.note.clone(), expected_revision: change.expect };
    let activated = into_response(client.rollback_policy(change.by.sign_request(request)?).await)?;
    change.server.form.print_items(activated.revision.as_slice(), print_revision)
}
