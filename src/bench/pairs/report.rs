//! Text report of a benchmark.

use std::fmt::Write as _;

use super::{
    run::{Baseline, CaseOutcome, EntrantRounds, RoundFigures},
    tally::Percentiles,
};

/// The median; the upper one of an even number.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The table of a case.
pub(super) fn table(outcome: &CaseOutcome) -> String {
    let mut text = String::new();
    let bold = anstyle::Style::new().bold();
    let (rounds, seconds) = (outcome.plan.rounds, outcome.plan.round.as_secs_f64());
    let _ = writeln!(text, "\n{bold}{}{bold:#}", outcome.title);
    let one_load = outcome.entrants.windows(2).all(|pair| pair[0].load == pair[1].load);
    let loads = if one_load { &outcome.entrants[..1] } else { &outcome.entrants[..] };
    for entrant in loads {
        let name = if one_load { String::new() } else { format!("{}: ", entrant.name) };
        let _ = writeln!(text, "{name}{}", entrant.load.describe());
    }
    let _ = writeln!(text, "medians of {rounds} rounds of {seconds} s, in turns");
    let width = outcome.entrants.iter().map(|entrant| entrant.name.len()).max().unwrap_or_default().max(10);
    let _ = writeln!(
        text,
        "\n{:width$}  {:>8} {:>15}  {:>17}  {:>17}  {:>27}  {:>9}\n{:width$}  {:>8} {:>15}  {:>8} {:>8}  {:>8} {:>8}  \
         {:>8} {:>8} {:>9}  {:>9}",
        "",
        "pairs",
        "",
        "Evaluate, ms",
        "Record, ms",
        "processor time, us a pair",
        "WAL",
        "",
        "a second",
        "least - most",
        "p50",
        "p99",
        "p50",
        "p99",
        "client",
        "server",
        "Postgres",
        "B a pair"
    );
    for entrant in &outcome.entrants {
        let _ = writeln!(text, "{}", row(entrant, width));
    }
    text += &disk(outcome);
    text += &ratios(outcome);
    for entrant in &outcome.entrants {
        text += &more(entrant);
    }
    text
}

fn row(entrant: &EntrantRounds, width: usize) -> String {
    let of = |what: fn(&RoundFigures) -> f64| median(entrant.rounds.iter().map(what).collect());
    let known = |what: fn(&RoundFigures) -> Option<f64>| {
        let known: Vec<f64> = entrant.rounds.iter().filter_map(what).collect();
        if known.is_empty() { "-".to_owned() } else { format!("{:.0}", median(known)) }
    };
    let rates = entrant.rounds.iter().map(|round| round.pairs_per_s);
    let (least, most) = rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    format!(
        "{:width$}  {:>8.0} {:>15}  {:>8.2} {:>8.2}  {:>8.2} {:>8.2}  {:>8} {:>8} {:>9}  {:>9}",
        entrant.name,
        of(|round| round.pairs_per_s),
        format!("{least:.0} - {most:.0}"),
        of(|round| round.evaluate_us.p50 as f64 / 1_000.0),
        of(|round| round.evaluate_us.p99 as f64 / 1_000.0),
        of(|round| round.record_us.p50 as f64 / 1_000.0),
        of(|round| round.record_us.p99 as f64 / 1_000.0),
        known(|round| round.cpu(|kind| kind == "client")),
        known(RoundFigures::server),
        known(RoundFigures::postgres),
        known(|round| round.wal_bytes_per_pair),
    )
}

/// Disk sync latency over all entrants.
fn disk(outcome: &CaseOutcome) -> String {
    let rounds = || outcome.entrants.iter().flat_map(|entrant| &entrant.rounds).map(|round| round.disk_sync_us);
    let of = |what: fn(Percentiles) -> u64| median(rounds().map(|sync| what(sync) as f64 / 1_000.0).collect());
    let longest = rounds().map(|sync| sync.max).max().unwrap_or_default() as f64 / 1_000.0;
    let (p50, p99) = (of(|sync| sync.p50), of(|sync| sync.p99));
    format!("the disk makes one page durable in {p50:.2} ms, p99 {p99:.2}, longest {longest:.0}\n")
}

