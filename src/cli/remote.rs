//! A running server, for commands that ask one.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Error, anyhow, bail};
use clap::Args;
use prost_types::Timestamp;
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_types::StatusExt as _;

use crate::grpc::BY;

/// Which server is asked.
#[derive(Debug, Clone, Args)]
pub(super) struct Remote {
    /// The URL of the running server: https://HOST:PORT, http://HOST:PORT or unix:PATH
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER, env = "CALLGATE_SERVER")]
    server: String,
    #[command(flatten)]
    shown: Shown,
}

/// What is shown to a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(super) struct Shown {
    /// A file with the token to show; without it the token is taken from CALLGATE_TOKEN
    #[arg(long, value_name = "FILE", env = "CALLGATE_TOKEN_FILE", hide_short_help = true)]
    token_file: Option<PathBuf>,
    /// The certificate of the authority that the server's is of [default: the public authorities]
    #[arg(long, value_name = "FILE", env = "CALLGATE_CA", hide_short_help = true)]
    ca: Option<PathBuf>,
    /// The certificate to show, with --key
    #[arg(long, value_name = "FILE", env = "CALLGATE_CERT", requires = "key", hide_short_help = true)]
    certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", env = "CALLGATE_KEY", requires = "certificate", hide_short_help = true)]
    key: Option<PathBuf>,
}

/// Where `callgate serve` listens unless it is told otherwise.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7600";

/// A connection to it, which shows the caller's token with each request.
pub(super) type Wire = InterceptedService<Channel, Bearer>;

/// The environment variable that a token comes from: a command line is seen by every user of the machine.
pub(super) const TOKEN: &str = "CALLGATE_TOKEN";

impl Remote {
    pub(super) async fn connect(&self) -> anyhow::Result<Wire> {
        self.shown.connect(&self.server, self.shown.bearer()?, "; start one with `callgate serve`").await
    }

    /// A connection that is made with the first request, for who goes on while the server is away.
    pub(super) fn connect_later(&self) -> anyhow::Result<Wire> {
        let bearer = self.shown.bearer()?;
        Ok(InterceptedService::new(self.shown.endpoint(&self.server, &bearer)?.connect_lazy(), bearer))
    }

    /// True when the name of who asks is their credential's, and not the one that they give.
    pub(super) fn is_named_by_credential(&self) -> anyhow::Result<bool> {
        Ok(self.shown.certificate.is_some() || self.shown.bearer()?.0.is_some())
    }

    /// The URL that is asked.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// True for a server that others than this machine can reach by its URL.
    pub(super) fn is_elsewhere(&self) -> bool {
        has_tls(&self.server) || is_overheard(&self.server)
    }

    /// The arguments by which another command asks the same server and shows the same credential: files by their names,
    /// and never a token.
    pub(super) fn args(&self) -> anyhow::Result<Vec<String>> {
        let host = self.server.split_once("://").and_then(|(_, rest)| rest.split('/').next());
        if host.is_some_and(|host| host.contains('@')) {
            bail!("--server: a URL with a name or a password in it would be written for others to read");
        }
        let mut args = Vec::new();
        if self.server != DEFAULT_SERVER {
            args.extend(["--server".to_owned(), self.server.clone()]);
        }
        let Shown { token_file, ca, certificate, key } = &self.shown;
        let files = [("--token-file", token_file), ("--ca", ca), ("--certificate", certificate), ("--key", key)];
        for (name, file) in files {
            let Some(file) = file else { continue };
            let file = std::path::absolute(file).with_context(|| format!("{name} {}", file.display()))?;
            let file = file.to_str().with_context(|| format!("{name} {} is no text", file.display()))?;
            args.extend([name.to_owned(), file.to_owned()]);
        }
        Ok(args)
    }
}

impl Shown {
    /// The token, if there is one.
    pub(super) fn bearer(&self) -> anyhow::Result<Bearer> {
        Bearer::read(self.token_file.as_deref())
    }

    /// A connection that shows this token; `otherwise` is what else to do where nobody answers.
    pub(super) async fn connect(&self, url: &str, bearer: Bearer, otherwise: &str) -> anyhow::Result<Wire> {
        let endpoint = self.endpoint(url, &bearer)?;
        let channel = endpoint.connect().await.map_err(|error| match has_tls(url) {
            true => Error::new(error).context(format!("no server answers at {url} by TLS")),
            false => anyhow!("no server answers at {url}{otherwise}"),
        })?;
        Ok(InterceptedService::new(channel, bearer))
    }

    fn endpoint(&self, url: &str, bearer: &Bearer) -> anyhow::Result<Endpoint> {
        let endpoint = Endpoint::from_shared(url.to_owned()).with_context(|| format!("--server {url} is not a URL"))?;
        if bearer.0.is_some() && is_overheard(url) {
            bail!("--server {url}: a token would travel there for everybody to read; use https://");
        }
        self.encrypted(url, endpoint)
    }

    fn encrypted(&self, url: &str, endpoint: Endpoint) -> anyhow::Result<Endpoint> {
        if !has_tls(url) {
            return Ok(endpoint);
        }
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => tls.with_webpki_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        endpoint.tls_config(tls).context("the certificates for --server cannot be used")
    }
}

fn has_tls(url: &str) -> bool {
    url.starts_with("https://")
}

/// True for a way that others may listen on: neither TLS, nor this machine.
fn is_overheard(url: &str) -> bool {
    let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let is_here = name.parse::<IpAddr>().map_or(name == "localhost", |address| address.is_loopback());
        !is_here
    })
}

/// The token that is shown, if there is one. It has no `Debug` of its own.
#[derive(Clone, Default)]
pub(super) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// This token; none where there is no text.
    pub(super) fn of(token: &str) -> anyhow::Result<Self> {
        let token = token.trim();
        if token.is_empty() {
            return Ok(Self(None));
        }
        // What is wrong with it would be told with its text.
        let value = format!("Bearer {token}").parse::<MetadataValue<Ascii>>();
        let mut value = value.map_err(|_| anyhow!("the token has other characters than those of ASCII"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let token = match file {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
            None => std::env::var(TOKEN).unwrap_or_default(),
        };
        Self::of(&token)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a token" } else { "no token" })
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
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
        (Some(reason), message) if reason == "UNAUTHENTICATED" => {
            anyhow!("{message}; this command shows the token in {TOKEN}, or of --token-file [{reason}]")
        }
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
    fn a_token_goes_where_nobody_else_listens() {
        for url in
            ["https://plane:7600", "unix:/run/s", "http://127.0.0.1:7600", "http://[::1]:7600", "http://localhost"]
        {
            assert!(!is_overheard(url), "{url}");
        }
        for url in ["http://plane:7600", "http://10.0.0.1", "http://localhost.example:1/x", "http://[2001:db8::1]:1"] {
            assert!(is_overheard(url), "{url}");
        }
        assert_eq!(format!("{:?}", Bearer(Some("Bearer s3cret".parse().expect("ASCII")))), "a token");
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
