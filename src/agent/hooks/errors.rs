//! Interpretation of server errors for hooks.

use std::{future::Future, time::Duration};

use tokio::time::sleep;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::AWAY_STEP;
use callgate_net::clock::Clock;

/// Duration of cancellation retries: a default lease has expired by then.
const CALLED_OFF_WITHIN: Duration = Duration::from_secs(900);
/// Maximum time that a request can wait in a recovering server.
const UNHEARD: Duration = Duration::from_secs(20);

fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

/// Reports a cancellation, retrying until the server accepts it, for 15 min at most. An unknown call is retried, too,
/// because the server may still have its request queued.
pub async fn until_called_off<T, F: Future<Output = Result<T, Status>>>(mut report: impl FnMut() -> F) {
    let (clock, mut unheard_since) = (Clock::System, None);
    let began = clock.tick();
    while let Err(status) = report().await {
        if clock.elapsed_since(began) > CALLED_OFF_WITHIN {
            return;
        }
        let is_unheard = ["CALL_UNKNOWN", "SESSION_UNKNOWN"].contains(&reason(&status).unwrap_or_default().as_str());
        if is_unheard {
            let since = *unheard_since.get_or_insert_with(|| clock.tick());
            if clock.elapsed_since(since) > UNHEARD {
                return;
            }
        } else if is_settled(&status) {
            return;
        }
        sleep(AWAY_STEP).await;
    }
}

/// True for an unknown session.
pub(super) fn is_unknown(status: &Status) -> bool {
    reason(status).as_deref() == Some("SESSION_UNKNOWN")
}

/// True for a report without effect: the call was refused, or has an outcome.
pub(super) fn is_settled(status: &Status) -> bool {
    let is_closed = |reason: &String| reason.starts_with("APPROVAL_");
    let known = ["CALL_NOT_PERMITTED", "CALL_ALREADY_SETTLED", "ATTEMPT_SUPERSEDED", "CALL_UNKNOWN"];
    reason(status).is_some_and(|reason| known.contains(&reason.as_str()) || is_closed(&reason))
}

/// True when the server is unreachable or unavailable: the call was not judged.
#[must_use]
pub fn is_away(status: &Status) -> bool {
    match reason(status) {
        Some(reason) => {
            ["STORE_UNAVAILABLE", "SHUTTING_DOWN", "DEADLINE", "OVERLOADED", "CONTENTION"].contains(&reason.as_str())
        }
        // It comes from the way there.
        None => matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled | Code::Internal
        ),
    }
}
