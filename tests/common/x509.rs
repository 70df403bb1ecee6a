//! Minimal X.509 for test certificates: DER values, and signatures on P-256.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::{
    rand::{SecureRandom as _, SystemRandom},
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const SEQUENCE: u8 = 0x30;
/// A sequence of `ecdsa-with-SHA256`.
pub(crate) const ALGORITHM: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
/// One of `id-ecPublicKey` and `prime256v1`.
const P256: &[u8] = b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";

/// A value of this kind, of these parts.
pub(crate) fn value(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).expect("short").to_be_bytes();
    let length = match length {
        [0, short @ ..=0x7f] => vec![short],
        [0, long] => vec![0x81, long],
        [high, low] => vec![0x82, high, low],
    };
    [vec![kind], length, content].concat()
}

/// A distinguished name of one common name.
pub(crate) fn name(common: &str) -> Vec<u8> {
    let part = value(SEQUENCE, &[b"\x06\x03\x55\x04\x03", &value(0x0c, &[common.as_bytes()])]);
    value(SEQUENCE, &[&value(0x31, &[&part])])
}

/// `20300101000000Z`: in the short form before 2050, as RFC 5280 has it.
pub(crate) fn time(at: &str) -> Vec<u8> {
    if at < "2050" { value(0x17, &[&at.as_bytes()[2..]]) } else { value(0x18, &[at.as_bytes()]) }
}

/// The extension `2.5.29.ID`.
pub(crate) fn extension(id: u8, content: &[u8]) -> Vec<u8> {
    value(SEQUENCE, &[&[0x06, 0x03, 0x55, 0x1d, id], &value(0x04, &[content])])
}

/// A serial number of 16 random bytes.
pub(crate) fn serial() -> Vec<u8> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("random bytes");
    bytes[0] = bytes[0] & 0x3f | 0x40;
    value(INTEGER, &[&bytes])
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A pair of keys, as PKCS #8.
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn new() -> Self {
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).expect("a key");
        Self(pair.as_ref().to_vec())
    }

    fn pair(&self) -> EcdsaKeyPair {
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &self.0, &SystemRandom::new()).expect("a key")
    }

    /// The public one, as a certificate has it.
    pub(crate) fn public(&self) -> Vec<u8> {
        value(SEQUENCE, &[P256, &value(0x03, &[&[0], self.pair().public_key().as_ref()])])
    }

    pub(crate) fn pem(&self) -> String {
        pem("PRIVATE KEY", &self.0)
    }

    /// A sequence of these parts, with its signature, in PEM.
    pub(crate) fn sign_pem(&self, label: &str, parts: &[&[u8]]) -> String {
        let signed = value(SEQUENCE, parts);
        let signature = self.pair().sign(&SystemRandom::new(), &signed).expect("signed");
        pem(label, &value(SEQUENCE, &[&signed, ALGORITHM, &value(0x03, &[&[0], signature.as_ref()])]))
    }
}
