//! Gauges of a replica and of the deployment. They are recorded each second, or as often as the database is read.

use std::time::Duration;

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram},
};

use super::{super::names, Metrics, instruments::InstrumentFactory};
use callgate_core::domain::inbox::QuestionState;

/// Bounds of the buckets of people's answers, in seconds: from a moment to two days.
const PATIENCE: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0];

#[derive(Debug, Clone)]
pub(super) struct ServerMetrics {
    store_up: Gauge<u64>,
    queue_depth: Gauge<u64>,
    queue_wait: Histogram<f64>,
    connections: Gauge<u64>,
    connections_max: Gauge<u64>,
    cache_trees: Gauge<u64>,
    cache_size: Gauge<u64>,
    cache_lookups: Counter<u64>,
    at_work: Gauge<u64>,
    waiting: Gauge<u64>,
    admission_wait: Histogram<f64>,
    turned_away: Counter<u64>,
    policy_behind: Gauge<u64>,
    policy_unconfirmed: Gauge<f64>,
    policy_revision: Gauge<u64>,
    profiles_age: Gauge<f64>,
    clock_apart: Gauge<f64>,
    retention_delay: Gauge<f64>,
    approvals_open: Gauge<u64>,
    approvals_oldest: Gauge<f64>,
    approvals_sessions: Gauge<u64>,
    approvals_wait: Histogram<f64>,
    sessions_stopped: Gauge<u64>,
    halts: Gauge<u64>,
}

impl ServerMetrics {
    pub(super) fn new(make: &InstrumentFactory<'_>) -> Self {
        Self {
            store_up: make.gauge(names::METRIC_STORE_UP, "", "1 while the database responds and stores."),
            queue_depth: make.gauge(names::METRIC_QUEUE_DEPTH, "{append}", "Changes that wait for a commit."),
            queue_wait: make.seconds(names::METRIC_QUEUE_WAIT, "Wait of the oldest change of a commit."),
            connections: make.gauge(names::METRIC_CONNECTIONS, "{connection}", "Connections to the database."),
            connections_max: make.gauge(names::METRIC_CONNECTIONS_MAX, "{connection}", "Maximum of connections."),
            cache_trees: make.gauge(names::METRIC_CACHE_TREES, "{tree}", "Call trees in the cache."),
            cache_size: make.gauge(names::METRIC_CACHE_SIZE, "By", "Approximate size of the cache."),
            cache_lookups: make.counter(names::METRIC_CACHE_LOOKUPS, "{lookup}", "Lookups of call trees in the cache."),
            at_work: make.gauge(names::METRIC_AT_WORK, "{call}", "Evaluates being judged."),
            waiting: make.gauge(names::METRIC_WAITING, "{call}", "Evaluates queued by admission control."),
            admission_wait: make.seconds(names::METRIC_ADMISSION_WAIT, "Time of an Evaluate in the admission queue."),
            turned_away: make.counter(names::METRIC_TURNED_AWAY, "{request}", "Evaluates shed because of overload."),
            policy_behind: make.gauge(
                names::METRIC_POLICY_BEHIND,
                "{revision}",
                "Activations by which the policy of this replica is behind.",
            ),
            policy_unconfirmed: make
                .age(names::METRIC_POLICY_UNCONFIRMED, "Time since this replica last read the active policies."),
            policy_revision: make.gauge(
                names::METRIC_POLICY_REVISION,
                "{revision}",
                "Activation in use for the tenant `default`.",
            ),
            profiles_age: make.age(names::METRIC_PROFILES_AGE, "Time since this replica last read the retry profiles."),
            clock_apart: make.age(names::METRIC_CLOCK_APART, "Difference of this replica's clock from the database's."),
            retention_delay: make.age(names::METRIC_RETENTION_DELAY, "Delay of deletions after the retention period."),
            approvals_open: make.gauge(names::METRIC_APPROVALS_OPEN, "{approval}", "Open approval requests."),
            approvals_oldest: make.age(names::METRIC_APPROVALS_OLDEST, "Age of the oldest open approval request."),
            approvals_sessions: make.gauge(
                names::METRIC_APPROVALS_SESSIONS,
                "{session}",
                "Sessions waiting for approval.",
            ),
            approvals_wait: make.seconds_by(
                names::METRIC_APPROVALS_WAIT,
                "Time from an approval request to its answer.",
                PATIENCE.to_vec(),
            ),
            sessions_stopped: make.gauge(
                names::METRIC_SESSIONS_STOPPED,
                "{session}",
                "Sessions of the database stopped within the last hour.",
            ),
            halts: make.gauge(names::METRIC_HALTS, "{halt}", "Halts in force in the database."),
        }
    }

