//! TLS from files: certificate, key, client authorities and revocation lists, reloaded on change. Open connections
//! continue unless their client certificate is invalid; new ones use the new files.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};

use super::certificate;

/// Interval of checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Protocols for ALPN, by preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS files, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Server certificate with its intermediates.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// Client authorities; without them no client certificate is requested.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists of these authorities, one of each; default: none.
    pub client_crl: Option<PathBuf>,
}

/// Unusable TLS files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Unreadable file.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer; not a source, since the text has it already.
        error: std::io::Error,
    },
    /// Invalid contents of a file.
    #[error("{} {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

/// Current TLS configuration.
pub struct Tls {
    files: TlsFiles,
    current: ArcSwap<Current>,
    /// State of the last check.
    seen: Mutex<LoadedFiles>,
    /// Changes with client authorities and revocation lists, so that open connections are rechecked.
    authorities: watch::Sender<u64>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Configuration of new connections.
struct Current {
    config: Arc<ServerConfig>,
    /// Verifier of client certificates.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// Contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    client_crl: Option<Vec<u8>>,
}

impl Texts {
    /// The files that decide on client certificates.
    fn of_clients(&self) -> [&Option<Vec<u8>>; 2] {
        [&self.client_ca, &self.client_crl]
    }
}

struct LoadedFiles {
    used: Texts,
    /// The last rejected contents or read error, logged once.
    refused: Option<(Option<Texts>, bool)>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let used = read(&files)?;
        let current = ArcSwap::from_pointee(current(&files, &used)?);
        Ok(Self {
            files,
            current,
            seen: Mutex::new(LoadedFiles { used, refused: None }),
            authorities: watch::channel(0).0,
        })
    }

    /// Reloads the files on change, until dropped. Unusable files are logged once, and the previous configuration
    /// stays.
    pub async fn follow(&self) {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.check_files();
        }
    }

    /// Checks the files once.
    fn check_files(&self) {
        let mut seen = self.seen.lock();
        let (texts, tried) = match read(&self.files) {
            Ok(texts) if texts == seen.used => {
                seen.refused = None;
                return;
            }
            Ok(texts) => {
                if seen.refused.as_ref().is_some_and(|(refused, is_told)| *is_told && refused.as_ref() == Some(&texts))
                {
                    return;
                }
                let tried = current(&self.files, &texts);
                (Some(texts), tried)
            }
            Err(error) => (None, Err(error)),
        };
        match (texts, tried) {
            (Some(texts), Ok(current)) => {
                self.current.store(Arc::new(current));
                if texts.of_clients() != seen.used.of_clients() {
                    self.authorities.send_modify(|changes| *changes += 1);
                }
                *seen = LoadedFiles { used: texts, refused: None };
                let certificate = self.files.certificate.display();
                tracing::info!(%certificate, "the files of TLS have changed; new connections are made by them");
            }
            (texts, Err(error)) => {
                // Files are replaced one by one: only contents unchanged until the next check are a fault.
                let stayed = seen.refused.as_ref().filter(|(refused, _)| *refused == texts);
                let is_told = stayed.is_some_and(|(_, is_told)| *is_told);
                if stayed.is_some() && !is_told {
                    tracing::warn!(%error, "the changed files of TLS cannot be used; those from before stay in use");
                }
                seen.refused = Some((texts, stayed.is_some()));
            }
            (None, Ok(_)) => {}
        }
    }

    /// The acceptor of the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.load().config))
    }

    /// Verifies a client's certificates by the current configuration.
    pub(super) fn accepts(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let current = self.current.load();
        let (Some(verifier), Some((own, between))) = (&current.verifier, chain.split_first()) else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        verifier.verify_client_cert(own, between, certificate::now()).map(drop)
    }

    /// Changes when client certificates must be rechecked.
    pub(super) fn authorities(&self) -> watch::Receiver<u64> {
        self.authorities.subscribe()
    }
}

fn read(files: &TlsFiles) -> Result<Texts, TlsError> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| TlsError::Unreadable { path: path.to_owned(), error });
    Ok(Texts {
        certificate: read(&files.certificate)?,
        key: read(&files.key)?,
        client_ca: files.client_ca.as_deref().map(read).transpose()?,
        client_crl: files.client_crl.as_deref().map(read).transpose()?,
    })
}

fn wrong(path: &Path, problem: String) -> TlsError {
    TlsError::Content { path: path.to_owned(), problem }
}

fn current(files: &TlsFiles, texts: &Texts) -> Result<Current, TlsError> {
    let chain = certificates(&files.certificate, &texts.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&texts.key).map_err(|error| match error {
        pem::Error::NoItemsFound => wrong(&files.key, "has no private key in PEM".to_owned()),
        error => wrong(&files.key, format!("cannot be read as PEM: {error}")),
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&files.certificate, format!("cannot be used: {error}")))?;
    let verifier = verifier(files, texts)?;
    let builder = match &verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(&files.key, format!("is not the key of {}", files.certificate.display()))
        }
        error => wrong(&files.certificate, format!("cannot be used with {}: {error}", files.key.display())),
    })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Current { config: Arc::new(config), verifier })
}

/// Verifier of client certificates; none if none are requested.
fn verifier(files: &TlsFiles, texts: &Texts) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (Some(path), Some(text)) = (&files.client_ca, &texts.client_ca) else { return Ok(None) };
    let mut authorities = RootCertStore::empty();
    for authority in certificates(path, text)? {
        authorities.add(authority).map_err(|error| wrong(path, format!("has no usable authority: {error}")))?;
    }
    let provider = Arc::new(ring::default_provider());
    // A client without a certificate needs another credential; one with an unknown certificate is rejected.
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).allow_unauthenticated();
    let builder = match (&files.client_crl, &texts.client_crl) {
        (Some(path), Some(text)) => {
            let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(text).collect();
            let lists = lists.map_err(|error| wrong(path, format!("cannot be read as PEM: {error}")))?;
            if lists.is_empty() {
                return Err(wrong(path, "has no list of revoked certificates in PEM (X509 CRL)".to_owned()));
            }
            // Without a current list, revocation is unknown.
            builder.with_crls(lists).enforce_revocation_expiration()
        }
        _ => builder,
    };
    builder.build().map(Some).map_err(|error| match (&error, &files.client_crl) {
        (VerifierBuilderError::InvalidCrl(_), Some(crl)) => wrong(crl, format!("cannot be used: {error}")),
        _ => wrong(path, format!("cannot be used: {error}")),
    })
}

/// All certificates of a file, at least one.
fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong(path, "has no certificate in PEM".to_owned())),
        Ok(all) => Ok(all),
        Err(error) => Err(wrong(path, format!("cannot be read as PEM: {error}"))),
    }
}
