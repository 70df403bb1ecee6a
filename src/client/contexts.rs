//! Contexts file: named servers with their credentials (docs/cli.md#contexts). The program acts on it with the user's
//! rights, so it must not be writable by others, nor readable if it holds a token.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use etcetera::BaseStrategy as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    credential::{Credential, TokenSource},
    json::OutputFormat,
};

/// Mode bits: writable by others than the owner.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bits: any access by others than the owner.
const OTHERS: u32 = 0o077;
/// Mode bit: readable by everyone.
const ALL_READ: u32 = 0o004;

/// Arguments of `callgate contexts`.
#[derive(Debug, Args)]
pub struct ContextsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the contexts of the file
    List {
        #[command(flatten)]
        form: OutputFormat,
    },
    /// Show a context: its server, and the source of its credential
    Show {
        /// The context's name [default: the current one]
        name: Option<String>,
        #[command(flatten)]
        form: OutputFormat,
    },
    /// Select the current context
    Use {
        /// The context's name
        name: String,
        #[command(flatten)]
        form: OutputFormat,
    },
}

/// A server with its credential.
#[derive(Debug)]
pub struct ServerContext {
    pub server: String,
    pub credential: Credential,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, ContextForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextForm {
    server: String,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    token_command: Option<Vec<String>>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// A token, never printed.
#[derive(Deserialize)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token")
    }
}

/// Path of the file, and whether it must exist.
fn path() -> Option<(PathBuf, bool)> {
    if let Some(path) = std::env::var_os("CALLGATE_CONFIG").filter(|path| !path.is_empty()) {
        return Some((path.into(), true));
    }
    let base = etcetera::choose_base_strategy().ok()?;
    Some((base.config_dir().join("callgate/config.yaml"), false))
}

/// The file, if it exists.
fn file() -> anyhow::Result<Option<(PathBuf, String, File)>> {
    let Some((path, is_named)) = path() else { return Ok(None) };
    let name = path.display();
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => return Ok(None),
        text => text.with_context(|| format!("cannot read the file of contexts {name}"))?,
    };
    let file = read(&text).with_context(|| name.to_string())?;
    let mode = fs::metadata(&path).with_context(|| name.to_string())?.permissions().mode();
    if let Some(problem) = find_exposure(&file, mode) {
        bail!("{name}: {problem}: chmod 600 {name}");
    }
    Ok(Some((path, text, file)))
}

fn read(text: &str) -> anyhow::Result<File> {
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    let options = serde_saphyr::options! { strict_booleans: true };
    // The error may quote a token's line, so its text is not shown.
    let read = serde_saphyr::from_str_with_options::<File>(text, options).map_err(|error| {
        let place = error.location().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
        let told = error.without_snippet().to_string();
        anyhow::anyhow!("{place}{told}")
    });
    let file = read?;
    for (name, context) in &file.contexts {
        let ContextForm { token, token_file, token_command, certificate, key, .. } = context;
        let tokens = [token.is_some(), token_file.is_some(), token_command.is_some()];
        if tokens.into_iter().filter(|is_given| *is_given).count() > 1 {
            bail!("contexts.{name}: set only one of token, token_file and token_command");
        }
        if certificate.is_some() != key.is_some() {
            bail!("contexts.{name}: set both certificate and key");
        }
    }
    Ok(file)
}

/// Forbidden access of others to the file.
fn find_exposure(file: &File, mode: u32) -> Option<&'static str> {
    let has_token = file.contexts.values().any(|context| context.token.is_some());
    match mode {
        mode if has_token && mode & OTHERS != 0 => Some("it contains a token, and others may read it"),
        mode if mode & OTHERS_WRITE != 0 => Some("others may write it, and so redirect tokens"),
        _ => None,
    }
}

/// The context of this name.
pub fn load_context(name: &str) -> anyhow::Result<ServerContext> {
    let Some((path, _, file)) = file()? else {
        let path = path().map_or_else(|| "config.yaml".to_owned(), |(path, _)| path.display().to_string());
        bail!("--context {name}: there is no file of contexts at {path}");
    };
    of(&path, file, name)
}

/// The current context with its name, if the file names one.
pub fn current() -> anyhow::Result<Option<(String, ServerContext)>> {
    let Some((path, _, mut file)) = file()? else { return Ok(None) };
    let Some(name) = file.current.take() else { return Ok(None) };
    let context = of(&path, file, &name)?;
    Ok(Some((name, context)))
}

