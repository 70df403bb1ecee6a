//! The database of a plane: somebody's own, or a private PostgreSQL that is started and stopped with the plane.

use std::path::PathBuf;

use anyhow::Context as _;
use sqlx::postgres::PgConnectOptions;

use crate::{
    config::DatabaseConfig,
    private_postgres::{self, PrivatePostgres, PrivatePostgresError},
    store::parse_url,
};

/// A database that can be connected to.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) options: PgConnectOptions,
    /// What it is, for people.
    pub(super) described: String,
    private: Option<PrivatePostgres>,
}

impl Database {
    /// Reads the URL, or starts the private one.
    pub(super) async fn open(config: &DatabaseConfig) -> anyhow::Result<Self> {
        if let Some(url) = &config.database_url {
            let options = parse_url(url).context("--database-url")?;
            let described = format!("PostgreSQL at {}", options.get_host());
            return Ok(Self { options, described, private: None });
        }
        let settings = private_postgres::Settings { data_dir: data_dir(config)?, pg_bin: config.pg_bin.clone() };
        let private = PrivatePostgres::start(&settings).await?;
        let version = private.server_version();
        let described = format!("PostgreSQL {version}, private, in {}", private.data_dir().display());
        Ok(Self { options: private.connect_options(), described, private: Some(private) })
    }

    /// Waits until a private one has failed for good.
    pub(super) async fn gone(&mut self) -> PrivatePostgresError {
        match &mut self.private {
            Some(private) => private.exited().await,
            None => std::future::pending().await,
        }
    }

    /// Stops a private one.
    pub(super) async fn stop(self) {
        if let Some(private) = self.private
            && let Err(error) = private.stop().await
        {
            tracing::warn!(%error, "the private PostgreSQL did not stop cleanly");
        }
    }
}

/// Where a private database keeps its data.
pub(super) fn data_dir(config: &DatabaseConfig) -> Result<PathBuf, PrivatePostgresError> {
    config.data_dir.clone().map_or_else(private_postgres::default_data_dir, Ok)
}
