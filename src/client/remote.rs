//! Connection of a command to a running server.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use anyhow::{Context as _, Error, anyhow, bail};
use clap::Args;
use prost_types::Timestamp;
use tonic::{Code, Request, Response, Status, service::interceptor::InterceptedService};
use tonic_types::StatusExt as _;

pub use crate::credential::{AuthenticatedChannel, Bearer};
use crate::{
    contexts,
    credential::{Credential, TokenSource, has_tls, is_overheard, to_url},
};
use callgate_proto::BY;

/// Server of a command.
#[derive(Debug, Clone, Args)]
pub struct Remote {
    /// The server's URL: https://HOST:PORT, http://HOST:PORT or unix:PATH; without a scheme, http:// on this machine
    /// and https:// elsewhere [env: CALLGATE_SERVER] [default: the current context's, else http://127.0.0.1:7600]
    #[arg(long, value_name = "URL", conflicts_with = "context", global = true)]
    server: Option<String>,
    /// A context: a server and its credential, by name [env: CALLGATE_CONTEXT]
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    #[command(flatten)]
    shown: CredentialArgs,
    #[arg(skip)]
    way: Arc<OnceLock<Endpoint>>,
}

/// Credential for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct CredentialArgs {
    /// The file of the token, which precedes CALLGATE_TOKEN [env: CALLGATE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", hide_short_help = true, global = true)]
    token_file: Option<PathBuf>,
    /// The certificate of the server's authority [env: CALLGATE_CA] [default: the public authorities]
    #[arg(long, value_name = "FILE", hide_short_help = true, global = true)]
    ca: Option<PathBuf>,
    /// The client certificate, with --key [env: CALLGATE_CERT]
    #[arg(long, value_name = "FILE", hide_short_help = true, global = true)]
    certificate: Option<PathBuf>,
    /// The key of the client certificate [env: CALLGATE_KEY]
    #[arg(long, value_name = "FILE", hide_short_help = true, global = true)]
    key: Option<PathBuf>,
}

/// Default address of `callgate serve`.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7600";

/// Environment variable with the token: command lines are visible to all users of a machine.
pub const TOKEN: &str = "CALLGATE_TOKEN";

/// Server address and credential.
#[derive(Debug, Clone)]
struct Endpoint {
    url: String,
    /// Name of the context.
    context: Option<String>,
    /// Credential of the command line and the environment, which extends the context's.
    given: Credential,
    /// Effective credential.
    shown: Credential,
}

