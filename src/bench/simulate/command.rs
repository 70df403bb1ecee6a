//! `callgate simulate`: value of learned retry advice on a simulated fleet.

use std::{
    fs,
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use callgate_client::progress::Progress;

use super::{Setting, SimulationPlan, TOOLS_MIN};

/// Maximum number of fleets, against typos.
const SEEDS_MAX: u64 = 100;

/// Simulate a fleet and compare learned advice on retries with a hard-coded flag and with an oracle
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Number of fleets to simulate, or a list of their seeds: `4` or `7,8,9` or `7,`
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
    /// Percentage of tools with undeclared effects: the model calls them again after a timeout or an internal
    /// error
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    undeclared: u8,
    /// Report the accuracy of the estimates of retries
    #[arg(long)]
    predict: bool,
    /// Report the value of advice that agents obey
    #[arg(long)]
    closed: bool,
    /// Report the value of advice on a tool that is down for two days and then recovers
    #[arg(long)]
    trap: bool,
    /// Report calls refused and done where providers limit the rate
    #[arg(long)]
    pacing: bool,
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct Seeds(Vec<u64>);

/// Runs the command on standard output.
///
/// # Errors
/// A file or standard output that cannot be written.
pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<()> {
    let plan = plan(args);
    let progress = Progress::new(if io::stderr().is_terminal() { plan.days() } else { 0 });
    let report = plan.run(&|days| progress.add(days));
    progress.clear();
    match write!(io::stdout().lock(), "{report}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("the output cannot be written")?,
    }
    if let Some(path) = &args.json {
        save(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(())
}

/// The requested parts; all of them by default.
fn plan(args: &SimulateArgs) -> SimulationPlan {
    let all = !(args.predict || args.closed || args.trap || args.pacing);
    SimulationPlan {
        setting: Setting {
            days: args.days,
            sessions_per_day: args.sessions_per_day,
            tools: usize::from(args.tools),
            undeclared: f64::from(args.undeclared) / 100.0,
        },
        seeds: args.seeds.0.clone(),
        predict: all || args.predict,
        closed: all || args.closed,
        trap: all || args.trap,
        pacing: all || args.pacing,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_list() {
        let seeds = |text: &str| read_seeds(text).ok().map(|seeds| seeds.0);
        assert_eq!(seeds("3"), Some(vec![0, 1, 2]));
        assert_eq!(seeds("7, 9"), Some(vec![7, 9]));
        assert_eq!(seeds("7,"), Some(vec![7]));
        assert_eq!([seeds("0"), seeds(","), seeds("x"), seeds("-1"), seeds("101")], [const { None }; 5]);
    }
}
