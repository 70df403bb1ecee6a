//! `callgate backup`, `callgate restore`, `callgate database upgrade`: the private database in a folder of files, and
//! back, on PostgreSQL of the same or a newer major version. A server may go on while it is backed up.

mod folder;
mod upgrade;

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;

use self::folder::{DUMP, Manifest, ROLES};
use super::database;
use crate::{
    private_postgres::{
        self, Connection, DumpTools, PrivatePostgres, PrivatePostgresError, Settings, clear, find_running, is_vacant,
    },
    store::{Carried, SchemaState, carried, make_roles, parse_url, settle_in},
};

pub(super) use upgrade::{UpgradeArgs, upgrade};

/// What `callgate backup` takes.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The folder to make; it must not be there yet
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The data directory of the server [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The folder of PostgreSQL's programs, where no server runs
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
}

/// What `callgate restore` takes.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The folder that `callgate backup` has made
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Where the data is to live; nothing may be there yet [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The folder of PostgreSQL's programs, of the version that the backup is of, or newer
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
}

/// Writes the private database into a folder: of the server that runs, or of one that is started for it.
pub(super) async fn backup(args: BackupArgs) -> anyhow::Result<()> {
    let data_dir = database::data_dir(args.data_dir.as_deref())?;
    if args.folder.symlink_metadata().is_ok() {
        bail!("{} is there already, and a backup never overwrites: name another folder", args.folder.display());
    }
    let made = match find_running(&data_dir).await {
        Ok(running) => write(&running.connection, &running.bin_dir, &args.folder).await?,
        Err(PrivatePostgresError::NotRunning { .. }) if data_dir.join("pg").is_dir() => {
            let private = PrivatePostgres::start(&Settings { data_dir, pg_bin: args.pg_bin }).await?;
            let made = write(private.connection(), private.bin_dir(), &args.folder).await;
            private.stop().await?;
            made?
        }
        Err(error) if error.is_permission_denied() => {
            bail!("{error}: run this as the user that runs `callgate serve`")
        }
        Err(error) => return Err(error.into()),
    };
    outln!("{} holds the database of {}, {} bytes.", args.folder.display(), made.made_at, made.bytes());
    Ok(())
}

/// A folder with a dump, the roles, and at last what says that it is whole.
async fn write(connection: &Connection, beside: &Path, folder: &Path) -> anyhow::Result<Manifest> {
    let major = private_postgres::major_of_programs(beside).await?;
    let tools = DumpTools::find(beside, major).await?;
    let unfinished = folder::unfinished(folder)?;
    let options = parse_url(&connection.url()).context("the private PostgreSQL's own URL")?;
    let Carried { roles, newest, schema, .. } = carried(options).await.context("the database cannot be read")?;
    tools.dump(connection, &unfinished.path().join(DUMP)).await?;
    folder::write(&unfinished.path().join(ROLES), (roles.join(";\n") + ";\n").as_bytes())?;
    let manifest = Manifest::of(unfinished.path(), major, newest, schema.floor)?;
    folder::finish(unfinished, folder, &manifest)?;
    Ok(manifest)
}

/// Makes a data directory of a backup, whole or not at all.
pub(super) async fn restore(args: RestoreArgs) -> anyhow::Result<()> {
    let data_dir = database::data_dir(args.data_dir.as_deref())?;
    let data_dir = std::path::absolute(&data_dir).context("--data-dir")?;
    if !is_vacant(&data_dir)? {
        bail!(
            "{} holds something already, and a restore never overwrites: move it away, or name another --data-dir",
            data_dir.display()
        );
    }
    let manifest = Manifest::read(&args.folder)?;
    if let Some(refusal) = refusal(&manifest) {
        bail!("{}: {refusal}", args.folder.display());
    }
    // Beside it, so that what is interrupted is never taken for a database.
    let mut staging = data_dir.clone().into_os_string();
    staging.push(".restoring");
    let staging = PathBuf::from(staging);
    clear(&staging).await?;
    let private = PrivatePostgres::start(&Settings { data_dir: staging.clone(), pg_bin: args.pg_bin }).await?;
    let version = private.server_version().clone();
    let filled = match version.major < manifest.postgres_major {
        true => Err(anyhow::anyhow!(
            "the backup is of PostgreSQL {}, and {version} is older: point --pg-bin at the programs of that version, \
             or a newer one",
            manifest.postgres_major
        )),
        false => fill(&private, &args.folder, manifest.postgres_major, None).await,
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
        "What was permitted and recorded after that is not in it: docs/operations.md#backup-and-restore says what \
         to look at before agents go on."
    );
    Ok(())
}

/// Why this build cannot serve on what is in a backup.
fn refusal(manifest: &Manifest) -> Option<String> {
    let newest = manifest.newest_migration?;
    let is_newer = newest > SchemaState::newest();
    let floor = manifest.schema_floor.unwrap_or(newest);
    (is_newer && !SchemaState::has(floor)).then(|| {
        format!(
            "its schema is newer than this build of callgate: restore it by one that has migration {floor} (this one \
             ends at {})",
            SchemaState::newest()
        )
    })
}

/// Fills an empty cluster from a folder.
async fn fill(private: &PrivatePostgres, folder: &Path, dumped_by: u32, verifier: Option<&str>) -> anyhow::Result<()> {
    let tools = DumpTools::find(private.bin_dir(), dumped_by).await?;
    let options = || parse_url(&private.connection().url()).context("the private PostgreSQL's own URL");
    let roles = std::fs::read_to_string(folder.join(ROLES)).context("the roles cannot be read")?;
    let roles: Vec<String> = roles.split(";\n").filter(|role| !role.is_empty()).map(str::to_owned).collect();
    make_roles(options()?, &roles).await.context("the roles cannot be made")?;
    tools.restore(private.connection(), &folder.join(DUMP)).await?;
    settle_in(options()?, verifier).await.context("the restored database cannot be used")
}
