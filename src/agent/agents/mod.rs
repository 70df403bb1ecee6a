//! `callgate agents`: callgate's hooks in the settings of coding agents (docs/agents.md#the-settings-file).
//! Changes are computed by modules without I/O: `plan.rs`, `settings.rs`, `change.rs`.

mod change;
mod file;
mod host;
mod list;
mod plan;
mod probe;
mod sample;
mod settings;
#[cfg(test)]
mod tests;
mod version;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use etcetera::BaseStrategy as _;

pub(crate) use self::file::replace_file;
use self::{
    file::SettingsFile,
    host::{SettingsFolders, SettingsScope},
    plan::{HTTP_PATH, HookTransport, SettingsPlan, is_ours},
    settings::HostSettings,
};
use crate::{
    host::{FailOpen, HOOK_PROGRAM},
    hosts::Host,
};
use callgate_client::{
    json::OutputFormat,
    remote::{Remote, TOKEN},
};

/// Arguments of `callgate agents`.
#[derive(Debug, Args)]
pub struct AgentsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Install hooks in a host's settings, and test them with a harmless call
    Install(InstallArgs),
    /// List the installed hosts and the hooks in their settings
    List {
        #[command(flatten)]
        form: OutputFormat,
        #[command(flatten)]
        remote: Remote,
    },
    /// Remove the hooks; an otherwise unchanged file gets its original bytes back
    Uninstall {
        /// The host [default: every host]
        host: Option<Host>,
        #[command(flatten)]
        target: Target,
    },
}

/// Settings file of the host.
#[derive(Debug, Clone, Copy, Args)]
struct Target {
    /// Use the user's settings, for all projects (default)
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// Use the settings of the current project
    #[arg(long)]
    project: bool,
    /// Show the change without writing
    #[arg(long)]
    dry_run: bool,
}

impl Target {
    fn scope(self) -> SettingsScope {
        if self.project { SettingsScope::Project } else { SettingsScope::User }
    }
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// The host
    host: Host,
    #[command(flatten)]
    target: Target,
    /// Install HTTP hooks, which need no program on this machine: Claude Code only
    #[arg(long, conflicts_with_all = ["agent", "fail_open", "grant"])]
    http: bool,
    /// Install HTTP hooks even if the host's version is unknown, or runs tools while the server is unavailable
    #[arg(long, requires = "http")]
    any_version: bool,
    /// Skip the test of the hooks
    #[arg(long)]
    no_test: bool,
    /// The agent's name, for budgets and approvals
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Run tools while the server is unavailable: all of them, or only reads
    #[arg(long, value_name = "WHICH", num_args = 0..=1, default_missing_value = "all", value_enum)]
    fail_open: Option<FailOpen>,
    /// Skip the host's own prompt for calls that callgate allows
    #[arg(long = "skip-host-prompt")]
    grant: bool,
    /// The program to install instead of this one
    #[arg(long, value_name = "FILE", hide = true)]
    command: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

/// Runs the command.
pub async fn run(args: AgentsArgs) -> anyhow::Result<()> {
    match args.action {
        Action::Install(args) => install(&args).await,
        Action::List { form, remote } => list::list(form, &remote).await,
        Action::Uninstall { host, target } => uninstall(host, target),
    }
}

async fn install(args: &InstallArgs) -> anyhow::Result<()> {
    let host = args.host;
    let plan = SettingsPlan::new(host, &choose_transport(args).await?);
    if !plan.handlers.iter().all(|(_, json)| is_ours(host, &plan::value(json))) {
        bail!("callgate's hooks could not be recognized later: the program must be named callgate");
    }
    let places = places()?;
    let path = places.file(host, args.target.scope());
    let file = SettingsFile::open(&path, &state()?)?;
    let named = || path.display().to_string();
    let changed = change::with(&plan, file.text.as_deref(), file.memory.as_ref()).with_context(named)?;
    match &changed {
        Some((_, after)) => show(&path, file.text.as_deref(), Some(after)),
        None => outln!("{}: all hooks are installed", path.display()),
    }
    if args.target.dry_run {
        outln!("nothing was written (--dry-run)");
        return Ok(());
    }
    if let Some((before, after)) = changed {
        file.install(before, &after)?;
        outln!("{}: written", path.display());
    }
    for caution in cautions(args, &places)? {
        outln!("note: {caution}");
    }
    if args.no_test {
        return Ok(());
    }
    let shown = probe::probe(host, &path, &env::current_dir()?, &args.remote).await?;
    outln!("test: {}", shown.words);
    if !shown.works {
        bail!(
            "the hooks of {} are installed, but do not work yet; `callgate agents install` tests them again",
            host.title()
        );
    }
    Ok(())
}

/// The connection from hooks to callgate.
async fn choose_transport(args: &InstallArgs) -> anyhow::Result<HookTransport> {
    if !args.http {
        let program = match &args.command {
            Some(path) => std::path::absolute(path)?,
            None => hook_program(own_path()?),
        };
        let text = program.into_os_string().into_string();
        let program = text.map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))?;
        return Ok(HookTransport::Command { program, args: hook_args(args)? });
    }
    if args.host != Host::ClaudeCode {
        bail!("--http: {} has no HTTP hooks; omit --http", args.host.title());
    }
    let told = version::told_by(args.host.facts().program).await;
    if let Some(objection) = version::objection(told.as_deref()).filter(|_| !args.any_version) {
        bail!("--http: {objection}; omit --http to install command hooks, or add --any-version");
    }
    let server = args.remote.server()?.trim_end_matches('/');
    if !server.starts_with("http") || !args.remote.shows_no_file()? {
        bail!(
            "--http: HTTP hooks need an http:// or https:// server with a public authority, and the token in {TOKEN}"
        );
    }
    let shows_token = args.remote.is_elsewhere()? || args.remote.is_named_by_credential()?;
    Ok(HookTransport::Http { url: format!("{server}{HTTP_PATH}"), shows_token })
}

