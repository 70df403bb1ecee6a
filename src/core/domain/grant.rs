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
    /// For a rate limit: the calls of the last window, oldest first.
    pub recent: Vec<Burst>,
}

/// Calls that came close together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// When the first of them was permitted.
    pub first: Timestamp,
    /// When the last of them was.
    pub last: Timestamp,
    /// How many.
    pub calls: u64,
}

/// So many calls in so long a time: never more, whenever the time is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls.
    pub calls: u64,
    /// In this time, in milliseconds.
    pub per_ms: u64,
}

/// Parts that a rate's time is counted in: what came within one of them is one burst, and is counted until its last
/// call is too old.
const PARTS: u64 = 16;

impl Rate {
    /// How long a call must wait, in milliseconds, after those of `recent`; 0 when it may go.
    #[must_use]
    pub fn wait_ms(self, recent: &[Burst], now: Timestamp) -> u64 {
        let mut left = self.calls;
        for burst in recent.iter().rev().filter(|burst| self.counts(burst, now)) {
            if left <= burst.calls {
                return burst.last.plus_ms(self.per_ms).since_ms(now);
            }
            left -= burst.calls;
        }
        0
    }

    /// The calls of the last window, once one more is permitted.
    #[must_use]
    pub fn after(self, recent: &[Burst], now: Timestamp) -> Vec<Burst> {
        let mut recent: Vec<Burst> = recent.iter().filter(|burst| self.counts(burst, now)).copied().collect();
        match recent.last_mut().filter(|burst| now.since_ms(burst.first) < self.per_ms / PARTS) {
            Some(burst) => (burst.last, burst.calls) = (now.max(burst.last), burst.calls + 1),
            None => recent.push(Burst { first: now, last: now, calls: 1 }),
        }
        recent
    }

    fn counts(self, burst: &Burst, now: Timestamp) -> bool {
        now.since_ms(burst.last) < self.per_ms
    }

    /// The part of this time that `at` lies in, counted from the epoch, and the milliseconds that it has.
    fn part(self, at: Timestamp) -> (i64, i64) {
        let part_ms = i64::try_from(self.per_ms.div_ceil(PARTS).max(1)).unwrap_or(i64::MAX);
        (at.as_millis().div_euclid(part_ms), part_ms)
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
    /// The shared counters of a tier's rate, the present part of its time first and then those before it that still
    /// count; none for one per session, and for a call without an agent.
    #[must_use]
    pub fn counters(&self, tier: &str, agent: Option<&AgentId>, now: Timestamp) -> Vec<CounterKey> {
        let agent = match (self.per, agent) {
            (Per::Session, _) | (Per::Agent, None) => return Vec::new(),
            (Per::Agent, Some(agent)) => Some(agent.clone()),
            (Per::Tenant, _) => None,
        };
        let (present, part_ms) = self.rate.part(now);
        let tier: Arc<str> = Arc::from(tier);
        let key = |part: i64| CounterKey {
            agent: agent.clone(),
            day: Timestamp::from_millis(part.saturating_mul(part_ms)).day(),
            dimension: Dimension::ToolCalls,
            tier: Some((Arc::clone(&tier), part)),
        };
        (0..=i64::try_from(PARTS).unwrap_or(0)).map(|back| key(present - back)).collect()
    }

    /// How long a call must wait, in milliseconds, when `used` says what each of the counters holds; 0 when it may go.
    #[must_use]
    pub fn shared_wait_ms(&self, used: &[u64], now: Timestamp) -> u64 {
        let (present, part_ms) = self.rate.part(now);
        let mut left = self.rate.calls;
        for (back, used) in (0..).zip(used) {
            if left <= *used {
                // It may go once this part is as old as the rate's time is long.
                let parts = i64::try_from(PARTS).unwrap_or(0) + 1;
                let free_at = Timestamp::from_millis((present - back + parts).saturating_mul(part_ms));
                return free_at.since_ms(now).max(1);
            }
            left -= used;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000).plus_ms(ms)
    }

    /// When calls go that are tried at these times.
    fn gone(rate: Rate, tried: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let (mut recent, mut gone) = (Vec::new(), Vec::new());
        for ms in tried {
            if rate.wait_ms(&recent, at(ms)) == 0 {
                recent = rate.after(&recent, at(ms));
                gone.push(ms);
            }
        }
        gone
    }

    #[test]
    fn a_hundred_a_minute_are_a_hundred_however_they_are_tried() {
        let rate = Rate { calls: 100, per_ms: 60_000 };
        assert_eq!(gone(rate, (0..8_000).step_by(10)).len(), 100, "the bucket refilled to 113 in eight seconds");
        let all = gone(rate, (0..600_000).step_by(100));
        assert!(all.len() > 900, "{} in ten minutes", all.len());
    }

    #[test]
    fn a_wait_ends_when_there_is_room() {
        let rate = Rate { calls: 3, per_ms: 60_000 };
        let mut recent = Vec::new();
        for ms in [0, 10_000, 20_000] {
            assert_eq!(rate.wait_ms(&recent, at(ms)), 0);
            recent = rate.after(&recent, at(ms));
        }
        assert_eq!(rate.wait_ms(&recent, at(20_000)), 40_000);
        assert_eq!((rate.wait_ms(&recent, at(59_999)), rate.wait_ms(&recent, at(60_000))), (1, 0));
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_rate(steps in prop::collection::vec(0u64..2_000, 1..400), calls in 1u64..20) {
            let rate = Rate { calls, per_ms: 10_000 };
            let times: Vec<u64> = steps.iter().scan(0, |t, step| { *t += step; Some(*t) }).collect();
            let own = gone(rate, times.iter().copied());
            for per in [Per::Session, Per::Tenant] {
                let limit = RateLimit { rate, per };
                let mut counters = std::collections::BTreeMap::<CounterKey, u64>::new();
                let mut shared = Vec::new();
                for ms in &times {
                    let keys = limit.counters("t", None, at(*ms));
                    let used: Vec<u64> = keys.iter().map(|key| counters.get(key).copied().unwrap_or(0)).collect();
                    if !keys.is_empty() && limit.shared_wait_ms(&used, at(*ms)) == 0 {
                        *counters.entry(keys[0].clone()).or_default() += 1;
                        shared.push(*ms);
                    }
                }
                for gone in [&own, &shared] {
                    for (i, start) in gone.iter().enumerate() {
                        let within = gone[i..].iter().take_while(|ms| **ms < start + rate.per_ms).count() as u64;
                        prop_assert!(within <= calls, "{within} from {start} on: {gone:?}");
                    }
                }
            }
        }
    }
}
