//! TLS: certificate, key, the authorities of clients and what these have revoked come from files, and are read again
//! when these change. What is connected stays connected, but for clients whose certificates are not good any more; who
//! connects next sees the new certificate.

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

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is spoken on a port, the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where TLS is read from; each is PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The authorities that clients' certificates may be of; none, and none is asked for.
    pub client_ca: Option<PathBuf>,
    /// What these authorities have revoked: a list of each; none, and nothing is revoked.
    pub client_crl: Option<PathBuf>,
}

/// Why TLS cannot be used as it is in its files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer; not a source, since the text has it already.
        error: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// TLS as its files have it now.
pub struct Tls {
    files: TlsFiles,
    current: ArcSwap<Current>,
    /// What was read last, good or bad.
    seen: Mutex<Seen>,
    /// Changes with the authorities of clients and what they have revoked: what was good before is looked at again.
    authorities: watch::Sender<u64>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What new connections are made by.
struct Current {
    config: Arc<ServerConfig>,
    /// Of clients' certificates.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// The bytes of the files.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    client_crl: Option<Vec<u8>>,
}

impl Texts {
    /// What says which clients' certificates are good.
    fn of_clients(&self) -> [&Option<Vec<u8>>; 2] {
        [&self.client_ca, &self.client_crl]
    }
}

struct Seen {
    used: Texts,
    /// What could not be used, or not be read, at the last look; said once.
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
        Ok(Self { files, current, seen: Mutex::new(Seen { used, refused: None }), authorities: watch::channel(0).0 })
    }

    /// Uses the files anew whenever they change, until it is dropped. Those that cannot be used are told once, and what
    /// was used before stays in use.
    pub async fn follow(&self) {
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.look();
        }
    }

    /// One look at the files.
    fn look(&self) {
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
                *seen = Seen { used: texts, refused: None };
                let certificate = self.files.certificate.display();
                tracing::info!(%certificate, "the files of TLS have changed; new connections are made by them");
            }
            (texts, Err(error)) => {
                // Files are exchanged one after the other: only what stays as it is until the next look is a fault.
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

    /// What makes the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.load().config))
    }

    /// Would a client be let in now that shows these certificates?
    pub(super) fn accepts(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let current = self.current.load();
        let (Some(verifier), Some((own, between))) = (&current.verifier, chain.split_first()) else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        verifier.verify_client_cert(own, between, certificate::now()).map(drop)
    }

    /// Changes when clients' certificates have to be looked at again.
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

/// Of clients' certificates; none where none is asked for.
fn verifier(files: &TlsFiles, texts: &Texts) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (Some(path), Some(text)) = (&files.client_ca, &texts.client_ca) else { return Ok(None) };
    let mut authorities = RootCertStore::empty();
    for authority in certificates(path, text)? {
        authorities.add(authority).map_err(|error| wrong(path, format!("has no usable authority: {error}")))?;
    }
    let provider = Arc::new(ring::default_provider());
    // Who shows no certificate needs another credential; who shows one of somebody else's is not let in.
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).allow_unauthenticated();
    let builder = match (&files.client_crl, &texts.client_crl) {
        (Some(path), Some(text)) => {
            let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(text).collect();
            let lists = lists.map_err(|error| wrong(path, format!("cannot be read as PEM: {error}")))?;
            if lists.is_empty() {
                return Err(wrong(path, "has no list of revoked certificates in PEM (X509 CRL)".to_owned()));
            }
            // Of whom no list tells, or one that has ended, nobody knows whether they are revoked.
            builder.with_crls(lists).enforce_revocation_expiration()
        }
        _ => builder,
    };
    builder.build().map(Some).map_err(|error| match (&error, &files.client_crl) {
        (VerifierBuilderError::InvalidCrl(_), Some(crl)) => wrong(crl, format!("cannot be used: {error}")),
        _ => wrong(path, format!("cannot be used: {error}")),
    })
}

/// All certificates of a file; one at least.
fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong(path, "has no certificate in PEM".to_owned())),
        Ok(all) => Ok(all),
        Err(error) => Err(wrong(path, format!("cannot be read as PEM: {error}"))),
    }
}
