//! Sustained run, reported by minute, for effects that short runs miss.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::{
    run::{Case, RoundFigures, RoundPlan, window},
    server::Servers,
};

/// Reporting interval.
const MINUTE: Duration = Duration::from_secs(60);

/// Result of a sustained run.
#[derive(Debug, Serialize)]
pub(super) struct SustainedResult {
    title: String,
    entrant: String,
    load: super::load::LoadShape,
    /// Figures by minute.
    minutes: Vec<RoundFigures>,
    /// Ratio of the pairs' p99 in the last minute to the first.
    p99_last_to_first: f64,
}

/// Runs the first entrant alone.
pub(super) async fn run(
    case: &Case,
    servers: &mut Servers,
    plan: RoundPlan,
    duration: Duration,
) -> anyhow::Result<SustainedResult> {
    let first = case.entrants.first().context("no server to measure")?.clone();
    let alone = Case { entrants: vec![first.clone()], ..case.clone() };
    let mut seats = alone.start(servers).await?;
    let rate = match case.rate {
        Some(rate) => Some(Case::intended_rate(rate, servers, &mut seats[0], plan).await?),
        None => None,
    };
    let (n, crew) = seats.pop().context("no server to measure")?;
    let mut crew = crew.context("the agents are away")?;
    if let Some(rate) = rate {
        crew.keep_to(rate);
    }
    let load = crew.load();
    outln!("\n{}, {}\n{}", case.title, first.name, load.describe());
    outln!(
        "minute  pairs/s  Evaluate p50  p99 ms   pair p50    p99 ms   server  Postgres us a pair   WAL B a pair  \
         disk sync p99 ms, max"
    );
    let running = crew.begin(plan.warm_up).await?;
    let (mut minutes, mut left) = (Vec::new(), duration);
    while !left.is_zero() {
        let length = left.min(MINUTE);
        let minute = window(servers, n, &running, length).await?;
        outln!("{}", render_minute(minutes.len() + 1, &minute));
        minutes.push(minute);
        left -= length;
    }
    let (_, not_begun) = running.end().await?;
    if let Some(last) = minutes.last_mut() {
        last.not_begun = not_begun;
    }
    let p99 = |minute: Option<&RoundFigures>| minute.map_or(0.0, |minute| minute.pair_us.p99 as f64);
    let p99_last_to_first = p99(minutes.last()) / p99(minutes.first()).max(1.0);
    outln!(
        "p99 of pairs, the last minute to the first: {p99_last_to_first:.2}; {not_begun} pairs are overdue at the end"
    );
    Ok(SustainedResult { title: case.title.clone(), entrant: first.name, load, minutes, p99_last_to_first })
}

fn render_minute(n: usize, minute: &RoundFigures) -> String {
    let ms = |micros: u64| micros as f64 / 1_000.0;
    let known = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let mut text = format!(
        "{n:>6}  {:>7.0}  {:>12.2} {:>7.2}  {:>9.2} {:>9.2}  {:>7} {:>19}  {:>13}  {:>16.2} {:>4.0}",
        minute.pairs_per_s,
        ms(minute.evaluate_us.p50),
        ms(minute.evaluate_us.p99),
        ms(minute.pair_us.p50),
        ms(minute.pair_us.p99),
        known(minute.server()),
        known(minute.postgres()),
        known(minute.wal_bytes_per_pair),
        ms(minute.disk_sync_us.p99),
        ms(minute.disk_sync_us.max),
    );
    for (what, count) in &minute.refused {
        text += &format!("  {what} {count}");
    }
    text
}
