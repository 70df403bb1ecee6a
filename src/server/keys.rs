//! `--auth FILE`: the mapping of certificates and issuers' tokens to callers, and the keys of these issuers, read
//! repeatedly. An issuer that cannot be read keeps the keys that it had.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use futures_util::future::join_all;
use http::{HeaderValue, header::AUTHORIZATION};
use tokio::time::{sleep, timeout};

use crate::{
    auth::{
        file::{self, Auth},
        jwt::{Issuer, KeySetSource, Keys},
    },
    gate::Identities,
};
use callgate_net::outgoing::HttpRequest;

/// Polling intervals of keys: a file costs nothing, a URL is another party's.
const FILES_EVERY: Duration = Duration::from_secs(5);
const URLS_EVERY: Duration = Duration::from_secs(300);
/// Shortest interval, after a token with an unknown key, or a URL without a response.
const AGAIN: Duration = Duration::from_secs(5);
/// The largest set of keys.
const BYTES_MAX: usize = 1 << 20;

/// Reads the file.
pub fn load(path: Option<&Path>) -> anyhow::Result<Option<Auth>> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read --auth {}", path.display()))?;
    let auth = file::read(&text);
    auth.map(Some).map_err(|wrong| anyhow!("--auth {}: {} {}", path.display(), wrong.field, wrong.problem))
}

/// Keeps the keys of all issuers, each in its own time.
pub async fn follow(identities: Arc<Identities>) {
    let issuers = identities.issuers().into_iter().enumerate();
    let follow = issuers.map(|(place, issuer)| follow_one(Arc::clone(&identities), place, issuer));
    join_all(follow).await;
}

async fn follow_one(identities: Arc<Identities>, place: usize, issuer: Issuer) {
    let every = if matches!(issuer.keys, KeySetSource::File(_)) { FILES_EVERY } else { URLS_EVERY };
    let mut trouble = None;
    loop {
        let pause = match read(&issuer.keys).await {
            Ok(keys) => {
                identities.set_keys(place, keys);
                if trouble.take().is_some() {
                    tracing::info!(issuer = issuer.issuer, "its keys were read again");
                }
                every
            }
            Err(error) => {
                let error = Some(format!("{error:#}"));
                if trouble != error {
                    let why = error.as_deref().unwrap_or_default();
                    tracing::warn!(issuer = issuer.issuer, "its keys cannot be read, and the last hold: {why}");
                    trouble = error;
                }
                AGAIN
            }
        };
        // Tokens with forged keys cause no more frequent reads than that.
        sleep(AGAIN.min(pause)).await;
        let _ = timeout(pause.saturating_sub(AGAIN), identities.wait_for_unknown_key()).await;
    }
}

async fn read(source: &KeySetSource) -> anyhow::Result<Keys> {
    let text = match source {
        KeySetSource::File(path) => {
            let size = tokio::fs::metadata(path).await.with_context(|| path.display().to_string())?.len();
            if size > BYTES_MAX as u64 {
                bail!("{} has more than {BYTES_MAX} bytes", path.display());
            }
            tokio::fs::read_to_string(path).await.with_context(|| path.display().to_string())?
        }
        KeySetSource::Url { url, ca, bearer } => {
            let mut ask = HttpRequest::get(url).authority(ca.as_deref());
            if let Some(path) = bearer {
                let token = tokio::fs::read_to_string(path).await.with_context(|| path.display().to_string())?;
                let shown = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
                ask = ask.header(AUTHORIZATION, shown.with_context(|| path.display().to_string())?);
            }
            let answer = ask.send(BYTES_MAX).await?;
            if !answer.status.is_success() {
                bail!("{url}: it answered {}", answer.status);
            }
            answer.body
        }
    };
    Keys::read(&text).map_err(|problem| anyhow!("they are no key set: {problem}"))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const KEYS: &str =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    /// Keys at an address of this machine that answers with this status.
    async fn read_with(status: &str) -> anyhow::Result<Keys> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/jwks", listener.local_addr().expect("an address"));
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", KEYS.len());
        let head = format!("{head}location: https://evil.example/jwks\r\n\r\n{KEYS}");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(head.as_bytes()).await;
        });
        read(&KeySetSource::Url { url, ca: None, bearer: None }).await
    }

    #[tokio::test]
    async fn response_with_a_redirect_or_an_error_is_no_key_set() {
        read_with("200 OK").await.expect("keys");
        for status in ["301 x", "302 x", "303 x", "307 x", "308 x", "404 x", "500 x"] {
            let error = read_with(status).await.expect_err(status).to_string();
            assert!(error.contains("it answered"), "{status}: {error}");
        }
        let link = KeySetSource::Url { url: "https://169.254.169.254/jwks".to_owned(), ca: None, bearer: None };
        let error = read(&link).await.expect_err("this link").to_string();
        assert!(error.ends_with("is an address that nobody is asked at"), "{error}");
    }
}
