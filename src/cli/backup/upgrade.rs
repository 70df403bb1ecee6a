//! `callgate database upgrade`: the private database on another major version of PostgreSQL. Its data is dumped by the
//! old programs and read by the new ones; the old data is kept aside.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::{Connection, PrivatePostgres, carried, database, fill, folder, parse_url, write};
use callgate_postgres::Upgrade;

/// The dump's name in the data directory, while it is needed.
const DUMPED: &str = "upgrade.dump";

/// What `callgate database upgrade` takes.
#[derive(Debug, Args)]
pub(in crate::cli) struct UpgradeArgs {
    /// The data directory of the server, which must not run [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The folder of the new version's programs [default: the newest that is found]
    #[arg(long, value_name = "DIR", env = "CALLGATE_PG_BIN")]
    pg_bin: Option<PathBuf>,
    /// The folder of the old version's programs, if they are not in a usual place
    #[arg(long, value_name = "DIR")]
    old_bin: Option<PathBuf>,
}

/// Moves it, or leaves all as it was.
pub(in crate::cli) async fn upgrade(args: UpgradeArgs) -> anyhow::Result<()> {
    let data_dir = database::data_dir(args.data_dir.as_deref())?;
    let plan = Upgrade::plan(&data_dir, args.pg_bin.as_deref(), args.old_bin.as_deref()).await?;
    let ((from, _), (to, _)) = (&plan.from, &plan.to);
    outln!("PostgreSQL {from} to {to}, in {}: dumping", plan.data_dir.display());
    let dumped = plan.data_dir.join(DUMPED);
    let remove = || match dumped.exists() {
        true => std::fs::remove_dir_all(&dumped).with_context(|| format!("cannot remove {}", dumped.display())),
        false => Ok(()),
    };
    // An attempt that was interrupted has left them.
    remove()?;
    folder::clear_unfinished(&plan.data_dir, |wanted| wanted == DUMPED)?;
    let old = PrivatePostgres::start(&plan.old()).await?;
    let verifier = async {
        let written = write(old.connection(), old.bin_dir(), &dumped).await?;
        folder::finish(written.unfinished, &dumped)?;
        own_password(old.connection()).await
    };
    let verifier = verifier.await;
    old.stop().await?;
    let verifier = verifier?;
    outln!("reading it by PostgreSQL {to}");
    let new = PrivatePostgres::start(&plan.new_one().await?).await?;
    let filled = fill(&new, &dumped, *from, Some(&verifier)).await;
    new.stop().await?;
    filled?;
    remove()?;
    let kept = plan.swap()?;
    outln!("The database is of PostgreSQL {to} now. The data before is in {}:", kept.display());
    outln!("  start `callgate serve`; when it serves as it should, remove that folder.");
    outln!("  To go back instead, stop it, remove {0}/pg, and rename that folder to {0}/pg.", plan.data_dir.display());
    Ok(())
}

/// The file with the password stays; so the new cluster has to know the same.
async fn own_password(connection: &Connection) -> anyhow::Result<String> {
    let options = parse_url(&connection.url()).context("the private PostgreSQL's own URL")?;
    Ok(carried(options).await.context("the database cannot be read")?.verifier)
}
