//! Certificates: when one ends, and for how long a client's is good on its connection.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::sleep};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use webpki::{EndEntityCert, Error, KeyUsage};

use super::Tls;
use crate::clock::Clock;

/// How often a client's certificate is looked at again on a connection that lasts, though nothing has changed: a list
/// of revoked certificates ends too.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);

/// The time of day.
pub(super) fn now() -> UnixTime {
    let millis = u64::try_from(Clock::System.now().as_millis()).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_millis(millis))
}

/// When a certificate ends, in seconds since 1970; none where it cannot be read.
#[must_use]
pub fn ends_at(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // Whether it is in its time is what is looked at first: whoever looks at the end of all days is told its own.
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match certificate.verify_for_usage(&[], &[], &[], late, KeyUsage::server_auth(), None, None) {
        Err(Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        _ => None,
    }
}

/// When the first of the certificates of a text in PEM ends; none where there is none.
#[must_use]
pub fn first_end(pem: &[u8]) -> Option<u64> {
    CertificateDer::pem_slice_iter(pem).map_while(Result::ok).filter_map(|one| ends_at(&one)).min()
}

/// What a client has shown on a connection, and whether it is good still.
#[derive(Debug)]
pub(super) struct Shown {
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<Tls>,
    /// Changes with the authorities of clients, and with what they have revoked.
    changed: watch::Receiver<u64>,
}

impl Shown {
    /// The certificates of a client, its own first.
    pub(super) fn new(chain: &[CertificateDer<'_>], tls: Arc<Tls>, changed: watch::Receiver<u64>) -> Self {
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        Self { chain, tls, changed }
    }

    /// True while a new connection would be made with it. A client that resumes a session of TLS is not asked for its
    /// certificate again, so that nobody else has looked.
    pub(super) fn is_good(&self) -> bool {
        match self.tls.accepts(&self.chain) {
            Ok(()) => true,
            Err(error) => {
                tracing::info!(%error, "a client's certificate is not good any more: its connection ends");
                false
            }
        }
    }

    /// Done once it is not good any more: it has expired, was revoked, or its authority is none of ours.
    pub(super) async fn ended(&mut self) {
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
