//! Admission control: the limit on Evaluates at work, the order of the queue, and load shedding of those that would be
//! answered too late.
//!
//! Reports are not admitted one by one. A report ends an admitted call, so there are never more than those; and since
//! no more Evaluates are at work than one batch of the writer takes, none stands in front of a report for longer than a
//! commit.
//!
//! Little's law, at work = rate × time, gives both limits from one figure that is measured while requests are queued:
//! the rate at which Evaluates are answered. At work are as many as are answered within [`WORK`]. Queued are only those
//! whose turn comes within [`WAIT`], or within the time that their callers still have; others are shed at once, and not
//! after the wait. Turns go round the tenants, one each, and in each tenant round its call trees: a tenant that asks
//! for more than its share waits for itself, and so does a tree in its tenant.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use super::NoAnswer;
use crate::telemetry::Metrics;
use callgate_core::domain::ids::{SessionId, TenantId};
use callgate_net::clock::{Clock, LogLimiter, Tick};

/// Limit of Evaluates at work: one batch of the writer. More would not be written sooner.
const WORKING_MAX: usize = 512;
/// Fewest at work, however slow the database is: below it, commits are shared by too few to be worth their cost.
const WORKING_MIN: usize = 64;
/// Mean time of an Evaluate at work above which fewer are admitted: an agent notices more.
const WORK: Duration = Duration::from_millis(100);
/// Longest wait in the queue: the retry delay of a shed caller. A retry would be no faster.
const WAIT: Duration = Duration::from_millis(500);
/// Most that wait, whatever the rate, which is not known at first: what is answered meanwhile at the highest. The tree
/// with the most makes room.
const WAITING_MAX: usize = (WORKING_MAX as u128 * WAIT.as_millis() / WORK.as_millis()) as usize;
/// Interval over which the rate is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// A call tree, by its root as far as that is known.
pub(super) type AdmissionTree = (TenantId, SessionId);

/// Admission control of a server.
#[derive(Debug)]
pub(super) struct Admission {
    clock: Clock,
    metrics: Metrics,
    queue: Mutex<Queue>,
}

/// Permission to be at work, until it is dropped.
#[derive(Debug)]
pub(super) struct AdmissionPermit {
    admission: Arc<Admission>,
    weight: usize,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    weight: usize,
    permit: oneshot::Sender<AdmissionPermit>,
}

/// The trees of a tenant that wait.
#[derive(Debug, Default)]
struct TenantQueue {
    /// In the order of their turns.
    turns: VecDeque<SessionId>,
    waiters: BTreeMap<SessionId, VecDeque<Waiter>>,
    waiting: usize,
}

impl TenantQueue {
    fn of_tree(&self, root: &SessionId) -> usize {
        self.waiters.get(root).map_or(0, VecDeque::len)
    }

    /// Takes the waiter whose turn it is.
    fn next(&mut self) -> Option<Waiter> {
        let tree = self.turns.pop_front()?;
        let waiters = self.waiters.get_mut(&tree)?;
        let waiter = waiters.pop_front();
        if waiters.is_empty() {
            self.waiters.remove(&tree);
        } else {
            self.turns.push_back(tree);
        }
        self.waiting -= usize::from(waiter.is_some());
        waiter
    }
}

/// Requests at work and requests that wait.
#[derive(Debug)]
struct Queue {
    most: usize,
    working: usize,
    /// The tenants that wait, in the order of their turns.
    turns: VecDeque<TenantId>,
    tenants: BTreeMap<TenantId, TenantQueue>,
    waiting: usize,
    next: u64,
    /// Answered in a second, while requests are queued.
    rate: Option<f64>,
    /// Start of the measurement, and the count of answers since.
    since: Tick,
    answered: usize,
    shed: LogLimiter,
}

impl Queue {
    const fn is_open(&self) -> bool {
        self.working < self.most && self.waiting == 0
    }

