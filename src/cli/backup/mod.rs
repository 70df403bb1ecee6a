//! `callgate backup` and `callgate restore`: the private database as a folder of files, restored to PostgreSQL of the
//! same or a newer major version. A running server continues during a backup.

mod folder;
mod rotation;
mod verify;

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use self::{
    folder::{DUMP, Manifest, ROLES},
    verify::{Scratch, VerifyArgs},
};
use callgate_postgres::{
    ConnectionParams, DumpTools, PostgresSettings, PrivatePostgres, PrivatePostgresError, ServerVersion, clear,
    find_running, is_vacant,
};
use callgate_server::database;
use callgate_store::{CarriedState, SchemaState, analyze, make_roles, parse_url, read_carried_state};

/// Arguments of `callgate backup`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct BackupArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// The new directory for the backup
    #[arg(value_name = "FOLDER", required_unless_present = "shelf")]
    folder: Option<PathBuf>,
    /// Create a directory in DIR, named by the time; use one DIR for each database
    #[arg(long = "in", id = "shelf", value_name = "DIR", conflicts_with = "folder")]
    shelf: Option<PathBuf>,
    /// Keep the newest N backups in DIR, and remove older ones once this one is complete
    #[arg(long, value_name = "N", requires = "shelf", value_parser = clap::value_parser!(u16).range(1..))]
    keep: Option<u16>,
    /// Verify the backup before it gets its name and before others are removed
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    scratch: Scratch,
    /// The data directory of the server [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The directory of PostgreSQL's programs, when the server does not run
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Restore a backup into a scratch database, count its contents, and verify its audit log
    Verify(VerifyArgs),
}

/// Arguments of `callgate restore`.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The directory of the backup
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The data directory to create; empty or missing [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The directory of PostgreSQL's programs, of the backup's version or newer
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
}

/// Writes the private database into a folder, from the running server or a temporary one.
pub(super) async fn backup(args: BackupArgs) -> anyhow::Result<()> {
    if let Some(Action::Verify(args)) = args.action {
        return verify::run(args).await;
    }
    let data_dir = database::data_dir(args.data_dir.as_deref())?;
    let folder = match (args.folder, &args.shelf) {
        (_, Some(shelf)) => rotation::next(shelf)?,
        (folder, None) => folder.context("FOLDER")?,
    };
    let folder = &std::path::absolute(&folder).context("FOLDER")?;
    if folder.symlink_metadata().is_ok() {
        bail!("{} already exists, and a backup never overwrites: choose another directory", folder.display());
    }
    folder::has_place(folder)?;
    match (&args.shelf, folder.file_name().and_then(|name| name.to_str())) {
        (Some(shelf), _) => folder::clear_unfinished(shelf, rotation::is_ours)?,
        (None, Some(name)) => folder::clear_unfinished(folder::parent(folder), |wanted| wanted == name)?,
        (None, None) => {}
    }
    let WrittenBackup { unfinished, manifest, bin_dir } = match find_running(&data_dir).await {
        Ok(running) => write(&running.connection, &running.bin_dir, folder).await?,
        Err(PrivatePostgresError::NotRunning { .. }) if data_dir.join("pg").is_dir() => {
            let private = PrivatePostgres::start(&PostgresSettings { data_dir, pg_bin: args.pg_bin }).await?;
            let written = write(private.connection(), private.bin_dir(), folder).await;
            private.stop().await?;
            written?
        }
        Err(error) if error.is_permission_denied() => {
            bail!("{error}: run this as the user of `callgate serve`")
        }
        Err(error) => return Err(error.into()),
    };
    let said = match args.verify {
        true => Some(verify::verify(unfinished.path(), folder::parent(folder), &args.scratch, Some(bin_dir)).await?),
        false => None,
    };
    folder::finish(unfinished, folder)?;
    outln!("{} holds the database of {}, {} bytes.", folder.display(), manifest.made_at, manifest.bytes());
    if let Some(said) = said {
        outln!("Verified: {said}");
    }
    if let (Some(shelf), Some(keep)) = (&args.shelf, args.keep) {
        for removed in rotation::prune(shelf, usize::from(keep), folder)? {
            outln!("{} was removed.", removed.display());
        }
    }
    Ok(())
}

/// A complete backup without its final name.
#[derive(Debug)]
struct WrittenBackup {
    unfinished: folder::UnfinishedFolder,
    manifest: Manifest,
    /// Programs of its server.
    bin_dir: PathBuf,
}

