//! The database of a deployment: the user's own, or a private PostgreSQL that is started and stopped with the server;
//! or none, where everything is in memory.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use sqlx::postgres::PgConnectOptions;
use tokio::time::timeout;

use crate::config::DatabaseConfig;
use callgate_postgres::{DatabasePhase, PrivatePostgres, PrivatePostgresError};
use callgate_store::{parse_url, reached_at};

/// Longest delay in noticing the end of a server after a connection to it broke.
const NOTICED_MAX: Duration = Duration::from_secs(1);

/// A database that can be connected to, or none.
#[derive(Debug)]
pub struct Database {
    /// None where everything is in memory.
    pub options: Option<PgConnectOptions>,
    /// Its description, for people.
    pub described: String,
    private: Option<PrivatePostgres>,
}

impl Database {
    /// No database: everything is in memory.
    pub fn none() -> Self {
        let described = "none: everything is in the memory of this process, and is lost when it ends".to_owned();
        Self { options: None, described, private: None }
    }

    /// Reads the URL, or starts the private one.
    pub async fn open(config: &DatabaseConfig) -> anyhow::Result<Self> {
        if let Some(url) = &config.database_url {
            let options = parse_url(url).context("--database-url")?;
            let described = format!("PostgreSQL at {}", reached_at(&options));
            return Ok(Self { options: Some(options), described, private: None });
        }
        let data_dir = data_dir(config.data_dir.as_deref())?;
        let settings = callgate_postgres::PostgresSettings { data_dir, pg_bin: config.pg_bin.clone() };
        let private = PrivatePostgres::start(&settings).await?;
        let version = private.server_version();
        let described = format!("PostgreSQL {version}, private, in {}", private.data_dir().display());
        let options = parse_url(&private.connection().url()).context("the private PostgreSQL's own URL")?;
        Ok(Self { options: Some(options), described, private: Some(private) })
    }

    /// Phase of a private database; none for the user's own.
    pub fn phase(&self) -> Option<DatabasePhase> {
        self.private.as_ref().map(|private| private.phase().borrow().clone())
    }

    /// After something failed: true once a private server that was lost since `before` runs again.
    pub async fn was_restarted(&self, before: Option<DatabasePhase>) -> bool {
        let (Some(private), Some(before)) = (&self.private, before) else { return false };
        let mut phase = private.phase();
        let is_noticed = timeout(NOTICED_MAX, phase.wait_for(|phase| *phase != before)).await.is_ok();
        if !is_noticed {
            return false;
        }
        let settled =
            |phase: &DatabasePhase| !matches!(phase, DatabasePhase::Restarting { .. } | DatabasePhase::DiskFull);
        phase.wait_for(settled).await.is_ok_and(|phase| matches!(*phase, DatabasePhase::Running { .. }))
    }

    /// The command that opens a shell on a private one.
    pub fn shell(&self) -> Option<String> {
        let data_dir = self.private.as_ref()?.data_dir();
        let is_usual = callgate_postgres::default_data_dir().is_ok_and(|usual| usual == data_dir);
        let quoted = || format!(" --data-dir '{}'", data_dir.display());
        Some(format!("callgate psql{}", if is_usual { String::new() } else { quoted() }))
    }

    /// Waits until a private one has failed for good.
    pub async fn wait_for_failure(&mut self) -> PrivatePostgresError {
        match &mut self.private {
            Some(private) => private.wait_for_exit().await,
            None => std::future::pending().await,
        }
    }

    /// Stops a private one.
    pub async fn stop(self) {
        if let Some(private) = self.private
            && let Err(error) = private.stop().await
        {
            tracing::warn!(%error, "the private PostgreSQL did not stop cleanly");
        }
    }
}

/// Data directory of a private database: as given, or the default one.
pub fn data_dir(given: Option<&Path>) -> Result<PathBuf, PrivatePostgresError> {
    given.map_or_else(callgate_postgres::default_data_dir, |dir| Ok(dir.to_owned()))
}
