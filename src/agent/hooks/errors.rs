//! What a plane's errors say to who asks it for a host.

use std::{future::Future, time::Duration};

use tokio::time::sleep;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::AWAY_STEP;
use callgate_net::clock::Clock;

/// A lease is over by then, unless the policy gives a longer one.
const CALLED_OFF_WITHIN: Duration = Duration::from_secs(900);
/// How long a question may lie before a server that is back.
const UNHEARD: Duration = Duration::from_secs(20);

fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

/// Reports that a call was called off, again and again until the server has heard it, for 15 min at most. A server
/// that knows no such call may still have the question before it.
pub async fn until_called_off<T, F: Future<Output = Result<T, Status>>>(mut report: impl FnMut() -> F) {
    let (clock, mut unheard_since) = (Clock::System, None);
    let began = clock.tick();
    while let Err(status) = report().await {
        if clock.elapsed(began) > CALLED_OFF_WITHIN {
            return;
        }
        let is_unheard = ["CALL_UNKNOWN", "SESSION_UNKNOWN"].contains(&reason(&status).unwrap_or_default().as_str());
        if is_unheard {
            let since = *unheard_since.get_or_insert_with(|| clock.tick());
            if clock.elapsed(since) > UNHEARD {
                return;
            }
        } else if is_settled(&status) {
            return;
        }
        sleep(AWAY_STEP).await;
    }
}

/// A session that has not called anything.
pub(super) fn is_unknown(status: &Status) -> bool {
    reason(status).as_deref() == Some("SESSION_UNKNOWN")
}

/// A report that changes nothing: on a call that was refused, or that has an outcome.
pub(super) fn is_settled(status: &Status) -> bool {
    let is_closed = |reason: &String| reason.starts_with("APPROVAL_");
    let known = ["CALL_NOT_PERMITTED", "CALL_ALREADY_SETTLED", "ATTEMPT_SUPERSEDED", "CALL_UNKNOWN"];
    reason(status).is_some_and(|reason| known.contains(&reason.as_str()) || is_closed(&reason))
}

/// True when the server is out of reach, or cannot answer now: nobody has looked at the call.
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
