//! Discovery of PostgreSQL's programs and their version.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::account::{self, Account};
use super::error::PrivatePostgresError;
use super::process::{self, TOOL_MAX};

/// The oldest major version callgate runs.
pub(super) const MAJOR_MIN: u32 = 14;

const PROGRAMS: [&str; 3] = ["postgres", "initdb", "pg_ctl"];

/// Directories of packages with one directory per version: `(parent, prefix of the name, rest of the path)`.
const VERSIONED: [(&str, &str, &str); 9] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/lib", "postgresql", "bin"),
    ("/usr/lib64", "postgresql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
];

/// Directories of packages with a single version.
const PLAIN: [&str; 4] =
    ["/opt/homebrew/opt/postgresql/bin", "/usr/local/opt/postgresql/bin", "/usr/local/pgsql/bin", "/usr/bin"];

/// A PostgreSQL version, such as `15.18`, `17beta1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    /// The major version: 15 for `15.18`.
    pub major: u32,
    /// The whole version as the server writes it.
    pub text: String,
}

impl ServerVersion {
    /// Parses the output of `postgres --version`: `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
    fn parse(answer: &str) -> Option<Self> {
        let text = answer.split_once("(PostgreSQL)")?.1.split_whitespace().next()?.to_owned();
        let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Self { major: digits.parse().ok()?, text })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A directory with every program needed, and their version.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
    pub(super) version: ServerVersion,
}

impl Binaries {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// The programs to use: those in `pg_bin` when given, else the first found that is new enough and fits the cluster.
///
/// `cluster` is the directory and major version of a cluster that exists already.
pub(super) async fn find(
    pg_bin: Option<&Path>,
    cluster: Option<(&Path, u32)>,
    account: Option<&Account>,
) -> Result<Binaries, PrivatePostgresError> {
    let Some(dir) = pg_bin else {
        // Programs on PATH usually fit, which saves the search.
        if let Ok(binaries) = choose(complete(on_path()), cluster, account).await {
            return Ok(binaries);
        }
        return choose(complete(everywhere().await), cluster, account).await;
    };
    let dir = fs::canonicalize(dir).map_err(PrivatePostgresError::io("open --pg-bin", dir))?;
    let missing = missing_programs(&dir);
    if !missing.is_empty() {
        return Err(PrivatePostgresError::PgBinIncomplete { dir, missing: missing.join(", ") });
    }
    if let Some(account) = account
        && let Some(blocking) = account::first_blocking(&dir, account)
    {
        return Err(PrivatePostgresError::Blocked { account: account.name.clone(), dir: blocking, flag: "--pg-bin" });
    }
    choose(vec![dir], cluster, account).await
}

/// Directories to search for programs.
pub(super) async fn everywhere() -> Vec<PathBuf> {
    [on_path(), from_pg_config().await, list_installed()].concat()
}

async fn choose(
    dirs: Vec<PathBuf>,
    cluster: Option<(&Path, u32)>,
    account: Option<&Account>,
) -> Result<Binaries, PrivatePostgresError> {
    let mut refusal = PrivatePostgresError::NotFound;
    let mut other_majors: Vec<String> = Vec::new();
    for dir in dirs {
        if account.is_some_and(|account| account::first_blocking(&dir, account).is_some()) {
            continue;
        }
        let version = match version_of(&dir.join("postgres"), account).await {
            Ok(version) => version,
            Err(error) => {
                if matches!(refusal, PrivatePostgresError::NotFound) {
                    refusal = error;
                }
                continue;
            }
        };
        if version.major < MAJOR_MIN {
            if matches!(refusal, PrivatePostgresError::NotFound) {
                refusal = PrivatePostgresError::TooOld { dir, version };
            }
        } else if cluster.is_some_and(|(_, major)| major != version.major) {
            other_majors.push(format!("{version} in {}", dir.display()));
        } else {
            return Ok(Binaries { dir, version });
        }
    }
    match cluster {
        Some((pgdata, cluster_major)) if !other_majors.is_empty() => Err(PrivatePostgresError::MajorMismatch {
            pgdata: pgdata.to_owned(),
            cluster_major,
            found: other_majors.join(", "),
        }),
        _ => Err(refusal),
    }
}

pub(super) async fn version_of(
    program: &Path,
    account: Option<&Account>,
) -> Result<ServerVersion, PrivatePostgresError> {
    let mut command = process::command(program, account);
    command.arg("--version");
    let output = process::output(command, TOOL_MAX).await.map_err(PrivatePostgresError::io("run", program))?;
    let answer = String::from_utf8_lossy(&output.stdout);
    ServerVersion::parse(&answer).ok_or_else(|| PrivatePostgresError::VersionUnreadable {
        program: program.to_owned(),
        answer: format!("{} {}", answer.trim(), String::from_utf8_lossy(&output.stderr).trim()),
    })
}

fn missing_programs(dir: &Path) -> Vec<&'static str> {
    PROGRAMS.into_iter().filter(|program| !dir.join(program).is_file()).collect()
}

