//! Test authorities and certificates.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use callgate_core::domain::time::Timestamp;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};
use webpki::EndEntityCert;

#[path = "x509.rs"]
mod x509;

use self::x509::{ALGORITHM, INTEGER, Key, SEQUENCE, extension, time, value};

/// The end of what has none.
const FOREVER: &str = "40960101000000Z";
/// Purpose of a key, as the last byte of its name.
const SERVER: u8 = 1;
const CLIENT: u8 = 2;

/// Certificate authority.
pub(crate) struct Authority {
    name: Vec<u8>,
    key: Key,
    /// Its own certificate.
    pub(crate) pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut authority = Self { name: x509::name(name), key: Key::new(), pem: String::new() };
        // An authority that signs certificates and lists.
        let extensions = [extension(0x13, b"\x30\x03\x01\x01\xff"), extension(0x0f, b"\x03\x02\x01\x06")];
        authority.pem = authority.certificate(&authority.key, &authority.name, FOREVER, &extensions.concat());
        authority
    }

    /// For a server of this machine.
    pub(crate) fn server(&self) -> Pair {
        self.server_named(&["localhost", "127.0.0.1"])
    }

    pub(crate) fn server_named(&self, names: &[&str]) -> Pair {
        let names = names.iter().map(|name| match name.parse() {
            Ok(IpAddr::V4(address)) => value(0x87, &[&address.octets()]),
            Ok(IpAddr::V6(address)) => value(0x87, &[&address.octets()]),
            Err(_) => value(0x82, &[name.as_bytes()]),
        });
        self.sign_pair("server", names.collect(), SERVER, FOREVER)
    }

    /// For a client of these names.
    pub(crate) fn client(&self, dns: &[&str], uris: &[&str]) -> Pair {
        self.client_until(dns, uris, None)
    }

    /// The same, with an end in seconds since 1970.
    pub(crate) fn client_until(&self, dns: &[&str], uris: &[&str], end: Option<u64>) -> Pair {
        let dns = dns.iter().map(|name| value(0x82, &[name.as_bytes()]));
        let uris = uris.iter().map(|uri| value(0x86, &[uri.as_bytes()]));
        let end = end.map(|end| {
            let end = Timestamp::from_millis(i64::try_from(end * 1_000).expect("a time"));
            end.to_string().replace(['-', ':', 'T'], "")
        });
        self.sign_pair("client", dns.chain(uris).collect(), CLIENT, end.as_deref().unwrap_or(FOREVER))
    }

    /// For a client without any name but that of its subject.
    pub(crate) fn client_called(&self, subject: &str) -> Pair {
        self.sign_pair(subject, Vec::new(), CLIENT, FOREVER)
    }

    /// The revocation list with these certificates, which expires in that year.
    pub(crate) fn revocation_list(&self, revoked: &[&Pair], ends: i32) -> String {
        let begins = time("20240101000000Z");
        let revoked: Vec<u8> = revoked
            .iter()
            .flat_map(|pair| value(SEQUENCE, &[&value(INTEGER, &[&serial(&pair.certificate)]), &begins]))
            .collect();
        let revoked = if revoked.is_empty() { revoked } else { value(SEQUENCE, &[&revoked]) };
        let number = value(0xa0, &[&value(SEQUENCE, &[&extension(0x14, &value(INTEGER, &[&[1]]))])]);
        let ends = time(&format!("{ends}0101000000Z"));
        let parts = [&value(INTEGER, &[&[1]]), ALGORITHM, &self.name, &begins, &ends, &revoked, &number];
        self.key.sign_pem("X509 CRL", &parts)
    }

    fn sign_pair(&self, subject: &str, names: Vec<Vec<u8>>, purpose: u8, ends: &str) -> Pair {
        let key = Key::new();
        let purpose = [b"\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03".as_slice(), &[purpose]].concat();
        let mut extensions = extension(0x25, &purpose);
        if !names.is_empty() {
            extensions.extend(extension(0x11, &value(SEQUENCE, &[&names.concat()])));
        }
        let certificate = self.certificate(&key, &x509::name(subject), ends, &extensions);
        Pair { certificate, key: key.pem() }
    }

    fn certificate(&self, key: &Key, subject: &[u8], ends: &str, extensions: &[u8]) -> String {
        let version = value(0xa0, &[&value(INTEGER, &[&[2]])]);
        let valid = value(SEQUENCE, &[&time("20000101000000Z"), &time(ends)]);
        let extensions = value(0xa3, &[&value(SEQUENCE, &[extensions])]);
        let parts = [&version, &x509::serial(), ALGORITHM, &self.name, &valid, subject, &key.public(), &extensions];
        self.key.sign_pem("CERTIFICATE", &parts)
    }
}

impl Pair {
    /// Writes both into a folder, each file exchanged as a whole.
    pub(crate) fn write(&self, folder: &Path) -> (PathBuf, PathBuf) {
        (write_atomically(folder, "tls.crt", &self.certificate), write_atomically(folder, "tls.key", &self.key))
    }
}

/// Exchanges a file as a whole.
pub(crate) fn write_atomically(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    fs::write(&new, text).expect("writable");
    fs::rename(&new, &path).expect("writable");
    path
}

/// Configuration of a client that trusts `authority` and presents this certificate.
pub(crate) fn client_config(authority: &Authority, shown: Option<&Pair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.pem)).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots);
    Arc::new(match shown {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
            config.with_client_auth_cert(vec![der(&pair.certificate)], key).expect("a certificate and its key")
        }
    })
}

/// TLS handshake with a local server by a client configuration, possibly resumed.
pub(crate) async fn handshake_by(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(config).connect(ServerName::try_from("localhost").expect("a name"), stream).await
}

/// The same, by a client that was never there.
pub(crate) async fn handshake_as(
    address: SocketAddr,
    authority: &Authority,
    shown: Option<&Pair>,
) -> io::Result<TlsStream<TcpStream>> {
    handshake_by(address, client_config(authority, shown)).await
}

/// The certificate that a new client sees.
pub(crate) async fn fetch_certificate(address: SocketAddr, authority: &Authority) -> CertificateDer<'static> {
    let stream = handshake_as(address, authority, None).await.expect("TLS");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone()
}

fn serial(pem: &str) -> Vec<u8> {
    EndEntityCert::try_from(&der(pem)).expect("a certificate").serial().to_vec()
}

/// The certificate of a text.
pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}
