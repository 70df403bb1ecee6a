//! Random encryption keys for a measured server, deleted with its folder.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// The file of `--keys` for these tenants, beside their key files.
pub(super) fn make(folder: &Path, tenants: &[String]) -> anyhow::Result<PathBuf> {
    let mut text = "tenants:\n".to_owned();
    for name in tenants {
        let [sealing, fingerprint] = ["key", "fingerprint"].map(|kind| folder.join(format!("{name}.{kind}")));
        key(&sealing)?;
        key(&fingerprint)?;
        let _ = write!(
            text,
            "  {name}:\n    keys:\n    - {{id: bench, file: {sealing:?}}}\n    fingerprint: {{file: {fingerprint:?}}}\n"
        );
    }
    let path = folder.join("keys.yaml");
    std::fs::write(&path, text).context("the keys cannot be written")?;
    Ok(path)
}

fn key(path: &Path) -> anyhow::Result<()> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(hex::encode(key).as_bytes())).context("a key cannot be written")
}
