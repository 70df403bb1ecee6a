//! Pacing of a tool after a rate limit (docs/learning.md#pacing): one replica spreads its calls over time, at a rate
//! learned from what the provider accepted until it limited them, and from the wait that it asked for.

use std::collections::{BTreeMap, VecDeque};

use super::{fingerprint::Fingerprint, ids::SessionId, time::Timestamp};

/// Half-life of accepted calls and of the time they took, in milliseconds of that time.
const HALF_LIFE_MS: f64 = 60_000.0;
/// Minimum number of accepted calls that tell a rate.
const ACCEPTED_MIN: f64 = 3.0;
/// Maximum time between two calls that counts as time under load, in milliseconds, while calls are not paced.
const GAP_MS: f64 = 2_000.0;
/// Share of the learned rate that calls start with after a limit, below 1 (multiplicative decrease).
const START: f64 = 0.95;
/// Time in which the rate returns to the learned one, in milliseconds.
const RETURN_MS: f64 = 20_000.0;
/// Time after which pacing ends where no call had to wait, in milliseconds.
const IDLE_MS: u64 = 60_000;
/// Multiple of the learned rate at which pacing ends: the fleet does not reach the limit.
const END: f64 = 8.0;
/// Waits up to this, in milliseconds, are not told: shorter than the round trip and the wake-up of a waiting client.
const TOLERANCE_MS: u64 = 500;
/// Maximum wait for a turn, in milliseconds; a call beyond gets none.
const QUEUE_MS_MAX: f64 = 60_000.0;
/// Maximum wait that is told, in milliseconds: the rate may have changed then.
const TOLD_MS_MAX: f64 = 10_000.0;
/// Time for which a turn that is due is kept for its caller, in milliseconds.
const TURN_KEPT_MS: f64 = 15_000.0;
/// Maximum number of turns kept.
const TURNS_MAX: usize = 10_000;

/// The call that a turn is kept for: a model that repeats it under another `call_id` keeps its turn.
pub type Caller = (SessionId, Fingerprint);

/// Pacing of one tool on one replica.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pacing {
    load: Load,
    limit: Option<Limit>,
    turns: Turns,
}

/// The queue of calls, in numbers from the first one: a number is due once as many calls may have run.
#[derive(Debug, Clone, Default, PartialEq)]
struct Turns {
    /// The next number.
    next: f64,
    /// Calls that may have run at `at`.
    due: f64,
    at: Timestamp,
    kept: BTreeMap<Caller, f64>,
    /// The kept numbers in order. One may be gone.
    order: VecDeque<(f64, Caller)>,
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
    /// Calls that ran since.
    ran: f64,
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
    /// The rate that the provider is expected to accept, per millisecond; none where it accepted few calls.
    fn learned(&self) -> Option<f64> {
        let accepted = (self.accepted >= ACCEPTED_MIN).then(|| self.accepted / self.span_ms.max(1.0));
        match (accepted, self.exceeded) {
            (Some(accepted), Some(exceeded)) => Some(accepted.min(exceeded)),
            (accepted, exceeded) => accepted.or(exceeded),
        }
    }

    /// The window growth of CUBIC (RFC 9438, section 4.2), clocked by the calls made: from [`START`] of the learned
    /// rate back to it, then slowly, and later quickly beyond it. None at its end.
    fn rate(&self) -> Option<f64> {
        let learned = self.learned()?;
        let growth = 1.0 + (1.0 - START) * (self.ran / (learned * RETURN_MS) - 1.0).powi(3);
        (growth < END).then_some(learned * growth)
    }
}

impl Turns {
    /// Counts the calls that may have run until `now`.
    fn pass(&mut self, now: Timestamp, rate: f64) {
        let passed = now.since_ms(self.at) as f64;
        // No more than the queue has, and a short burst.
        self.due = (self.due + passed * rate).min(self.next + TOLERANCE_MS as f64 * rate);
        self.at = self.at.max(now);
        self.drop_before(self.due - TURN_KEPT_MS * rate);
    }

    fn drop_before(&mut self, number: f64) {
        while let Some((number, caller)) = self.order.pop_front_if(|(one, _)| *one < number) {
            if self.kept.get(&caller) == Some(&number) {
                self.kept.remove(&caller);
            }
        }
    }

    /// The caller's number, which it keeps; none where the queue is too long.
    fn take(&mut self, caller: &Caller, rate: f64) -> Option<f64> {
        if let Some(number) = self.kept.get(caller) {
            return Some(*number);
        }
        let number = self.next;
        if (number - self.due) / rate > QUEUE_MS_MAX || self.order.len() >= TURNS_MAX {
            return None;
        }
        self.next += 1.0;
        self.kept.insert(caller.clone(), number);
        self.order.push_back((number, caller.clone()));
        Some(number)
    }
}

