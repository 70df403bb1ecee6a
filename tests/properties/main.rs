//! Properties for arbitrary inputs. Histories are random, small, and on fake time. A default run is deterministic, so
//! that a failure means a change; `PROPTEST_CASES=5000` tries more, randomly.

mod alphabet;
mod budgets;
mod fold;
mod json;
mod masking;
mod verdicts;
mod waits;
mod world;

use proptest::test_runner::{Config, RngSeed};

/// The seed of a usual run.
const SEED: u64 = 2_026;

/// Number of cases, unless the environment sets another. Nothing is written next to the sources.
fn cases(usual: u32) -> Config {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config =
        Config { failure_persistence: None, max_shrink_iters: 50_000, max_shrink_time: 20_000, ..Config::default() };
    if asked { config } else { Config { cases: usual, rng_seed: RngSeed::Fixed(SEED), ..config } }
}
