//! The file of `--approvals-webhook`: webhooks by tenant, with their URL, secret and format.

use std::{fs, path::Path};

use anyhow::{Context as _, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;
use url::Url;
use zeroize::Zeroizing;

use callgate_net::outgoing::is_here;

/// Bytes that a secret has, as Standard Webhooks asks for.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// As the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookFile {
    url: Option<String>,
    url_file: Option<std::path::PathBuf>,
    secret_file: Option<std::path::PathBuf>,
    console_url: String,
    #[serde(default)]
    format: Format,
    #[serde(default)]
    arguments: bool,
    #[serde(default = "default_tenant")]
    tenant: String,
    ca_file: Option<std::path::PathBuf>,
}

fn default_tenant() -> String {
    "default".to_owned()
}

/// Format of the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// An object with the event.
    #[default]
    Json,
    /// `{"text": …}`, as incoming webhooks of Slack and its like take it.
    Slack,
}

/// Webhook of a tenant.
pub(crate) struct Webhook {
    pub(super) url: String,
    /// Signing secret; none for a receiver that knows no signatures.
    pub(super) secret: Option<Zeroizing<Vec<u8>>>,
    /// URL of the console, without a slash at the end.
    pub(super) console: String,
    pub(super) format: Format,
    /// The arguments and the justification go with it.
    pub(super) arguments: bool,
    /// The tenant of the approval requests.
    pub(super) tenant: String,
    pub(super) ca: Option<std::path::PathBuf>,
}

impl Webhook {
    /// Reads the file, and the files that it names.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read --approvals-webhook {shown}"))?;
        Self::parse(&text).map_err(|error| anyhow!("--approvals-webhook {shown}: {error:#}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let form: WebhookFile = serde_saphyr::from_str(text)?;
        let named = |field: &str, path: &Path| {
            let read = fs::read_to_string(path).map(|text| Zeroizing::new(text.trim().to_owned()));
            read.with_context(|| format!("{field}: cannot read {}", path.display()))
        };
        let url = match (form.url, form.url_file) {
            (Some(url), None) => url,
            (None, Some(file)) => named("url_file", &file)?.to_string(),
            _ => bail!("has to have either `url` or `url_file`"),
        };
        let secret = match &form.secret_file {
            Some(file) => Some(secret(&named("secret_file", file)?)?),
            None if form.format == Format::Json => {
                bail!(
                    "secret_file: is missing: it holds whsec_ and the base64 of 24 to 64 bytes, by which the receiver \
                    knows who sends (openssl rand -base64 32)"
                )
            }
            None => None,
        };
        address("url", &url)?;
        address("console_url", &form.console_url)?;
        let console = form.console_url.trim_end_matches('/').to_owned();
        let WebhookFile { format, arguments, tenant, ca_file: ca, .. } = form;
        Ok(Self { url, secret, console, format, arguments, tenant, ca })
    }
}

/// By https, or to this machine. Errors never hold its text: it may be a secret.
fn address(field: &str, text: &str) -> anyhow::Result<()> {
    let Ok(url) = Url::parse(text) else { bail!("{field}: is no URL, such as https://plane.example") };
    let is_safe = url.scheme() == "https" || url.scheme() == "http" && url.host().is_some_and(|host| is_here(&host));
    if !is_safe {
        bail!("{field}: has to begin with https:// (http:// for this machine alone)");
    }
    Ok(())
}

fn secret(text: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let bytes = text.strip_prefix("whsec_").and_then(|text| BASE64.decode(text).ok()).map(Zeroizing::new);
    match bytes {
        Some(bytes) if SECRET_BYTES.contains(&bytes.len()) => Ok(bytes),
        _ => bail!("secret_file: has to hold whsec_ and the base64 of 24 to 64 bytes (openssl rand -base64 32)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Webhook::parse(text).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn error_names_its_field() {
        let rest = "console_url: https://plane.example\nformat: slack\n";
        for (text, told) in [
            (rest.to_owned(), "either `url` or `url_file`"),
            (format!("url: http://hooks.example/x\n{rest}"), "url: has to begin with https://"),
            (format!("url: hooks\n{rest}"), "url: is no URL"),
            (
                "url: https://a.example\nconsole_url: http://plane.example\nformat: slack\n".to_owned(),
                "console_url: has",
            ),
            ("url: https://a.example\nconsole_url: https://plane.example\n".to_owned(), "secret_file: is missing"),
            (format!("url: https://a.example\nhook: x\n{rest}"), "hook"),
            (format!("url: https://a.example\nsecret_file: /nowhere/at/all\n{rest}"), "secret_file: cannot read"),
        ] {
            assert!(problem(&text).contains(told), "{text}: {}", problem(&text));
        }
        let taken = Webhook::parse(&format!("url: http://127.0.0.1:9/x\n{rest}")).expect("this machine");
        assert!((taken.format == Format::Slack) && !taken.arguments && taken.secret.is_none());
        assert_eq!((taken.console.as_str(), taken.tenant.as_str()), ("https://plane.example", "default"));
    }

    #[test]
    fn a_secret_is_of_the_standards_form_and_long_enough() {
        let text = |bytes: usize| format!("whsec_{}", BASE64.encode(vec![7; bytes]));
        assert_eq!(secret(&text(32)).expect("long enough").len(), 32);
        for wrong in [text(23), text(65), BASE64.encode([7; 32]), "whsec_!".to_owned(), String::new()] {
            assert!(secret(&wrong).is_err(), "{wrong}");
        }
    }
}
