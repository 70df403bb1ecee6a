//! `--keys FILE`: the tenants with encrypted values and their keys, read from files and from commands (of a key
//! management service). Read again when a file changes, so that keys rotate without a restart; never on the path of a
//! call.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use futures_util::future::try_join_all;
use tokio::{
    io::AsyncReadExt as _,
    process::Command,
    time::{sleep, timeout},
};
use zeroize::Zeroizing;

use crate::gate::Identities;
use callgate_store::sealing::{
    SealingKey, TenantKeys,
    file::{self, KeySource, TenantKeySources},
};

/// Polling interval of files.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Timeout of a command that returns a key.
const COMMAND_MAX: Duration = Duration::from_secs(10);
/// The longest text of a key, with white space around it.
const TEXT_BYTES_MAX: usize = 4_096;

/// In the mode of a file: everybody may read it.
const OTHERS_READ: u32 = 0o004;

/// Keys by the names of their tenants.
pub type NamedKeys = BTreeMap<String, Arc<TenantKeys>>;

/// Version of a file: its inode, size, and time of change.
type FileVersion = Option<(u64, u64, i64, i64)>;

/// The file, as it was read last.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// Timeout of a command.
    patience: Duration,
    /// Keys that were read, by their source.
    keys: BTreeMap<KeySource, SealingKey>,
    looks: BTreeMap<PathBuf, FileVersion>,
    pub named: NamedKeys,
}

impl KeyFile {
    /// Reads the file and all keys that it names.
    pub async fn read(path: &Path) -> anyhow::Result<Self> {
        Self::read_within(path, COMMAND_MAX).await
    }

    async fn read_within(path: &Path, patience: Duration) -> anyhow::Result<Self> {
        let (keys, looks, named) = (BTreeMap::new(), BTreeMap::new(), NamedKeys::new());
        let mut read = Self { path: path.to_owned(), patience, keys, looks, named };
        read.read_again().await?;
        Ok(read)
    }

    /// Reads the file again, and the keys in files; a command runs once for each key.
    async fn read_again(&mut self) -> anyhow::Result<()> {
        let look = read_version(&self.path);
        let path = self.path.display();
        let text = tokio::fs::read_to_string(&self.path).await.with_context(|| format!("cannot read --keys {path}"))?;
        let tenants = file::read(&text).map_err(|wrong| anyhow!("--keys {path}: {} {}", wrong.field, wrong.problem))?;
        let mut looks = BTreeMap::from([(self.path.clone(), look)]);
        let wanted = tenants.iter().flat_map(|(tenant, of)| list_sources(tenant, of));
        for (_, source) in wanted.clone() {
            if let KeySource::File(file) = source {
                looks.insert(file.clone(), self::read_version(file));
            }
        }
        let (known, patience) = (&self.keys, &self.patience);
        let read = wanted.map(async |(what, source)| {
            let known = known.get(source).filter(|_| matches!(source, KeySource::Command(_)));
            let key = match known {
                Some(key) => key.clone(),
                None => key(source, *patience).await.with_context(|| format!("--keys {path}: {what}"))?,
            };
            Ok::<_, anyhow::Error>((source.clone(), key))
        });
        let keys: BTreeMap<KeySource, SealingKey> = try_join_all(read).await?.into_iter().collect();
        if let Some((what, other)) = of_two_purposes(&tenants, &keys) {
            bail!("--keys {path}: {what} is also {other}: hashing and encryption each need a key of their own");
        }
        self.named =
            tenants.into_iter().filter_map(|(name, of)| Some((name, Arc::new(find_keys(&of, &keys)?)))).collect();
        (self.keys, self.looks) = (keys, looks);
        Ok(())
    }

    fn has_changed(&self) -> bool {
        self.looks.iter().any(|(path, before)| read_version(path) != *before)
    }