/// The directories with every needed program, without links and duplicates.
fn complete(dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut complete: Vec<PathBuf> = Vec::new();
    for dir in dirs.into_iter().filter(|dir| missing_programs(dir).is_empty()) {
        let dir = fs::canonicalize(&dir).unwrap_or(dir);
        if !complete.contains(&dir) {
            complete.push(dir);
        }
    }
    complete
}

fn on_path() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for dir in std::env::split_paths(&path).filter(|dir| dir.is_absolute()) {
        // PATH may hold a link to `postgres` alone; the other programs are where it points to.
        if let Ok(program) = fs::canonicalize(dir.join("postgres")) {
            dirs.extend(program.parent().map(Path::to_owned));
        }
        dirs.push(dir);
    }
    dirs
}

async fn from_pg_config() -> Vec<PathBuf> {
    let mut pg_config = process::command("pg_config", None);
    pg_config.arg("--bindir");
    let output = process::output(pg_config, TOOL_MAX).await.ok().filter(|output| output.status.success());
    output.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())).into_iter().collect()
}

/// Installation directories of packages, the newest version of each kind first.
fn list_installed() -> Vec<PathBuf> {
    let versioned = VERSIONED.into_iter().flat_map(|(parent, prefix, rest)| {
        newest_first(Path::new(parent), prefix).into_iter().map(move |dir| dir.join(rest))
    });
    versioned.chain(PLAIN.map(PathBuf::from)).collect()
}

/// The directories in `parent` called `prefix` and a version number, the highest number first.
fn newest_first(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(Vec<u32>, PathBuf)> = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(version) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else {
            continue;
        };
        if let Ok(numbers) = version.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>() {
            found.push((numbers, entry.path()));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory with a fake `postgres` of that version.
    fn pretend(parent: &Path, name: &str, version: &str) -> PathBuf {
        let dir = parent.join(name);
        fs::create_dir(&dir).unwrap();
        for program in PROGRAMS {
            let path = dir.join(program);
            fs::write(&path, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        let parse = |answer| ServerVersion::parse(answer).map(|version| (version.major, version.text));
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(parse(debian), Some((15, "15.18".to_owned())));
        assert_eq!(parse("postgres (PostgreSQL) 18beta1"), Some((18, "18beta1".to_owned())));
        assert_eq!(parse("postgres (PostgreSQL) 9.6.24"), Some((9, "9.6.24".to_owned())));
        assert_eq!(parse("something else"), None);
        assert_eq!(parse("postgres (PostgreSQL) devel"), None);
    }

    #[test]
    fn directories_are_ordered_by_number_not_by_letter() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["pg-9.6", "pg-10", "pg-17", "pg-x", "other"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let names: Vec<_> =
            newest_first(parent.path(), "pg-").iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["pg-17", "pg-10", "pg-9.6"]);
    }

    #[tokio::test]
    async fn an_old_one_is_passed_over_and_refused_only_when_alone() {
        let parent = tempfile::tempdir().unwrap();
        let old = pretend(parent.path(), "old", "13.9");
        let new = pretend(parent.path(), "new", "16.2");
        let chosen = choose(vec![old.clone(), new.clone()], None, None).await.unwrap();
        assert_eq!((chosen.dir, chosen.version.major), (new, 16));
        let error = find(Some(&old), None, None).await.unwrap_err();
        assert!(matches!(&error, PrivatePostgresError::TooOld { version, .. } if version.text == "13.9"), "{error}");
        assert!(error.to_string().contains("13.9"), "{error}");
    }

    #[tokio::test]
    async fn an_existing_cluster_decides_the_major_version() {
        let parent = tempfile::tempdir().unwrap();
        let newer = pretend(parent.path(), "newer", "17.1");
        let same = pretend(parent.path(), "same", "15.18");
        let pgdata = Path::new("/data/pg");
        let chosen = choose(vec![newer.clone(), same.clone()], Some((pgdata, 15)), None).await.unwrap();
        assert_eq!(chosen.dir, same);
        let error = choose(vec![newer], Some((pgdata, 15)), None).await.unwrap_err().to_string();
        assert!(error.contains("made by PostgreSQL 15") && error.contains("17.1"), "{error}");
    }

    #[test]
    fn only_complete_directories_count_and_each_once() {
        let parent = tempfile::tempdir().unwrap();
        let whole = fs::canonicalize(pretend(parent.path(), "whole", "17.1")).unwrap();
        let partial = pretend(parent.path(), "partial", "17.1");
        fs::remove_file(partial.join("initdb")).unwrap();
        assert_eq!(missing_programs(&partial), ["initdb"]);
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&whole, &link).unwrap();
        assert_eq!(complete(vec![partial, link, whole.clone()]), [whole]);
    }

    #[tokio::test]
    async fn missing_binaries_error_names_three_remedies() {
        let error = choose(Vec::new(), None, None).await.unwrap_err().to_string();
        for way in ["apt-get install postgresql", "brew install postgresql@17", "--pg-bin", "--database-url"] {
            assert!(error.contains(way), "{way} is missing in: {error}");
        }
    }
}