    /// Expected wait of the next one of a tree: for a turn of every tree of its tenant, for each that it has waiting,
    /// and as many turns of every other tenant as that one has to take.
    fn wait(&self, (tenant, root): &AdmissionTree) -> Duration {
        let own = self.tenants.get(tenant).map_or(1, |share| {
            let of_tree = share.of_tree(root);
            let trees = share.turns.len() + usize::from(of_tree == 0);
            ((of_tree + 1) * trees).min(share.waiting + 1)
        });
        let others = self.tenants.iter().filter(|(other, _)| *other != tenant);
        let turns = own + others.map(|(_, share)| share.waiting.min(own)).sum::<usize>();
        self.rate
            .map_or(Duration::ZERO, |rate| Duration::try_from_secs_f64(turns as f64 / rate).unwrap_or(Duration::MAX))
    }

    /// Room for one more of a tree, if need be that of the newest of the tree that has the most, in the tenant that has
    /// the most.
    fn make_room(&mut self, (tenant, root): &AdmissionTree) -> bool {
        if self.waiting < WAITING_MAX {
            return true;
        }
        let own = self.tenants.get(tenant).map_or(0, |share| share.waiting);
        let of_tree = self.tenants.get(tenant).map_or(0, |share| share.of_tree(root));
        let Some((largest, share)) = self.tenants.iter_mut().max_by_key(|(_, share)| share.waiting) else {
            return true;
        };
        let is_own = largest == tenant || share.waiting <= own + 1;
        let Some(share) = (if is_own { self.tenants.get_mut(tenant) } else { Some(share) }) else { return false };
        let Some(waiters) = share.waiters.values_mut().max_by_key(|waiters| waiters.len()) else { return false };
        if is_own && waiters.len() <= of_tree + 1 {
            return false;
        }
        share.waiting -= 1;
        self.waiting -= 1;
        // Its sender is dropped, which notifies it.
        waiters.pop_back().is_some()
    }

    fn queue(&mut self, (tenant, root): &AdmissionTree, weight: usize) -> (u64, oneshot::Receiver<AdmissionPermit>) {
        let (permit, turn) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.waiting += 1;
        let share = self.tenants.entry(*tenant).or_default();
        if share.waiting == 0 {
            self.turns.push_back(*tenant);
        }
        share.waiting += 1;
        let waiters = share.waiters.entry(root.clone()).or_default();
        if waiters.is_empty() {
            share.turns.push_back(root.clone());
        }
        waiters.push_back(Waiter { number, weight, permit });
        (number, turn)
    }

    /// Takes the waiter whose turn it is, while there is room.
    fn next(&mut self) -> Option<Waiter> {
        while self.working < self.most {
            let tenant = self.turns.pop_front()?;
            let Some(share) = self.tenants.get_mut(&tenant) else { continue };
            let waiter = share.next();
            if share.turns.is_empty() {
                self.tenants.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
            if let Some(waiter) = waiter {
                self.waiting -= 1;
                self.working += waiter.weight;
                return Some(waiter);
            }
        }
        None
    }

    /// One that waits no longer.
    fn leave(&mut self, (tenant, root): &AdmissionTree, number: u64) {
        let Some(share) = self.tenants.get_mut(tenant) else { return };
        let Some(waiters) = share.waiters.get_mut(root) else { return };
        let before = waiters.len();
        waiters.retain(|waiter| waiter.number != number);
        let gone = before - waiters.len();
        if waiters.is_empty() {
            share.waiters.remove(root);
            share.turns.retain(|turn| turn != root);
        }
        self.waiting -= gone;
        share.waiting -= gone;
        if share.turns.is_empty() {
            self.tenants.remove(tenant);
            self.turns.retain(|turn| turn != tenant);
        }
    }

    /// From here on the rate is measured.
    fn measure(&mut self, clock: &Clock) {
        (self.since, self.answered) = (clock.tick(), 0);
    }

    /// So many were answered. The limit goes halfway to the one by the rate, so that one odd window moves it little.
    fn count_answers(&mut self, count: usize, clock: &Clock) {
        self.working -= count;
        self.answered += count;
        let took = clock.elapsed_since(self.since);
        if took < WINDOW {
            return;
        }
        self.rate = (self.waiting > 0).then(|| self.answered as f64 / took.as_secs_f64());
        if let Some(rate) = self.rate {
            let wanted = (rate * WORK.as_secs_f64()) as usize;
            self.most = usize::midpoint(self.most, wanted).clamp(WORKING_MIN, WORKING_MAX);
        }
        self.measure(clock);
    }
}

impl Admission {
    pub(super) fn new(clock: Clock, metrics: Metrics) -> Arc<Self> {
        let queue = Queue {
            most: WORKING_MAX,
            working: 0,
            turns: VecDeque::new(),
            tenants: BTreeMap::new(),
            waiting: 0,
            next: 0,
            rate: None,
            since: clock.tick(),
            answered: 0,
            shed: LogLimiter::default(),
        };
        Arc::new(Self { clock, metrics, queue: Mutex::new(queue) })
    }

