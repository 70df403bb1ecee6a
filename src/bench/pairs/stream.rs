//! Client of `GateService.Connect`: all agents of a connection share one stream, and queued requests share a frame.

use std::collections::HashMap;

use anyhow::{Context as _, anyhow};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use callgate_client::remote::AuthenticatedChannel;
use callgate_proto::v1::{
    ConnectRequest, ConnectResponse, TaggedRequest, gate_service_client::GateServiceClient, tagged_answer::Answer,
    tagged_request::Request,
};

/// Maximum number of requests per frame.
const FRAME_MAX: usize = 256;

type Reply = oneshot::Sender<Answer>;

/// A stream, shared by its agents.
#[derive(Debug, Clone)]
pub(super) struct SharedStream(mpsc::UnboundedSender<(Request, Reply)>);

impl SharedStream {
    pub(super) async fn open(mut gate: GateServiceClient<AuthenticatedChannel>) -> anyhow::Result<Self> {
        // One: while the transport still has a frame to send, requests gather for the next one.
        let (to, frames) = mpsc::channel(1);
        let opened = gate.connect(ReceiverStream::new(frames)).await;
        let mut from = opened.map_err(|status| anyhow!("no stream: {status}"))?.into_inner();
        from.message().await.context("the stream ended")?.context("the stream ended")?;
        let (asked, requests) = mpsc::unbounded_channel();
        tokio::spawn(exchange(to, from, requests));
        Ok(Self(asked))
    }

    /// The response to one request.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Status> {
        let (reply, answer) = oneshot::channel();
        let gone = |_| Status::unavailable("the stream ended");
        self.0.send((request, reply)).map_err(|_| gone(()))?;
        match answer.await.map_err(|_| gone(()))? {
            Answer::Error(error) => {
                let details = error.encode_to_vec();
                Err(Status::with_details(Code::from(error.code), error.message, details.into()))
            }
            answer => Ok(answer),
        }
    }
}

/// Sends requests and distributes responses until either side ends; pending requests then fail.
async fn exchange(
    to: mpsc::Sender<ConnectRequest>,
    mut from: Streaming<ConnectResponse>,
    mut asked: mpsc::UnboundedReceiver<(Request, Reply)>,
) {
    let (mut tag, mut waiting, mut batch) = (0, HashMap::new(), Vec::with_capacity(FRAME_MAX));
    loop {
        let gathered = async {
            let room = to.reserve().await.ok()?;
            (asked.recv_many(&mut batch, FRAME_MAX).await > 0).then_some(room)
        };
        tokio::select! {
            room = gathered => {
                let Some(room) = room else { return };
                let requests = batch.drain(..).map(|(request, reply)| {
                    tag += 1;
                    waiting.insert(tag, reply);
                    TaggedRequest { tag, request: Some(request), ..TaggedRequest::default() }
                });
                room.send(ConnectRequest { requests: requests.collect() });
            }
            frame = from.message() => {
                let Ok(Some(frame)) = frame else { return };
                for answer in frame.answers {
                    if let Some((reply, answer)) = waiting.remove(&answer.tag).zip(answer.answer) {
                        // The requester may be cancelled.
                        let _ = Reply::send(reply, answer);
                    }
                }
            }
        }
    }
}
