//! Load on a server: number of agents, and mix of calls.

use serde::Serialize;

use super::link::Transport;

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LoadShape {
    /// Number of connections.
    pub(super) connections: usize,
    /// Concurrent agents per connection.
    pub(super) in_flight: usize,
    /// Concurrent sessions, over all connections.
    pub(super) sessions: usize,
    /// Calls after which a session is replaced; none: never.
    pub(super) calls_per_session: Option<u32>,
    /// Warm-up calls of each session.
    pub(super) grown: u32,
    /// Number of agent names.
    pub(super) agents: usize,
    /// Number of tenants with a token each, assigned round-robin to connections. 0: no credential, or the same one.
    pub(super) tenants: usize,
    /// Transport of calls.
    pub(super) transport: Transport,
    /// Intended pairs per second; none: closed loop.
    pub(super) rate: Option<f64>,
    /// Mix of calls.
    pub(super) mix: Mix,
}

/// Shares of all calls, 0 to 1, and sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Mix {
    /// Calls with reported costs.
    pub(super) costs: f64,
    /// Calls of the declared write.
    pub(super) writes: f64,
    /// Failed calls.
    pub(super) failures: f64,
    /// Repetitions of the session's previous call, under a new call_id.
    pub(super) duplicates: f64,
    /// Minimum size of arguments.
    pub(super) argument_bytes: usize,
    /// Minimum size of results.
    pub(super) result_bytes: usize,
}

impl LoadShape {
    /// Number of concurrent agents.
    pub(super) fn workers(&self) -> usize {
        self.connections * self.in_flight
    }

    /// In words.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{} x {} in flight", self.connections, self.in_flight);
        if let Some(rate) = self.rate {
            text = format!("{rate:.0} pairs/s intended, by at most {text}");
        }
        if self.transport != Transport::Unary {
            text += &format!(", {}", self.transport.name());
        }
        match self.tenants {
            0 => {}
            1 => text += ", with a token",
            tenants => text += &format!(", as {tenants} tenants with a token each"),
        }
        let sessions = self.sessions.max(self.workers());
        let life = self.calls_per_session.map(|calls| format!(" of {calls} calls"));
        text += &format!("; {sessions} sessions{} at a time", life.unwrap_or_default());
        if self.grown > 1 {
            text += &format!(", each of {} calls when measuring begins", self.grown);
        }
        let shares = [
            (self.mix.costs, "report costs"),
            (self.mix.writes, "are declared writes"),
            (self.mix.failures, "fail"),
            (self.mix.duplicates, "repeat the call before"),
        ];
        for (share, what) in shares.iter().filter(|(share, _)| *share > 0.0) {
            text += &format!("; {:.0} % {what}", share * 100.0);
        }
        for (bytes, what) in [(self.mix.argument_bytes, "arguments"), (self.mix.result_bytes, "results")] {
            if bytes > 0 {
                text += &format!("; {what} of {bytes} bytes at least");
            }
        }
        text
    }
}

/// True for `share` of all `n`, evenly spread.
pub(super) fn falls_on(share: f64, n: u64) -> bool {
    let upto = |n: u64| (n as f64 * share).floor();
    upto(n + 1) > upto(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_falls_evenly_on_calls() {
        let of = |share| (0..100).filter(|n| falls_on(share, *n)).count();
        assert_eq!([of(0.0), of(0.2), of(0.5), of(1.0)], [0, 20, 50, 100]);
        assert_eq!((0..10).filter(|n| falls_on(0.2, *n)).collect::<Vec<_>>(), [4, 9]);
    }
}
