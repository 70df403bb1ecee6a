//! A backup's folder: a dump, the roles, and a manifest that is written last and says what belongs to it. The folder
//! has another name until it is whole.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::clock::Clock;

pub(super) const DUMP: &str = "database.dump";
pub(super) const ROLES: &str = "roles.sql";
const MANIFEST: &str = "manifest.json";
/// The form of the folder.
const FORM: u32 = 1;
const CHUNK_BYTES: usize = 1 << 16;

/// What a backup is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Manifest {
    form: u32,
    /// When it was made, in UTC.
    pub(super) made_at: String,
    /// The build of callgate that made it.
    callgate: String,
    /// The major version of the server.
    pub(super) postgres_major: u32,
    /// The last migration of its schema.
    pub(super) newest_migration: Option<i64>,
    /// The migration that a build must have to serve on it.
    pub(super) schema_floor: Option<i64>,
    files: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Part {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Manifest {
    /// What lies in a folder that is being made.
    pub(super) fn of(folder: &Path, major: u32, newest: Option<i64>, floor: Option<i64>) -> anyhow::Result<Self> {
        let seconds = Clock::System.now().as_millis() / 1_000;
        let made_at = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        Ok(Self {
            form: FORM,
            made_at: made_at.format("%Y-%m-%d %H:%M:%SZ").to_string(),
            callgate: env!("CARGO_PKG_VERSION").to_owned(),
            postgres_major: major,
            newest_migration: newest,
            schema_floor: floor,
            files: [DUMP, ROLES].into_iter().map(|name| part(folder, name)).collect::<Result<_, _>>()?,
        })
    }

    /// Reads it, and holds every file against it.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let shown = folder.display();
        let text = match fs::read(folder.join(MANIFEST)) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                bail!("{shown} is no backup: it has no {MANIFEST}, which a backup that was interrupted lacks, too")
            }
            Err(error) => return Err(error).with_context(|| format!("{shown}/{MANIFEST} cannot be read")),
        };
        #[derive(Deserialize)]
        struct Form {
            form: u32,
        }
        let form: Form = serde_json::from_slice(&text).with_context(|| format!("{shown}/{MANIFEST} is damaged"))?;
        if form.form != FORM {
            bail!("{shown} is a backup of another form ({}): restore it by a newer build of callgate", form.form);
        }
        let read: Self = serde_json::from_slice(&text).with_context(|| format!("{shown}/{MANIFEST} is damaged"))?;
        let names: Vec<&str> = read.files.iter().map(|part| part.name.as_str()).collect();
        if names != [DUMP, ROLES] {
            bail!("{shown}/{MANIFEST} is damaged: it names {names:?}");
        }
        for known in &read.files {
            if part(folder, &known.name)? != *known {
                bail!("{shown}/{} is damaged: it is not what {MANIFEST} says. Use another backup", known.name);
            }
        }
        Ok(read)
    }

    /// All of it.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|part| part.bytes).sum()
    }
}

fn part(folder: &Path, name: &str) -> anyhow::Result<Part> {
    let path = folder.join(name);
    let read = || -> io::Result<Part> {
        let (mut file, mut digest, mut bytes) = (File::open(&path)?, Sha256::new(), 0);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(Part { name: name.to_owned(), bytes, sha256: hex::encode(digest.finalize()) }),
                count => {
                    digest.update(&chunk[..count]);
                    bytes += count as u64;
                }
            }
        }
    };
    read().with_context(|| format!("{} cannot be read", path.display()))
}

/// A folder for its owner alone, which becomes `folder` once it is whole, and goes away if it does not.
pub(super) fn unfinished(folder: &Path) -> anyhow::Result<TempDir> {
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = folder.file_name().context("the backup needs a name")?.to_string_lossy().into_owned();
    let made = tempfile::Builder::new()
        .prefix(&format!("{name}.unfinished-"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent);
    made.with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// Writes a file for its owner alone, to the disk.
pub(super) fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text)?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the manifest, and gives the folder its name.
pub(super) fn finish(unfinished: TempDir, folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let sync = |path: &Path| {
        File::open(path).and_then(|file| file.sync_all()).with_context(|| format!("cannot write {}", path.display()))
    };
    sync(&unfinished.path().join(DUMP))?;
    let text = serde_json::to_vec_pretty(manifest).context("the manifest cannot be written")?;
    write(&unfinished.path().join(MANIFEST), &text)?;
    sync(unfinished.path())?;
    fs::rename(unfinished.path(), folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Renamed: nothing is left to remove under the old name.
    let _ = unfinished.keep();
    match folder.parent() {
        Some(parent) if parent != Path::new("") => sync(parent),
        _ => sync(Path::new(".")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("backup");
        let unfinished = unfinished(&folder).expect("a folder");
        write(&unfinished.path().join(DUMP), b"dump").expect("written");
        write(&unfinished.path().join(ROLES), b"create role a;\n").expect("written");
        let manifest = Manifest::of(unfinished.path(), 15, Some(130), Some(130)).expect("a manifest");
        finish(unfinished, &folder, &manifest).expect("finished");
        assert_eq!(Manifest::read(&folder).expect("whole"), manifest);
        (dir, folder)
    }

    #[test]
    fn a_damaged_or_unfinished_backup_is_none() {
        let (dir, folder) = made();
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "nothing else is left");
        let refused = |folder: &Path| format!("{:#}", Manifest::read(folder).expect_err("refused"));
        fs::write(folder.join(DUMP), b"dumq").expect("written");
        assert!(refused(&folder).contains("database.dump is damaged"));
        fs::write(folder.join(DUMP), b"dum").expect("written");
        assert!(refused(&folder).contains("database.dump is damaged"));
        fs::remove_file(folder.join(DUMP)).expect("removed");
        assert!(refused(&folder).contains("cannot be read"));
        let whole = fs::read_to_string(folder.join(MANIFEST)).expect("text");
        fs::write(folder.join(MANIFEST), &whole[..whole.len() / 2]).expect("written");
        assert!(refused(&folder).contains("manifest.json is damaged"));
        fs::write(folder.join(MANIFEST), whole.replace("\"form\": 1", "\"form\": 2")).expect("written");
        assert!(refused(&folder).contains("of another form (2)"));
        fs::remove_file(folder.join(MANIFEST)).expect("removed");
        assert!(refused(&folder).contains("is no backup"));
        assert!(refused(Path::new("/nowhere")).contains("is no backup"));
    }

    #[test]
    fn only_its_owner_reads_it() {
        let (_dir, folder) = made();
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(ROLES))), (0o700, 0o600));
    }
}