    /// Keeps the keys as the files have them. A failed read is logged whenever its cause changes, and the last keys
    /// hold.
    pub async fn follow(mut self, identities: Arc<Identities>) {
        let mut trouble = None;
        loop {
            sleep(LOOK_EVERY).await;
            if !self.has_changed() {
                continue;
            }
            if let Err(error) = self.read_again().await {
                let error = Some(format!("{error:#}"));
                if trouble != error {
                    let why = error.as_deref().unwrap_or_default();
                    tracing::error!("the keys of tenants cannot be read, and the last ones hold: {why}");
                    trouble = error;
                }
                continue;
            }
            trouble = None;
            tracing::info!(tenants = self.named.len(), "the keys of tenants were read again");
            if let Err(error) = identities.set_tenant_keys(self.named.clone()).await {
                tracing::warn!(%error, "the keys of tenants hold once the tenants can be read");
            }
        }
    }
}

/// All keys of a tenant, each with its description and source.
fn list_sources<'a>(
    tenant: &'a str,
    of: &'a TenantKeySources,
) -> impl Iterator<Item = (String, &'a KeySource)> + Clone {
    let named = of.keys.iter().map(move |(id, source)| (format!("tenant {tenant:?}, key {id:?}"), source));
    named.chain(std::iter::once((format!("tenant {tenant:?}, its fingerprint key"), &of.fingerprint)))
}

/// A key for hashes that also encrypts values, of any tenant: compared by their bytes.
fn of_two_purposes(
    tenants: &BTreeMap<String, TenantKeySources>,
    keys: &BTreeMap<KeySource, SealingKey>,
) -> Option<(String, String)> {
    let sealing = || tenants.iter().flat_map(|(tenant, of)| list_sources(tenant, of).take(of.keys.len()));
    tenants.iter().find_map(|(tenant, of)| {
        let (what, source) = list_sources(tenant, of).last()?;
        let key = keys.get(source)?;
        let (other, _) = sealing().find(|(_, other)| keys.get(*other).is_some_and(|other| other.is_same(key)))?;
        Some((what, other))
    })
}

fn find_keys(of: &TenantKeySources, keys: &BTreeMap<KeySource, SealingKey>) -> Option<TenantKeys> {
    let named = of.keys.iter().map(|(id, source)| Some((id.clone(), keys.get(source)?.clone())));
    Some(TenantKeys::new(named.collect::<Option<_>>()?, keys.get(&of.fingerprint)?, of.anew))
}

fn read_version(path: &Path) -> FileVersion {
    let is = std::fs::metadata(path).ok()?;
    Some((is.ino(), is.size(), is.mtime(), is.mtime_nsec()))
}

async fn key(source: &KeySource, patience: Duration) -> anyhow::Result<SealingKey> {
    let mut text = Zeroizing::new(Vec::with_capacity(TEXT_BYTES_MAX + 1));
    let from = match source {
        KeySource::File(path) => {
            let from = format!("the file {}", path.display());
            let file = tokio::fs::File::open(path).await.with_context(|| format!("{from} cannot be read"))?;
            if file.metadata().await.is_ok_and(|is| is.is_file() && is.mode() & OTHERS_READ != 0) {
                tracing::warn!("{from} has a key, and every user of this machine can read it: let the server's alone");
            }
            let read = file.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut text).await;
            read.with_context(|| format!("{from} cannot be read"))?;
            from
        }
        KeySource::Command(words) => {
            let from = format!("the command {:?}", words.first().map_or("", String::as_str));
            let said = timeout(patience, run_command(words, &mut text)).await;
            let said = said.map_err(|_| anyhow!("{from} did not end within {patience:?}"))?;
            said.with_context(|| format!("{from} gave no key"))?;
            from
        }
    };
    if text.len() > TEXT_BYTES_MAX {
        bail!("{from} gave more than {TEXT_BYTES_MAX} bytes");
    }
    SealingKey::parse(&text).map_err(|_| anyhow!("{from} gave something other than 32 bytes in base64 or hexadecimal"))
}