fn hook_args(args: &InstallArgs) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    words.extend(args.agent.iter().flat_map(|name| ["--agent".to_owned(), name.clone()]));
    words.extend(
        args.fail_open
            .and_then(|which| which.to_possible_value())
            .map(|which| format!("--fail-open={}", which.get_name())),
    );
    words.extend(args.grant.then(|| "--skip-host-prompt".to_owned()));
    words.extend(args.remote.args()?);
    Ok(words)
}

/// Warnings and remaining steps for the user.
fn cautions(args: &InstallArgs, places: &SettingsFolders) -> anyhow::Result<Vec<String>> {
    let mut cautions = vec![args.host.facts().caution.to_owned()];
    let scope = args.target.scope();
    let other = if scope == SettingsScope::User { SettingsScope::Project } else { SettingsScope::User };
    let [path, other] = [scope, other].map(|scope| places.file(args.host, scope));
    let settings = |path: &Path| -> Option<HostSettings> {
        HostSettings::read(args.host, &std::fs::read_to_string(path).ok()?).ok()
    };
    if let Some(obstacle) = settings(&path).and_then(|settings| settings.obstacle()) {
        cautions.push(obstacle.to_owned());
    }
    let is_twice = settings(&other).is_some_and(|settings| settings.handlers().iter().any(|handler| handler.is_ours));
    if is_twice && path != other {
        cautions.push(format!("{} has callgate's hooks too: each call is judged twice", other.display()));
    }
    if args.http {
        cautions.push("HTTP hooks get no SessionStart: the summary after a compaction comes with the next call".into());
        let token = format!("Claude Code must be started with the token in {TOKEN}");
        cautions.extend((args.remote.is_elsewhere()? || args.remote.is_named_by_credential()?).then_some(token));
    } else if args.remote.needs_environment()? {
        cautions.push(format!("{} must be started with the token in {TOKEN}", args.host.title()));
    }
    Ok(cautions)
}

fn uninstall(host: Option<Host>, target: Target) -> anyhow::Result<()> {
    let (places, state) = (places()?, state()?);
    for host in host.map_or_else(|| Host::ALL.to_vec(), |host| vec![host]) {
        let path = places.file(host, target.scope());
        let file = SettingsFile::open(&path, &state)?;
        let text = file.text.as_deref();
        let left = change::without(host, text, file.memory.as_ref()).with_context(|| path.display().to_string())?;
        if left.as_deref() == text {
            outln!("{}: no hooks of callgate", path.display());
            continue;
        }
        show(&path, text, left.as_deref());
        if target.dry_run {
            outln!("nothing was written (--dry-run)");
            continue;
        }
        file.uninstall(left.as_deref())?;
        outln!("{}: {}", path.display(), if left.is_some() { "written" } else { "removed" });
    }
    Ok(())
}

/// Prints the diff, in colors on a terminal.
fn show(path: &Path, before: Option<&str>, after: Option<&str>) {
    for line in change::diff(&path.display().to_string(), before, after).lines() {
        let colour = match line.chars().next() {
            Some('+') => Style::new().fg_color(Some(AnsiColor::Green.into())),
            Some('-') => Style::new().fg_color(Some(AnsiColor::Red.into())),
            _ => Style::new(),
        };
        outln!("{colour}{line}{colour:#}");
    }
}

fn places() -> anyhow::Result<SettingsFolders> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let here = env::current_dir().context("cannot find the current directory")?;
    let project = here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here);
    Ok(SettingsFolders {
        home: etcetera::home_dir().context("the home directory is unknown; set HOME")?,
        project: project.to_owned(),
        claude: set("CLAUDE_CONFIG_DIR"),
        codex: set("CODEX_HOME"),
        gemini: set("GEMINI_CLI_HOME"),
    })
}

/// The folder of memories.
fn state() -> anyhow::Result<PathBuf> {
    let base = etcetera::choose_base_strategy().context("the home directory is unknown; set HOME")?;
    Ok(base.state_dir().unwrap_or_else(|| base.data_dir()).join("callgate/agents"))
}

/// [`HOOK_PROGRAM`] if this folder has it in the same version, otherwise this program.
fn hook_program(own: PathBuf) -> PathBuf {
    let small = own.with_file_name(HOOK_PROGRAM);
    let version = Command::new(&small).arg("--version").output();
    let expected = concat!("callgate-hook ", env!("CARGO_PKG_VERSION"), "\n");
    if version.is_ok_and(|output| output.stdout == expected.as_bytes()) { small } else { own }
}

/// The program's path as invoked: a name on the search path survives an upgrade, its target may not.
pub(crate) fn own_path() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot find this program's own path")?;
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut named = env::split_paths(&folders).map(|folder| folder.join("callgate")).filter(|path| path.is_absolute());
    let canonical = own.canonicalize().ok();
    Ok(named.find(|path| canonical.is_some() && path.canonicalize().ok() == canonical).unwrap_or(own))
}
