//! Fleets of agents against a provider with a limit: calls that the provider refuses, and calls done. The circuit
//! breaker and the pacing are the product's own (`Health`, `Pacing`).

use serde::Serialize;

use super::{
    dice::Dice,
    fleet::{stamp, to_observation},
    queue::EventQueue,
};
use callgate_core::domain::{
    failure::FailureKind,
    fingerprint::Fingerprint,
    health::{Health, Observation, PROBE_CALL_MS, RetryAllowance},
    ids::{SessionId, ToolName},
    pacing::{Caller, Pacing},
    time::Timestamp,
};

/// Simulated time, in seconds.
const SPAN_S: f64 = 600.0;
/// Wait before a call asks again while another is the probe, in seconds.
const RECHECK_S: f64 = 1.0;
/// Jitter of an advised wait, as a share of it.
const JITTER: f64 = 0.2;

/// Limit of a provider.
#[derive(Debug, Clone, Copy)]
enum ProviderLimit {
    /// So many calls in each window of so many seconds.
    Window { calls: f64, window_s: f64 },
    /// So many calls a second, and so many at once after a pause.
    Bucket { per_s: f64, burst: f64 },
    /// A bucket whose rate doubles in the middle of the time.
    Raised { per_s: f64, burst: f64 },
}

/// A provider and the fleet that calls it.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    limit: ProviderLimit,
    agents: usize,
    /// Mean time between an agent's calls, in seconds.
    thinks_s: f64,
}

const CASES: [Case; 5] = [
    Case {
        name: "60 a minute, 50 agents",
        limit: ProviderLimit::Window { calls: 60.0, window_s: 60.0 },
        agents: 50,
        thinks_s: 5.0,
    },
    Case {
        name: "10 a second, 50 agents",
        limit: ProviderLimit::Bucket { per_s: 10.0, burst: 20.0 },
        agents: 50,
        thinks_s: 0.5,
    },
    Case {
        name: "2 a second, then 4, 50 agents",
        limit: ProviderLimit::Raised { per_s: 2.0, burst: 10.0 },
        agents: 50,
        thinks_s: 2.0,
    },
    Case {
        name: "500 in 5 minutes, 50 agents",
        limit: ProviderLimit::Window { calls: 500.0, window_s: 300.0 },
        agents: 50,
        thinks_s: 5.0,
    },
    Case {
        name: "10 a second, demand below it",
        limit: ProviderLimit::Bucket { per_s: 10.0, burst: 20.0 },
        agents: 50,
        thinks_s: 8.0,
    },
];

/// How the fleet keeps to the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    /// Each agent waits as the provider asks.
    RetryAfter,
    /// All wait while the circuit is open.
    Circuit,
    /// They take turns after it.
    Pacing,
}

const CONTROLS: [(Control, &str); 3] =
    [(Control::RetryAfter, "Retry-After alone"), (Control::Circuit, "circuit breaker"), (Control::Pacing, "pacing")];

/// Row of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PacingRow {
    pub(crate) case: &'static str,
    pub(crate) control: &'static str,
    /// Calls that the provider refused, and that it accepted, mean of the seeds.
    pub(crate) limited: f64,
    pub(crate) done: f64,
    /// Accepted calls as a share of what the limit allows and the agents ask for.
    pub(crate) of_limit: f64,
    /// Mean wait of a call for its turn, in seconds.
    pub(crate) waited_s: f64,
}

struct Provider {
    limit: ProviderLimit,
    tokens: f64,
    at: f64,
}

enum Event {
    /// The agent asks for a call that it wants since then.
    Asks { agent: usize, since: f64 },
    /// The provider answers, with the seconds that it asks to wait where it refused the call.
    Answers { agent: usize, since: f64, sent_at: f64, asked_s: Option<f64> },
}

struct PacedFleet<'a> {
    control: Control,
    thinks_s: f64,
    callers: &'a [Caller],
    dice: Dice,
    queue: EventQueue<Event>,
    provider: Provider,
    health: Health,
    pacing: Pacing,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    limited: f64,
    done: f64,
    waited_s: f64,
}

impl Provider {
    /// None for an accepted call, else the seconds that the provider asks to wait.
    fn call(&mut self, at: f64) -> Option<f64> {
        match self.limit {
            ProviderLimit::Window { calls, window_s } => {
                let window = (at / window_s).floor();
                if window > (self.at / window_s).floor() || self.at == 0.0 {
                    self.tokens = calls;
                }
                self.at = at.max(f64::MIN_POSITIVE);
                let accepts = self.tokens >= 1.0;
                self.tokens -= f64::from(u8::from(accepts));
                (!accepts).then(|| ((window + 1.0) * window_s - at).ceil())
            }
            ProviderLimit::Bucket { per_s, burst } => self.take_token(at, per_s, burst),
            ProviderLimit::Raised { per_s, burst } => {
                self.take_token(at, if at < SPAN_S / 2.0 { per_s } else { 2.0 * per_s }, burst)
            }
        }
    }

    fn take_token(&mut self, at: f64, per_s: f64, burst: f64) -> Option<f64> {
        self.tokens = if self.at == 0.0 { burst } else { (self.tokens + (at - self.at) * per_s).min(burst) };
        self.at = at.max(f64::MIN_POSITIVE);
        let accepts = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(accepts));
        (!accepts).then_some(1.0)
    }
}

