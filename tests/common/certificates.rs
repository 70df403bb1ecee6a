//! Authorities and certificates of the tests' own.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

/// Who signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
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
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// For a server of this machine.
    pub(crate) fn server(&self) -> Pair {
        self.server_named(&["localhost", "127.0.0.1"])
    }

    pub(crate) fn server_named(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        self.signed(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// For a client of these names.
    pub(crate) fn client(&self, dns: &[&str], uris: &[&str]) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        let ia5 = |name: &&str| (*name).try_into().expect("ASCII");
        params.subject_alt_names = dns.iter().map(|name| SanType::DnsName(ia5(name))).collect();
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI(ia5(uri))));
        self.signed(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn signed(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Pair {
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Pair {
    /// Writes both into a folder, each file exchanged as a whole.
    pub(crate) fn write(&self, folder: &Path) -> (PathBuf, PathBuf) {
        (put(folder, "tls.crt", &self.certificate), put(folder, "tls.key", &self.key))
    }
}

/// Exchanges a file as a whole.
pub(crate) fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    fs::write(&new, text).expect("writable");
    fs::rename(&new, &path).expect("writable");
    path
}

/// TLS with a server of this machine, as a client makes it that trusts `authority` and shows this certificate.
pub(crate) async fn handshake_as(
    address: SocketAddr,
    authority: &Authority,
    shown: Option<&Pair>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.pem)).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
            config.with_client_auth_cert(vec![der(&pair.certificate)], key).expect("a certificate and its key")
        }
    };
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").expect("a name"), stream).await
}

/// The certificate that a new client sees.
pub(crate) async fn shown(address: SocketAddr, authority: &Authority) -> CertificateDer<'static> {
    let stream = handshake_as(address, authority, None).await.expect("TLS");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone()
}

/// The certificate of a text.
pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}
