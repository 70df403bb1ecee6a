//! `callgate mcp wrap`: moves the servers in a host's settings behind the proxy, and back.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;

use crate::mcp::config::{self, ConfigChange};

#[derive(Debug, Args)]
pub(super) struct WrapArgs {
    /// The settings: claude_desktop_config.json, .mcp.json, .cursor/mcp.json, .gemini/settings.json
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Restore the original settings
    #[arg(long, conflicts_with = "options")]
    undo: bool,
    /// Show the change without writing
    #[arg(long)]
    dry_run: bool,
    /// Options of each proxy, after `--`, such as --fail-open reads
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// Rewrites the settings.
pub(super) fn run(args: &WrapArgs) -> anyhow::Result<()> {
    let name = args.config.display();
    // The target of a link is changed, not the link.
    let path = fs::canonicalize(&args.config).with_context(|| format!("cannot read {name}"))?;
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
    if args.options.iter().any(|option| option == "--") {
        bail!("-- is not an option of the proxy");
    }
    let changed = if args.undo { config::unwrap(&text) } else { config::wrap(&text, &program()?, &args.options) };
    let changed = changed.map_err(|problem| anyhow!("{name}: {problem}"))?;
    show(&text, &changed);
    if changed.servers.is_empty() {
        outln!("{name} is unchanged.");
    } else if args.dry_run {
        outln!("{name} would change: {}.", changed.servers.join(", "));
    } else {
        write(&path, &changed.text).with_context(|| format!("cannot write {name}"))?;
        outln!("{name} has changed: {}. Restart its host.", changed.servers.join(", "));
    }
    Ok(())
}

/// This program's path for a host, independent of its search path.
fn program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program's own path")?;
    path.into_os_string().into_string().map_err(|_| anyhow!("this program's own path is not UTF-8"))
}

/// Prints the changed lines; their number stays.
fn show(before: &str, changed: &ConfigChange) {
    for (old, new) in before.lines().zip(changed.text.lines()).filter(|(old, new)| old != new) {
        outln!("- {old}\n+ {new}");
    }
    for (server, reason) in &changed.left {
        outln!("{server} is unchanged: {reason}.");
    }
}

/// Replaces the file atomically, with the same permissions.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().context("it is not a file")?)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(path)?.permissions())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
