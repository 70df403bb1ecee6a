//! `callgate completions` and `callgate man`: shell completions and man pages, generated from the command line's
//! definition.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::Shell;

/// Arguments of `callgate completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `callgate man`.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints a shell's completion script.
pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "callgate", &mut script);
    out!("{}", std::str::from_utf8(&script).context("the script is not UTF-8")?);
    Ok(())
}

/// Writes one page per command.
pub(super) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let name = args.folder.display();
    std::fs::create_dir_all(&args.folder).with_context(|| format!("cannot create {name}"))?;
    clap_mangen::generate_to(super::command(), &args.folder).with_context(|| format!("cannot write to {name}"))?;
    outln!("Manual pages written to {name}. Read them with: man -l {name}/callgate.1");
    Ok(())
}
