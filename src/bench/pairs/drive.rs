//! Load driver: agents in a closed loop, or in an open one with fixed start times.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    agent::Agent,
    link::{ServerTarget, SharedConnection, pause, refusal_key},
    load::LoadShape,
    tally::Tally,
};
use callgate_proto::v1::Decision;

/// Time without progress after which a run fails.
const STUCK: Duration = Duration::from_secs(20);
/// Poll interval of the warm-up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Agents of one load on one server, with connections and sessions kept across rounds.
#[derive(Debug)]
pub(super) struct Crew {
    load: Arc<LoadShape>,
    /// Each with its connection's index.
    seats: Vec<(usize, SharedConnection, Agent)>,
}

/// State shared by the agents of a round.
#[derive(Debug)]
struct Round {
    load: Arc<LoadShape>,
    over: AtomicBool,
    cold: AtomicUsize,
    begun: Instant,
    /// One per connection.
    tallies: Vec<Mutex<Tally>>,
}

/// A running round.
#[derive(Debug)]
pub(super) struct RunningRound {
    round: Arc<Round>,
    agents: JoinSet<(usize, SharedConnection, Agent, u64)>,
}

impl Crew {
    pub(super) async fn new(load: &LoadShape, way: &ServerTarget) -> anyhow::Result<Self> {
        let mut seats = Vec::with_capacity(load.workers());
        for connection in 0..load.connections {
            let link = SharedConnection::connect(way, load.transport, connection).await?;
            seats.extend((0..load.in_flight).map(|place| {
                let agent = Agent::new(load, connection * load.in_flight + place);
                (connection, link.clone(), agent)
            }));
        }
        Ok(Self { load: Arc::new(load.clone()), seats })
    }

    pub(super) fn load(&self) -> LoadShape {
        (*self.load).clone()
    }

    /// Sets the intended rate, in pairs per second.
    pub(super) fn keep_to(&mut self, rate: f64) {
        self.load = Arc::new(LoadShape { rate: Some(rate), ..(*self.load).clone() });
    }

    /// Starts the agents; returns once every session is warm and `warm_up` has passed.
    pub(super) async fn begin(self, warm_up: Duration) -> anyhow::Result<RunningRound> {
        let count = self.seats.len();
        let round = Arc::new(Round {
            cold: AtomicUsize::new(count),
            over: AtomicBool::new(false),
            begun: Instant::now(),
            tallies: (0..self.load.connections).map(|_| Mutex::new(Tally::default())).collect(),
            load: self.load,
        });
        let mut agents = JoinSet::new();
        for (n, (connection, link, agent)) in self.seats.into_iter().enumerate() {
            agents.spawn(work(Arc::clone(&round), connection, link, agent, n as f64 / count as f64));
        }
        let running = RunningRound { round, agents };
        running.warm(warm_up).await?;
        Ok(running)
    }
}

impl RunningRound {
    async fn warm(&self, warm_up: Duration) -> anyhow::Result<()> {
        let (mut pairs, mut moved) = (0, Instant::now());
        while self.round.cold.load(Ordering::Relaxed) > 0 || self.round.begun.elapsed() < warm_up {
            sleep(LOOK_EVERY).await;
            if moved.elapsed() > STUCK {
                let so_far = self.so_far();
                if so_far.pair.percentiles().count == pairs {
                    bail!("no call has come through for {} s: {:?}", STUCK.as_secs(), so_far.refused);
                }
                (pairs, moved) = (so_far.pair.percentiles().count, Instant::now());
            }
        }
        Ok(())
    }

    /// Takes the tally since the last call.
    pub(super) fn take(&self) -> Tally {
        self.gather(std::mem::take)
    }

    fn so_far(&self) -> Tally {
        self.gather(|tally| tally.clone())
    }

    fn gather(&self, of: impl Fn(&mut Tally) -> Tally) -> Tally {
        let mut all = Tally::default();
        for tally in &self.round.tallies {
            let noted = of(&mut tally.lock());
            all.add(&noted);
        }
        all
    }

    /// Ends the round after calls in flight; returns the agents, and the number of pairs that should have started and
    /// have not.
    pub(super) async fn end(mut self) -> anyhow::Result<(Crew, u64)> {
        self.round.over.store(true, Ordering::Relaxed);
        let (mut seats, mut late) = (Vec::new(), 0);
        while let Some(agent) = self.agents.join_next().await {
            let (connection, link, agent, behind) = agent.context("an agent died")?;
            seats.push((connection, link, agent));
            late += behind;
        }
        Ok((Crew { load: Arc::clone(&self.round.load), seats }, late))
    }
}

/// One agent, until the round ends. With a rate, its calls are spaced evenly with an offset of `phase` of an interval;
/// a call delayed by the previous one is measured from its intended start.
async fn work(
    round: Arc<Round>,
    connection: usize,
    mut link: SharedConnection,
    mut agent: Agent,
    phase: f64,
) -> RoundResult {
    let interval = round.load.rate.map(|rate| Duration::from_secs_f64(round.load.workers() as f64 / rate));
    let mut next = round.begun + interval.map_or(Duration::ZERO, |interval| interval.mul_f64(phase));
    let mut cold = true;
    let mut noted = |agent: &Agent| {
        if cold && agent.is_warm() {
            cold = false;
            round.cold.fetch_sub(1, Ordering::Relaxed);
        }
    };
    noted(&agent);
    while !round.over.load(Ordering::Relaxed) {
        let intended = if interval.is_some() { next } else { Instant::now() };
        if interval.is_some() {
            sleep_until(intended).await;
            if round.over.load(Ordering::Relaxed) {
                break;
            }
        }
        pair(&round, connection, &mut link, &mut agent, intended).await;
        noted(&agent);
        next += interval.unwrap_or_default();
    }
    let behind = interval.map_or(0.0, |interval| next.elapsed().as_secs_f64() / interval.as_secs_f64());
    (connection, link, agent, behind as u64)
}

type RoundResult = (usize, SharedConnection, Agent, u64);

async fn pair(round: &Round, connection: usize, link: &mut SharedConnection, agent: &mut Agent, intended: Instant) {
    let note = |write: &dyn Fn(&mut Tally)| {
        write(&mut round.tallies[connection].lock());
    };
    let call = agent.call(&round.load);
    let failed = async |status: tonic::Status, method: &str| {
        note(&|tally| tally.count_refusal(format!("{method} {}", refusal_key(&status))));
        sleep(pause(&status)).await;
    };
    let verdict = match link.evaluate(call.question).await {
        Ok(verdict) => verdict,
        Err(status) => return failed(status, "Evaluate").await,
    };
    let judged = Instant::now();
    if verdict.decision() != Decision::Allow {
        let what = format!("{} {}", verdict.decision().as_str_name().trim_start_matches("DECISION_"), verdict.reason);
        return note(&|tally| {
            tally.evaluate.note(judged - intended);
            tally.count_refusal(what.clone());
        });
    }
    if let Err(status) = link.record(call.report).await {
        return failed(status, "Record").await;
    }
    let reported = Instant::now();
    note(&|tally| {
        tally.evaluate.note(judged - intended);
        tally.record.note(reported - judged);
        tally.pair.note(reported - intended);
    });
}
