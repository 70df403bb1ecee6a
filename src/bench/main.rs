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

use callgate_client::process::{block_on, print_failure};
use clap::{Parser, Subcommand};

/// The allocator of `callgate`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures callgate: servers under load, and retry advice on a simulated fleet
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure throughput, latency and cost of pairs of Evaluate and Record, with yardsticks in the same run
    Bench(Box<pairs::BenchArgs>),
    /// Compare learned advice on retries with a hard-coded flag on a simulated fleet
    Simulate(simulate::command::SimulateArgs),
    /// Serve a yardstick
    #[command(hide = true)]
    BenchYardstick(pairs::yardstick::YardstickArgs),
    /// Receive and drop a measured server's telemetry
    #[command(hide = true)]
    BenchCollector,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|name| name != "help" && callgate::cli::is_command(&name)) {
        return callgate::cli::main();
    }
    let outcome = match Cli::parse().command {
        Command::Bench(args) => block_on(pairs::run(*args)),
        Command::Simulate(args) => simulate::command::run(&args),
        Command::BenchYardstick(args) => block_on(pairs::yardstick::run(args)),
        Command::BenchCollector => block_on(pairs::collector::run()),
    };
    outcome.map_or_else(|error| print_failure(&error), |()| ExitCode::SUCCESS)
}