/// Output of a command; its standard error is the server's.
async fn run_command(words: &[String], text: &mut Vec<u8>) -> anyhow::Result<()> {
    let (program, args) = words.split_first().context("it has no name")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("it cannot be run")?;
    let out = child.stdout.take().context("it has no output")?;
    out.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(text).await?;
    let ended = child.wait().await?;
    if !ended.success() {
        bail!("it failed: {ended}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f";

    const SEALING: &str = "2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e2e";

    fn file(dir: &Path, key: &str) -> PathBuf {
        std::fs::write(dir.join("key"), format!("{KEY}\n")).expect("written");
        let path = dir.join("keys.yaml");
        let of = dir.join("key").display().to_string();
        let text = format!("tenants:\n  acme:\n    keys:\n    - {{id: new, {key}}}\n    fingerprint: {{file: {of}}}\n");
        std::fs::write(&path, text).expect("written");
        path
    }

    async fn error(dir: &Path, key: &str) -> String {
        let error = KeyFile::read(&file(dir, key)).await.expect_err("no keys");
        format!("{error:#}")
    }

    #[tokio::test]
    async fn keys_come_from_files_and_commands_and_what_gives_none_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path();
        let read = KeyFile::read(&file(dir, &format!("command: [printf, {SEALING}]"))).await.expect("keys");
        assert_eq!(read.named["acme"].newest(), "new");
        assert!(!format!("{:?}", read.named).contains("1f1f"), "{:?}", read.named);
        for (key, told) in [
            ("file: /nowhere/key", "the file /nowhere/key cannot be read: No such file or directory"),
            ("command: [/nowhere/kms, decrypt, c1ph3r]", "the command \"/nowhere/kms\" gave no key: it cannot be run"),
            ("command: [sh, -c, 'exit 3']", "the command \"sh\" gave no key: it failed: exit status: 3"),
            ("command: [printf, hunter2]", "the command \"printf\" gave something other than 32 bytes in base64 or"),
            ("command: [head, -c, '5000', /dev/zero]", "the command \"head\" gave more than 4096 bytes"),
        ] {
            let error = error(dir, key).await;
            assert!(error.contains(&format!("tenant \"acme\", key \"new\": {told}")), "{error}");
            assert!(!error.contains("c1ph3r") && !error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_key_has_one_purpose() {
        let dir = tempfile::tempdir().expect("a folder");
        for key in [format!("command: [printf, {KEY}]"), format!("file: {}", dir.path().join("key").display())] {
            let error = error(dir.path(), &key).await;
            let told = "tenant \"acme\", its fingerprint key is also tenant \"acme\", key \"new\"";
            assert!(error.contains(told), "{error}");
        }
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = file(dir.path(), "command: [sleep, '1000000']");
        let error = KeyFile::read_within(&path, Duration::from_millis(300)).await.expect_err("no keys");
        let error = format!("{error:#}");
        assert!(
            error.ends_with("tenant \"acme\", key \"new\": the command \"sleep\" did not end within 300ms"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_a_command_is_not_asked_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path();
        let asked = dir.join("asked").display().to_string();
        let command = format!("command: [sh, -c, 'echo >> {asked}; printf {SEALING}']");
        let mut read = KeyFile::read(&file(dir, &command)).await.expect("keys");
        assert!(!read.has_changed());
        std::fs::write(dir.join("old"), SEALING.replace('2', "3")).expect("written");
        let more = format!("{command}}}\n    - {{id: old, file: {}", dir.join("old").display());
        file(dir, &more);
        assert!(read.has_changed());
        read.read_again().await.expect("keys");
        assert_eq!(read.named["acme"].ids().collect::<Vec<_>>(), ["new", "old"]);
        assert_eq!(std::fs::read_to_string(&asked).expect("asked"), "\n", "once");
        std::fs::write(dir.join("keys.yaml"), "tenants: {acme: {}}").expect("written");
        assert!(read.has_changed() && read.read_again().await.is_err());
        assert_eq!(read.named["acme"].newest(), "new", "the last ones hold");
    }
}
