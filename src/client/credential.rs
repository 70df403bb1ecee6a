//! Credentials of a client, and connections with them.

use std::{
    fmt,
    io::Read as _,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use url::{Position, Url};

use crate::{refused, remote::NoResponse};

/// A connection that sends the caller's token with each request.
pub type AuthenticatedChannel = InterceptedService<Channel, Bearer>;

/// Timeout of a token command.
const COMMAND_MAX: Duration = Duration::from_secs(10);
/// Interval and timeout of keepalive pings while waiting for a response.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);

/// Credential for a server, and the authority that its certificate must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credential {
    pub token: Option<TokenSource>,
    pub ca: Option<PathBuf>,
    /// Client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Source of a token.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// The contexts file.
    Text(String),
    /// The output of a program.
    Command(Vec<String>),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

impl TokenSource {
    /// Description of the source, without the token.
    pub fn origin(&self) -> String {
        match self {
            Self::File(path) => format!("file {}", path.display()),
            Self::Environment(_) => "environment".to_owned(),
            Self::Text(_) => "in the file of contexts".to_owned(),
            Self::Command(words) => format!("command {}", words.first().map_or("", String::as_str)),
        }
    }

    fn read(&self) -> anyhow::Result<String> {
        match self {
            Self::File(path) => {
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
            }
            Self::Environment(text) | Self::Text(text) => Ok(text.clone()),
            Self::Command(words) => run_program(words),
        }
    }
}

/// The output of a program.
fn run_program(words: &[String]) -> anyhow::Result<String> {
    let (program, args) = words.split_first().context("token_command is empty")?;
    let started = Command::new(program).args(args).stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("token_command: cannot start {program}"))?;
    let mut out = child.stdout.take().with_context(|| format!("token_command: {program} has no output"))?;
    let (done, text) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = out.read_to_string(&mut text).map(|_| text);
        let _ = done.send(read);
    });
    let Ok(text) = text.recv_timeout(COMMAND_MAX) else {
        let _ = child.kill();
        let _ = child.wait();
        bail!("token_command: {program} printed no token within {} s", COMMAND_MAX.as_secs());
    };
    let text = text.with_context(|| format!("token_command: cannot read the output of {program}"))?;
    let status = child.wait().with_context(|| format!("token_command: {program}"))?;
    if !status.success() || text.trim().is_empty() {
        bail!("token_command: {program} printed no token ({status})");
    }
    Ok(text)
}

impl Credential {
    /// This credential, with missing parts from `other`.
    pub fn or(self, other: Self) -> Self {
        Self { token: self.token.or(other.token), ca: self.ca.or(other.ca), identity: self.identity.or(other.identity) }
    }

    /// The token, if any.
    pub fn bearer(&self) -> anyhow::Result<Bearer> {
        let token = self.token.as_ref().map(TokenSource::read).transpose()?;
        Bearer::of(token.as_deref().unwrap_or_default())
    }

    /// Connects with this token; `otherwise` is advice in the error if no server answers.
    pub async fn connect(&self, url: &str, bearer: Bearer, otherwise: &str) -> anyhow::Result<AuthenticatedChannel> {
        let endpoint = self.endpoint(url, &bearer)?;
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| match refused::by_tls(&error) {
            Some(why) => anyhow!("{url}: {why}"),
            None => NoResponse(format!("no server answers at {url}{otherwise}")).into(),
        })?;
        Ok(InterceptedService::new(channel, bearer))
    }

    pub fn endpoint(&self, url: &str, bearer: &Bearer) -> anyhow::Result<Endpoint> {
        let endpoint = Endpoint::from_shared(url.to_owned()).with_context(|| format!("--server {url} is not a URL"))?;
        if bearer.0.is_some() && is_overheard(url) {
            bail!("--server {url}: the token would be sent unencrypted; use https://");
        }
        // A server that hangs, or a network that swallows all, is noticed also while an answer is waited for.
        let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE_ANSWER);
        self.encrypt_channel(url, endpoint)
    }

    fn encrypt_channel(&self, url: &str, endpoint: Endpoint) -> anyhow::Result<Endpoint> {
        if !has_tls(url) {
            return Ok(endpoint);
        }
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => tls.with_webpki_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        endpoint.tls_config(tls).context("cannot use the certificates for --server")
    }
}

