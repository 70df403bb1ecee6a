//! A running server, for commands that ask one.

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use tonic::{Response, Status, transport::Channel};

/// Which server is asked.
#[derive(Debug, Clone, Args)]
pub(super) struct Remote {
    /// The server to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7600", env = "CALLGATE_SERVER")]
    server: String,
}

impl Remote {
    pub(super) async fn connect(&self) -> anyhow::Result<Channel> {
        let url = &self.server;
        let endpoint = Channel::from_shared(url.clone()).with_context(|| format!("--server {url} is not a URL"))?;
        let connected = endpoint.connect().await;
        connected.map_err(|_| anyhow!("no server answers at {url}; start one with `callgate serve`"))
    }
}

/// What a server answered, or its refusal in words.
pub(super) fn asked<T>(answer: Result<Response<T>, Status>) -> anyhow::Result<T> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => bail!("the server answered {:?}: {}", status.code(), status.message()),
    }
}

/// Who does it.
#[derive(Debug, Clone, Args)]
pub(super) struct By {
    /// Who does it: stored with what is done
    #[arg(long, value_name = "NAME", env = "CALLGATE_BY")]
    by: Option<String>,
}

impl By {
    /// The name given, else that of the user.
    pub(super) fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
        self.by.clone().or_else(user).unwrap_or_else(|| "operator".to_owned())
    }
}

/// An instant for people, in UTC.
pub(super) fn at(unix_ms: i64) -> String {
    let seconds = time::OffsetDateTime::from_unix_timestamp(unix_ms.div_euclid(1_000));
    let form = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]Z");
    seconds.ok().and_then(|at| at.format(&form).ok()).unwrap_or_else(|| unix_ms.to_string())
}
