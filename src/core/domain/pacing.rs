//! Pacing of a tool after a rate limit (docs/learning.md#pacing): one replica spreads its calls over time, at a rate
//! learned from what the provider accepted until it limited them, and from the wait that it asked for.

use std::collections::{BTreeMap, VecDeque};

use super::{fingerprint::Fingerprint, ids::SessionId, time::Timestamp};

/// Half-life of accepted calls and of the time they took, in milliseconds of that time.
const HALF_LIFE_MS: f64 = 60_000.0;
/// Maximum time between two calls that counts as time under load, in milliseconds, while calls are not paced.
const GAP_MS: f64 = 2_000.0;
/// Share of the learned rate that calls start with after a limit, below 1 (multiplicative decrease).
const START: f64 = 0.95;
/// Time in which the rate returns to the learned one, in milliseconds.
const RETURN_MS: f64 = 10_000.0;
/// Time after which pacing ends where no call had to wait, in milliseconds.
const IDLE_MS: u64 = 60_000;
/// Multiple of the learned rate at which pacing ends: the fleet does not reach the limit.
const END: f64 = 8.0;
/// Waits up to this, in milliseconds, are not told: shorter than the round trip and the wake-up of a waiting client.
const TOLERANCE_MS: u64 = 500;
/// Maximum wait for a turn, in milliseconds. A call beyond gets no turn, and asks again after that time.
pub const TURN_WAIT_MS_MAX: u64 = 60_000;
/// Time for which a turn is kept for its caller, in milliseconds.
const TURN_KEPT_MS: u64 = 10_000;
/// Maximum number of turns kept.
const TURNS_MAX: usize = 10_000;

/// The call that a turn is kept for: a model that repeats it under another `call_id` keeps its turn.
pub type Caller = (SessionId, Fingerprint);

/// Pacing of one tool on one replica.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pacing {
    load: Load,
    limit: Option<Limit>,
    /// The next free turn.
    next: Timestamp,
    turns: BTreeMap<Caller, Turn>,
    /// The turns by time, the earliest first. One may be gone, or replaced by a later one.
    order: VecDeque<(Timestamp, Caller)>,
}

/// A reserved time for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The time from which the call may run.
    pub at: Timestamp,
    /// The time of the turn after it.
    then: Timestamp,
    reserved_at: Timestamp,
}

/// Accepted calls, and the time under load that they took, both decayed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Load {
    accepted: f64,
    busy_ms: f64,
    at: Timestamp,
}

/// The last rate limit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    /// Time of the report. Calls that were sent before it say nothing about the rate after it.
    since: Timestamp,
    until: Timestamp,
    /// Calls accepted, and the time in which they were, the provider's wait included.
    accepted: f64,
    span_ms: f64,
    /// The rate at which the provider limited paced calls, per millisecond.
    exceeded: Option<f64>,
    /// Calls that ran in a turn that was reserved after the limit: only they tell whether its rate is accepted.
    taken: f64,
    /// The last time that a call had to wait for its turn.
    waited_at: Timestamp,
}

impl Load {
    fn pass(&mut self, at: Timestamp, gap_ms: f64) {
        let is_first = self.at == Timestamp::default();
        let passed = if is_first { 0.0 } else { (at.since_ms(self.at) as f64).min(gap_ms) };
        let fade = (-passed / HALF_LIFE_MS).exp2();
        self.accepted *= fade;
        self.busy_ms = self.busy_ms * fade + passed;
        self.at = self.at.max(at);
    }
}

impl Limit {
    /// The rate that the provider is expected to accept, per millisecond; none where it accepted nothing.
    fn learned(&self) -> Option<f64> {
        let accepted = (self.accepted >= 0.5).then(|| self.accepted / self.span_ms.max(1.0));
        match (accepted, self.exceeded) {
            (Some(accepted), Some(exceeded)) => Some(accepted.min(exceeded)),
            (accepted, exceeded) => accepted.or(exceeded),
        }
    }

    /// The rate while the next free turn is `ahead_ms` away: the window growth of CUBIC (RFC 9438, section 4.2), from
    /// [`START`] of the learned rate back to it, then slowly, and later quickly beyond it. It is clocked by the calls
    /// made, and slower where turns are reserved far ahead, since each tells of a rate of before. None at its end.
    fn rate(&self, ahead_ms: u64) -> Option<f64> {
        let learned = self.learned()?;
        let returns = learned * (RETURN_MS + 0.5 * ahead_ms as f64);
        let growth = 1.0 + (1.0 - START) * (self.taken / returns - 1.0).powi(3);
        (growth < END).then_some(learned * growth)
    }
}

