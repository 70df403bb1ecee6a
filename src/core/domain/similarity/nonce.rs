//! Nonces: argument values generated per call, ignored by loop rules.

use sha2::{Digest as _, Sha256};

use crate::domain::json::Json;

/// Names of nonces. Other names are proposed to the policy's owner, never guessed.
const NAMES: [&str; 11] = [
    "nonce",
    "request_id",
    "timestamp",
    "idempotency_key",
    "client_token",
    "client_request_id",
    "correlation_id",
    "trace_id",
    "cache_buster",
    "requestid",
    "idempotencykey",
];
/// Epoch times: from September 2001 to the year 2286, in seconds or milliseconds.
const EPOCH_SECONDS: std::ops::Range<u64> = 1_000_000_000..10_000_000_000;

/// Hash of the arguments without their nonces; none without nonces, or with nothing else.
pub(super) fn without(fields: &[(String, Json)]) -> Option<u64> {
    let nonces = fields.iter().filter(|(name, value)| is_nonce(name, value)).count();
    if nonces == 0 || nonces == fields.len() {
        return None;
    }
    let rest = fields.iter().filter(|(name, value)| !is_nonce(name, value)).cloned().collect();
    let text = Json::Object(rest).canonical();
    Some(Sha256::digest(text.as_bytes())[..8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

fn is_nonce(name: &str, value: &Json) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    if !NAMES.iter().any(|known| known.len() == name.len() && known.bytes().eq(name.bytes().map(plain))) {
        return false;
    }
    let is_epoch = |n: u64| EPOCH_SECONDS.contains(&n) || EPOCH_SECONDS.contains(&(n / 1_000));
    match value {
        Json::Number(number) => number.parse().is_ok_and(is_epoch),
        Json::String(text) => {
            let hex: String = text.chars().filter(|c| *c != '-').collect();
            (hex.len() >= 16 && hex.bytes().all(|b| b.is_ascii_hexdigit())) || text.parse().is_ok_and(is_epoch)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::similarity::ArgumentShape;

    #[test]
    fn only_what_is_named_and_looks_like_a_nonce_is_one() {
        let without = |text: &str| ArgumentShape::of(text).without_nonces();
        let one = without(r#"{"title":"Q3","nonce":"550e8400-e29b-41d4-a716-446655440000"}"#);
        assert!(one.is_some());
        assert_eq!(one, without(r#"{"title":"Q3","nonce":"650e8400-e29b-41d4-a716-446655440000"}"#));
        assert_eq!(one, without(r#"{"title":"Q3","timestamp":1763760000000}"#));
        assert_ne!(one, without(r#"{"title":"Q4","timestamp":1763760000000}"#));
        for other in [
            r#"{"title":"Q3"}"#,
            r#"{"title":"Q3","order_id":"550e8400-e29b-41d4-a716-446655440000"}"#,
            r#"{"title":"Q3","nonce":"tomorrow"}"#,
            r#"{"request_id":"550e8400-e29b-41d4-a716-446655440000"}"#,
        ] {
            assert_eq!(without(other), None, "{other}");
        }
    }
}
