//! Start and end of a command: runtime and exit code.

use std::{pin::Pin, process::ExitCode};

use anyhow::Context as _;

use crate::remote::NoResponse;

/// Exit code when no server answered: `EX_TEMPFAIL` of `sysexits.h`.
const UNANSWERED: u8 = 75;

/// Prints the error of a command, and returns its exit code.
#[must_use]
pub fn print_failure(error: &anyhow::Error) -> ExitCode {
    errln!("callgate: {error:#}");
    match error.downcast_ref::<NoResponse>() {
        Some(_) => ExitCode::from(UNANSWERED),
        None => ExitCode::FAILURE,
    }
}

/// Runs a command to its end, on a runtime with one thread per core.
///
/// # Errors
/// Those of the command, and threads that cannot be started.
pub fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    block_on_threads(None, command)
}

/// [`block_on`], with `threads` threads.
pub fn block_on_threads<T>(
    threads: Option<usize>,
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    // Boxed: otherwise each command is compiled once per place where a runtime polls.
    let command: Pin<Box<dyn Future<Output = anyhow::Result<T>> + '_>> = Box::pin(command);
    runtime(threads)?.block_on(command)
}

/// Number of tasks after which a single thread polls for I/O.
const EVENT_INTERVAL: u32 = 16;

/// A runtime with `threads` threads; default: one per core. A single thread runs tasks in wake order, so that all
/// responses of a commit are sent in one write per connection. With several, a woken task runs next, and each response
/// is sent alone.
fn runtime(threads: Option<usize>) -> anyhow::Result<tokio::runtime::Runtime> {
    use tokio::runtime::Builder;
    let mut builder = match threads {
        Some(1) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let builder = match threads {
        Some(1) => builder.event_interval(EVENT_INTERVAL),
        Some(threads) => builder.worker_threads(threads),
        None => &mut builder,
    };
    builder.enable_all().build().context("cannot start the async runtime")
}