impl Pacing {
    /// Calls per millisecond at `now`; none without pacing.
    fn rate(&self, now: Timestamp) -> Option<f64> {
        self.limit.filter(|limit| now.since_ms(limit.waited_at) <= IDLE_MS)?.rate()
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

    /// Records the rate limit of a call that was sent at `sent_at`; calls may run again from `until`. What is reported
    /// until then belongs to the limit before.
    pub fn record_limited(&mut self, at: Timestamp, sent_at: Timestamp, until: Timestamp) {
        if let Some(limit) = self.limit.as_mut().filter(|limit| sent_at <= limit.since || at < limit.until) {
            limit.span_ms += until.since_ms(limit.until) as f64;
            limit.until = limit.until.max(until);
            limit.waited_at = limit.waited_at.max(until);
        } else {
            self.record_call(at);
            let span_ms = self.load.busy_ms + until.since_ms(at) as f64;
            let exceeded = self.rate(at);
            let (since, accepted) = (at, self.load.accepted);
            self.limit = Some(Limit { since, until, accepted, span_ms, exceeded, ran: 0.0, waited_at: until });
        }
        self.load.busy_ms += until.since_ms(self.load.at.max(at)) as f64;
        self.load.at = self.load.at.max(until);
        self.turns.at = self.turns.at.max(until);
    }

    /// The time from which a call may run; none without pacing. The caller keeps its place, and asks again then: the
    /// rate may have changed.
    pub fn take_turn(&mut self, caller: &Caller, now: Timestamp) -> Option<Timestamp> {
        let (Some(rate), Some(limit)) = (self.rate(now), self.limit.as_mut()) else {
            if self.limit.is_some_and(|limit| now >= limit.until) {
                (self.limit, self.turns) = (None, Turns::default());
            }
            return None;
        };
        self.turns.pass(now, rate);
        let number = self.turns.take(caller, rate);
        let ahead_ms = number.map_or(TOLD_MS_MAX, |number| (number - self.turns.due) / rate).clamp(0.0, TOLD_MS_MAX);
        let at = now.max(limit.until).plus_ms(ahead_ms.ceil() as u64);
        if at.since_ms(now) <= TOLERANCE_MS {
            return Some(now);
        }
        limit.waited_at = limit.waited_at.max(now);
        Some(at)
    }

    /// Ends the turn of a call that runs.
    pub fn end_turn(&mut self, caller: &Caller) {
        self.turns.kept.remove(caller);
        if let Some(limit) = &mut self.limit {
            limit.ran += 1.0;
        }
    }

    /// Gives back the turn of a call that neither runs nor waits; the last one is free again.
    pub fn give_back_turn(&mut self, caller: &Caller) {
        if self.turns.kept.remove(caller).is_some_and(|number| number + 1.0 >= self.turns.next) {
            self.turns.next -= 1.0;
            self.turns.order.pop_back();
        }
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
        (pacing.rate(at(ms)).unwrap_or(0.0) * 1e6).round() as u64
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
        let wait = |pacing: &mut Pacing, n, ms| pacing.take_turn(&caller(n), at(ms)).map(|turn| turn.since_ms(at(ms)));
        assert_eq!([0, 1, 2].map(|n| wait(&mut pacing, n, 50_000)), [10_000, 11_065, 12_130].map(Some));
        assert_eq!(wait(&mut pacing, 1, 55_000), Some(6_065), "it keeps its turn");
        pacing.give_back_turn(&caller(2));
        assert_eq!(wait(&mut pacing, 3, 55_000), Some(7_130), "the last turn is free again");
        assert_eq!(wait(&mut pacing, 0, 59_600), Some(0), "half a second is no wait");
        let waits: Vec<_> = (4..100).filter_map(|n| wait(&mut pacing, n, 60_000)).collect();
        assert!(waits.is_sorted() && waits[0] < 5_000 && waits[95] == TOLD_MS_MAX as u64, "{waits:?}");
        assert!(pacing.turns.kept.len() < 65, "no turn is kept beyond a minute: {}", pacing.turns.kept.len());
        assert_eq!(wait(&mut pacing, 40, 110_000), Some(0), "its turn has come, though it was not told of it");
    }

    #[test]
    fn turns_of_callers_who_stay_away_are_dropped() {
        let mut pacing = limited();
        for n in 0..20 {
            pacing.take_turn(&caller(n), at(60_000));
        }
        for ms in (61_000..110_000).step_by(500) {
            pacing.take_turn(&caller(100), at(ms));
        }
        assert!(
            pacing.turns.kept.len() < 17 && pacing.turns.order.len() < 17,
            "of the last seconds: {:?}",
            pacing.turns
        );
    }

    #[test]
    fn the_rate_grows_with_calls_made_until_pacing_ends() {
        let mut pacing = limited();
        let (mut rates, mut ms) = (Vec::new(), 60_000);
        // Four callers, so that one always waits.
        for n in (0..4_u8).cycle() {
            let Some(turn) = pacing.take_turn(&caller(n), at(ms)) else { break };
            pacing.take_turn(&caller((n + 1) % 4), at(ms));
            rates.push(rate(&pacing, ms));
            ms = turn.as_millis() - 1_000_000;
            pacing.end_turn(&caller(n));
        }
        assert!(rates.is_sorted() && rates.len() > 50 && rates[rates.len() - 1] > 7 * rates[0], "{rates:?}");
        assert_eq!(limited().take_turn(&caller(0), at(121_000)), None, "nobody waited for a minute");
    }
}
