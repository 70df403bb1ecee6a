//! Streams of long operations: progress, then the result.

use std::pin::Pin;

use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::Status;

use super::{
    shutdown::Stop,
    status::{self, StatusSource},
};

/// Messages that wait for a caller to take them.
const QUEUE: usize = 8;

/// Response stream.
pub(super) type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Streams the messages of `work`, then its result, until the server ends or the receiver is dropped.
pub(super) fn stream_messages<T, F, E>(
    stop: Stop,
    work: impl FnOnce(mpsc::Sender<T>) -> F,
) -> impl Stream<Item = Result<T, Status>>
where
    T: Send + 'static,
    E: StatusSource + Send + 'static,
    F: Future<Output = Result<Option<T>, E>> + Send + 'static,
{
    let (send, sent) = mpsc::channel(QUEUE);
    let (last, end) = mpsc::channel(1);
    let work = work(send);
    tokio::spawn(async move {
        let done = stop.or(async { work.await.map_err(status::gate) }).await;
        if let Some(done) = done.transpose() {
            let _ = last.send(done).await;
        }
    });
    ReceiverStream::new(sent).map(Ok).chain(ReceiverStream::new(end))
}
