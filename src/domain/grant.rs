//! What has been given out of a tier: grants of calls, and the pace at which they go.

use std::sync::Arc;

use super::{
    budget::{CounterKey, Dimension},
    ids::{AgentId, SessionId},
    pattern::Pattern,
    time::Timestamp,
};

/// Grants that a call tree holds at once.
pub const GRANTS_MAX: usize = 64;

/// Calls of some tools, given to a session and its sub-agents by a person or a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Names it.
    pub id: String,
    /// Who gave it.
    pub by: String,
    /// To whom; sub-agents of that session may use it too.
    pub session: SessionId,
    /// For which tools.
    pub tools: Pattern,
    /// How many calls.
    pub ceiling: u64,
    /// Until when.
    pub expires_at: Timestamp,
}

impl Grant {
    /// The name under which its use is counted.
    #[must_use]
    pub fn key(&self) -> String {
        format!("grant:{}", self.id)
    }
}

/// How far one tier or grant has been used by a call tree, as the last permitted call left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// What is used: `tier:writes`, `grant:…`.
    pub key: String,
    /// When it was used first.
    pub opened_at: Timestamp,
    /// Permitted calls since.
    pub used: u64,
    /// For a rate limit: the time to which the calls so far reach, were they spread evenly (GCRA's theoretical arrival
    /// time).
    pub paced_until: Timestamp,
}

/// So many calls in so long a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls.
    pub calls: u64,
    /// In this time, in milliseconds.
    pub per_ms: u64,
}

impl Rate {
    /// How long a call must wait, in milliseconds, when those before it reach to `paced_until`; 0 when it may go. At
    /// most `calls` go in any period that begins idle, and the pace holds from then on (the generic cell rate
    /// algorithm).
    #[must_use]
    pub fn wait_ms(self, paced_until: Timestamp, now: Timestamp) -> u64 {
        paced_until.plus_ms(self.spacing_ms()).since_ms(now).saturating_sub(self.per_ms)
    }

    /// To where the calls reach once one more goes.
    #[must_use]
    pub fn after(self, paced_until: Timestamp, now: Timestamp) -> Timestamp {
        paced_until.max(now).plus_ms(self.spacing_ms())
    }

    fn spacing_ms(self) -> u64 {
        (self.per_ms / self.calls.max(1)).max(1)
    }
}

/// Who shares a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// A session with its sub-agents.
    Session,
    /// All sessions of one agent.
    Agent,
    /// All sessions of the tenant.
    Tenant,
}

/// How fast calls may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// How many in what time.
    pub rate: Rate,
    /// Shared by whom.
    pub per: Per,
}

impl RateLimit {
    /// The shared counter of a tier's rate; none for one per session, and for a call without an agent.
    #[must_use]
    pub fn counter(&self, tier: &str, agent: Option<&AgentId>, now: Timestamp) -> Option<CounterKey> {
        let agent = match self.per {
            Per::Session => return None,
            Per::Agent => Some(agent?.clone()),
            Per::Tenant => None,
        };
        let window = now.as_millis().div_euclid(i64::try_from(self.rate.per_ms.max(1)).unwrap_or(i64::MAX));
        let tier = Some((Arc::from(tier), window));
        Some(CounterKey { agent, day: now.day(), dimension: Dimension::ToolCalls, tier })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_and_then_the_pace_holds() {
        let rate = Rate { calls: 3, per_ms: 60_000 };
        let at = |ms: i64| Timestamp::from_millis(1_000_000 + ms);
        let mut until = Timestamp::default();
        for _ in 0..3 {
            assert_eq!(rate.wait_ms(until, at(0)), 0);
            until = rate.after(until, at(0));
        }
        assert_eq!(rate.wait_ms(until, at(0)), 20_000);
        assert_eq!(rate.wait_ms(until, at(19_999)), 1);
        assert_eq!(rate.wait_ms(until, at(20_000)), 0);
    }
}