/// Comparisons: median and spread of the rounds' ratios.
fn ratios(outcome: &CaseOutcome) -> String {
    let pairs: Vec<(&EntrantRounds, &EntrantRounds)> = match (outcome.held, outcome.entrants.as_slice()) {
        (Baseline::FirstToEach, [first, others @ ..]) => others.iter().map(|other| (first, other)).collect(),
        (Baseline::EachToLast, [others @ .., last]) => others.iter().map(|other| (other, last)).collect(),
        (_, []) => Vec::new(),
    };
    let mut text = String::new();
    for (first, other) in pairs {
        let ratio = |what: fn(&RoundFigures) -> Option<f64>| {
            let rounds = first.rounds.iter().zip(&other.rounds);
            let ratios = rounds.filter_map(|(a, b)| Some(what(a)? / what(b)?));
            // A round in which the machine stood still has no ratio.
            let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            let least = ratios.iter().copied().reduce(f64::min)?;
            let most = ratios.iter().copied().reduce(f64::max)?;
            Some(format!("{:.2} ({least:.2} - {most:.2})", median(ratios)))
        };
        let told = [
            ("pairs/s", ratio(|round| Some(round.pairs_per_s))),
            ("Evaluate p50", ratio(|round| Some(round.evaluate_us.p50 as f64))),
            ("server", ratio(RoundFigures::server)),
            ("server + Postgres", ratio(|round| Some(round.server()? + round.postgres().unwrap_or_default()))),
        ];
        let told: Vec<String> =
            told.into_iter().filter_map(|(what, ratio)| Some(format!("{what} {}", ratio?))).collect();
        let _ = writeln!(text, "{} to {}: {}", first.name, other.name, told.join(", "));
    }
    text
}

/// Details beside the table.
fn more(entrant: &EntrantRounds) -> String {
    let mut text = String::new();
    let mut kinds: Vec<&str> = Vec::new();
    for round in &entrant.rounds {
        kinds.extend(round.cpu_us_per_pair.iter().flatten().map(|(kind, _)| *kind));
    }
    kinds.sort_unstable();
    kinds.dedup();
    let of = |kind: &str| {
        let of = |round: &RoundFigures| round.cpu_us_per_pair.as_ref().and_then(|cpu| cpu.get(kind)).copied();
        median(entrant.rounds.iter().map(|round| of(round).unwrap_or_default()).collect())
    };
    let mut kinds: Vec<(&str, f64)> = kinds.iter().map(|kind| (*kind, of(kind))).collect();
    kinds.retain(|(kind, micros)| !matches!(*kind, "client" | "server" | "collector") && *micros >= 0.05);
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !kinds.is_empty() {
        let kinds: Vec<String> = kinds.iter().map(|(kind, micros)| format!("{kind} {micros:.1}")).collect();
        let _ = writeln!(text, "{}'s Postgres, us a pair: {}", entrant.name, kinds.join(", "));
    }
    text += &describe_telemetry(entrant);
    let mut refused = std::collections::BTreeMap::<&str, u64>::new();
    for (what, count) in entrant.rounds.iter().flat_map(|round| &round.refused) {
        *refused.entry(what).or_default() += count;
    }
    if !refused.is_empty() {
        let refused: Vec<String> = refused.iter().map(|(what, count)| format!("{what} {count}")).collect();
        let _ = writeln!(text, "{}: not let through, and no pairs: {}", entrant.name, refused.join(", "));
    }
    let not_begun: u64 = entrant.rounds.iter().map(|round| round.not_begun).sum();
    if not_begun > 0 {
        let _ =
            writeln!(text, "{}: {not_begun} pairs should have begun by the ends of rounds, and had not", entrant.name);
    }
    text
}

/// Telemetry received by a server's collector, and its cost.
fn describe_telemetry(entrant: &EntrantRounds) -> String {
    let of = |kind: &str| {
        let of = |round: &RoundFigures| round.told_per_pair.as_ref()?.get(kind).copied();
        let known: Vec<f64> = entrant.rounds.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| median(known))
    };
    let (Some(spans), Some(metrics), Some(lines)) = (of("spans"), of("metrics"), of("lines")) else {
        return String::new();
    };
    let cost: Vec<f64> = entrant.rounds.iter().filter_map(|round| round.cpu(|kind| kind == "collector")).collect();
    let cost =
        if cost.is_empty() { String::new() } else { format!("; it took {:.1} us a pair for that", median(cost)) };
    format!(
        "{}'s collector got {spans:.2} spans, {lines:.2} log lines and {metrics:.2} metrics a pair{cost}\n",
        entrant.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).abs() < f64::EPSILON);
    }
}
