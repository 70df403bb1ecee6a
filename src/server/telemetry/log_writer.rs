//! Log writer on a thread of its own, so that a slow or stalled reader of standard error holds up no call. Lines that
//! do not fit into the bounded queue are lost, counted, and reported as soon as there is room.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinHandle, time::sleep};

/// Lines that wait.
const QUEUE_MAX: usize = 16_384;
/// Interval of the check for lost lines.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time to wait for the last lines at shutdown.
const END_AFTER: Duration = Duration::from_secs(1);

/// Bounded queue of log lines.
#[derive(Debug)]
pub(super) struct LogQueue {
    lines: Sender<Option<Vec<u8>>>,
    waiting: AtomicUsize,
    lost: AtomicUsize,
}

impl Write for &LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.fetch_add(1, Relaxed) < QUEUE_MAX && self.lines.send(Some(line.to_vec())).is_ok() {
            return Ok(line.len());
        }
        self.waiting.fetch_sub(1, Relaxed);
        self.lost.fetch_add(1, Relaxed);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writer of the queue. Dropped, it writes the waiting lines, for a second at most.
#[derive(Debug)]
pub(super) struct LogWriter {
    watch: Option<JoinHandle<()>>,
    queue: Arc<LogQueue>,
    ended: Receiver<()>,
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.watch.take().inspect(JoinHandle::abort);
        let _ = self.queue.lines.send(None);
        let _ = self.ended.recv_timeout(END_AFTER);
    }
}

/// Begins to write to standard error.
pub(super) fn start() -> (Arc<LogQueue>, LogWriter) {
    let ((lines, queued), (end, ended)) = (mpsc::channel(), mpsc::channel());
    let queue = Arc::new(LogQueue { lines, waiting: AtomicUsize::new(0), lost: AtomicUsize::new(0) });
    let written = Arc::clone(&queue);
    let writer = thread::Builder::new().name("log".to_owned()).spawn(move || {
        // Dropped with the thread: that is the end.
        let _end: Sender<()> = end;
        while let Ok(Some(line)) = queued.recv() {
            written.waiting.fetch_sub(1, Relaxed);
            let _ = io::stderr().write_all(&line);
        }
    });
    writer.expect("a thread can be started");
    let watched = Arc::clone(&queue);
    let watch = Handle::try_current().ok().map(|runtime| {
        runtime.spawn(async move {
            let mut told = 0;
            loop {
                sleep(LOOK_EVERY).await;
                told = log_lost_lines(watched.lost.load(Relaxed), told);
            }
        })
    });
    (Arc::clone(&queue), LogWriter { watch, queue, ended })
}

/// Logs how many lines were lost since the last report.
fn log_lost_lines(all: usize, told: usize) -> usize {
    if all > told {
        let lost = all - told;
        tracing::warn!(lost, all, "log lines were lost: the reader of standard error is too slow");
    }
    all
}