fn of(path: &Path, mut file: File, name: &str) -> anyhow::Result<ServerContext> {
    let Some(form) = file.contexts.remove(name) else { bail!(unknown(path, &file, name)) };
    let credential = form.credential(path).with_context(|| format!("{}: contexts.{name}", path.display()))?;
    Ok(ServerContext { server: form.server, credential })
}

/// The message about an unknown name.
fn unknown(path: &Path, file: &File, name: &str) -> String {
    if !path.exists() {
        return format!("there is no file of contexts at {} (docs/cli.md#contexts)", path.display());
    }
    let known: Vec<&str> = file.contexts.keys().map(String::as_str).collect();
    let known = match known.as_slice() {
        [] => "it has none".to_owned(),
        known => format!("it has {}", known.join(", ")),
    };
    format!("{} has no context {name:?}: {known}", path.display())
}

impl ContextForm {
    fn credential(&self, file: &Path) -> anyhow::Result<Credential> {
        let at = |path: &PathBuf| resolve_path(file, path);
        let token = match self {
            Self { token: Some(Secret(text)), .. } => Some(TokenSource::Text(text.clone())),
            Self { token_file: Some(path), .. } => Some(TokenSource::File(check_file_mode(at(path))?)),
            Self { token_command: Some(words), .. } => Some(TokenSource::Command(words.clone())),
            _ => None,
        };
        let identity = self.certificate.as_ref().zip(self.key.as_ref());
        let identity = identity.map(|(certificate, key)| (at(certificate), at(key)));
        Ok(Credential { token, ca: self.ca.as_ref().map(at), identity })
    }

    /// Its credential for display, without secrets.
    fn shows(&self) -> String {
        let token = match self {
            Self { token: Some(_), .. } => Some("a token in the file"),
            Self { token_file: Some(_), .. } => Some("a token file"),
            Self { token_command: Some(_), .. } => Some("a token command"),
            _ => None,
        };
        let certificate = self.certificate.as_ref().map(|_| "a certificate");
        let shown: Vec<&str> = token.into_iter().chain(certificate).collect();
        if shown.is_empty() { "no credential".to_owned() } else { shown.join(" and ") }
    }

    fn as_json(&self, name: &str, is_current: bool) -> Value {
        let token = match self {
            Self { token: Some(_), .. } => Some("TEXT"),
            Self { token_file: Some(_), .. } => Some("FILE"),
            Self { token_command: Some(_), .. } => Some("COMMAND"),
            _ => None,
        };
        json!({"name": name, "current": is_current, "server": self.server, "token": token,
            "tokenFile": self.token_file, "tokenCommand": self.token_command.as_deref().unwrap_or_default(),
            "ca": self.ca, "certificate": self.certificate, "key": self.key})
    }
}

/// A path in the file, relative to its folder or the user's home.
fn resolve_path(file: &Path, path: &Path) -> PathBuf {
    let path = match (path.strip_prefix("~"), etcetera::home_dir()) {
        (Ok(rest), Ok(home)) => home.join(rest),
        _ => path.to_owned(),
    };
    file.parent().map_or(path.clone(), |folder| folder.join(&path))
}

/// Checks that a token file is not readable by everyone.
fn check_file_mode(path: PathBuf) -> anyhow::Result<PathBuf> {
    let name = path.display();
    let is = fs::metadata(&path).with_context(|| format!("token_file {name}"))?;
    if is.is_file() && is.permissions().mode() & ALL_READ != 0 {
        bail!("token_file {name}: every user of this machine may read it: chmod 600 {name}");
    }
    Ok(path)
}

