//! `callgate doctor`: diagnoses a deployment, with advice for each problem. Read-only: it applies no migration or
//! policy, and starts no private database.

mod check;
mod collector;
mod database;
mod files;
mod private;
mod rights;
mod server;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Args;

use self::check::{Area, DoctorCheck, Status};
use callgate_client::remote::CredentialArgs;
use callgate_net::clock::Clock;
use callgate_server::config::ServeConfig;
use callgate_store::{Inspection, inspect, parse_url};

/// Arguments of `callgate doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Arguments of the server, running or planned: its flags and environment.
    #[command(flatten)]
    serve: ServeConfig,
    /// The URL of the running server [default: the first --listen]
    #[arg(long, value_name = "URL", env = "CALLGATE_SERVER", conflicts_with = "context")]
    server: Option<String>,
    /// The running server by its context, with its credential
    #[arg(long, value_name = "NAME", env = "CALLGATE_CONTEXT")]
    context: Option<String>,
    #[command(flatten)]
    shown: CredentialArgs,
    /// Print JSON, one object a line for each check
    #[arg(long)]
    json: bool,
}

/// Runs all checks; the exit code is 1 if any fails.
pub(super) async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut checks = files::looked_at(&args.serve).await;
    let (of_database, found) = database_of(&args.serve).await;
    checks.extend(of_database);
    checks.extend(files::policy(args.serve.policy.as_deref(), found.as_ref()));
    checks.extend(collector::looked_at(args.serve.log.otlp_endpoint.as_deref()).await);
    checks.extend(server::server(&args.serve, &args.server, &args.context, &args.shown).await);
    match args.json {
        true => out!("{}", check::json(&checks)?),
        false => out!("{}", check::text(&checks)),
    }
    Ok(if checks.iter().any(|check| check.status == Status::Wrong) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The database, private or not, with its checks.
async fn database_of(config: &ServeConfig) -> (Vec<DoctorCheck>, Option<Inspection>) {
    let (mut checks, url) = match &config.database.database_url {
        Some(url) => (Vec::new(), Some(url.clone())),
        None => private::looked_at(&config.database).await,
    };
    let Some(url) = url else {
        let why = "the private database does not run: settings, schema, rights, clock and the stored policy \
                   can be checked while `callgate serve` runs";
        checks.push(DoctorCheck::skipped(Area::Database, "all", why));
        return (checks, None);
    };
    let is_private = config.database.database_url.is_none();
    let options = match parse_url(&url) {
        Ok(options) => options,
        Err(error) => {
            let cure = "set --database-url (CALLGATE_DATABASE_URL) to postgres://USER@HOST:5432/DATABASE";
            checks.push(DoctorCheck::wrong(Area::Database, "url", error, cure));
            return (checks, None);
        }
    };
    match inspect(options.clone(), || Clock::System.now()).await {
        Ok(found) => {
            checks.extend(database::check_database(&found, &options, is_private));
            checks.extend(rights::check_rights(&found));
            checks.push(server::clock(&found));
            (checks, Some(found))
        }
        Err(error) => {
            let cure = if is_private {
                "read the end of its log in the data directory, then restart `callgate serve`: it stops a hung one"
            } else {
                "start it, or fix host, port, user, password and database in --database-url; its pg_hba.conf must \
                 admit this machine"
            };
            let found = format!("{error}; schema, rights, clock and the stored policy cannot be checked without it");
            checks.push(DoctorCheck::wrong(Area::Database, "reachable", found, cure));
            (checks, None)
        }
    }
}
