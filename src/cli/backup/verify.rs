//! `callgate backup verify`: restores a backup into a scratch database, verifies that, and removes it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use super::{folder, refusal};
use callgate_postgres::{PostgresSettings, PrivatePostgres, clear};
use callgate_store::{Contents, look_over, parse_url};

/// Folder name of the scratch database.
const SCRATCH: &str = "callgate-verifying";

/// Arguments of `callgate backup verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The directory of the backup
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    scratch: Scratch,
    /// The directory of PostgreSQL's programs, of the backup's version or newer
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
}

/// Where the scratch database lives meanwhile.
#[derive(Debug, Clone, Args)]
pub(super) struct Scratch {
    /// The directory for the scratch database, which takes as much space as the database itself
    /// [default: next to the backup]
    #[arg(long = "scratch", value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Verifies an existing backup.
pub(super) async fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let folder = std::path::absolute(&args.folder).context("FOLDER")?;
    let said = verify(&folder, folder::parent(&folder), &args.scratch, args.pg_bin).await?;
    outln!("{} is verified: {said}", args.folder.display());
    Ok(())
}

/// Restores a backup into a scratch database, by default below `beside`, and describes its contents.
pub(super) async fn verify(
    folder: &Path,
    beside: &Path,
    scratch: &Scratch,
    pg_bin: Option<PathBuf>,
) -> anyhow::Result<String> {
    let manifest = folder::Manifest::read(folder)?;
    if let Some(refusal) = refusal(&manifest) {
        bail!("{}: {refusal}", folder.display());
    }
    let scratch = scratch.dir.as_deref().unwrap_or(beside).join(SCRATCH);
    let place = || {
        format!("cannot create the scratch database in {}: choose another directory with --scratch", scratch.display())
    };
    // An interrupted run has left it.
    clear(&scratch).await.with_context(place)?;
    let settings = PostgresSettings { data_dir: scratch.clone(), pg_bin };
    let private = match PrivatePostgres::start(&settings).await {
        Ok(private) => private,
        Err(error) => {
            let _ = clear(&scratch).await;
            return Err(error).with_context(place);
        }
    };
    let version = private.server_version().clone();
    let found = async {
        super::newer_than(&version, &manifest)?;
        super::fill(&private, folder, manifest.postgres_major).await.context("the backup cannot be restored")?;
        let options = parse_url(&private.connection().url()).context("the private PostgreSQL's own URL")?;
        look_over(options).await.context("cannot read the restored database")
    };
    let found = found.await;
    private.stop().await?;
    clear(&scratch).await?;
    let made_at = &manifest.made_at;
    match found? {
        None => Ok(format!("PostgreSQL {version} restored the database of {made_at}. No server has used it yet.")),
        Some(Contents { problems, .. }) if !problems.is_empty() => bail!(
            "{} can be restored, but its audit log was tampered with; run callgate audit verify as well:\n{}",
            folder.display(),
            problems.join("\n")
        ),
        Some(Contents { sessions, calls, outcomes, audited, .. }) => Ok(format!(
            "PostgreSQL {version} restored the database of {made_at}. Sessions: {sessions}. Calls: {calls}. Outcomes: \
             {outcomes}. The audit chain is intact, with {audited} entries."
        )),
    }
}