/// A non-empty variable.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Remote {
    /// A server from a command's own flags.
    pub fn of(server: Option<String>, context: Option<String>, shown: CredentialArgs) -> Self {
        Self { server, context, shown, way: Arc::default() }
    }

    /// The effective credential.
    pub fn credential(&self) -> anyhow::Result<&Credential> {
        Ok(&self.way()?.shown)
    }

    /// The server: of the command line, otherwise of the environment, otherwise of the contexts file.
    fn way(&self) -> anyhow::Result<&Endpoint> {
        if let Some(way) = self.way.get() {
            return Ok(way);
        }
        let mut way = self.find_server()?;
        way.url = to_url(&way.url)?;
        Ok(self.way.get_or_init(|| way))
    }

    fn find_server(&self) -> anyhow::Result<Endpoint> {
        let flags = self.shown.flags()?;
        if let Some(name) = &self.context {
            let context = contexts::load_context(name)?;
            let shown = flags.clone().or(context.credential).or(environment()?);
            return Ok(Endpoint { url: context.server, context: Some(name.clone()), given: flags, shown });
        }
        let given = flags.or(environment()?);
        let named = variable("CALLGATE_CONTEXT");
        let url = match (&self.server, variable("CALLGATE_SERVER"), &named) {
            (Some(url), ..) => Some(url.clone()),
            (None, Some(_), Some(_)) => {
                bail!("CALLGATE_SERVER and CALLGATE_CONTEXT are both set; unset one, or pass --context")
            }
            (None, url, _) => url,
        };
        if let Some(url) = url {
            // A context's credential is for its own server only.
            return Ok(Endpoint { url, context: None, shown: given.clone(), given });
        }
        let context = match named {
            Some(name) => Some((name.clone(), contexts::load_context(&name)?)),
            None => contexts::current()?,
        };
        Ok(match context {
            Some((name, context)) => {
                let shown = given.clone().or(context.credential);
                Endpoint { url: context.server, context: Some(name), given, shown }
            }
            None => Endpoint { url: DEFAULT_SERVER.to_owned(), context: None, shown: given.clone(), given },
        })
    }

    pub async fn connect(&self) -> anyhow::Result<AuthenticatedChannel> {
        let Endpoint { url, shown, context, .. } = self.way()?;
        let otherwise = match context {
            Some(name) => format!(", the server of context {name}"),
            None => "; start one with `callgate serve`".to_owned(),
        };
        shown.connect(url, shown.bearer()?, &otherwise).await
    }

    /// A lazy connection, made with the first request, for callers that continue without a server.
    pub fn connect_later(&self) -> anyhow::Result<AuthenticatedChannel> {
        let Endpoint { url, shown, .. } = self.way()?;
        let bearer = shown.bearer()?;
        Ok(InterceptedService::new(shown.endpoint(url, &bearer)?.connect_lazy(), bearer))
    }

    /// True when the caller's name comes from the credential.
    pub fn is_named_by_credential(&self) -> anyhow::Result<bool> {
        let shown = &self.way()?.shown;
        Ok(shown.identity.is_some() || shown.bearer()?.is_some())
    }

    /// True if the command line names a server.
    pub const fn is_named(&self) -> bool {
        self.server.is_some() || self.context.is_some()
    }

    /// True if the command line names a server or a credential.
    pub fn has_flags(&self) -> bool {
        self.is_named() || self.shown != CredentialArgs::default()
    }

    /// The server's URL.
    pub fn server(&self) -> anyhow::Result<&str> {
        Ok(&self.way()?.url)
    }

    /// True for a server at an address that other machines can use.
    pub fn is_elsewhere(&self) -> anyhow::Result<bool> {
        let url = self.server()?;
        Ok(has_tls(url) || is_overheard(url))
    }

    /// True when the token must come from the caller's environment.
    pub fn needs_environment(&self) -> anyhow::Result<bool> {
        Ok(matches!(self.way()?.shown.token, Some(TokenSource::Environment(_))))
    }

    /// True for a credential that is at most a token from the environment.
    pub fn shows_no_file(&self) -> anyhow::Result<bool> {
        let Credential { token, ca, identity } = &self.way()?.shown;
        Ok(matches!(token, None | Some(TokenSource::Environment(_))) && ca.is_none() && identity.is_none())
    }

    /// Arguments for another command with the same server and credential: a context and files by name, never a token.
    pub fn args(&self) -> anyhow::Result<Vec<String>> {
        let Endpoint { url, context, given, .. } = self.way()?;
        let mut args = Vec::new();
        if let Some(name) = context {
            args.extend(["--context".to_owned(), name.clone()]);
        } else if url != DEFAULT_SERVER {
            args.extend(["--server".to_owned(), url.clone()]);
        }
        let token =
            given.token.as_ref().and_then(|token| if let TokenSource::File(path) = token { Some(path) } else { None });
        let (certificate, key) = given.identity.as_ref().map_or((None, None), |(one, two)| (Some(one), Some(two)));
        let files =
            [("--token-file", token), ("--ca", given.ca.as_ref()), ("--certificate", certificate), ("--key", key)];
        for (name, file) in files {
            let Some(file) = file else { continue };
            let file = std::path::absolute(file).with_context(|| format!("{name} {}", file.display()))?;
            let file = file.to_str().with_context(|| format!("{name} {} is not UTF-8", file.display()))?;
            args.extend([name.to_owned(), file.to_owned()]);
        }
        Ok(args)
    }
}

/// A certificate with its key; either one alone is an error.
fn identity(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    names: [&str; 2],
) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => bail!("{} also needs {}", names[0], names[1]),
        (None, Some(_)) => bail!("{} also needs {}", names[1], names[0]),
    }
}