impl Pacing {
    /// The rate of calls per second at `now`; none without pacing.
    #[must_use]
    pub fn rate_per_s(&self, now: Timestamp) -> Option<f64> {
        self.rate(now).map(|rate| rate * 1_000.0)
    }

    fn rate(&self, now: Timestamp) -> Option<f64> {
        let limit = self.limit.filter(|limit| now.since_ms(limit.waited_at) <= IDLE_MS)?;
        limit.rate(self.next.since_ms(now.max(limit.until)))
    }

    /// Records a permitted call.
    pub fn record_call(&mut self, at: Timestamp) {
        // The gap between two paced calls is time under load.
        let gap_ms = self.rate(at).map_or(GAP_MS, |rate| GAP_MS.max(2.0 / rate));
        self.load.pass(at, gap_ms);
    }

    /// Records a call that the provider did not limit.
    pub fn record_accepted(&mut self, at: Timestamp) {
        self.record_call(at);
        // It was in flight when another was limited.
        if let Some(limit) = self.limit.as_mut().filter(|limit| at < limit.until) {
            limit.accepted += 1.0;
        }
        self.load.accepted += 1.0;
    }

    /// Records the rate limit of a call that was sent at `sent_at`; calls may run again from `until`.
    pub fn record_limited(&mut self, at: Timestamp, sent_at: Timestamp, until: Timestamp) {
        if let Some(limit) = self.limit.as_mut().filter(|limit| sent_at <= limit.since) {
            limit.span_ms += until.since_ms(limit.until) as f64;
            limit.until = limit.until.max(until);
            limit.waited_at = limit.waited_at.max(until);
        } else {
            self.record_call(at);
            let span_ms = self.load.busy_ms + until.since_ms(at) as f64;
            let exceeded = self.rate(at).or_else(|| self.limit.and_then(|limit| limit.learned()));
            let (since, accepted) = (at, self.load.accepted);
            self.limit = Some(Limit { since, until, accepted, span_ms, exceeded, taken: 0.0, waited_at: until });
        }
        self.load.busy_ms += until.since_ms(self.load.at.max(at)) as f64;
        self.load.at = self.load.at.max(until);
        self.next = self.next.max(until);
        // Later turns stand: their callers come back for them.
        self.turns.retain(|_, turn| turn.at >= until);
    }

    /// The caller's turn, which it keeps if it has one: none without pacing. A turn too far ahead is not reserved.
    pub fn take_turn(&mut self, caller: &Caller, now: Timestamp) -> Option<Turn> {
        let Some(rate) = self.rate(now) else {
            if self.limit.is_some_and(|limit| now >= limit.until) {
                (self.limit, self.order) = (None, VecDeque::new());
                self.turns.clear();
            }
            return None;
        };
        while let Some((at, caller)) = self.order.pop_front_if(|(at, _)| now.since_ms(*at) > TURN_KEPT_MS) {
            if self.turns.get(&caller).is_some_and(|turn| turn.at == at) {
                self.turns.remove(&caller);
            }
        }
        if let Some(turn) = self.turns.get(caller) {
            return Some(turn.due(now));
        }
        let at = self.next.max(now);
        let turn = Turn { at, then: at.plus_ms((1.0 / rate).ceil() as u64), reserved_at: now };
        if at.since_ms(now.max(self.limit.map_or(now, |limit| limit.until))) > TURN_WAIT_MS_MAX
            || self.order.len() >= TURNS_MAX
        {
            return Some(Turn { at: now.plus_ms(TURN_WAIT_MS_MAX), ..turn });
        }
        if let Some(limit) = self.limit.as_mut().filter(|_| at.since_ms(now) > TOLERANCE_MS) {
            limit.waited_at = limit.waited_at.max(now);
        }
        self.next = turn.then;
        self.turns.insert(caller.clone(), turn);
        self.order.push_back((at, caller.clone()));
        Some(turn.due(now))
    }

    /// Ends a turn whose call runs.
    pub fn end_turn(&mut self, caller: &Caller) {
        let turn = self.turns.remove(caller);
        if let Some((limit, turn)) = self.limit.as_mut().zip(turn)
            && turn.reserved_at > limit.since
        {
            limit.taken += 1.0;
        }
    }

