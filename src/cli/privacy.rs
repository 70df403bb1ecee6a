//! `callgate forget` and `callgate export`: erasure and export of the data of a session, an agent or a user. Exports of
//! calls are in `export_calls.rs`.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufWriter, Write as _},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use tonic::{body::Body, client::GrpcService, codegen::StdError};

use super::{
    export_calls::{self, ExportCommand},
    target::CommandTarget,
    tokens::create_private,
};
use callgate_client::{
    json::OutputFormat,
    output,
    remote::{ActorArgs, into_response, refusal},
};
use callgate_core::domain::ids::TenantId;
use callgate_proto::v1::{
    ExportSubjectRequest, ForgetRequest, ForgetResponse, Subject, privacy_service_client::PrivacyServiceClient,
    subject::Subject as Whose,
};
use callgate_server::{
    gate::Gate,
    grpc,
    tenant_keys::{KeyFile, NamedKeys},
};

/// Arguments of `callgate forget`.
#[derive(Debug, Args)]
pub(super) struct ForgetArgs {
    #[command(flatten)]
    whom: SubjectArgs,
    /// Confirm the deletion, which cannot be undone. Without it, only the amount is printed
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    why: ReasonArgs,
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    place: CommandTarget,
}

/// Arguments of `callgate export`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct ExportArgs {
    #[command(subcommand)]
    calls: Option<ExportCommand>,
    #[command(flatten)]
    whom: Option<SubjectArgs>,
    /// Write to this new file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    why: ReasonArgs,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    place: CommandTarget,
}

/// Encryption keys, for work on a database.
#[derive(Debug, Args)]
pub(super) struct Opening {
    /// The file of `callgate serve --keys`, with --database-url or --data-dir
    #[arg(long, value_name = "FILE", env = "CALLGATE_KEYS")]
    keys: Option<PathBuf>,
}

impl Opening {
    pub(super) async fn open(&self, gate: &Gate, tenant: TenantId) -> anyhow::Result<()> {
        let named = match &self.keys {
            Some(path) => KeyFile::read(path).await?.named,
            None => NamedKeys::default(),
        };
        gate.identities.open_with(tenant, named).await.context("the keys of the tenant")
    }
}

#[derive(Debug, Args)]
struct ReasonArgs {
    /// Reason, stored in the audit log: do not name the subject in it
    #[arg(long, default_value = "")]
    reason: String,
}

/// Subject of the data.
#[derive(Debug, Args)]
struct SubjectArgs {
    /// The subject's kind
    kind: SubjectKind,
    /// The subject's id, as callers send it
    name: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SubjectKind {
    /// A session (caller.session_id), with its whole call tree
    Session,
    /// An agent (caller.agent_id), with its counters and halts
    Agent,
    /// A user of agents (caller.user_id)
    User,
}

impl SubjectArgs {
    fn subject(self) -> (String, Subject) {
        let Self { kind, name } = self;
        let named = format!("{name:?}");
        let (kind, subject) = match kind {
            SubjectKind::Session => ("session", Whose::SessionId(name)),
            SubjectKind::Agent => ("agent", Whose::AgentId(name)),
            SubjectKind::User => ("user", Whose::UserId(name)),
        };
        (format!("{kind} {named}"), Subject { subject: Some(subject) })
    }
}

/// Runs `callgate forget`.
pub(super) async fn forget(args: ForgetArgs) -> anyhow::Result<()> {
    let ForgetArgs { whom, yes, why, form, opening, place } = args;
    let (named, subject) = whom.subject();
    let request = ForgetRequest { subject: Some(subject), reason: why.reason, validate_only: !yes };
    let Some((gate, tenant)) = place.database().await? else {
        let client = PrivacyServiceClient::new(place.remote.connect().await?);
        return forgetting(client, request, (&named, form), &place.by).await;
    };
    opening.open(&gate, tenant).await?;
    let done =
        forgetting(grpc::privacy_of(Arc::clone(&gate.privacy), tenant), request, (&named, form), &place.by).await;
    gate.close().await;
    done
}

async fn forgetting<S>(
    mut client: PrivacyServiceClient<S>,
    request: ForgetRequest,
    (named, form): (&str, OutputFormat),
    by: &ActorArgs,
) -> anyhow::Result<()>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let is_dry = request.validate_only;
    let mut answers = into_response(client.forget(by.sign_request(request)?).await)?;
    let mut last = ForgetResponse::default();
    loop {
        let next = tokio::select! {
            next = answers.message() => next,
            _ = tokio::signal::ctrl_c() => {
                bail!("interrupted: {}. Run it again to finish", so_far(&last, is_dry));
            }
        };
        match next.map_err(|status| refusal(&status))? {
            Some(told) => {
                if told.percent > last.percent && told.percent < 100 {
                    errln!("{} %: {}", told.percent, so_far(&told, is_dry));
                }
                last = told;
            }
            None => break,
        }
    }
    if last.percent < 100 {
        bail!("the server interrupted it: {}. Run it again to finish", so_far(&last, is_dry));
    }
    if form.json {
        return form.print_item(&last, |_| ());
    }
    if is_dry {
        outln!("This would delete {} of {named}.", trees(&last));
        outln!("Nothing was deleted; add --yes to delete.");
    } else {
        outln!("Deleted {} of {named}, and {} of other data.", trees(&last), describe_others(last.other_rows));
        outln!("Every replica drops it from its cache within two seconds.");
    }
    Ok(())
}

