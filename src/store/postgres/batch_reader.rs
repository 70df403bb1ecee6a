//! Batched reads, like the writer's group commit: requests that arrive during a running statement share the next. A
//! single request never waits; a thousand at once are some dozen statements, and use some connections instead of all.

use std::{pin::Pin, sync::Arc};

use sqlx::PgConnection;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    decode::{LoadedRow, corrupt},
    load::ShardSplit,
    read::Readers,
};
use crate::error::{OverloadedPart, StoreError};
use callgate_core::domain::ids::TenantId;

/// Concurrent statements per kind.
const AT_ONCE: usize = 2;
/// Maximum number of requests per statement.
pub(super) const GATHERED_MAX: usize = 64;
/// Maximum number of requests for slow statements, which share a timeout.
pub(super) const TREES_MAX: usize = 16;
/// Maximum number of queued requests; beyond it callers get an overload error.
const WAITING_MAX: usize = 4_096;

/// Results in request order; an invalid row is an error of its request only.
pub(super) type BatchAnswers<'a, A> = Pin<Box<dyn Future<Output = LoadedRow<Vec<LoadedRow<A>>>> + Send + 'a>>;
/// Executor of requests on one connection.
pub(super) type Work<Q, A> = for<'a> fn(&'a mut PgConnection, &'a [Q], ShardSplit) -> BatchAnswers<'a, A>;

/// Queue of requests of one kind, those of one caller together, with their reply channels.
#[derive(Debug)]
pub(super) struct BatchReader<Q, A>(mpsc::Sender<WaitingQuery<Q, A>>);

type WaitingQuery<Q, A> = (Vec<Q>, oneshot::Sender<LoadedRow<Vec<A>>>);
type WaitingQueries<Q, A> = Arc<Mutex<mpsc::Receiver<WaitingQuery<Q, A>>>>;

/// A request for a tenant's rows.
pub(super) trait TenantQuery {
    fn tenant(&self) -> TenantId;
}

impl<B> TenantQuery for (TenantId, B) {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

impl<B, C> TenantQuery for (TenantId, B, C) {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

impl<B, C, D> TenantQuery for (TenantId, B, C, D) {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

impl<B, C, D, E> TenantQuery for (TenantId, B, C, D, E) {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

/// The distinct tenants of these requests, sorted.
pub(super) fn tenants<Q: TenantQuery>(questions: &[Q]) -> Vec<TenantId> {
    let mut tenants: Vec<TenantId> = questions.iter().map(TenantQuery::tenant).collect();
    tenants.sort_unstable();
    tenants.dedup();
    tenants
}

impl<Q: TenantQuery + Send + Sync + 'static, A: Send + 'static> BatchReader<Q, A> {
    pub(super) fn new(readers: &Readers, most: usize, cut: ShardSplit, work: Work<Q, A>) -> Self {
        let (asked, queue) = mpsc::channel(WAITING_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..AT_ONCE {
            tokio::spawn(answer(readers.clone(), Arc::clone(&queue), most, (cut, work)));
        }
        Self(asked)
    }

    /// The result of a request.
    ///
    /// # Errors
    /// Errors of the execution; [`StoreError::Overloaded`] for a full queue.
    pub(super) async fn ask(&self, question: Q) -> LoadedRow<A> {
        let answer = self.ask_all(vec![question]).await?.pop();
        answer.ok_or_else(|| corrupt("a question without an answer"))
    }

    /// The results of several requests, in order, from one statement.
    ///
    /// # Errors
    /// The first error of the execution; [`StoreError::Overloaded`] for a full queue.
    pub(super) async fn ask_all(&self, questions: Vec<Q>) -> LoadedRow<Vec<A>> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answers) = oneshot::channel();
        self.0.try_send((questions, reply)).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::Overloaded(OverloadedPart::Readers),
            mpsc::error::TrySendError::Closed(_) => StoreError::Stopped,
        })?;
        answers.await.unwrap_or(Err(StoreError::Stopped))
    }
}

/// Serves requests until all senders are dropped.
async fn answer<Q: TenantQuery + Send + Sync + 'static, A: Send + 'static>(
    readers: Readers,
    queue: WaitingQueries<Q, A>,
    most: usize,
    (cut, work): (ShardSplit, Work<Q, A>),
) {
    let mut waiting = Vec::with_capacity(most);
    while queue.lock().await.recv_many(&mut waiting, most).await > 0 {
        let (mut questions, mut replies) = (Vec::with_capacity(waiting.len()), Vec::with_capacity(waiting.len()));
        // Cancelled requests are skipped.
        for (asked, reply) in waiting.drain(..).filter(|(_, reply)| !reply.is_closed()) {
            replies.push((asked.len(), reply));
            questions.extend(asked);
        }
        if questions.is_empty() {
            continue;
        }
        match readers.read_of(&tenants(&questions), async |conn| work(conn, &questions, cut).await).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for (asked, reply) in replies {
                    drop(reply.send(answers.by_ref().take(asked).collect()));
                }
            }
            Err(error) => {
                let mut told: Vec<_> = replies.into_iter().map(|(_, reply)| reply).collect();
                // Queued requests would fail the same way, so they fail at once.
                if error.is_out_of_reach()
                    && let Ok(mut queue) = queue.try_lock()
                {
                    told.extend(std::iter::from_fn(|| queue.try_recv().ok()).map(|(_, reply)| reply));
                }
                told.into_iter().for_each(|reply| drop(reply.send(Err(error.clone()))));
            }
        }
    }
}
