//! `callgate-bench`: measures callgate. `bench` compares servers under load, `simulate` compares retry advice on a
//! simulated fleet.
//!
//! Every command of `callgate` works here too: a bench starts this program as its server, so that the client and the
//! server are one build.

#[macro_use]
extern crate callgate_client;

mod pairs;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The allocator of `callgate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures callgate: servers under load, and retry advice on a simulated fleet.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what a pair of Evaluate and Record costs, beside yardsticks
    Bench(Box<pairs::BenchArgs>),
    /// Compare learned advice on retries with a hard-coded flag, on a simulated fleet
    Simulate(simulate::command::SimulateArgs),
    /// Serve a yardstick
    #[command(hide = true)]
    BenchYardstick(pairs::yardstick::YardstickArgs),
    /// Receive a measured server's telemetry, and drop it
    #[command(hide = true)]
    BenchCollector,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|name| name != "help" && callgate::cli::is_command(&name)) {
        return callgate::cli::main();
    }
    let outcome = match Cli::parse().command {
        Command::Bench(args) => run(pairs::run(*args)),
        Command::Simulate(args) => simulate::command::run(&args),
        Command::BenchYardstick(args) => run(pairs::yardstick::run(args)),
        Command::BenchCollector => run(pairs::collector::run()),
    };
    outcome.map_or_else(|error| callgate_client::process::print_failure(&error), |()| ExitCode::SUCCESS)
}

fn run(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    callgate_client::process::runtime()?.block_on(command)
}
