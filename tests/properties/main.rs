//! The promises that hold for every input, not only for the ones somebody thought of. Histories are random, small and
//! played on fake time; `PROPTEST_CASES=5000` looks longer than a usual run does.

mod alphabet;
mod budgets;
mod fold;
mod json;
mod verdicts;
mod waits;
mod world;

use proptest::test_runner::Config;

/// So many cases, unless the environment asks for another number. Nothing is written next to the sources.
fn cases(usual: u32) -> Config {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config =
        Config { failure_persistence: None, max_shrink_iters: 50_000, max_shrink_time: 20_000, ..Config::default() };
    if asked { config } else { Config { cases: usual, ..config } }
}
