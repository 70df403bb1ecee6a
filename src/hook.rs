//! `callgate-hook`: the command `callgate hook` as a program of its own. A hook is started for each event, and most of
//! its start is the loader's work on the whole program (docs/hooks.md#latency).

use clap::Parser;

/// Answers the hooks of a coding agent, as `callgate hook` does
#[derive(Debug, Parser)]
#[command(name = "callgate-hook", version, about)]
struct HookCli {
    #[command(flatten)]
    args: callgate_agent::hook::HookArgs,
}

fn main() -> std::process::ExitCode {
    callgate_agent::hook::run(&HookCli::parse().args)
}
