//! TLS: certificate, key and the authorities of clients come from files, and are read again when these change. What is
//! connected stays connected; who connects next sees the new certificate.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
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
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::WebPkiClientVerifier,
    },
};

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
    current: ArcSwap<ServerConfig>,
    /// What was read last, good or bad.
    seen: Mutex<Seen>,
    /// Changes with the authorities of clients: what they vouched for before has to be shown again.
    authorities: watch::Sender<u64>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The bytes of the files.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
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
        let current = ArcSwap::from_pointee(config(&files, &used)?);
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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
                let tried = config(&self.files, &texts);
                (Some(texts), tried)
            }
            Err(error) => (None, Err(error)),
        };
        match (texts, tried) {
            (Some(texts), Ok(config)) => {
                self.current.store(Arc::new(config));
                if texts.client_ca != seen.used.client_ca {
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
        TlsAcceptor::from(self.current.load_full())
    }

    /// Changes when clients have to show their certificates again.
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
    })
}

fn config(files: &TlsFiles, texts: &Texts) -> Result<ServerConfig, TlsError> {
    let wrong = |path: &Path, problem: String| TlsError::Content { path: path.to_owned(), problem };
    let chain = certificates(&files.certificate, &texts.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&texts.key).map_err(|error| match error {
        pem::Error::NoItemsFound => wrong(&files.key, "has no private key in PEM".to_owned()),
        error => wrong(&files.key, format!("cannot be read as PEM: {error}")),
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&files.certificate, format!("cannot be used: {error}")))?;
    let builder = match (&files.client_ca, &texts.client_ca) {
        (Some(path), Some(text)) => {
            let mut authorities = RootCertStore::empty();
            for authority in certificates(path, text)? {
                authorities.add(authority).map_err(|error| wrong(path, format!("has no usable authority: {error}")))?;
            }
            // Who shows no certificate needs another credential; who shows one of somebody else's is not let in.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| wrong(path, format!("cannot be used: {error}")))?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(&files.key, format!("is not the key of {}", files.certificate.display()))
        }
        error => wrong(&files.certificate, format!("cannot be used with {}: {error}", files.key.display())),
    })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(config)
}

/// All certificates of a file; one at least.
fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |problem: String| TlsError::Content { path: path.to_owned(), problem };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong("has no certificate in PEM".to_owned())),
        Ok(all) => Ok(all),
        Err(error) => Err(wrong(format!("cannot be read as PEM: {error}"))),
    }
}
