//! Reads that are gathered, as the writer gathers changes: what is asked for while others read is one statement. Alone
//! nobody waits for anybody; when a thousand come at once they are some dozen statements, and keep some connections busy
//! instead of all.

use std::{pin::Pin, sync::Arc};

use sqlx::PgConnection;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{decode::Loaded, read::Readers};
use crate::store::error::{Busy, StoreError};

/// Statements of one kind at a time.
const AT_ONCE: usize = 2;
/// Questions that one statement answers.
const GATHERED_MAX: usize = 64;
/// Questions that may wait; past that callers are told to come back.
const WAITING_MAX: usize = 4_096;

/// Answers to questions, in their order: what is wrong with one row is that one's error.
pub(super) type Answers<'a, A> = Pin<Box<dyn Future<Output = Loaded<Vec<Loaded<A>>>> + Send + 'a>>;
/// What answers questions over one connection.
pub(super) type Work<Q, A> = for<'a> fn(&'a mut PgConnection, &'a [Q]) -> Answers<'a, A>;

/// Questions of one kind, each with who waits for its answer.
#[derive(Debug)]
pub(super) struct Gathered<Q, A>(mpsc::Sender<Waiting<Q, A>>);

type Waiting<Q, A> = (Q, oneshot::Sender<Loaded<A>>);
type Queue<Q, A> = Arc<Mutex<mpsc::Receiver<Waiting<Q, A>>>>;

impl<Q: Send + Sync + 'static, A: Send + 'static> Gathered<Q, A> {
    pub(super) fn new(readers: &Readers, work: Work<Q, A>) -> Self {
        let (asked, queue) = mpsc::channel(WAITING_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..AT_ONCE {
            tokio::spawn(answer(readers.clone(), Arc::clone(&queue), work));
        }
        Self(asked)
    }

    /// The answer to a question.
    ///
    /// # Errors
    /// What answering came to; [`StoreError::Overloaded`] when too many wait.
    pub(super) async fn ask(&self, question: Q) -> Loaded<A> {
        self.put(question)?.await.unwrap_or(Err(StoreError::Stopped))
    }

    /// The answers to several questions, in their order.
    ///
    /// # Errors
    /// The first of what answering came to; [`StoreError::Overloaded`] when too many wait.
    pub(super) async fn ask_all(&self, questions: impl IntoIterator<Item = Q>) -> Loaded<Vec<A>> {
        let waiting: Vec<_> = questions.into_iter().map(|question| self.put(question)).collect::<Loaded<_>>()?;
        let mut answers = Vec::with_capacity(waiting.len());
        for answer in waiting {
            answers.push(answer.await.unwrap_or(Err(StoreError::Stopped))?);
        }
        Ok(answers)
    }

    fn put(&self, question: Q) -> Loaded<oneshot::Receiver<Loaded<A>>> {
        let (reply, answer) = oneshot::channel();
        self.0.try_send((question, reply)).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::Overloaded(Busy::Readers),
            mpsc::error::TrySendError::Closed(_) => StoreError::Stopped,
        })?;
        Ok(answer)
    }
}

/// Answers what is asked until nobody is left who could ask.
async fn answer<Q: Send + Sync + 'static, A: Send + 'static>(readers: Readers, queue: Queue<Q, A>, work: Work<Q, A>) {
    let mut waiting = Vec::with_capacity(GATHERED_MAX);
    while queue.lock().await.recv_many(&mut waiting, GATHERED_MAX).await > 0 {
        // Who has gone away is asked for by nobody.
        let (questions, replies): (Vec<Q>, Vec<_>) = waiting.drain(..).filter(|(_, reply)| !reply.is_closed()).unzip();
        if questions.is_empty() {
            continue;
        }
        match readers.read(async |conn| work(conn, &questions).await).await {
            Ok(answers) => replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(answer))),
            Err(error) => {
                // Nothing else can be told to those who came meanwhile, and they need not wait for it as long.
                let mut told = replies;
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
