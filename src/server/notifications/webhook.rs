//! Webhook: a POST in JSON, signed by [Standard Webhooks](https://www.standardwebhooks.com).

use std::path::PathBuf;

use anyhow::bail;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{destinations, message::NotificationMessage};
use callgate_core::domain::time::Timestamp;
use callgate_net::outgoing::HttpRequest;

/// Bytes of a secret, as Standard Webhooks asks for.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Longest part of a response that is read, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 10;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// As the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookForm {
    url: Option<String>,
    url_file: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// Receiver of a webhook.
#[derive(Default)]
pub(super) struct WebhookSettings {
    url: String,
    secret: Zeroizing<Vec<u8>>,
    ca: Option<PathBuf>,
}

impl std::fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its address may be a secret too.
        f.debug_struct("WebhookSettings").finish_non_exhaustive()
    }
}

impl WebhookForm {
    pub(super) fn checked(self) -> anyhow::Result<WebhookSettings> {
        let url = destinations::url(self.url, self.url_file.as_ref())?;
        let Some(file) = &self.secret_file else {
            bail!(
                "secret_file: is missing: it holds whsec_ and the base64 of 24 to 64 bytes, by which the receiver \
                verifies the sender (openssl rand -base64 32)"
            )
        };
        let secret = decode_secret(&destinations::secret_file("secret_file", file)?)?;
        Ok(WebhookSettings { url, secret, ca: self.ca_file })
    }
}

fn decode_secret(text: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let bytes = text.strip_prefix("whsec_").and_then(|text| BASE64.decode(text).ok()).map(Zeroizing::new);
    match bytes {
        Some(bytes) if SECRET_BYTES.contains(&bytes.len()) => Ok(bytes),
        _ => bail!("secret_file: has to hold whsec_ and the base64 of 24 to 64 bytes (openssl rand -base64 32)"),
    }
}

impl WebhookSettings {
    /// Sends one message, signed at `now`. Errors do not hold the address, which may be a secret.
    pub(super) async fn send(&self, id: &str, message: &NotificationMessage, now: Timestamp) -> Result<(), String> {
        let (body, at_s) = (body(message), now.as_millis() / 1_000);
        let header = |text: &str| HeaderValue::from_str(text).map_err(|_| "its id is no header".to_owned());
        let request = HttpRequest::post(&self.url, HeaderValue::from_static("application/json"), body.clone())
            .header(ID, header(id)?)
            .header(TIMESTAMP, HeaderValue::from(at_s))
            .header(SIGNATURE, header(&signature(&self.secret, id, at_s, &body))?)
            .authority(self.ca.as_deref());
        let response = request.send(ANSWER_BYTES_MAX).await.map_err(|failed| failed.problem)?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(format!("it answers {}", response.status)),
        }
    }
}

fn body(message: &NotificationMessage) -> String {
    let mut data = message.data.clone();
    data["tenant"] = message.tenant.as_str().into();
    data["url"] = message.url.as_str().into();
    let (kind, at, text) = (message.kind, message.at.to_string(), message.in_one_line());
    json!({ "type": kind, "timestamp": at, "text": text, "data": data }).to_string()
}

/// The header `webhook-signature`.
fn signature(secret: &[u8], id: &str, at_s: i64, body: &str) -> String {
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(format!("{id}.{at_s}.{body}").as_bytes());
    format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_equals_that_of_the_standards_example() {
        let secret = BASE64.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let body = r#"{"test": 2432232314}"#;
        let signed = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secret_has_the_form_and_length_of_the_standard() {
        let text = |bytes: usize| format!("whsec_{}", BASE64.encode(vec![7; bytes]));
        assert_eq!(decode_secret(&text(32)).expect("long enough").len(), 32);
        for wrong in [text(23), text(65), BASE64.encode([7; 32]), "whsec_!".to_owned(), String::new()] {
            assert!(decode_secret(&wrong).is_err(), "{wrong}");
        }
    }
}
