//! Expiry of certificate revocation lists, which the verifier does not expose.

use chrono::NaiveDateTime;
use tokio_rustls::rustls::pki_types::{CertificateRevocationListDer, pem::PemObject as _};

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The earliest `nextUpdate` of the lists in a PEM text, in seconds since 1970; none without one.
#[must_use]
pub fn first_list_end(pem: &[u8]) -> Option<i64> {
    CertificateRevocationListDer::pem_slice_iter(pem).map_while(Result::ok).filter_map(|list| next_update(&list)).min()
}

/// RFC 5280, 5.1: CertificateList { tbsCertList { version, signature, issuer, thisUpdate, nextUpdate, … }, … }.
fn next_update(list: &[u8]) -> Option<i64> {
    let (list, _) = of_kind(list, SEQUENCE)?;
    let (list, _) = of_kind(list, SEQUENCE)?;
    let after_version = of_kind(list, INTEGER).map_or(list, |(_, rest)| rest);
    let (_signature, rest) = of_kind(after_version, SEQUENCE)?;
    let (_issuer, rest) = of_kind(rest, SEQUENCE)?;
    let (_this_update, rest) = element(rest).map(|(_, content, rest)| (content, rest))?;
    let (kind, next, _) = element(rest)?;
    let text = std::str::from_utf8(next).ok()?;
    let whole = match (kind, text.get(..2)?.parse::<u32>().ok()?) {
        (UTC_TIME, 50..) => format!("19{text}"),
        (UTC_TIME, _) => format!("20{text}"),
        (GENERALIZED_TIME, _) => text.to_owned(),
        _ => return None,
    };
    NaiveDateTime::parse_from_str(&whole, "%Y%m%d%H%M%SZ").ok().map(|at| at.and_utc().timestamp())
}

fn of_kind(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(found, ..)| *found == kind).map(|(_, content, rest)| (content, rest))
}

/// The first DER element: tag, content, and rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, length], rest) = der.split_first_chunk()?;
    let (bytes, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(bytes)?;
    Some((kind, content, rest))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;

    /// A minimal list with that `nextUpdate`, in PEM.
    fn ending(kind: u8, at: &str) -> String {
        let sequence =
            |content: &[u8]| [&[SEQUENCE, 0x81, u8::try_from(content.len()).expect("short")], content].concat();
        let until_next = b"\x02\x01\x01\x30\x00\x30\x00\x17\x0d240101000000Z";
        let next = [&[kind, u8::try_from(at.len()).expect("short")], at.as_bytes()].concat();
        let list = sequence(&sequence(&[&until_next[..], &next].concat()));
        format!("-----BEGIN X509 CRL-----\n{}\n-----END X509 CRL-----\n", BASE64_STANDARD.encode(list))
    }

    #[test]
    fn a_list_ends_with_its_next_update() {
        let (near, far) = (ending(UTC_TIME, "300101000000Z"), ending(GENERALIZED_TIME, "20700101000000Z"));
        assert_eq!(first_list_end(near.as_bytes()), Some(1_893_456_000));
        assert_eq!(first_list_end(far.as_bytes()), Some(3_155_760_000));
        assert_eq!(first_list_end(format!("{far}{near}").as_bytes()), Some(1_893_456_000));
        assert_eq!(first_list_end(b"no list"), None);
    }

    #[test]
    fn truncated_revocation_list_is_rejected() {
        let list = ending(UTC_TIME, "300101000000Z");
        let whole = CertificateRevocationListDer::from_pem_slice(list.as_bytes()).expect("a list");
        for bytes in 0..whole.len() {
            assert_eq!(next_update(&whole[..bytes]), None, "{bytes}");
        }
    }
}
