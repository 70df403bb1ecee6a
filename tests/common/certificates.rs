//! Authorities and certificates of the tests' own.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, date_time_ymd,
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
use webpki::EndEntityCert;

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
        self.client_until(dns, uris, None)
    }

    /// The same, with an end in seconds since 1970.
    pub(crate) fn client_until(&self, dns: &[&str], uris: &[&str], end: Option<u64>) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        let ia5 = |name: &&str| (*name).try_into().expect("ASCII");
        params.subject_alt_names = dns.iter().map(|name| SanType::DnsName(ia5(name))).collect();
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI(ia5(uri))));
        if let Some(end) = end {
            params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end);
        }
        self.signed(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// For a client without any name but that of its subject.
    pub(crate) fn client_called(&self, subject: &str) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, subject);
        self.signed(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// The list of what it has revoked, which ends in that year.
    pub(crate) fn revoked(&self, revoked: &[&Pair], ends: i32) -> String {
        let revoked = revoked.iter().map(|pair| RevokedCertParams {
            serial_number: serial(&pair.certificate).into(),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(ends, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("signed").pem().expect("PEM")
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

/// What a client has that trusts `authority` and shows this certificate.
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

/// TLS with a server of this machine, by what the client has, which it may have used before.
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
pub(crate) async fn shown(address: SocketAddr, authority: &Authority) -> CertificateDer<'static> {
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