    /// Gives back a turn whose call neither runs nor waits; the last one is free again.
    pub fn give_back_turn(&mut self, caller: &Caller) {
        if let Some(turn) = self.turns.remove(caller).filter(|turn| turn.then == self.next) {
            self.next = turn.at;
        }
    }
}

impl Turn {
    /// Now, where it is too short to wait for.
    fn due(self, now: Timestamp) -> Self {
        if self.at.since_ms(now) <= TOLERANCE_MS { Self { at: now.min(self.at), ..self } } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ids::ToolName, *};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn caller(n: u8) -> Caller {
        let tool = ToolName::parse("tool", "tool").expect("valid");
        (SessionId::parse("session", &format!("s{n}")).expect("valid"), Fingerprint::of(&tool, "{}"))
    }

    /// Sixty calls in two seconds, then a limit for the rest of the minute.
    fn limited() -> Pacing {
        let mut pacing = Pacing::default();
        for n in 0..60 {
            pacing.record_call(at(n * 33));
            pacing.record_accepted(at(n * 33 + 10));
        }
        pacing.record_limited(at(2_000), at(1_990), at(60_000));
        pacing
    }

    /// The rate in thousandths of a call per second.
    fn rate(pacing: &Pacing, ms: i64) -> u64 {
        (pacing.rate_per_s(at(ms)).unwrap_or(0.0) * 1_000.0).round() as u64
    }

    /// Takes a turn and runs in it; the time in milliseconds.
    fn run(pacing: &mut Pacing, n: u8, ms: i64) -> Option<i64> {
        let turn = pacing.take_turn(&caller(n), at(ms))?;
        pacing.end_turn(&caller(n));
        Some(turn.at.as_millis() - 1_000_000)
    }

    #[test]
    fn the_rate_is_what_was_accepted_in_the_time_until_the_next_call_is() {
        let mut pacing = limited();
        assert_eq!(rate(&pacing, 60_000), 939, "sixty, decayed, in a minute, and a twentieth less");
        pacing.record_accepted(at(2_500));
        assert_eq!(rate(&pacing, 60_000), 955, "it was in flight");
        pacing.record_limited(at(2_600), at(1_995), at(60_500));
        assert_eq!(rate(&pacing, 60_500), 947, "sent before the limit, it does not lower the rate again");
        pacing.record_limited(at(70_000), at(69_000), at(75_000));
        assert!(rate(&pacing, 75_000) < 947, "sent after it");
        assert_eq!(Pacing::default().take_turn(&caller(0), at(0)), None);
        let mut nothing = Pacing::default();
        nothing.record_limited(at(0), at(0), at(1_000));
        assert_eq!(nothing.take_turn(&caller(0), at(1_000)), None, "without an accepted call no rate is known");
    }

    #[test]
    fn turns_follow_each_other_and_are_kept_for_their_callers() {
        let mut pacing = limited();
        let turn =
            |pacing: &mut Pacing, n, ms| pacing.take_turn(&caller(n), at(ms)).map(|turn| turn.at.since_ms(at(ms)));
        assert_eq!([0, 1, 2].map(|n| turn(&mut pacing, n, 50_000)), [10_000, 11_065, 12_130].map(Some));
        assert_eq!(turn(&mut pacing, 1, 55_000), Some(6_065), "it keeps its turn");
        pacing.give_back_turn(&caller(2));
        assert_eq!(turn(&mut pacing, 3, 55_000), Some(7_130), "the last turn is free again");
        assert_eq!(turn(&mut pacing, 0, 59_600), Some(0), "half a second is no wait");
        let far = (4..100).map(|n| turn(&mut pacing, n, 60_000)).max().flatten();
        assert_eq!(far, Some(TURN_WAIT_MS_MAX), "no turn is reserved beyond");
    }

    #[test]
    fn the_rate_grows_with_calls_made_until_pacing_ends() {
        let mut pacing = limited();
        let mut rates = Vec::new();
        let mut ms = 60_000;
        while let Some(turn) = run(&mut pacing, 0, ms) {
            rates.push(rate(&pacing, ms));
            ms = turn.max(ms) + 1;
        }
        let (first, last) = (rates[0], rates[rates.len() - 2]);
        assert!(last > 7 * first && rates.len() > 50 && rates[..40].is_sorted(), "{rates:?}");
        assert_eq!(run(&mut limited(), 0, 121_000), None, "nobody waited for a minute");
    }
}
