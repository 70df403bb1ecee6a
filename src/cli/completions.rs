//! `callgate completions` and `callgate man`: shell completions and man pages, generated from the command line's
//! definition.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::Shell;

/// What `callgate completions` takes.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// What `callgate man` takes.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The folder that the pages are written to; it is made where it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints a shell's completion script.
pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "callgate", &mut script);
    out!("{}", std::str::from_utf8(&script).context("the script is no text")?);
    Ok(())
}

/// Writes one page per command.
pub(super) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let name = args.folder.display();
    std::fs::create_dir_all(&args.folder).with_context(|| format!("cannot make {name}"))?;
    clap_mangen::generate_to(super::command(), &args.folder).with_context(|| format!("cannot write to {name}"))?;
    outln!("{name} has a page for each command: man -l {name}/callgate.1");
    Ok(())
}
