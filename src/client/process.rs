//! Start and end of a command: runtime and exit code.

use std::process::ExitCode;

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

/// A runtime with one thread per core.
///
/// # Errors
/// Threads that cannot be started.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    runtime_of(None)
}

/// Number of tasks after which a single thread polls for I/O.
const EVENT_INTERVAL: u32 = 16;

/// A runtime with `threads` threads; default: one per core. A single thread runs tasks in wake order, so that all
/// responses of a commit are sent in one write per connection. With several, a woken task runs next, and each response
/// is sent alone.
pub fn runtime_of(threads: Option<usize>) -> anyhow::Result<tokio::runtime::Runtime> {
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
