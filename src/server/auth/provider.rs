//! Signature verification of JWTs by ring, which TLS has in the tree already: jsonwebtoken leaves the cryptography to
//! its user, and both of its own kinds would be a second one.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self, Verifier},
};
use ring::signature as rings;

static RING: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// To be called before a signature is verified; once is enough.
pub(super) fn install() {
    // Another provider that is installed stays: it verifies too.
    let _ = RING.install_default();
}

/// Nothing is signed here.
fn signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let family = match algorithm {
        Algorithm::ES256 | Algorithm::ES384 => AlgorithmFamily::Ec,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => return Err(ErrorKind::InvalidAlgorithm.into()),
        _ => AlgorithmFamily::Rsa,
    };
    if key.family() != family {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(SignedState { algorithm: *algorithm, key: key.clone() }))
}

struct SignedState {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for SignedState {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for SignedState {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let plain = |algorithm: &'static dyn rings::VerificationAlgorithm| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(key) => {
                rings::UnparsedPublicKey::new(algorithm, key).verify(message, signed).map_err(drop)
            }
            DecodingKeyKind::RsaModulusExponent { .. } => Err(()),
        };
        let rsa = |parameters: &rings::RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                rings::RsaPublicKeyComponents { n, e }.verify(parameters, message, signed).map_err(drop)
            }
            DecodingKeyKind::SecretOrDer(_) => Err(()),
        };
        match self.algorithm {
            Algorithm::RS256 => rsa(&rings::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&rings::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&rings::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&rings::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&rings::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&rings::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => plain(&rings::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => plain(&rings::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => plain(&rings::ED25519),
            _ => Err(()),
        }
        .map_err(|()| signature::Error::new())
    }
}
