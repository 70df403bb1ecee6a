//! Rollouts: a stored policy judges a part of a tenant's call trees, next to the active policy, until it is promoted or
//! the rollout is aborted.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::{
    closed_set::closed_set,
    finding::Decision,
    ids::{AgentId, SessionId},
    time::Timestamp,
    tree::CallTree,
};

/// The whole, in basis points.
pub const SHARE_MAX: u16 = 10_000;
/// Maximum number of named agents.
pub const AGENTS_MAX: usize = 100;
/// Delay of a step's effect on new call trees, in milliseconds: every replica has read it by then, so that two replicas
/// never begin one tree by two versions.
pub const TAKES_AFTER_MS: u64 = 2_000;
/// Tolerance between the clocks of a step and of a judgment, in milliseconds.
const CLOCKS_MS: u64 = 1_000;

closed_set! {
    /// State of a rollout.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RolloutState {
        /// Its version judges its part.
        Running = "running",
        /// Ended by the activation of its version.
        Promoted = "promoted",
        /// Ended without one, or by the activation of another version.
        Aborted = "aborted",
    }
}

/// Part of the call trees, by their first call; nothing in shadow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutPart {
    /// Share of the root sessions, in basis points.
    pub share: u16,
    /// Agents whose call trees are in it as a whole.
    pub agents: Vec<AgentId>,
}

impl RolloutPart {
    /// True for the part without any call tree.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.share == 0 && self.agents.is_empty()
    }

    /// True when a call tree that begins with a call of `agent` is in it. A greater share has all roots of a smaller
    /// one.
    #[must_use]
    pub fn takes(&self, root: &SessionId, agent: Option<&AgentId>) -> bool {
        place(root) < self.share || agent.is_some_and(|agent| self.agents.contains(agent))
    }
}

impl fmt::Display for RolloutPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share, agents } = self;
        let (percent, agents) = (f64::from(*share) / 100.0, agents.iter().map(AgentId::as_str).collect::<Vec<_>>());
        match (share, agents.is_empty()) {
            (0, true) => f.write_str("no session"),
            (0, false) => write!(f, "the agents {}", agents.join(", ")),
            (_, true) => write!(f, "{percent} % of sessions"),
            (_, false) => write!(f, "{percent} % of sessions and the agents {}", agents.join(", ")),
        }
    }
}

/// Place of a root session in the order in which a growing share takes them. It never changes.
fn place(root: &SessionId) -> u16 {
    let hash = Sha256::new().chain_update("callgate/rollout/1").chain_update(root.as_str()).finalize();
    let eight = hash.iter().take(8).fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    (eight % u64::from(SHARE_MAX)) as u16
}

/// A rollout, as its last step has left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Number of its last step, from 1, over all rollouts of the tenant.
    pub step: u64,
    /// The policy: SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// Hash of the policy that was active at its start; empty for the built-in one.
    pub baseline: String,
    /// Its part.
    pub part: RolloutPart,
    /// Its state.
    pub state: RolloutState,
    /// Time of its first step.
    pub started_at: Timestamp,
    /// Time of its last step.
    pub at: Timestamp,
    /// Actor of its last step.
    pub by: String,
    /// The actor's note.
    pub note: String,
}

impl Rollout {
    /// True while its version judges its part.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == RolloutState::Running
    }

    /// True while it runs, and the hash of its policy begins so.
    #[must_use]
    pub fn is_running_of(&self, policy: &str) -> bool {
        self.is_running() && self.hash.starts_with(policy)
    }

    /// Its state after the activation of a policy, which ends it.
    #[must_use]
    pub fn ends_by(&self, policy: &str) -> RolloutState {
        if self.hash == policy { RolloutState::Promoted } else { RolloutState::Aborted }
    }

    /// True when its version judges a call tree at `now`. A tree stays with the version of its last call. A new one is
    /// assigned by its root and the agent of its first call.
    #[must_use]
    pub fn takes(&self, tree: &CallTree, agent: Option<&AgentId>, now: Timestamp) -> bool {
        match last_judgment(tree) {
            Some((policy, at)) => policy == version(&self.hash) && at.plus_ms(CLOCKS_MS) >= self.started_at,
            None => self.at.plus_ms(TAKES_AFTER_MS) <= now && self.part.takes(&tree.root, agent),
        }
    }
}