/// Credential of the environment.
fn environment() -> anyhow::Result<Credential> {
    let path = |name: &str| variable(name).map(PathBuf::from);
    let identity = identity(path("CALLGATE_CERT"), path("CALLGATE_KEY"), ["CALLGATE_CERT", "CALLGATE_KEY"])?;
    let token =
        path("CALLGATE_TOKEN_FILE").map(TokenSource::File).or_else(|| variable(TOKEN).map(TokenSource::Environment));
    Ok(Credential { token, ca: path("CALLGATE_CA"), identity })
}

impl CredentialArgs {
    /// Credential of the command line.
    fn flags(&self) -> anyhow::Result<Credential> {
        let Self { token_file, ca, certificate, key } = self.clone();
        let identity = identity(certificate, key, ["--certificate", "--key"])?;
        Ok(Credential { token: token_file.map(TokenSource::File), ca, identity })
    }
}

/// No response: the server or its database is unavailable or overloaded. The request may have been executed; it can be
/// retried.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoResponse(pub String);

/// True for a transient error.
pub fn is_passing(status: &Status) -> bool {
    let reason = reason(status);
    match (status.code(), reason.as_deref()) {
        (Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled, _) => true,
        (Code::Unknown, None) | (_, Some("OVERLOADED")) => true,
        // A server's other reasons to abort ask for another request.
        (Code::Aborted, reason) => matches!(reason, None | Some("CONTENTION")),
        _ => false,
    }
}

/// The response, or the refusal as an error.
pub fn into_response<T>(answer: Result<Response<T>, Status>) -> anyhow::Result<T> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(refusal(&status)),
    }
}

/// A refusal as an error, with the server's message and its machine-readable reason.
pub fn refusal(status: &Status) -> Error {
    let text = match (reason(status), status.message()) {
        (Some(reason), message) if reason == "UNAUTHENTICATED" => {
            format!("{message}; set the token with --token-file, {TOKEN} or a context [{reason}]")
        }
        (Some(reason), message) => format!("{message} [{reason}]"),
        // It comes from something between, or from a server that knows no such request.
        (None, "") => format!("no answer: {}", status.code()),
        (None, message) => format!("no answer: {message} ({})", status.code()),
    };
    if is_passing(status) { NoResponse(text).into() } else { anyhow!(text) }
}

/// The reason in a status of this contract.
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason).filter(|reason| !reason.is_empty())
}

/// Actor of a change.
#[derive(Debug, Clone, Args)]
pub struct ActorArgs {
    /// The name stored with the action [default: the user's name]
    #[arg(long, value_name = "NAME", env = "CALLGATE_BY", global = true)]
    by: Option<String>,
}

impl ActorArgs {
    /// A request with the caller's name.
    pub fn sign_request<T>(&self, message: T) -> anyhow::Result<Request<T>> {
        let (name, mut request) = (self.name(), Request::new(message));
        let value = name.parse().with_context(|| format!("--by {name:?} has characters outside ASCII"))?;
        request.metadata_mut().insert(BY, value);
        Ok(request)
    }

    /// The given name, otherwise the user's.
    pub fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|user| !user.is_empty());
        self.by.clone().or_else(user).unwrap_or_else(|| "operator".to_owned())
    }
}

/// A time as text, in UTC.
pub fn at(time: Option<&Timestamp>) -> String {
    let known = time.and_then(|time| chrono::DateTime::from_timestamp(time.seconds, 0));
    known.map_or_else(|| "-".to_owned(), |at| at.format("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A member of a closed set in lowercase: `rate_limited` for FAILURE_KIND_RATE_LIMITED.
pub fn member_name(member: &str, set: &str) -> String {
    member.trim_start_matches(set).to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_servers_words_with_its_reason() {
        let details = ErrorDetails::with_error_info("GRANT_UNKNOWN", "callgate", HashMap::new());
        let ours = Status::with_error_details(Code::NotFound, "no such grant", details);
        assert_eq!(refusal(&ours).to_string(), "no such grant [GRANT_UNKNOWN]");
    }

    #[test]
    fn proxy_error_is_reported_with_its_code() {
        let broken = Status::new(Code::Unavailable, "transport error");
        let told = refusal(&broken).to_string();
        assert_eq!(told, "no answer: transport error (The service is currently unavailable)");
        let unknown = refusal(&Status::new(Code::Unimplemented, "")).to_string();
        assert_eq!(unknown, "no answer: Operation is not implemented or not supported");
    }
}
