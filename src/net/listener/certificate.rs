//! Certificate lifetimes: expiry of certificates, and validity of a client's on an open connection.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::sleep};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use webpki::{EndEntityCert, Error, KeyUsage};

use super::Tls;
use crate::clock::Clock;

/// Interval of rechecks of a client's certificate on an open connection, because revocation lists expire, too.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);

/// The time of day.
pub(super) fn now() -> UnixTime {
    let millis = u64::try_from(Clock::System.now().as_millis()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_millis(millis))
}

/// The error of a verification at that time, in seconds since 1970. Validity is checked first, so that its bounds are
/// in the error.
fn error_at(certificate: &CertificateDer<'_>, seconds: u64) -> Option<Error> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    certificate.verify_for_usage(&[], &[], &[], time, KeyUsage::server_auth(), None, None).err()
}

/// The expiry of a certificate, in seconds since 1970; none if unreadable.
#[must_use]
pub fn ends_at(certificate: &CertificateDer<'_>) -> Option<u64> {
    match error_at(certificate, u64::MAX)? {
        Error::CertExpired { not_after, .. } => Some(not_after.as_secs()),
        _ => None,
    }
}

fn begins_at(certificate: &CertificateDer<'_>) -> Option<u64> {
    match error_at(certificate, 0)? {
        Error::CertNotValidYet { not_before, .. } => Some(not_before.as_secs()),
        _ => None,
    }
}

/// Beginning and expiry of the certificate in a PEM text that expires first, in seconds since 1970; none without any.
#[must_use]
pub fn first_lifetime(pem: &[u8]) -> Option<(u64, u64)> {
    let all = CertificateDer::pem_slice_iter(pem).map_while(Result::ok);
    let lifetimes = all.filter_map(|one| Some((begins_at(&one).unwrap_or(0), ends_at(&one)?)));
    lifetimes.min_by_key(|(_, end)| *end)
}

/// Client certificate of a connection.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<Tls>,
    /// Changes with client authorities and revocation lists.
    changed: watch::Receiver<u64>,
}

impl ClientCertificate {
    /// The certificate chain of a client, its own first.
    pub(super) fn new(chain: &[CertificateDer<'_>], tls: Arc<Tls>, changed: watch::Receiver<u64>) -> Self {
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        Self { chain, tls, changed }
    }

    /// True while a new connection would accept it. A resumed TLS session does not verify it again.
    pub(super) fn is_good(&self) -> bool {
        match self.tls.accepts(&self.chain) {
            Ok(()) => true,
            Err(error) => {
                tracing::info!(%error, "a client's certificate is not good any more: its connection ends");
                false
            }
        }
    }

    /// Completes when it is invalid: expired, revoked, or of an unknown authority.
    pub(super) async fn wait_for_invalidity(&mut self) {
        while self.is_good() {
            let ends = self.chain.iter().filter_map(ends_at).min().unwrap_or(u64::MAX);
            // It holds to the end of its last second.
            let left = ends.saturating_sub(now().as_secs()).saturating_add(1);
            tokio::select! {
                changed = self.changed.changed() => if changed.is_err() { std::future::pending().await },
                () = sleep(LOOK_EVERY.min(Duration::from_secs(left))) => {}
            }
        }
    }
}