    /// Permission to be at work on `weight` calls of a tree; `left` is the time that the caller has for an answer.
    ///
    /// # Errors
    /// [`NoAnswer::Crowded`] when that would take too long.
    pub(super) async fn admit(
        self: &Arc<Self>,
        tree: impl FnOnce() -> AdmissionTree,
        weight: usize,
        left: Option<Duration>,
    ) -> Result<AdmissionPermit, NoAnswer> {
        let patience = left.map_or(WAIT, |left| left.min(WAIT));
        let (tree, number, turn) = {
            let mut queue = self.queue.lock();
            if queue.is_open() {
                queue.working += weight;
                self.metrics.record_admission_wait(Duration::ZERO);
                return Ok(AdmissionPermit { admission: Arc::clone(self), weight });
            }
            let tree = tree();
            let wait = queue.wait(&tree);
            if wait > patience || !queue.make_room(&tree) {
                return Err(self.shed(&mut queue, wait));
            }
            if queue.waiting == 0 {
                queue.measure(&self.clock);
            }
            let (number, turn) = queue.queue(&tree, weight);
            (tree, number, turn)
        };
        let since = self.clock.tick();
        // A caller that goes away leaves the queue.
        let waiting = QueuedRequest { admission: self, tree, number };
        match timeout(patience, turn).await {
            Ok(Ok(permit)) => {
                self.metrics.record_admission_wait(self.clock.elapsed_since(since));
                Ok(permit)
            }
            _ => {
                let mut queue = self.queue.lock();
                let wait = queue.wait(&waiting.tree);
                let crowded = self.shed(&mut queue, wait);
                // Its end locks the queue, too.
                drop(queue);
                drop(waiting);
                Err(crowded)
            }
        }
    }

    /// Counts of Evaluates at work, and of those that wait.
    pub(super) fn load(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (queue.working, queue.waiting)
    }

    /// Counts, and logs it now and then.
    fn shed(&self, queue: &mut Queue, wait: Duration) -> NoAnswer {
        self.metrics.turned_away();
        if let Some(turned_away) = queue.shed.count_event(&self.clock) {
            let (at_work, waiting) = (queue.most, queue.waiting);
            tracing::warn!(turned_away, at_work, waiting, "requests are shed: too many to answer in time");
        }
        NoAnswer::Crowded(wait)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut queue = self.admission.queue.lock();
        queue.count_answers(self.weight, &self.admission.clock);
        let next: Vec<Waiter> = std::iter::from_fn(|| queue.next()).collect();
        drop(queue);
        for Waiter { weight, permit, .. } in next {
            // A waiter that is gone gives it back by this.
            let _ = permit.send(Self { admission: Arc::clone(&self.admission), weight });
        }
    }
}

/// A request in the queue, until it is dropped.
struct QueuedRequest<'a> {
    admission: &'a Admission,
    tree: AdmissionTree,
    number: u64,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.admission.queue.lock().leave(&self.tree, self.number);
    }
}

#[cfg(test)]
#[path = "admission/tests.rs"]
mod tests;
