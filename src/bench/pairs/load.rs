//! What is asked of a server: how many agents, what their calls are like.

use serde::Serialize;

use super::link::Transport;

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Load {
    /// Connections.
    pub(super) connections: usize,
    /// Agents on each that ask at the same time.
    pub(super) in_flight: usize,
    /// Sessions that are in use at the same time, on all connections.
    pub(super) sessions: usize,
    /// Calls after which a session is replaced by a new one; none: never.
    pub(super) calls_per_session: Option<u32>,
    /// Calls that each session has made before anything is measured.
    pub(super) grown: u32,
    /// Different agents, by name.
    pub(super) agents: usize,
    /// Tenants, each of which shows a token; connections take turns. 0: nobody shows a credential, or each the same.
    pub(super) tenants: usize,
    /// How its calls travel.
    pub(super) transport: Transport,
    /// Pairs a second that are intended; none: each agent goes on as soon as it can (closed loop).
    pub(super) rate: Option<f64>,
    /// What the calls are like.
    pub(super) mix: Mix,
}

/// Shares of all calls, 0 to 1, and sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Mix {
    /// Calls that report what the model and the tool cost.
    pub(super) costs: f64,
    /// Calls of a tool that the policy declares a write.
    pub(super) writes: f64,
    /// Calls that fail.
    pub(super) failures: f64,
    /// Calls that repeat the session's call before, under a new call_id.
    pub(super) duplicates: f64,
    /// Size of the arguments at least.
    pub(super) argument_bytes: usize,
    /// Size of the results at least.
    pub(super) result_bytes: usize,
}

impl Load {
    /// Agents that ask at the same time.
    pub(super) fn workers(&self) -> usize {
        self.connections * self.in_flight
    }

    /// In words.
    pub(super) fn described(&self) -> String {
        let mut text = format!("{} x {} in flight", self.connections, self.in_flight);
        if let Some(rate) = self.rate {
            text = format!("{rate:.0} pairs/s intended, by at most {text}");
        }
        match self.transport {
            Transport::Unary => {}
            Transport::Stream => text += ", one stream a connection",
            Transport::Unix => text += ", over a unix socket",
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
