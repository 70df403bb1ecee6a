//! How a command begins and ends: its runtime and its exit code.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::remote::Unanswered;

/// The exit code of who could ask nobody, by the convention of `sysexits.h` for what may be tried again.
const UNANSWERED: u8 = 75;

/// Prints why a command failed, and gives its exit code.
#[must_use]
pub fn failed(error: &anyhow::Error) -> ExitCode {
    errln!("callgate: {error:#}");
    match error.downcast_ref::<Unanswered>() {
        Some(_) => ExitCode::from(UNANSWERED),
        None => ExitCode::FAILURE,
    }
}

/// A runtime with as many threads as there are cores.
///
/// # Errors
/// Threads that cannot be started.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    runtime_of(None)
}

/// Tasks after which a thread alone looks for news on its connections, though it has more to do.
const EVENT_INTERVAL: u32 = 16;

/// A runtime with so many threads; without a number, as many as there are cores. One alone takes tasks in the order in
/// which they were woken: all calls of a commit are answered before their connection sends, once for all of them. Among
/// several, what a task wakes comes next, so that every answer is sent by itself.
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