    /// Counter of shed Evaluates.
    pub(super) fn turned_away_count(&self) -> &Counter<u64> {
        &self.turned_away
    }

    /// The oldest change of a commit waited so long for it.
    pub(super) fn record_commit_wait(&self, waited: Duration) {
        self.queue_wait.record(waited.as_secs_f64(), &[]);
    }
}

impl Metrics {
    /// Records the health of the database: it answers, and it stores.
    pub fn store_up(&self, is_up: bool) {
        self.plane.store_up.record(is_up.into(), &[]);
    }

    /// Records the changes that wait for a commit.
    pub fn record_queue(&self, changes: usize) {
        self.plane.queue_depth.record(changes as u64, &[]);
    }

    /// Records a pool's connections: in use, idle, and their limit.
    pub fn record_connections(&self, pool: &'static str, (used, idle, max): (usize, usize, usize)) {
        let pool = KeyValue::new(names::CONNECTION_POOL, pool);
        for (state, count) in [("used", used), ("idle", idle)] {
            let labels = [pool.clone(), KeyValue::new(names::CONNECTION_STATE, state)];
            self.plane.connections.record(count as u64, &labels);
        }
        self.plane.connections_max.record(max as u64, &[pool]);
    }

    /// Records this replica's cache: call trees, and their approximate size in bytes.
    pub fn record_cache(&self, (trees, bytes): (usize, usize)) {
        self.plane.cache_trees.record(trees as u64, &[]);
        self.plane.cache_size.record(bytes as u64, &[]);
    }

    /// A call tree was asked for, and was in memory or not.
    pub fn looked_up(&self, was_there: bool) {
        self.plane.cache_lookups.add(1, &[KeyValue::new(names::CACHE_HIT, was_there)]);
    }

    /// Records the Evaluates that are judged, and that wait for their turn.
    pub fn record_admission(&self, (at_work, waiting): (usize, usize)) {
        self.plane.at_work.record(at_work as u64, &[]);
        self.plane.waiting.record(waiting as u64, &[]);
    }

    /// An Evaluate waited so long for its turn, and had it.
    pub fn record_admission_wait(&self, waited: Duration) {
        self.plane.admission_wait.record(waited.as_secs_f64(), &[]);
    }

    /// An Evaluate was shed.
    pub fn turned_away(&self) {
        self.plane.turned_away.add(1, &[]);
    }

    /// Records the lag of the judging policy behind the active one, in activations, the age of the last read, and the
    /// revision that judges `default`.
    pub fn policies(&self, behind: u64, unconfirmed: Duration, revision: u64) {
        self.plane.policy_behind.record(behind, &[]);
        self.plane.policy_unconfirmed.record(unconfirmed.as_secs_f64(), &[]);
        self.plane.policy_revision.record(revision, &[]);
    }

    /// Records the age of this replica's retry profiles.
    pub fn profiles(&self, age: Duration) {
        self.plane.profiles_age.record(age.as_secs_f64(), &[]);
    }

    /// Records this replica's clock offset from the database's, and the delay of retention.
    pub fn clocks(&self, apart: Duration, delay: Duration) {
        self.plane.clock_apart.record(apart.as_secs_f64(), &[]);
        self.plane.retention_delay.record(delay.as_secs_f64(), &[]);
    }

    /// Records the open approval requests of the whole database, their sessions, and the age of the oldest.
    pub fn asked_of_people(&self, open: u64, sessions: u64, oldest: Duration) {
        self.plane.approvals_open.record(open, &[]);
        self.plane.approvals_sessions.record(sessions, &[]);
        self.plane.approvals_oldest.record(oldest.as_secs_f64(), &[]);
    }

    /// An approval request was answered or withdrawn after `waited_ms`.
    pub fn record_approval(&self, state: QuestionState, waited_ms: u64) {
        let labels = [KeyValue::new(names::ANSWER, state.as_str())];
        self.plane.approvals_wait.record(Duration::from_millis(waited_ms).as_secs_f64(), &labels);
    }

    /// Records the sessions of the whole database that were stopped within the last hour, and have not gone on.
    pub fn record_stopped_sessions(&self, sessions: u64) {
        self.plane.sessions_stopped.record(sessions, &[]);
    }

    /// Records the halts in force, by kind.
    pub fn record_halts(&self, halts: impl IntoIterator<Item = (&'static str, u64)>) {
        for (kind, count) in halts {
            self.plane.halts.record(count, &[KeyValue::new(names::HALT_KIND, kind)]);
        }
    }
}