/// Runs `callgate contexts`.
pub fn run(args: &ContextsArgs) -> anyhow::Result<()> {
    let place = path().map_or_else(|| "config.yaml".to_owned(), |(path, _)| path.display().to_string());
    let (path, text, file) = file()?.unwrap_or_else(|| (place.clone().into(), String::new(), File::default()));
    let current = file.current.as_deref();
    match &args.action {
        Action::List { form } if form.json => {
            let contexts = file.contexts.iter();
            contexts.for_each(|(name, context)| outln!("{}", context.as_json(name, current == Some(name))));
        }
        Action::List { .. } => {
            if file.contexts.is_empty() {
                outln!("No contexts: add them to {place} (docs/cli.md#contexts).");
            }
            let widest = file.contexts.keys().map(|name| name.chars().count()).max().unwrap_or_default();
            for (name, context) in &file.contexts {
                let mark = if current == Some(name) { '*' } else { ' ' };
                outln!("{mark} {name:<widest$}  {}  ({})", context.server, context.shows());
            }
        }
        Action::Show { name, form } => {
            let name = name.as_deref().or(current).with_context(|| {
                format!("{place} has no current context: pass a name, or select one with `callgate contexts use NAME`")
            })?;
            let context = file.contexts.get(name).with_context(|| unknown(&path, &file, name))?;
            if form.json {
                outln!("{}", context.as_json(name, current == Some(name)));
                return Ok(());
            }
            let credential = context.credential(&path)?;
            outln!("{name}{}", if current == Some(name) { "  (current)" } else { "" });
            outln!("  server       {}", context.server);
            credential.token.iter().for_each(|token| outln!("  token        {}", token.origin()));
            credential.ca.iter().for_each(|ca| outln!("  ca           {}", ca.display()));
            credential.identity.iter().for_each(|(certificate, key)| {
                outln!("  certificate  {}", certificate.display());
                outln!("  key          {}", key.display());
            });
        }
        Action::Use { name, form } => {
            let context = file.contexts.get(name).with_context(|| unknown(&path, &file, name))?;
            replace(&path, &with_current(&text, name)?)?;
            match form.json {
                true => outln!("{}", context.as_json(name, true)),
                false => outln!("{name} is the current context"),
            }
        }
    }
    Ok(())
}

/// The text with another current context, otherwise unchanged.
fn with_current(text: &str, name: &str) -> anyhow::Result<String> {
    let line = format!("current: {}", Value::from(name));
    let is_current = |line: &&str| line.starts_with("current:");
    let changed = match text.lines().find(is_current) {
        Some(old) => text.replacen(old, &line, 1),
        None => format!("{line}\n{text}"),
    };
    if read(&changed)?.current.as_deref() != Some(name) {
        bail!("cannot find the line `current:`: change it by hand");
    }
    Ok(changed)
}

/// Replaces the file atomically, with the same permissions.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    // The target of a link is changed, not the link.
    let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let written = || -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().context("it is not a file")?)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
        file.persist(&path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\ncontexts:\n  prod: {server: 'https://p:7600', token_file: p.token}\n  dev:\n    \
                        server: unix:/run/s\n    token: cg_s3cret\n";

    #[test]
    fn error_does_not_hold_the_token() {
        let file = read(TEXT).expect("a good file");
        assert!(!format!("{file:?}").contains("s3cret"));
        for (text, why) in [
            ("contexts: {a: {servr: x}}", "servr"),
            ("contexts: {a: {token: cg_s3cret}}", "server"),
            ("contexts: {a: {server: x, token: cg_s3cret, token_file: f}}", "contexts.a: set only one of"),
            ("contexts: {a: {server: x, key: f}}", "contexts.a: set both certificate and key"),
            ("contexts: {a: {server: x, token: [cg_s3cret]}}", "line 1"),
        ] {
            let error = format!("{:#}", read(text).expect_err(text));
            assert!(error.contains(why) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn others_neither_read_tokens_nor_say_where_they_go() {
        let file = read(TEXT).expect("a good file");
        assert_eq!(find_exposure(&file, 0o100_600), None);
        assert!(find_exposure(&file, 0o100_640).is_some_and(|problem| problem.contains("read")));
        let without = read("contexts: {a: {server: x}}").expect("a good file");
        assert_eq!(find_exposure(&without, 0o100_644), None);
        assert!(find_exposure(&without, 0o100_664).is_some_and(|problem| problem.contains("write")));
    }

    #[test]
    fn another_current_context_changes_one_line() {
        let dev = with_current(TEXT, "dev").expect("changed");
        assert_eq!(dev, format!("current: \"dev\"\n{TEXT}"));
        assert_eq!(with_current(&dev, "prod").expect("changed"), format!("current: \"prod\"\n{TEXT}"));
        assert!(with_current("{current: dev, contexts: {dev: {server: x}, prod: {server: x}}}", "prod").is_err());
    }

    #[test]
    fn paths_are_those_of_the_files_folder() {
        let at = |path: &str| resolve_path(Path::new("/etc/callgate/config.yaml"), Path::new(path));
        assert_eq!(at("p.token"), Path::new("/etc/callgate/p.token"));
        assert_eq!(at("/run/p.token"), Path::new("/run/p.token"));
        assert!(at("~/p.token").is_absolute() && !at("~/p.token").to_string_lossy().contains('~'));
    }
}
