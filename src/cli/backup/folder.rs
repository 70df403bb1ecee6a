//! Backup folder: a dump, the roles, and a manifest that is written last and lists the others. The folder has a
//! temporary name until it is complete, and its writer holds a lock: an unlocked one was interrupted.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use callgate_net::clock::Clock;
use callgate_server::backups::MANIFEST;

pub(super) const DUMP: &str = "database.dump";
pub(super) const ROLES: &str = "roles.sql";
/// All files of a backup.
const FILES: [&str; 3] = [MANIFEST, DUMP, ROLES];
/// Infix of a temporary name, before random letters.
const UNFINISHED: &str = ".unfinished-";
/// Format version of the folder.
const FORM: u32 = 1;
const CHUNK_BYTES: usize = 1 << 16;
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Manifest {
    form: u32,
    /// Creation time, in UTC.
    pub(super) made_at: String,
    /// Version of the callgate that made it.
    callgate: String,
    /// The major version of the server.
    pub(super) postgres_major: u32,
    /// Last migration of its schema.
    pub(super) newest_migration: Option<i64>,
    /// Minimum migration of a build that can use it.
    pub(super) schema_floor: Option<i64>,
    files: Vec<BackupPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BackupPart {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Manifest {
    /// The manifest of a folder in creation.
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
            files: [DUMP, ROLES].into_iter().map(|name| read_part(folder, name)).collect::<Result<_, _>>()?,
        })
    }

    /// Reads the manifest, and verifies every file against it.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let shown = folder.display();
        let mut text = Vec::new();
        match open_regular_file(&folder.join(MANIFEST))
            .and_then(|file| file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text))
        {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                bail!("{shown} is not a complete backup: {MANIFEST} is missing. Use another backup")
            }
            Err(error) => return Err(error).with_context(|| format!("{shown}/{MANIFEST} cannot be read")),
        }
        #[derive(Deserialize)]
        struct ManifestVersion {
            form: u32,
        }
        let form: ManifestVersion =
            serde_json::from_slice(&text).with_context(|| format!("{shown}/{MANIFEST} is damaged"))?;
        if form.form != FORM {
            bail!("{shown} has the unknown format {}: restore it with a newer build of callgate", form.form);
        }
        let read: Self = serde_json::from_slice(&text).with_context(|| format!("{shown}/{MANIFEST} is damaged"))?;
        let names: Vec<&str> = read.files.iter().map(|part| part.name.as_str()).collect();
        if names != [DUMP, ROLES] {
            bail!("{shown}/{MANIFEST} is damaged: it names {names:?}");
        }
        for known in &read.files {
            if read_part(folder, &known.name)? != *known {
                bail!("{shown}/{} is damaged: it differs from {MANIFEST}. Use another backup", known.name);
            }
        }
        Ok(read)
    }

    /// Total size.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|part| part.bytes).sum()
    }
}

/// Opens a regular file of a backup, without following links.
fn open_regular_file(path: &Path) -> io::Result<File> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if !kind.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file, and links are not followed",
        ));
    }
    File::open(path)
}

fn read_part(folder: &Path, name: &str) -> anyhow::Result<BackupPart> {
    let path = folder.join(name);
    let read = || -> io::Result<BackupPart> {
        let (mut file, mut digest, mut bytes) = (open_regular_file(&path)?, Sha256::new(), 0);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(BackupPart { name: name.to_owned(), bytes, sha256: hex::encode(digest.finalize()) }),
                count => {
                    digest.update(&chunk[..count]);
                    bytes += count as u64;
                }
            }
        }
    };
    read().with_context(|| format!("{} cannot be read", path.display()))
}

/// A folder in creation, removed unless finished.
#[derive(Debug)]
pub(super) struct UnfinishedFolder {
    made: TempDir,
    /// Locked until this process ends.
    _held: File,
}

impl UnfinishedFolder {
    pub(super) fn path(&self) -> &Path {
        self.made.path()
    }
}

/// The parent of a folder.
pub(super) fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Fails without an existing parent folder.
pub(super) fn has_place(folder: &Path) -> anyhow::Result<()> {
    let parent = parent(folder);
    if !parent.is_dir() {
        bail!("the parent directory {} does not exist: create it first", parent.display());
    }
    Ok(())
}

