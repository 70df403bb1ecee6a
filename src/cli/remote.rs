//! A running server, for commands that ask one.

use anyhow::{Context as _, Error, anyhow};
use clap::Args;
use prost_types::Timestamp;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::grpc::BY;

/// Which server is asked.
#[derive(Debug, Clone, Args)]
pub(super) struct Remote {
    /// The URL of the running server: http://HOST:PORT or unix:PATH
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7600", env = "CALLGATE_SERVER")]
    server: String,
}

impl Remote {
    pub(super) async fn connect(&self) -> anyhow::Result<Channel> {
        let url = &self.server;
        let endpoint = Endpoint::from_shared(url.clone()).with_context(|| format!("--server {url} is not a URL"))?;
        let connected = endpoint.connect().await;
        connected.map_err(|_| anyhow!("no server answers at {url}; start one with `callgate serve`"))
    }
}

/// What a server answered, or its refusal in words.
pub(super) fn asked<T>(answer: Result<Response<T>, Status>) -> anyhow::Result<T> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(refusal(&status)),
    }
}

/// A refusal in words: the server's own, and the reason that programs branch on.
pub(super) fn refusal(status: &Status) -> Error {
    match (reason(status), status.message()) {
        (Some(reason), message) => anyhow!("{message} [{reason}]"),
        // It comes from something between, or from a server that knows no such request.
        (None, "") => anyhow!("no answer: {}", status.code()),
        (None, message) => anyhow!("no answer: {message} ({})", status.code()),
    }
}

/// The reason that a server of this contract gives.
pub(super) fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason).filter(|reason| !reason.is_empty())
}

/// Who does it.
#[derive(Debug, Clone, Args)]
pub(super) struct By {
    /// Who does it: stored with what is done [default: the user's name]
    #[arg(long, value_name = "NAME", env = "CALLGATE_BY")]
    by: Option<String>,
}

impl By {
    /// A request that says who sends it.
    pub(super) fn signed<T>(&self, message: T) -> anyhow::Result<Request<T>> {
        let (name, mut request) = (self.name(), Request::new(message));
        let value = name.parse().with_context(|| format!("--by {name:?} has other characters than those of ASCII"))?;
        request.metadata_mut().insert(BY, value);
        Ok(request)
    }

    /// The name given, else that of the user.
    pub(super) fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
        self.by.clone().or_else(user).unwrap_or_else(|| "operator".to_owned())
    }
}

/// An instant for people, in UTC.
pub(super) fn at(time: Option<&Timestamp>) -> String {
    let known = time.and_then(|time| chrono::DateTime::from_timestamp(time.seconds, 0));
    known.map_or_else(|| "-".to_owned(), |at| at.format("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A member of a closed set as people write it: `rate_limited` for FAILURE_KIND_RATE_LIMITED.
pub(super) fn named(member: &str, set: &str) -> String {
    member.trim_start_matches(set).to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic::Code;
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_servers_words_with_its_reason() {
        let details = ErrorDetails::with_error_info("GRANT_UNKNOWN", "callgate", HashMap::new());
        let ours = Status::with_error_details(Code::NotFound, "no such grant", details);
        assert_eq!(refusal(&ours).to_string(), "no such grant [GRANT_UNKNOWN]");
    }

    #[test]
    fn what_is_between_is_told_with_its_code() {
        let broken = Status::new(Code::Unavailable, "transport error");
        let told = refusal(&broken).to_string();
        assert_eq!(told, "no answer: transport error (The service is currently unavailable)");
        let unknown = refusal(&Status::new(Code::Unimplemented, "")).to_string();
        assert_eq!(unknown, "no answer: Operation is not implemented or not supported");
    }
}
