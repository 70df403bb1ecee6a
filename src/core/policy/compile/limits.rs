//! Compiler of amounts, budgets and retry limits.

use super::{Compiler, set};
use crate::{domain::budget, policy::file::RetrySection};

impl Compiler {
    pub(super) fn retry(&mut self, keys: &RetrySection) {
        let retry = &mut self.policy.retry;
        set(&mut retry.attempts, keys.attempts);
        set(&mut retry.rate_limit_run, keys.max_consecutive_rate_limits);
        set(&mut retry.exclude_honored_waits, keys.exclude_honored_waits);
        set(&mut retry.probe_share, keys.probe_share);
        set(&mut retry.allowance.share, keys.share_of_calls);
        set(&mut retry.allowance.per_minute, keys.per_minute);
        set(&mut retry.allowance.max, keys.burst);
        let (probe_share, allowance) = (retry.probe_share, retry.allowance);
        if self.policy.retry.attempts == 0 {
            self.wrong("retry.attempts", "must be 1 or more: the first try is an attempt");
        }
        if !(0.0..=1.0).contains(&probe_share) {
            self.wrong("retry.probe_share", "must be a share between 0 and 1");
        }
        let amounts =
            [("share_of_calls", allowance.share), ("per_minute", allowance.per_minute), ("burst", allowance.max)];
        for (key, amount) in amounts.into_iter().filter(|(_, amount)| !(0.0..=1e6).contains(amount)) {
            self.wrong(format!("retry.{key}"), format!("is {amount}; it must lie between 0 and 1000000"));
        }
    }

    pub(super) fn micros(&mut self, path: &str, usd: f64) -> Option<u64> {
        let micros = budget::micros(usd);
        if micros.is_none() {
            self.wrong(path, "must be an amount in US dollars, 0 or more");
        }
        micros
    }
}
