//! Termination signals.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first Ctrl-C or SIGTERM, with a line on standard error; the second one ends the process at once.
pub async fn stop() {
    stop_with(|text| errln!("callgate: {text}")).await;
}

/// As [`stop`], with a line of the caller's own.
pub async fn stop_with(tell: impl FnOnce(&str)) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers the signals keep their default action, which ends the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tell("stopping; a second signal stops it at once");
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(130);
    });
}
