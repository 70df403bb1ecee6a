//! Stdio proxy: one client and one server. Lines are judged in order of arrival; a call that waits for approval does
//! not block others.

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use futures_util::stream::{FuturesOrdered, StreamExt as _};
use tokio::{
    io::{AsyncRead, stdin, stdout},
    process::ChildStdout,
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::{
    LAST_WORDS,
    child::ChildServer,
    judge::{JudgedCall, MessageBatch, ProxyClient, WaitingCall},
    lines::{self, InputItem, LINE_BYTES_MAX, OutputItem, PipeReader, WAITING_MAX},
    state::Proxy,
};
use crate::mcp::{
    call::ToolsCall,
    message::{self, LineKind, Message, TOOLS_CALL},
};
use callgate_client::signal;

/// Maximum number of concurrent evaluations.
const ASKED_MAX: usize = 64;

/// Item that waits for a verdict.
enum Work {
    /// A call with its original line.
    Call(Box<WaitingCall>, Vec<u8>),
    Batch(MessageBatch),
    /// End of input.
    End,
}

/// A proxy with its pipes.
struct Pipes {
    proxy: Arc<Proxy>,
    to_client: mpsc::Sender<OutputItem>,
    to_server: mpsc::Sender<OutputItem>,
    to_judge: mpsc::Sender<Work>,
}

/// Starts the server, and forwards until one side ends. Its exit code is the server's.
pub(super) async fn run(proxy: Proxy, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (server, input, output) = ChildServer::start(command)?;
    let (to_client, for_client) = mpsc::channel(WAITING_MAX);
    let (to_server, for_server) = mpsc::channel(WAITING_MAX);
    let (to_judge, for_judge) = mpsc::channel(WAITING_MAX);
    let pipes = Arc::new(Pipes { proxy: Arc::new(proxy), to_client, to_server, to_judge });
    let writers = Writers {
        client: tokio::spawn(lines::write(stdout(), for_client)),
        server: tokio::spawn(lines::write(input, for_server)),
    };
    let judge = tokio::spawn(Arc::clone(&pipes).judge(for_judge));
    forward_pipes(pipes, server, writers, judge, output).await
}

/// The side that ended.
enum PipeEnd {
    Server,
    Client,
    Signal,
}

/// Writer tasks.
struct Writers {
    client: JoinHandle<std::io::Result<()>>,
    server: JoinHandle<std::io::Result<()>>,
}

/// Forwards until one side ends or a signal arrives; then shuts down the other.
async fn forward_pipes(
    pipes: Arc<Pipes>,
    mut server: ChildServer,
    mut writers: Writers,
    judge: JoinHandle<()>,
    output: ChildStdout,
) -> anyhow::Result<ExitCode> {
    let mut up = tokio::spawn(forward_client(Arc::clone(&pipes)));
    let mut down = tokio::spawn(down(Arc::clone(&pipes), output));
    let stop = signal::stop();
    tokio::pin!(stop);
    let mut end = tokio::select! {
        _ = &mut down => PipeEnd::Server,
        _ = server.wait_for_exit() => PipeEnd::Server,
        _ = &mut up => PipeEnd::Client,
        _ = &mut writers.client => PipeEnd::Client,
        () = &mut stop => PipeEnd::Signal,
    };
    if matches!(end, PipeEnd::Client) {
        // Requests from before the client's end are still processed, as without the proxy.
        let _ = pipes.to_judge.send(Work::End).await;
        let _ = judge.await;
        for (_, off) in pipes.proxy.state().held.drain(..) {
            off.send_replace(true);
        }
        let _ = pipes.to_server.send(OutputItem::End).await;
        tokio::select! {
            _ = &mut down => {}
            _ = server.wait_for_exit() => {}
            () = &mut stop => end = PipeEnd::Signal,
        }
    }
    if matches!(end, PipeEnd::Signal) {
        // Dropping its writer closes its input, also where it does not read.
        writers.server.abort();
    }
    let status = server.end().await;
    // The rest of the server's output is read.
    if !down.is_finished() {
        let _ = timeout(LAST_WORDS, &mut down).await;
    }
    let code = status.and_then(|status| status.code());
    let how = code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with exit code {code}"));
    if matches!(end, PipeEnd::Server) {
        pipes.proxy.print_line(&format!("the MCP server {how}"));
    }
    for answer in pipes.proxy.fail_open_requests(&format!("The MCP server {how}.")) {
        pipes.answer(&answer).await;
    }
    let _ = pipes.to_client.send(OutputItem::End).await;
    if !writers.client.is_finished() {
        let _ = timeout(LAST_WORDS, writers.client).await;
    }
    pipes.proxy.plane.wait_for_reports(LAST_WORDS).await;
    let own = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(if matches!(end, PipeEnd::Server) { ExitCode::from(own) } else { ExitCode::SUCCESS })
}

/// Reads the client until its end.
async fn forward_client(pipes: Arc<Pipes>) {
    let mut lines = PipeReader::new(stdin(), LINE_BYTES_MAX);
    let mut is_within = false;
    while let Ok(Some(piece)) = lines.next().await {
        match piece {
            InputItem::Line(line) => pipes.client_says(line).await,
            InputItem::Part { is_last, .. } => {
                if !is_within {
                    let problem = format!("it is longer than {} MiB", LINE_BYTES_MAX >> 20);
                    pipes.answer(&pipes.proxy.unreadable(&problem)).await;
                }
                is_within = !is_last;
            }
        }
    }
}

/// Reads the server. A line that is too long is passed unparsed, so its outcome is unknown.
async fn down(pipes: Arc<Pipes>, output: impl AsyncRead + Unpin) {
    let mut lines = PipeReader::new(output, LINE_BYTES_MAX);
    let mut parts: Option<mpsc::Sender<Vec<u8>>> = None;
    while let Ok(Some(piece)) = lines.next().await {
        match piece {
            InputItem::Line(line) => pipes.server_says(line).await,
            InputItem::Part { bytes, is_last } => {
                if parts.is_none() {
                    let (sender, receiver) = mpsc::channel(1);
                    let _ = pipes.to_client.send(OutputItem::Parts(receiver)).await;
                    parts = Some(sender);
                }
                if let Some(sender) = &parts {
                    let _ = sender.send(bytes).await;
                }
                if is_last {
                    parts = None;
                }
            }
        }
    }
}

impl Pipes {
    fn client(&self) -> ProxyClient {
        ProxyClient { number: 0, told: Some(self.to_client.clone()) }
    }

    async fn answer(&self, message: &str) {
        let _ = self.to_client.send(OutputItem::from_message(message)).await;
    }

    async fn forward(&self, line: Vec<u8>) {
        let _ = self.to_server.send(OutputItem::Line(line)).await;
    }

    /// Handles a client's line: passes it, or queues it for a verdict.
    async fn client_says(&self, line: Vec<u8>) {
        let text = String::from_utf8_lossy(&line).into_owned();
        let is_call = |message: &Message<'_>| message.is(TOOLS_CALL);
        match message::read(&text) {
            LineKind::Unreadable => {
                self.answer(&self.proxy.unreadable("it is not one JSON value, or has a duplicate name")).await;
            }
            LineKind::One(message) if is_call(&message) => match ToolsCall::read(&message) {
                Ok(call) => {
                    let waiting = self.proxy.waiting(&self.client(), call, message.raw.to_owned());
                    let _ = self.to_judge.send(Work::Call(Box::new(waiting), line)).await;
                }
                Err(problem) => self.answer(&self.proxy.unjudgeable(message.id.as_ref(), problem)).await,
            },
            LineKind::Batch(messages) if messages.iter().any(is_call) => {
                let batch = self.proxy.batch(&self.client(), &messages, line, false);
                let _ = self.to_judge.send(Work::Batch(batch)).await;
            }
            LineKind::One(message) => {
                if self.proxy.passes(0, &message) {
                    self.forward(line).await;
                }
            }
            LineKind::Batch(messages) => {
                for message in &messages {
                    self.proxy.passes(0, message);
                }
                self.forward(line).await;
            }
            LineKind::Noise => self.forward(line).await,
        }
    }

    /// Passes a server's line.
    async fn server_says(&self, line: Vec<u8>) {
        let noted = self.proxy.handle_server_message(0, &String::from_utf8_lossy(&line));
        let _ =
            self.to_client.send(noted.map_or(OutputItem::Line(line), |noted| OutputItem::from_message(&noted))).await;
    }

    /// Judges queued items in order.
    async fn judge(self: Arc<Self>, mut work: mpsc::Receiver<Work>) {
        let mut asked = FuturesOrdered::new();
        let mut is_ended = false;
        while !is_ended || !asked.is_empty() {
            tokio::select! {
                next = work.recv(), if !is_ended && asked.len() < ASKED_MAX => match next {
                    Some(Work::Call(waiting, line)) => {
                        let proxy = Arc::clone(&self.proxy);
                        asked.push_back(async move { (proxy.first(&waiting).await, waiting, line) });
                    }
                    Some(Work::Batch(batch)) => drop(tokio::spawn(Arc::clone(&self).batch(batch))),
                    Some(Work::End) | None => is_ended = true,
                },
                Some((fate, waiting, line)) = asked.next(), if !asked.is_empty() => match fate {
                    JudgedCall::Held(verdict) => {
                        let pipes = Arc::clone(&self);
                        tokio::spawn(async move {
                            let fate = pipes.proxy.hold(&waiting, *verdict).await;
                            pipes.act(fate, line).await;
                        });
                    }
                    fate => self.act(fate, line).await,
                },
            }
        }
    }

    async fn act(&self, fate: JudgedCall, line: Vec<u8>) {
        match fate {
            JudgedCall::Runs(message) => {
                let line = message.map_or(line, |message| format!("{message}\n").into_bytes());
                self.forward(line).await;
            }
            JudgedCall::Answered(answer) => self.answer(&answer).await,
            JudgedCall::Off | JudgedCall::Held(_) => {}
        }
    }

    async fn batch(self: Arc<Self>, batch: MessageBatch) {
        let decided = self.proxy.decide_batch(batch).await;
        if !decided.answers.is_empty() {
            self.answer(&format!("[{}]", decided.answers.join(","))).await;
        }
        if let Some(line) = decided.line {
            self.forward(line).await;
        }
    }
}
