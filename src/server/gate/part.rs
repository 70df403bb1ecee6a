//! One part of an overview: read on its own, in the background, and shared by all who wait for it. A slow or failing
//! read delays no other part, and its result is there for the next request.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use super::NoAnswer;
use callgate_net::clock::{Clock, Tick};

/// Time that a request waits for a part.
pub(super) const PART_BUDGET: Duration = Duration::from_millis(500);
/// Time for which an answer stands in for a later one that is not there yet.
const KEPT: Duration = Duration::from_secs(10);
/// Pause after a read, in multiples of its duration: a slow read takes at most a fifth of its connection's time.
const PAUSE: u32 = 4;

/// A part with its last answer.
#[derive(Debug)]
pub(super) struct CachedPart<T>(Arc<watch::Sender<PartState<T>>>);

#[derive(Debug)]
struct PartState<T> {
    answer: Option<PartAnswer<T>>,
    is_reading: bool,
}

/// The result of a read, with its duration.
#[derive(Debug)]
struct PartAnswer<T> {
    value: Result<Arc<T>, NoAnswer>,
    took: Duration,
    at: Tick,
}

impl<T> Default for CachedPart<T> {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(PartState { answer: None, is_reading: false })))
    }
}

/// Marks the read as ended, also where it panics.
struct ReadGuard<T>(Arc<watch::Sender<PartState<T>>>);

impl<T> Drop for ReadGuard<T> {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.is_reading = false);
    }
}

impl<T: Send + Sync + 'static> CachedPart<T> {
    /// The part, with the duration of its read; read again when it is older than `shared`.
    ///
    /// # Errors
    /// [`NoAnswer`] when the read failed or is not over in time, and no earlier answer stands in for it.
    pub(super) async fn read(
        &self,
        clock: &Clock,
        (shared, budget): (Duration, Duration),
        read: impl Future<Output = Result<T, NoAnswer>> + Send + 'static,
    ) -> Result<(Arc<T>, Duration), NoAnswer> {
        let mut changes = self.0.subscribe();
        let is_due = |state: &PartState<T>| {
            let is_old = |answer: &PartAnswer<T>| {
                let age = clock.elapsed_since(answer.at);
                age >= shared && age >= answer.took * PAUSE
            };
            !state.is_reading && state.answer.as_ref().is_none_or(is_old)
        };
        let begins = self.0.send_if_modified(|state| {
            let begins = is_due(state);
            state.is_reading |= begins;
            begins
        });
        if begins {
            let (guard, clock) = (ReadGuard(Arc::clone(&self.0)), clock.clone());
            tokio::spawn(async move {
                let began = clock.tick();
                let value = read.await.map(Arc::new);
                let answer = PartAnswer { value, took: clock.elapsed_since(began), at: clock.tick() };
                guard.0.send_modify(|state| state.answer = Some(answer));
            });
        }
        let _ = timeout(budget, changes.wait_for(|state| !state.is_reading)).await;
        let state = self.0.borrow();
        match &state.answer {
            Some(answer) if !state.is_reading || clock.elapsed_since(answer.at) < shared + KEPT => {
                answer.value.clone().map(|value| (value, answer.took))
            }
            _ => Err(NoAnswer::Overloaded(format!("no answer within {} ms", budget.as_millis()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use callgate_core::domain::time::Timestamp;

    const TIMES: (Duration, Duration) = (Duration::from_millis(900), Duration::from_millis(20));

    async fn value(
        part: &CachedPart<u32>,
        clock: &Clock,
        read: impl Future<Output = Result<u32, NoAnswer>> + Send + 'static,
    ) -> Result<u32, NoAnswer> {
        part.read(clock, TIMES, read).await.map(|(value, _)| *value)
    }

    #[tokio::test]
    async fn answer_is_shared_and_stands_in_for_a_read_that_hangs() {
        let (clock, part) = (Clock::fake(Timestamp::from_millis(0)), CachedPart::default());
        assert_eq!(value(&part, &clock, async { Ok(1) }).await, Ok(1));
        assert_eq!(value(&part, &clock, async { Ok(2) }).await, Ok(1), "a second has not passed");
        clock.advance(1_000);
        assert_eq!(value(&part, &clock, pending()).await, Ok(1));
        clock.advance(20_000);
        let late = NoAnswer::Overloaded("no answer within 20 ms".into());
        assert_eq!(value(&part, &clock, async { Ok(3) }).await, Err(late), "the other read hangs still");
    }

    #[tokio::test]
    async fn failed_read_is_reported_and_repeated() {
        let (clock, part) = (Clock::fake(Timestamp::from_millis(0)), CachedPart::default());
        assert_eq!(value(&part, &clock, async { Err(NoAnswer::Contention) }).await, Err(NoAnswer::Contention));
        clock.advance(1_000);
        assert_eq!(value(&part, &clock, async { Ok(4) }).await, Ok(4));
    }

    #[tokio::test]
    async fn panic_of_a_read_leaves_the_part_readable() {
        let (clock, part) = (Clock::fake(Timestamp::from_millis(0)), CachedPart::default());
        assert!(value(&part, &clock, async { panic!("a fault") }).await.is_err());
        assert_eq!(value(&part, &clock, async { Ok(5) }).await, Ok(5));
    }
}
