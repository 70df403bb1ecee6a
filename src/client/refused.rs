//! TLS connection errors as advice for users, in place of the library's texts about records and alerts.

use std::{error::Error, io};

use tokio_rustls::rustls::{self, AlertDescription, CertificateError, InvalidMessage};

/// Message about a TLS error; none for other errors.
pub(super) fn by_tls(error: &(dyn Error + 'static)) -> Option<String> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(told) = told_by(error) {
            return Some(describe_error(told));
        }
        at = error.source();
    }
    None
}

fn told_by<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    // An error wrapped by an I/O error is not among its sources.
    let wrapped = || error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<rustls::Error>();
    error.downcast_ref::<rustls::Error>().or_else(wrapped)
}

fn describe_error(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    use rustls::Error as Tls;
    match error {
        Tls::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not use TLS: use http://, or configure its certificate".to_owned()
        }
        Tls::InvalidCertificate(Bad::UnknownIssuer) => {
            "the authority of its certificate is unknown: pass the authority's certificate".to_owned()
        }
        Tls::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "its certificate has expired: replace it on the server".to_owned()
        }
        Tls::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet: check the clocks of both machines".to_owned()
        }
        Tls::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "its certificate is for other names: use a host name of the certificate".to_owned()
        }
        Tls::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure | Alert::BadCertificate) => {
            "it requires a client certificate: pass one, with its key".to_owned()
        }
        Tls::AlertReceived(Alert::UnknownCA | Alert::DecryptError | Alert::CertificateUnknown) => {
            "it does not trust the authority of the client certificate: pass another".to_owned()
        }
        Tls::AlertReceived(Alert::CertificateExpired | Alert::CertificateRevoked) => {
            "the client certificate has expired or was revoked: pass a new one".to_owned()
        }
        other => format!("the TLS handshake failed: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_error_is_found_below_its_wrappers() {
        let tls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let wrapped = anyhow::Error::new(io::Error::new(io::ErrorKind::InvalidData, tls)).context("connect");
        let told = by_tls(wrapped.as_ref()).expect("TLS");
        assert!(told.contains("does not use TLS: use http://"), "{told}");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(by_tls(&refused), None);
    }
}