/// Policy version and time of a tree's last judgment; none before its first call.
fn last_judgment(tree: &CallTree) -> Option<(&str, Timestamp)> {
    let newest = tree.sessions.values().filter_map(|session| session.calls.back()).max_by_key(|call| call.at)?;
    Some((&newest.policy, newest.at))
}

/// The version of a policy in decisions, by its hash.
#[must_use]
pub fn version(policy: &str) -> &str {
    if policy.is_empty() { "default" } else { policy.get(..16).unwrap_or(policy) }
}

/// Result of a step of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutChange {
    /// It is as was asked for.
    Done(Box<Rollout>),
    /// The rollout of another policy is running.
    Other(String),
    /// The policy is the active one.
    Active,
    /// No rollout is running, or not of that policy.
    NotRunning,
    /// Another step was made meanwhile.
    Changed,
    /// Unknown policy.
    Unknown,
}

/// Minimum number of sessions of both versions for a difference.
pub const SESSIONS_MIN: u64 = 30;
/// Standard errors from which on two shares of sessions differ by more than chance: once in a hundred by chance.
const ERRORS_MIN: f64 = 2.58;

/// Calls of one version, and the root sessions that they are in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arm {
    pub calls: u64,
    pub sessions: u64,
}

/// First judgments of calls with one decision, rule and reason, by both versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComparedCalls {
    pub decision: Decision,
    pub rule: Option<String>,
    pub reason: Option<String>,
    pub rollout: Arm,
    pub baseline: Arm,
    /// Session and id of the newest of them: of the rollout's version where it has some.
    pub examples: Vec<(String, String)>,
}

/// The calls of a rollout's version next to those of its baseline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub rollout: Arm,
    pub baseline: Arm,
    /// By decision, rule and reason.
    pub calls: Vec<ComparedCalls>,
    /// There are more calls in that time.
    pub is_more: bool,
}

impl Comparison {
    /// True when the versions differ by more than chance in the share of sessions that have such a call. A session is
    /// one observation: its calls depend on each other.
    #[must_use]
    pub fn differs(&self, compared: &ComparedCalls) -> bool {
        let (all, before) = (self.rollout.sessions, self.baseline.sessions);
        if all.min(before) < SESSIONS_MIN {
            return false;
        }
        let (of, of_before) = (all as f64, before as f64);
        let (with, with_before) = (compared.rollout.sessions as f64, compared.baseline.sessions as f64);
        let both = (with + with_before) / (of + of_before);
        let error = (both * (1.0 - both) * (1.0 / of + 1.0 / of_before)).sqrt();
        (with / of - with_before / of_before).abs() > ERRORS_MIN * error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(n: u32) -> SessionId {
        SessionId::parse("session", &format!("session-{n}")).expect("a good name")
    }

    #[test]
    fn a_share_takes_that_part_of_the_roots_and_keeps_it_as_it_grows() {
        let takes = |share: u16, n: u32| RolloutPart { share, agents: Vec::new() }.takes(&root(n), None);
        for (share, at_least, at_most) in [(0, 0, 0), (100, 70, 130), (1_000, 900, 1_100), (SHARE_MAX, 10_000, 10_000)]
        {
            let count = (0..10_000).filter(|n| takes(share, *n)).count();
            assert!((at_least..=at_most).contains(&count), "{share}: {count}");
        }
        assert!((0..10_000).all(|n| !takes(1_000, n) || takes(2_000, n)), "those of a tenth are in a fifth");
    }

    /// Stored trees are assigned by it.
    #[test]
    fn the_place_of_a_root_never_changes() {
        assert_eq!([1, 2, 3].map(|n| place(&root(n))), [3_621, 5_216, 2_060]);
    }
    #[test]
    fn a_difference_needs_sessions() {
        let arm = |sessions| Arm { calls: 10 * sessions, sessions };
        let differs = |of: (u64, u64), with: (u64, u64)| {
            let compared = ComparedCalls { rollout: arm(with.0), baseline: arm(with.1), ..ComparedCalls::default() };
            Comparison { rollout: arm(of.0), baseline: arm(of.1), ..Comparison::default() }.differs(&compared)
        };
        assert!(!differs((20, 900), (20, 0)), "too few sessions");
        assert!(!differs((100, 900), (12, 90)), "by chance");
        assert!(differs((100, 900), (25, 90)));
        assert!(!differs((100, 900), (0, 0)));
        assert!(!differs((100, 900), (100, 900)));
    }
}
