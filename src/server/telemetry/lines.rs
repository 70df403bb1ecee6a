//! lines: log lines leave by a thread of their own, so that whoever reads standard error slowly, or not at all, holds
//! up nobody's call. What does not fit into the queue is lost, counted, and told as soon as there is room.

use std::time::Duration;

use tokio::{runtime::Handle, task::JoinHandle, time::sleep};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait.
const QUEUE: usize = 16_384;
/// How often it is looked whether some were lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What writes them. Dropped, it writes what waits, for a second at most.
#[derive(Debug)]
pub(super) struct Lines {
    watch: Option<JoinHandle<()>>,
    _writer: WorkerGuard,
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.watch.take().inspect(JoinHandle::abort);
    }
}

/// Begins to write to standard error.
pub(super) fn start() -> (NonBlocking, Lines) {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE).thread_name("log");
    let (lines, writer) = builder.finish(std::io::stderr());
    let lost = lines.error_counter();
    let watch = Handle::try_current().ok().map(|runtime| {
        runtime.spawn(async move {
            let mut told = 0;
            loop {
                sleep(LOOK_EVERY).await;
                told = tell(&lost, told);
            }
        })
    });
    (lines, Lines { watch, _writer: writer })
}

/// Says how many were lost beside those that were told.
fn tell(lost: &ErrorCounter, told: usize) -> usize {
    let all = lost.dropped_lines();
    if all > told {
        let lost = all - told;
        tracing::warn!(lost, all, "log lines were lost: whoever reads standard error did not keep up");
    }
    all
}
