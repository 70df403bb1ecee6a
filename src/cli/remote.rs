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