fn so_far(told: &ForgetResponse, is_dry: bool) -> String {
    format!("{} {} so far", trees(told), if is_dry { "found" } else { "deleted" })
}

fn trees(told: &ForgetResponse) -> String {
    let plural = |n: u64| if n == 1 { "" } else { "s" };
    let ForgetResponse { call_trees, sessions, .. } = *told;
    format!("{call_trees} call tree{} with {sessions} session{}", plural(call_trees), plural(sessions))
}

fn describe_others(others: u64) -> String {
    if others == 1 { "1 row".to_owned() } else { format!("{others} rows") }
}

/// Runs `callgate export`.
pub(super) async fn export(args: ExportArgs) -> anyhow::Result<()> {
    let ExportArgs { calls, whom, out, why, opening, place } = args;
    if let Some(ExportCommand::Calls(calls)) = calls {
        return export_calls::run(calls, &place).await;
    }
    let Some(whom) = whom else { bail!("name the subject: callgate export user NAME") };
    let (_, subject) = whom.subject();
    let request = ExportSubjectRequest { subject: Some(subject), reason: why.reason };
    let file = match &out {
        Some(path) => Some(create_private(path).with_context(|| format!("cannot create {}", path.display()))?),
        None => None,
    };
    let Some((gate, tenant)) = place.database().await? else {
        let client = PrivacyServiceClient::new(place.remote.connect().await?);
        return exporting(client, request, file, &place.by).await;
    };
    opening.open(&gate, tenant).await?;
    let done = exporting(grpc::privacy_of(Arc::clone(&gate.privacy), tenant), request, file, &place.by).await;
    gate.close().await;
    done
}

async fn exporting<S>(
    mut client: PrivacyServiceClient<S>,
    request: ExportSubjectRequest,
    file: Option<File>,
    by: &ActorArgs,
) -> anyhow::Result<()>
where
    S: GrpcService<Body>,
    S::Error: Into<StdError>,
    S::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<StdError> + Send,
{
    let mut rows = into_response(client.export_subject(by.sign_request(request)?).await)?;
    let mut file = file.map(BufWriter::new);
    let (mut written, mut sealed, mut keys) = (0_u64, 0_u64, BTreeSet::new());
    while let Some(row) = rows.message().await.map_err(|status| refusal(&status))? {
        match &mut file {
            Some(file) => writeln!(file, "{}", row.row_json).context("cannot write the file")?,
            None => outln!("{}", row.row_json),
        }
        written += 1;
        let with = missing_keys(&row.row_json);
        sealed += u64::from(!with.is_empty());
        keys.extend(with);
        if output::is_closed() {
            return Ok(());
        }
    }
    if let Some(file) = &mut file {
        file.flush().context("cannot write the file")?;
        errln!("{written} rows.");
    }
    if sealed > 0 {
        let keys: Vec<String> = keys.into_iter().collect();
        bail!(
            "{sealed} of these rows have texts that are still encrypted, marked by `missing_keys`: they need the \
             tenant's keys {}. \
             Pass their file with --keys, or export from a server that has them",
            keys.join(", ")
        );
    }
    Ok(())
}

/// The keys that a row's decryption needs.
fn missing_keys(row: &str) -> Vec<String> {
    // Few rows have it, and only an object of that name counts.
    if !row.contains("\"missing_keys\"") {
        return Vec::new();
    }
    let row: serde_json::Value = serde_json::from_str(row).unwrap_or_default();
    row["missing_keys"].as_array().into_iter().flatten().filter_map(|key| Some(key.as_str()?.to_owned())).collect()
}