/// The URL of a server's address. Without a scheme it is `http://` on this machine, and `https://` on any other.
///
/// # Errors
/// The address is not `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
pub fn to_url(address: &str) -> anyhow::Result<String> {
    let is_socket = address.starts_with("unix:");
    if is_socket && address != "unix:" {
        return Ok(address.to_owned());
    }
    let parse = |scheme: &str| Url::parse(&format!("{scheme}{address}")).ok().filter(|_| !is_socket);
    let url = match address.contains("://") {
        true => parse(""),
        false => parse("http://").filter(|url| !is_overheard(url.as_str())).or_else(|| parse("https://")),
    };
    if url.as_ref().is_some_and(|url| !url.username().is_empty() || url.password().is_some()) {
        bail!("server: remove the user and password from the URL, which others could read");
    }
    let is_bare = |url: &Url| matches!(&url[Position::AfterPort..], "" | "/");
    match url.filter(|url| matches!(url.scheme(), "http" | "https") && is_bare(url)) {
        Some(url) => Ok(url[..Position::AfterPort].to_owned()),
        None => bail!("server {address:?} is not http://HOST:PORT, https://HOST:PORT or unix:PATH"),
    }
}

pub fn has_tls(url: &str) -> bool {
    url.starts_with("https://")
}

/// True for an unencrypted connection to another machine.
pub fn is_overheard(url: &str) -> bool {
    let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        let is_here = name.parse::<IpAddr>().map_or(name == "localhost", |address| address.is_loopback());
        !is_here
    })
}

/// The token to send, if any. It has no `Debug` on purpose.
#[derive(Clone, Default)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// The token of a text; none for an empty one.
    pub fn of(token: &str) -> anyhow::Result<Self> {
        let token = token.trim();
        if token.is_empty() {
            return Ok(Self(None));
        }
        // The error would contain the token.
        let value = format!("Bearer {token}").parse::<MetadataValue<Ascii>>();
        let mut value = value.map_err(|_| anyhow!("the token has characters outside ASCII"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    /// True when there is one.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let told =
            format!("{:?}", Credential { token: Some(TokenSource::Text("s3cret".into())), ..Credential::default() });
        assert!(!told.contains("s3cret"), "{told}");
    }

    #[test]
    fn address_without_scheme_is_encrypted_unless_it_is_this_machine() {
        for (address, url) in [
            ("127.0.0.1:7600", "http://127.0.0.1:7600"),
            ("localhost:7600", "http://localhost:7600"),
            ("LOCALHOST", "http://localhost"),
            ("[::1]:7600/", "http://[::1]:7600"),
            ("plane.example.com", "https://plane.example.com"),
            ("plane:7600", "https://plane:7600"),
            ("plane:80", "https://plane:80"),
            ("localhost.example:1", "https://localhost.example:1"),
            ("10.0.0.1:7600", "https://10.0.0.1:7600"),
            ("http://plane:7600", "http://plane:7600"),
            ("HTTPS://plane:7600/", "https://plane:7600"),
            ("unix:/run/s", "unix:/run/s"),
        ] {
            assert_eq!(to_url(address).expect(address), url);
        }
        for address in ["", "unix:", "ftp://plane", "plane:x", "::1", "http://plane/path", "https://plane?a", "a b"] {
            let error = to_url(address).expect_err(address).to_string();
            assert!(error.contains(&format!("server {address:?} is not http://HOST:PORT")), "{error}");
        }
        let error = to_url("http://me:secret@plane").expect_err("a password").to_string();
        assert!(error.contains("user and password") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn a_command_gives_a_token_or_says_why_not() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(run_program(&words("echo cg_1")).expect("a token").trim(), "cg_1");
        for (line, why) in
            [("false", "printed no token (exit status: 1)"), ("true", "printed no token"), ("no-such", "start")]
        {
            let error = format!("{:#}", run_program(&words(line)).expect_err(line));
            assert!(error.contains(why), "{error}");
        }
    }
}
