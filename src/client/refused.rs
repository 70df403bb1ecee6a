//! TLS connection errors as advice for users, in place of the library's texts about records and alerts.

use std::{error::Error, io};

use tokio_rustls::rustls::{self, AlertDescription, CertificateError, InvalidMessage};

/// Message about a TLS error; none for other errors.
pub(super) fn by_tls(error: &(dyn Error + 'static)) -> Option<String> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(told) = told_by(error) {
            return Some(in_words(told));
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

fn in_words(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    use rustls::Error as Tls;
    match error {
        Tls::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what listens there does not speak TLS: say http://, or have it serve with a certificate".to_owned()
        }
        Tls::InvalidCertificate(Bad::UnknownIssuer) => {
            "its certificate is of no authority that is known here: name that authority's certificate".to_owned()
        }
        Tls::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "its certificate has ended: put a new one in its place there".to_owned()
        }
        Tls::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate does not hold yet: look at the clocks of both machines".to_owned()
        }
        Tls::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "its certificate is for other names: say the host as the certificate has it".to_owned()
        }
        Tls::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure | Alert::BadCertificate) => {
            "it wants a certificate: show one, with its key".to_owned()
        }
        Tls::AlertReceived(Alert::UnknownCA | Alert::DecryptError | Alert::CertificateUnknown) => {
            "it does not know the authority of the certificate that it was shown: show another".to_owned()
        }
        Tls::AlertReceived(Alert::CertificateExpired | Alert::CertificateRevoked) => {
            "the certificate that it was shown has ended or was revoked: show a new one".to_owned()
        }
        other => format!("no connection by TLS comes about: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_says_is_found_below_what_wraps_it() {
        let tls = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let wrapped = anyhow::Error::new(io::Error::new(io::ErrorKind::InvalidData, tls)).context("connect");
        let told = by_tls(wrapped.as_ref()).expect("TLS");
        assert!(told.contains("does not speak TLS: say http://"), "{told}");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(by_tls(&refused), None);
    }
}
