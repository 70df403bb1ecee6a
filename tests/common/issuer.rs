//! Issuers of tokens (JWT), with keys of each kind that is accepted.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use serde_json::{Value, json};

/// A key and its id.
pub(crate) struct Issuer {
    kid: &'static str,
    key: Key,
}

enum Key {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    pub(crate) fn es256(kid: &'static str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).expect("a key");
        Self { kid, key: Key::Ecdsa(key) }
    }

    pub(crate) fn eddsa(kid: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self { kid, key: Key::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("a key")) }
    }

    /// With a public key: that of RFC 7515, appendix A.2.
    pub(crate) fn rs256(kid: &'static str) -> Self {
        let of = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("base64");
        let key = rsa::KeyPairComponents {
            public_key: rsa::PublicKeyComponents { n: of(N), e: of(E) },
            d: of(D),
            p: of(P),
            q: of(Q),
            dP: of(DP),
            dQ: of(DQ),
            qInv: of(QI),
        };
        Self { kid, key: Key::Rsa(RsaKeyPair::from_components(&key).expect("a key")) }
    }

    pub(crate) fn jwk(&self) -> Value {
        let (kid, usage) = (self.kid, "sig");
        match &self.key {
            Key::Ecdsa(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": usage, "kid": kid,
                       "x": b64(&point[1..33]), "y": b64(&point[33..])})
            }
            Key::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": usage, "kid": kid,
                       "x": b64(key.public_key())})
            }
            Key::Rsa(_) => json!({"kty": "RSA", "alg": "RS256", "use": usage, "kid": kid, "n": N, "e": E}),
        }
    }

    /// Signs under any header, also one that does not fit the key.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Signs what no writer of JSON would write, too.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", b64(header), b64(claims));
        let (random, bytes) = (SystemRandom::new(), message.as_bytes());
        let signature = match &self.key {
            Key::Ecdsa(key) => b64(key.sign(&random, bytes).expect("a signature")),
            Key::Ed25519(key) => b64(key.sign(bytes)),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).expect("a signature");
                b64(signature)
            }
        };
        format!("{message}.{signature}")
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        let alg = match self.key {
            Key::Ecdsa(_) => "ES256",
            Key::Ed25519(_) => "EdDSA",
            Key::Rsa(_) => "RS256",
        };
        self.sign(&json!({"alg": alg, "typ": "JWT", "kid": self.kid}), claims)
    }
}

/// A key set as an issuer serves it.
pub(crate) fn key_set(issuers: &[&Issuer]) -> String {
    let keys: Vec<Value> = issuers.iter().map(|issuer| issuer.jwk()).collect();
    json!({"keys": keys}).to_string()
}

const E: &str = "AQAB";
const N: &str = concat!(
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4Ql",
    "L-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUs",
    "LA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoud",
    "F8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
);
const D: &str = concat!(
    "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe",
    "46sui395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9J",
    "YanrC4D4qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuh",
    "LhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ",
);
const P: &str = concat!(
    "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJ",
    "NPY8cQn7ouZ2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc",
);
const Q: &str = concat!(
    "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_Yw",
    "D66t62wDmpe_HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc",
);
const DP: &str = concat!(
    "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJ",
    "eDCjn12Sk3vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0",
);
const DQ: &str = concat!(
    "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-N",
    "KJnwgjMd2w9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU",
);
const QI: &str = concat!(
    "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi8",
    "7w93IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U",
);
