//! Certificate of a server that serves over TLS.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::process::Command;

/// Files of a certificate for this machine, and of its key.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl CertificateFiles {
    /// Where they are in a server's folder.
    pub(super) fn of(folder: &Path) -> Self {
        Self { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
    }

    /// Makes them, by OpenSSL: an elliptic key, as authorities issue them today.
    pub(super) async fn make(folder: &Path) -> anyhow::Result<Self> {
        let files = Self::of(folder);
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-days", "30", "-subj", "/CN=callgate", "-addext", "subjectAltName=IP:127.0.0.1"]);
        // An authority's own certificate is accepted as a server's by no client.
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-out").arg(&files.certificate).arg("-keyout").arg(&files.key).kill_on_drop(true);
        let output = command.output().await.context("openssl cannot be run: install it to measure TLS")?;
        if !output.status.success() {
            bail!("openssl: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(files)
    }
}
