//! Step counter: runs each row's worst texts at one, two, four and eight times the length, and reports those with more
//! steps per byte than allowed, or more for a longer text.

mod rows;
mod steps;
mod worst;

#[allow(dead_code, unused_imports, reason = "rows call a part of it")]
#[path = "../../../src/agent/hosts/mod.rs"]
mod hosts;
#[allow(dead_code, unused_imports, reason = "rows call a part of it")]
#[path = "../../../src/agent/mcp/mod.rs"]
mod mcp;

use std::{hint::black_box, process::ExitCode};

/// Minimum length, in bytes: beyond it bounded results (the signature of an error) have reached their bound.
const BYTES: usize = 2_048;
/// Maximum growth of steps per byte when the text doubles: for `n log n`, and growing tables.
const GROWTH_MAX: f64 = 1.3;
/// So few steps a byte are nothing; a reader that refuses a long text at once takes less.
const FEW: u64 = 100;

fn main() -> ExitCode {
    let text = "a".repeat(1 << 16);
    let compiled = steps::count(|| black_box(&text).find('x')).min(steps::count(|| black_box(&text).chars().count()));
    let mut wrong: Vec<String> = Vec::new();
    if compiled < 1 << 12 {
        wrong.push(format!("searches that come compiled are not counted: {compiled} steps for {} bytes", text.len()));
    }
    println!("| functions | steps a byte | at most | of |\n|---|---|---|---|");
    for row in rows::ROWS {
        // Tables that are made at first are not counted.
        for worst in row.worst {
            (row.steps)(&worst.text(BYTES));
        }
        let mut most = (0, String::new());
        for worst in row.worst {
            let taken = [1, 2, 4, 8].map(|times| {
                let text = worst.text(BYTES * times);
                (row.steps)(&text) as f64 / text.len() as f64
            });
            let [_, _, before, last] = taken;
            most = most.max((last as u64, format!("{worst:?}")));
            if last > before * GROWTH_MAX && last as u64 > FEW {
                wrong.push(format!("{}: steps a byte grow with the text: {taken:.0?} of {worst:?}", row.of));
            }
        }
        println!("| {} | {} | {} | `{}` |", row.of, most.0, row.most, most.1);
        if most.0 > row.most {
            wrong.push(format!("{}: {} steps a byte of {}; at most {} are allowed", row.of, most.0, most.1, row.most));
        }
    }
    wrong.iter().for_each(|wrong| eprintln!("{wrong}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
