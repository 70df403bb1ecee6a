//! `callgate psql`: PostgreSQL's own shell on the private database.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{anyhow, bail};
use clap::Args;

use callgate_postgres::find_running;
use callgate_server::database;

/// Arguments of `callgate psql`.
#[derive(Debug, Args)]
pub(super) struct PsqlArgs {
    /// The data directory of the server [default: as for serve]
    #[arg(long, value_name = "DIR", env = "CALLGATE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Arguments for psql: `callgate psql -- -c 'select 1'`
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by psql; returns only on an error.
pub(super) async fn run(args: &PsqlArgs) -> anyhow::Result<()> {
    let data_dir = database::data_dir(args.data_dir.as_deref())?;
    let running = match find_running(&data_dir).await {
        Ok(running) => running,
        Err(error) if error.is_permission_denied() => {
            bail!("{error}: run this as the user of `callgate serve`")
        }
        Err(error) => return Err(error.into()),
    };
    // psql of the server's own version, if present; some systems package it separately.
    let beside = running.bin_dir.join("psql");
    let program = if beside.is_file() { beside.as_path() } else { Path::new("psql") };
    // By the environment: a command line is seen by every user of the machine.
    let error = Command::new(program).envs(running.connection.environment()).args(&args.arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => anyhow!(
            "psql is neither in {} nor on PATH: install PostgreSQL's client (`apt-get install \
             postgresql-client`), then try again",
            running.bin_dir.display()
        ),
        _ => anyhow!("cannot run {}: {error}", program.display()),
    })
}
