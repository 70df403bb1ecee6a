//! Delay of a poll's changes: how late an agent learns of a change by an undeclared polling tool.

use super::stage::Stage;
use crate::{domain::finding::Decision, rules::RULES};

/// Maximum number of polls for a change.
const LOOKS_MAX: u32 = 200;

/// An agent that calls the same at a steady pace until it has the last of the results.
struct Polling<'a> {
    call: &'a str,
    interval_ms: u64,
    /// Each with the time in ms from which on it is the answer.
    results: Vec<(u64, &'a str)>,
}

impl Polling<'_> {
    /// Delay in ms from the last change to its first observation; none without one. After WAIT the next call comes at
    /// its time.
    fn late_ms(&self) -> Option<u64> {
        let mut stage = Stage::new(RULES, None);
        stage.play_line("step 0s").expect("a step");
        let began = stage.now;
        let changed_ms = self.results.last()?.0;
        for _ in 0..LOOKS_MAX {
            let now_ms = stage.now.since_ms(began);
            let result = self.results.iter().rev().find(|(from_ms, _)| *from_ms <= now_ms)?.1;
            stage.play_line(&format!("{} -> ok {result} => whatever", self.call)).expect("a call");
            let verdict = stage.said.last()?;
            if verdict.permit.is_some() && now_ms >= changed_ms {
                return Some(now_ms - changed_ms);
            }
            let waits_ms = verdict.retry_after_ms().filter(|_| verdict.decision == Decision::Wait);
            stage.now = stage.now.plus_ms(waits_ms.unwrap_or(self.interval_ms));
        }
        None
    }
}

/// A call; its results; the equal polls before the last change, minimum and maximum; and for paces in seconds the
/// maximum delay in seconds of that change.
const POLLS: &str = include_str!("lateness.txt");

#[test]
fn lateness_of_undeclared_polls() {
    let mut found = String::new();
    for line in POLLS.lines() {
        let [call, results, looks, paces]: [&str; 4] =
            line.split(" | ").collect::<Vec<_>>().try_into().expect("a call, results, looks and paces");
        let (least, most) = looks.split_once(' ').expect("two numbers of looks");
        let quarters = |looks: &str| looks.parse::<u64>().expect("a number") * 4;
        let results: Vec<&str> = results.split(' ').collect();
        let worst = paces.split(", ").map(|pace| {
            let (seconds, _) = pace.split_once(": ").expect("a pace");
            let interval_ms = seconds.parse::<u64>().expect("seconds") * 1_000;
            let changes = (quarters(least)..quarters(most)).map(|quarters| interval_ms * quarters / 4 + 1);
            let late = changes.map(|after_ms| {
                let before_ms = if results.len() == 3 { interval_ms * 4 } else { 0 };
                let at = [0, before_ms, before_ms + after_ms];
                let at = if results.len() == 3 { &at[..] } else { &at[1..] };
                Polling { call, interval_ms, results: at.iter().copied().zip(results.iter().copied()).collect() }
                    .late_ms()
            });
            let late: Vec<Option<u64>> = late.collect();
            let lost = late.iter().filter(|late| late.is_none()).count();
            let worst = late.iter().flatten().max().map_or(0, |ms| ms.div_ceil(1_000));
            if lost > 0 { format!("{seconds}: {worst} and {lost} lost") } else { format!("{seconds}: {worst}") }
        });
        let worst: Vec<String> = worst.collect();
        found.push_str(&format!("{call} | {} | {looks} | {}\n", results.join(" "), worst.join(", ")));
    }
    assert_eq!(found, POLLS, "{found}");
}
