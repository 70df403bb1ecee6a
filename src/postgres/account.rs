//! Account of the database: PostgreSQL refuses to run as root.

use std::fs::{self, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::PrivatePostgresError;
use super::process::{self, TOOL_MAX};

/// The account of callgate's own.
const OWN: &str = "callgate";

/// Fallback accounts, in order; other programs run as them, too.
const SHARED: [&str; 2] = ["postgres", "nobody"];

/// Lock during the creation of the account, which only root can open.
const MAKING: &str = "/run/callgate-account.lock";

/// Commands that create the account: of shadow-utils, of busybox.
const MAKERS: [(&str, &[&str]); 2] = [
    (
        "useradd",
        &[
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/usr/sbin/nologin",
            OWN,
        ],
    ),
    ("adduser", &["-S", "-D", "-H", "-h", "/nonexistent", "-s", "/sbin/nologin", OWN]),
];

const EXECUTE_OWNER: u32 = 0o100;
const EXECUTE_GROUP: u32 = 0o010;
const EXECUTE_OTHERS: u32 = 0o001;

/// An unprivileged account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Makes a folder traversable for every account, because as root the database runs as another one.
///
/// # Errors
/// The folder's mode cannot be changed.
pub fn open_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// True when this process acts as root.
pub(super) fn is_root() -> bool {
    effective_uid() == Some(0)
}

pub(super) fn effective_uid() -> Option<u32> {
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        // "Uid:  real  effective  saved  filesystem"
        let line = status.lines().find(|line| line.starts_with("Uid:"))?;
        return line.split_whitespace().nth(2)?.parse().ok();
    }
    let output = std::process::Command::new("id").arg("-u").output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// The account to drop to.
#[derive(Debug)]
pub(super) struct AccountChoice {
    /// `None` when callgate is not root and everything runs as its own user.
    pub(super) account: Option<Account>,
    /// Current owner of the cluster, if different.
    pub(super) former: Option<Account>,
}

/// A new cluster gets callgate's own account, created if possible. An existing cluster keeps its owner, unless that is
/// a shared account.
pub(super) async fn choose(pgdata: &Path) -> Result<AccountChoice, PrivatePostgresError> {
    if !is_root() {
        return Ok(AccountChoice { account: None, former: None });
    }
    let owner = match fs::metadata(pgdata) {
        Ok(meta) if meta.uid() != 0 => Some(account_of(&meta).await),
        _ => None,
    };
    if let Some(owner) = &owner
        && !SHARED.contains(&owner.name.as_str())
    {
        return Ok(AccountChoice { account: Some(owner.clone()), former: None });
    }
    if let Some(own) = current_account().await {
        return Ok(AccountChoice { account: Some(own), former: owner });
    }
    let account = match owner {
        Some(owner) => owner,
        None => find_shared().await.ok_or(PrivatePostgresError::NoAccount)?,
    };
    tracing::warn!(
        account = account.name,
        "the private PostgreSQL runs as an account that other programs share: create a user `{OWN}` for it"
    );
    Ok(AccountChoice { account: Some(account), former: None })
}

async fn account_of(meta: &Metadata) -> Account {
    let (uid, gid) = (meta.uid(), meta.gid());
    let name = passwd_entry(&uid.to_string()).await.map_or_else(|| uid.to_string(), |account| account.name);
    Account { name, uid, gid }
}

async fn current_account() -> Option<Account> {
    if let Some(account) = find_unprivileged(OWN).await {
        return Some(account);
    }
    // One callgate at a time: accounts of one name that are made at once have been seen to replace each other.
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(MAKING).ok()?;
    lock.lock().ok()?;
    if let Some(account) = find_unprivileged(OWN).await {
        return Some(account);
    }
    for (program, arguments) in MAKERS {
        let mut command = process::command(program, None);
        command.args(arguments);
        let made = process::output(command, TOOL_MAX).await.is_ok_and(|output| output.status.success());
        if let Some(account) = find_unprivileged(OWN).await {
            if made {
                tracing::info!(account = OWN, "created a system user for the private PostgreSQL");
            }
            return Some(account);
        }
    }
    None
}

async fn find_shared() -> Option<Account> {
    for name in SHARED {
        if let Some(account) = find_unprivileged(name).await {
            return Some(account);
        }
    }
    None
}

async fn find_unprivileged(name: &str) -> Option<Account> {
    passwd_entry(name).await.filter(|account| account.uid != 0)
}

/// The entry of a user, by name or number: from `getent` (which supports LDAP), otherwise from /etc/passwd.
async fn passwd_entry(key: &str) -> Option<Account> {
    let mut getent = process::command("getent", None);
    getent.args(["passwd", key]);
    if let Ok(output) = process::output(getent, TOOL_MAX).await
        && output.status.success()
    {
        return parse_passwd(&String::from_utf8_lossy(&output.stdout), key);
    }
    parse_passwd(&fs::read_to_string("/etc/passwd").ok()?, key)
}

fn parse_passwd(text: &str, key: &str) -> Option<Account> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let account = Account { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? };
        (name == key || uid == key).then_some(account)
    })
}

/// The first directory, from the root down to `path` itself, that `account` cannot pass through.
///
/// Reads the mode bits only: access granted by an ACL is not seen.
pub(super) fn first_blocking(path: &Path, account: &Account) -> Option<PathBuf> {
    let mut steps: Vec<&Path> = path.ancestors().filter(|step| !step.as_os_str().is_empty()).collect();
    steps.reverse();
    let blocking = |step: &&&Path| fs::metadata(step).is_ok_and(|meta| meta.is_dir() && !may_pass(&meta, account));
    steps.iter().find(blocking).map(|step| step.to_path_buf())
}

fn may_pass(meta: &Metadata, account: &Account) -> bool {
    let needed = if meta.uid() == account.uid {
        EXECUTE_OWNER
    } else if meta.gid() == account.gid {
        EXECUTE_GROUP
    } else {
        EXECUTE_OTHERS
    };
    meta.mode() & needed != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n# remark\nbroken\npostgres:x:101:104:,,,:/var/lib:/bin/sh\n";

    #[test]
    fn an_entry_is_found_by_name_and_by_number() {
        let postgres = Account { name: "postgres".to_owned(), uid: 101, gid: 104 };
        assert_eq!(parse_passwd(PASSWD, "postgres"), Some(postgres.clone()));
        assert_eq!(parse_passwd(PASSWD, "101"), Some(postgres));
        assert_eq!(parse_passwd(PASSWD, "nobody"), None);
    }

    #[test]
    fn the_first_closed_directory_is_named() {
        let base = tempfile::tempdir().unwrap();
        let closed = base.path().join("closed");
        let inner = closed.join("inner");
        fs::create_dir_all(&inner).unwrap();
        for path in [base.path(), &inner] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let owner = fs::metadata(&closed).unwrap();
        let stranger = Account { name: "stranger".to_owned(), uid: owner.uid() + 1, gid: owner.gid() + 1 };
        assert_eq!(first_blocking(&inner, &stranger), Some(closed.clone()));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(first_blocking(&inner, &stranger), None);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o701)).unwrap();
        let grouped = Account { name: "grouped".to_owned(), uid: owner.uid() + 1, gid: owner.gid() };
        assert_eq!(first_blocking(&inner, &grouped), Some(closed), "the group's bits decide, not the others'");
    }
}