/// A folder for its owner alone, to be renamed to `folder` when complete.
pub(super) fn create_unfinished(folder: &Path) -> anyhow::Result<UnfinishedFolder> {
    let parent = parent(folder);
    has_place(folder)?;
    let name = folder.file_name().context("the backup needs a name")?.to_string_lossy().into_owned();
    let made = tempfile::Builder::new()
        .prefix(&format!("{name}{UNFINISHED}"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent);
    let made = made.with_context(|| format!("cannot create a directory in {}", parent.display()))?;
    let held = File::open(made.path()).and_then(|held| held.lock().map(|()| held));
    let held = held.with_context(|| format!("cannot lock {}", made.path().display()))?;
    Ok(UnfinishedFolder { made, _held: held })
}

/// Removes unfinished folders of such names, left by interruptions.
pub(super) fn clear_unfinished(parent: &Path, is_ours: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let names = |name: &str| name.split_once(UNFINISHED).is_some_and(|(wanted, _)| is_ours(wanted));
    for path in folders(parent, names)? {
        let Ok(held) = File::open(&path) else { continue };
        // Its writer is active, or locks are unsupported.
        if held.try_lock().is_ok() {
            remove_files(&path)?;
        }
    }
    Ok(())
}

/// Removes a backup; it is renamed first, so that it never looks complete with files missing.
pub(super) fn remove(folder: &Path) -> anyhow::Result<()> {
    let mut name = folder.as_os_str().to_owned();
    name.push(format!("{UNFINISHED}removed"));
    let renamed = PathBuf::from(name);
    fs::rename(folder, &renamed).with_context(|| format!("cannot remove {}", folder.display()))?;
    remove_files(&renamed)
}

/// Removes a folder with a backup's files, and no others.
fn remove_files(folder: &Path) -> anyhow::Result<()> {
    let remove = || {
        for name in FILES {
            match fs::remove_file(folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::remove_dir(folder)
    };
    remove().with_context(|| format!("cannot remove {}", folder.display()))
}

/// The folders in `parent` whose names match.
pub(super) fn folders(parent: &Path, holds: impl Fn(&str) -> bool) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(parent).with_context(|| format!("{} cannot be read", parent.display()))?;
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.filter(|entry| entry.file_name().to_str().is_some_and(&holds)).map(|entry| entry.path()).collect())
}

/// True for a complete backup by its manifest, without other files.
pub(super) fn is_finished(folder: &Path) -> bool {
    let manifest = fs::read(folder.join(MANIFEST)).ok().and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
    let alone = || {
        let mut entries = fs::read_dir(folder).ok()?;
        entries.all(|entry| entry.is_ok_and(|entry| FILES.iter().any(|name| entry.file_name() == *name))).then_some(())
    };
    manifest.is_some() && alone().is_some()
}

/// Writes a file for its owner alone, with fsync.
pub(super) fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text)?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the manifest, which completes the folder.
pub(super) fn seal(unfinished: &UnfinishedFolder, manifest: &Manifest) -> anyhow::Result<()> {
    sync(&unfinished.path().join(DUMP))?;
    let text = serde_json::to_vec_pretty(manifest).context("cannot write the manifest")?;
    write(&unfinished.path().join(MANIFEST), &text)?;
    sync(unfinished.path())
}

/// Renames a complete folder.
pub(super) fn finish(unfinished: UnfinishedFolder, folder: &Path) -> anyhow::Result<()> {
    fs::rename(unfinished.path(), folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Renamed: nothing is left to remove under the old name.
    let _ = unfinished.made.keep();
    sync(parent(folder))
}

fn sync(path: &Path) -> anyhow::Result<()> {
    File::open(path).and_then(|file| file.sync_all()).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_backup() -> (TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("backup");
        let unfinished = create_unfinished(&folder).expect("a folder");
        write(&unfinished.path().join(DUMP), b"dump").expect("written");
        write(&unfinished.path().join(ROLES), b"create role a;\n").expect("written");
        let manifest = Manifest::of(unfinished.path(), 15, Some(130), Some(130)).expect("a manifest");
        seal(&unfinished, &manifest).expect("sealed");
        finish(unfinished, &folder).expect("finished");
        assert_eq!(Manifest::read(&folder).expect("whole"), manifest);
        (dir, folder)
    }

    #[test]
    fn a_damaged_or_unfinished_backup_is_none() {
        let (dir, folder) = make_backup();
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
        assert!(refused(&folder).contains("the unknown format 2"));
        fs::remove_file(folder.join(MANIFEST)).expect("removed");
        assert!(refused(&folder).contains("is not a complete backup"));
        assert!(refused(Path::new("/nowhere")).contains("is not a complete backup"));
    }

    #[test]
    fn a_manifest_names_nothing_else_and_no_part_is_a_link() {
        let (dir, folder) = make_backup();
        let refused = || format!("{:#}", Manifest::read(&folder).expect_err("refused"));
        let whole = fs::read_to_string(folder.join(MANIFEST)).expect("text");
        let outside = dir.path().join("outside");
        fs::copy(folder.join(ROLES), &outside).expect("copied");
        for name in ["../outside", &outside.display().to_string(), "./roles.sql", "roles.sql/", "roles.sql\\u0000", ""]
        {
            fs::write(folder.join(MANIFEST), whole.replace("\"roles.sql\"", &format!("\"{name}\""))).expect("written");
            assert!(refused().contains("is damaged: it names"), "{name}: {}", refused());
        }
        fs::write(folder.join(MANIFEST), &whole).expect("written");
        // The same bytes, by a link; then what would be read for ever, and a folder.
        for part in [ROLES, DUMP, MANIFEST] {
            let (path, kept) = (folder.join(part), dir.path().join(part));
            fs::rename(&path, &kept).expect("moved");
            std::os::unix::fs::symlink(&kept, &path).expect("linked");
            assert!(refused().contains("links are not followed"), "{part}: {}", refused());
            fs::remove_file(&path).expect("removed");
            std::os::unix::fs::symlink("/dev/zero", &path).expect("linked");
            assert!(refused().contains("links are not followed"), "{part}: {}", refused());
            fs::remove_file(&path).expect("removed");
            fs::create_dir(&path).expect("made");
            assert!(refused().contains("it is not a regular file"), "{part}: {}", refused());
            fs::remove_dir(&path).expect("removed");
            fs::rename(&kept, &path).expect("moved");
            Manifest::read(&folder).expect("whole again");
        }
    }

    #[test]
    fn the_folder_around_it_has_to_be_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let refused = create_unfinished(&dir.path().join("none/backup")).expect_err("no folder").to_string();
        assert!(refused.ends_with("/none does not exist: create it first"));
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn only_its_owner_reads_it() {
        let (_dir, folder) = make_backup();
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(ROLES))), (0o700, 0o600));
    }
}
