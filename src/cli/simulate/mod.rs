//! `callgate simulate`: what learned advice on retries is worth, on a simulated fleet. The same command line gives the
//! same bytes.
//!
//! Advice comes from the product's own retry room: `advise`, `Profiles::learn`, `Health`, `Traits`. Calls do not run
//! through the whole engine: its rules would refuse some of the calls that the flag and the oracle make, and the
//! comparison would be one of rules and not of advice.

mod account;
mod chart;
mod closed;
mod dice;
mod environment;
mod fleet;
mod learner;
mod metrics;
mod policies;
mod predict;
mod queue;
mod report;
mod trap;

use std::{
    fs,
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    environment::{Setting, TOOLS_MIN},
    report::Report,
};

/// Most of each, so that a slip of the finger does not simulate for days.
const SEEDS_MAX: u64 = 100;

/// Simulate a fleet and compare learned advice on retries with a hard-coded flag and with an oracle
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SimulateArgs {
    /// How many fleets to simulate, or which, as a list: `4` or `7,8,9` or `7,`
    #[arg(long, value_name = "N|LIST", default_value = "4", value_parser = read_seeds)]
    seeds: Seeds,
    /// Days to simulate
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: u32,
    /// Sessions that start on a day
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions_per_day: u32,
    /// Tools of the fleet
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(TOOLS_MIN as i64..=500))]
    tools: u16,
    /// How well retries are foretold
    #[arg(long)]
    predict: bool,
    /// What advice is worth once agents obey it
    #[arg(long)]
    closed: bool,
    /// How advice fares when a tool breaks for two days and is mended
    #[arg(long)]
    trap: bool,
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw them to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct Seeds(Vec<u64>);

/// Runs the command on standard output.
///
/// # Errors
/// A file or standard output that cannot be written.
pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<()> {
    let report = simulate(args)?;
    match write!(io::stdout().lock(), "{report}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("the output cannot be written")?,
    }
    if let Some(path) = &args.json {
        save(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    if let Some(path) = &args.svg {
        save(path, &chart::draw(&report))?;
    }
    Ok(())
}

/// Runs the parts that were asked for; all of them when none was named.
fn simulate(args: &SimulateArgs) -> anyhow::Result<Report> {
    let setting = Setting { days: args.days, sessions_per_day: args.sessions_per_day, tools: usize::from(args.tools) };
    let Seeds(seeds) = &args.seeds;
    let all = !(args.predict || args.closed || args.trap);
    let (predict, closed) = (all || args.predict, all || args.closed);
    let fleets = seeds.len() * (usize::from(predict) + usize::from(closed) * closed::CONTENDERS.len());
    let bar = progress(fleets as u64 * u64::from(args.days))?;
    let report = Report {
        setting,
        seeds: seeds.clone(),
        predict: predict.then(|| predict::run(seeds, setting, &bar)),
        closed: closed.then(|| closed::run(seeds, setting, &bar)),
        trap: (all || args.trap).then(|| trap::run(seeds)),
    };
    bar.finish_and_clear();
    Ok(report)
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).map_err(|error| anyhow!("{}: cannot be written: {error}", path.display()))
}

fn read_seeds(text: &str) -> anyhow::Result<Seeds> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| anyhow!("{text:?} is not a whole number"));
    let seeds: Vec<u64> = if text.contains(',') {
        text.split(',').filter(|part| !part.trim().is_empty()).map(number).collect::<anyhow::Result<_>>()?
    } else {
        let n = number(text)?;
        (0..n.min(SEEDS_MAX + 1)).collect()
    };
    if seeds.is_empty() || seeds.len() as u64 > SEEDS_MAX {
        bail!("there have to be 1 to {SEEDS_MAX} seeds");
    }
    Ok(Seeds(seeds))
}

/// A bar over simulated days, where somebody looks at it.
fn progress(days: u64) -> anyhow::Result<ProgressBar> {
    if !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} simulated days, {eta} left");
    Ok(ProgressBar::new(days).with_style(style.context("the progress bar's template")?))
}

#[cfg(test)]
mod tests;
