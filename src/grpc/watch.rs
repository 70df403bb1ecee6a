//! Watches: a look at the store again and again, and a message for whatever is new.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::Status;

use super::stop::Stop;

/// How often a watch looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages that a slow watcher may leave untaken before its watch waits for it.
const UNTAKEN_MAX: usize = 64;

/// What a watcher gets.
pub(super) type Watched<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Something that is watched.
pub(super) trait Look: Send + 'static {
    /// What is told of it.
    type Told: Send + 'static;

    /// What is new since the last look.
    fn look(&mut self) -> impl Future<Output = Result<Vec<Self::Told>, Status>> + Send;
}

/// Tells what is new until nobody listens, a look fails, or the server ends.
pub(super) fn watch<L: Look>(watched: L, stop: Stop) -> Watched<L::Told> {
    let (to, from) = mpsc::channel(UNTAKEN_MAX);
    tokio::spawn(async move {
        if let Err(status) = stop.or(tell(watched, &to)).await {
            let _ = to.send(Err(status)).await;
        }
    });
    Box::pin(ReceiverStream::new(from))
}

async fn tell<L: Look>(mut watched: L, to: &mpsc::Sender<Result<L::Told, Status>>) -> Result<(), Status> {
    loop {
        for told in watched.look().await? {
            if to.send(Ok(told)).await.is_err() {
                return Ok(());
            }
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = to.closed() => return Ok(()),
        }
    }
}
