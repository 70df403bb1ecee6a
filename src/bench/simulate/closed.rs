//! Closed-loop comparison of retry policies: each decides for the same fleets, and learns only from its own retries.
//! The oracle knows the outcome of each wait: its value is the maximum.
//!
//! Every policy has at most six retries per call. To compare estimates without guards, the estimate runs with seven
//! attempts, an unlimited retry budget and no escalation of rate limits; one line shows the product's defaults.

use serde::Serialize;

use super::{
    account::RunCounts,
    environment::{Setting, SimulatedFleet},
    fleet,
    learner::Learner,
    policies::{RETRIES_MAX, RetryPolicy},
};
use callgate_core::{domain::health::RetryAllowance, retry::advice::Params};

/// Compared policies, in the order of the table.
pub(crate) const CONTENDERS: [Contender; 6] = [
    Contender { name: "oracle", policy: || RetryPolicy::Oracle },
    Contender { name: "static flag, three retries", policy: || RetryPolicy::Flag },
    Contender {
        name: "the estimate, no probes",
        policy: || advice(Params { probe_share: 0.0, ..without_guards() }, false),
    },
    Contender { name: "the estimate", policy: || advice(without_guards(), false) },
    Contender { name: "the estimate with the layer", policy: || advice(without_guards(), true) },
    Contender { name: "the product's defaults", policy: || advice(Params::default(), true) },
];

/// A named policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    policy: fn() -> RetryPolicy,
}

/// Row of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PolicyRow {
    pub(crate) policy: &'static str,
    /// Utility as a share of the oracle's.
    pub(crate) of_oracle: f64,
    #[serde(flatten)]
    pub(crate) account: RunCounts,
}

/// Runs each policy on each seed's fleet.
pub(crate) fn run(seeds: &[u64], setting: Setting, progress: &dyn Fn(u64)) -> Vec<PolicyRow> {
    let mut runs: [Vec<RunCounts>; CONTENDERS.len()] = Default::default();
    for seed in seeds {
        let environment = SimulatedFleet::new(*seed, setting);
        for (contender, runs) in CONTENDERS.iter().zip(&mut runs) {
            runs.push(fleet::run(&environment, *seed, &mut (contender.policy)(), progress));
        }
    }
    let best = RunCounts::mean_of(&runs[0]).utility;
    let row = |(contender, runs): (&Contender, &Vec<RunCounts>)| {
        let account = RunCounts::mean_of(runs);
        let of_oracle = if best > 0.0 { account.utility / best } else { 0.0 };
        PolicyRow { policy: contender.name, of_oracle, account }
    };
    CONTENDERS.iter().zip(&runs).map(row).collect()
}

fn advice(params: Params, layer: bool) -> RetryPolicy {
    RetryPolicy::Advice(Box::new(Learner::new(params, layer)))
}

/// Parameters whose guards never forbid an allowed retry.
fn without_guards() -> Params {
    let allowance = RetryAllowance { share: 1.0, per_minute: 1e6, max: 1e6 };
    Params { attempts: RETRIES_MAX + 1, rate_limit_run: u32::MAX, allowance, ..Params::default() }
}