impl Case {
    /// Calls that the limit allows and the agents ask for, if none has to wait.
    fn ceiling(&self) -> f64 {
        let allowed = match self.limit {
            ProviderLimit::Window { calls, window_s } => calls * SPAN_S / window_s,
            ProviderLimit::Bucket { per_s, burst } => burst + per_s * SPAN_S,
            ProviderLimit::Raised { per_s, burst } => burst + 1.5 * per_s * SPAN_S,
        };
        allowed.min(self.agents as f64 * SPAN_S / (self.thinks_s + 1.0))
    }

    fn run(&self, control: Control, seed: u64) -> Totals {
        let callers: Vec<Caller> = (0..self.agents).filter_map(caller).collect();
        let mut fleet = PacedFleet {
            control,
            thinks_s: self.thinks_s,
            callers: &callers,
            dice: Dice::new(seed, 7),
            queue: EventQueue::new(),
            provider: Provider { limit: self.limit, tokens: 0.0, at: 0.0 },
            health: Health::default(),
            pacing: Pacing::default(),
            totals: Totals::default(),
        };
        for agent in 0..callers.len() {
            fleet.think(0.0, agent);
        }
        while let Some((at, event)) = fleet.queue.pop().filter(|(at, _)| *at < SPAN_S) {
            match event {
                Event::Asks { agent, since } => fleet.ask(at, agent, since),
                Event::Answers { agent, since, sent_at, asked_s } => fleet.answer((at, sent_at), agent, since, asked_s),
            }
        }
        fleet.totals
    }
}

impl PacedFleet<'_> {
    fn think(&mut self, at: f64, agent: usize) {
        let since = at + self.dice.exponential(self.thinks_s);
        self.queue.push(since, Event::Asks { agent, since });
    }

    /// The wait before a call may run, in seconds.
    fn wait_s(&mut self, at: f64, agent: usize) -> Option<f64> {
        let now = stamp(at);
        let until_s = |until: Timestamp| until.since_ms(now) as f64 / 1_000.0;
        let turn = match self.control {
            Control::RetryAfter => return None,
            Control::Circuit => None,
            Control::Pacing => self.pacing.take_turn(&self.callers[agent], now).map(until_s),
        };
        match (self.health.cooldown(now), turn) {
            (Some(open), _) if now < open.until => Some(until_s(open.until).max(turn.unwrap_or(0.0))),
            (Some(open), None) if open.probe_until.is_some_and(|until| now < until) => Some(RECHECK_S),
            (_, turn) => turn.filter(|wait_s| *wait_s > 0.0),
        }
    }

    fn ask(&mut self, at: f64, agent: usize, since: f64) {
        if let Some(wait_s) = self.wait_s(at, agent) {
            let wakes_at = at + wait_s + self.dice.draw_between(0.0, 0.05);
            return self.queue.push(wakes_at, Event::Asks { agent, since });
        }
        let now = stamp(at);
        if self.health.is_to_be_probed(now) {
            self.health.set_probe_lease(Some(now.plus_ms(PROBE_CALL_MS)));
        }
        self.pacing.end_turn(&self.callers[agent]);
        self.pacing.record_call(now);
        self.totals.waited_s += at - since;
        let asked_s = self.provider.call(at + 0.05);
        let takes_s = self.dice.exponential(if asked_s.is_some() { 0.05 } else { 0.8 });
        self.queue.push(at + 0.1 + takes_s, Event::Answers { agent, since, sent_at: at, asked_s });
    }

    fn answer(&mut self, (at, sent_at): (f64, f64), agent: usize, since: f64, asked_s: Option<f64>) {
        let (now, sent_at) = (stamp(at), stamp(sent_at));
        let seen = Observation {
            sent_at,
            cooldown_ms: asked_s.map(|asked_s| (asked_s * 1_000.0) as u64),
            ..to_observation(at, asked_s.map(|_| FailureKind::RateLimited), None)
        };
        self.health.record_report(&seen, &RetryAllowance::default());
        if let Some((asked_s, open)) = asked_s.zip(self.health.cooldown) {
            self.pacing.record_limited(now, sent_at, open.until);
            self.totals.limited += 1.0;
            let again_at = at + asked_s * (1.0 + JITTER * self.dice.share());
            self.queue.push(again_at, Event::Asks { agent, since });
        } else {
            self.pacing.record_accepted(now);
            self.totals.done += 1.0;
            self.think(at, agent);
        }
    }
}

fn caller(agent: usize) -> Option<Caller> {
    let tool = ToolName::parse("tool", "tool").ok()?;
    let session = SessionId::parse("session", &format!("agent-{agent}")).ok()?;
    Some((session, Fingerprint::of(&tool, "{}")))
}

/// Each case under each control.
pub(crate) fn run(seeds: &[u64]) -> Vec<PacingRow> {
    let cells = CASES.iter().flat_map(|case| CONTROLS.into_iter().map(move |control| (case, control)));
    let n = seeds.len().max(1) as f64;
    let row = |(case, (control, name)): (&Case, (Control, &'static str))| {
        let runs: Vec<Totals> = seeds.iter().map(|seed| case.run(control, *seed)).collect();
        let sum = |of: fn(&Totals) -> f64| runs.iter().map(of).sum::<f64>();
        let done = sum(|totals| totals.done);
        PacingRow {
            case: case.name,
            control: name,
            limited: sum(|totals| totals.limited) / n,
            done: done / n,
            of_limit: done / n / case.ceiling(),
            waited_s: sum(|totals| totals.waited_s) / done.max(1.0),
        }
    };
    cells.map(row).collect()
}