/// Writes the dump, the roles, and the manifest.
async fn write(connection: &ConnectionParams, beside: &Path, folder: &Path) -> anyhow::Result<WrittenBackup> {
    let major = callgate_postgres::major_of_programs(beside).await?;
    let tools = DumpTools::find(beside, major).await?;
    let unfinished = folder::create_unfinished(folder)?;
    let options = parse_url(&connection.url()).context("the private PostgreSQL's own URL")?;
    let CarriedState { roles, newest, schema, .. } =
        read_carried_state(options).await.context("cannot read the database")?;
    tools.dump(connection, &unfinished.path().join(DUMP)).await?;
    folder::write(&unfinished.path().join(ROLES), (roles.join(";\n") + ";\n").as_bytes())?;
    let manifest = Manifest::of(unfinished.path(), major, newest, schema.floor)?;
    folder::seal(&unfinished, &manifest)?;
    Ok(WrittenBackup { unfinished, manifest, bin_dir: beside.to_owned() })
}

/// Creates a data directory from a backup, atomically.
pub(super) async fn restore(args: RestoreArgs) -> anyhow::Result<()> {
    let data_dir = database::data_dir(args.data_dir.as_deref())?;
    let data_dir = std::path::absolute(&data_dir).context("--data-dir")?;
    if !is_vacant(&data_dir)? {
        bail!(
            "{} is not empty, and a restore never overwrites: move it away, or choose another --data-dir",
            data_dir.display()
        );
    }
    let manifest = Manifest::read(&args.folder)?;
    if let Some(refusal) = refusal(&manifest) {
        bail!("{}: {refusal}", args.folder.display());
    }
    // In a sibling folder, so that an interrupted restore is never a database.
    let mut staging = data_dir.clone().into_os_string();
    staging.push(".restoring");
    let staging = PathBuf::from(staging);
    clear(&staging).await?;
    let private = PrivatePostgres::start(&PostgresSettings { data_dir: staging.clone(), pg_bin: args.pg_bin }).await?;
    let version = private.server_version().clone();
    let filled = match newer_than(&version, &manifest) {
        Ok(()) => fill(&private, &args.folder, manifest.postgres_major).await,
        Err(older) => Err(older),
    };
    private.stop().await?;
    if let Err(error) = filled {
        clear(&staging).await?;
        return Err(error);
    }
    match std::fs::remove_dir(&data_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", data_dir.display()));
        }
        _ => {}
    }
    std::fs::rename(&staging, &data_dir)
        .with_context(|| format!("cannot rename {} to {}", staging.display(), data_dir.display()))?;
    outln!("{} holds the database of {}, on PostgreSQL {version}.", data_dir.display(), manifest.made_at);
    outln!(
        "It lacks everything that was permitted and recorded later: read docs/operations.md#backup-and-restore \
         before agents continue."
    );
    Ok(())
}

/// Fails if the dump is of a newer server version.
fn newer_than(version: &ServerVersion, manifest: &Manifest) -> anyhow::Result<()> {
    if version.major >= manifest.postgres_major {
        return Ok(());
    }
    bail!(
        "the backup is of PostgreSQL {}, and {version} is older: set --pg-bin to the programs of that version or a \
         newer one",
        manifest.postgres_major
    )
}

/// The reason why this build cannot use a backup.
fn refusal(manifest: &Manifest) -> Option<String> {
    let newest = manifest.newest_migration?;
    let is_newer = newest > SchemaState::newest();
    let floor = manifest.schema_floor.unwrap_or(newest);
    (is_newer && !SchemaState::has(floor)).then(|| {
        format!(
            "its schema is newer than this build of callgate: restore it with a build that has migration {floor} \
             (this one ends at {})",
            SchemaState::newest()
        )
    })
}

/// Fills an empty cluster from a folder.
async fn fill(private: &PrivatePostgres, folder: &Path, dumped_by: u32) -> anyhow::Result<()> {
    let tools = DumpTools::find(private.bin_dir(), dumped_by).await?;
    let options = || parse_url(&private.connection().url()).context("the private PostgreSQL's own URL");
    let roles = std::fs::read_to_string(folder.join(ROLES)).context("cannot read the roles")?;
    let roles: Vec<String> = roles.split(";\n").filter(|role| !role.is_empty()).map(str::to_owned).collect();
    make_roles(options()?, &roles).await.context("cannot create the roles")?;
    tools.restore(private.connection(), &folder.join(DUMP)).await?;
    analyze(options()?).await.context("cannot use the restored database")
}
