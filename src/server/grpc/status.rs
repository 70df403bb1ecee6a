//! Statuses of errors: documented pairs of code and reason (proto/callgate/v1/gate_service.proto), without SQL errors.

mod codes;
mod commands;
mod dialects;
mod edits;
mod policies;
mod tenancy;

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::Duration,
};

use parking_lot::Mutex;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub(super) use self::codes::to_code_name;
pub use self::codes::to_http_status;
pub(super) use self::dialects::{
    body_too_large, content_type_unknown, encoding_unknown, host_name_status, origin_status, streams, takes_post,
    timeout_unreadable,
};
pub(super) use self::policies::{no_policy_before, policy_unknown, revision_conflict_status, rollout_status};
use self::tenancy::{key_missing, quota_status, unserved_tenant_status};
pub(super) use self::tenancy::{not_of_the_plane, tenant_change_status};
use crate::gate::{
    BacktestError, CredentialRejection, GateError, NoAnswer, PolicyProblem, PrivacyError, StoreError, TokenError,
    WorkError,
};
use callgate_core::domain::{
    identity::Role,
    rejection::{EvaluateRejection, RecordRejection, SessionRejection, SessionUnknown},
    tree::{OPEN_MAX, SESSIONS_MAX},
};
use callgate_net::clock::{Clock, LogLimiter};
use callgate_proto::BY;

pub(super) const DOMAIN: &str = "callgate";

/// Bounds of the retry delay after load shedding: as long as the wait would have been, and soon enough after a burst.
const CROWDED_RETRY_MIN: Duration = Duration::from_millis(500);
const CROWDED_RETRY_MAX: Duration = Duration::from_secs(5);

fn status(code: Code, reason: &str, message: impl Into<String>, retry: Option<Duration>) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new());
    if let Some(retry) = retry {
        details.set_retry_info(Some(retry));
    }
    Status::with_error_details(code, message, details)
}

/// No answer in time.
pub(super) fn deadline() -> Status {
    let message = "no answer in time; the same request may be sent again";
    status(Code::DeadlineExceeded, "DEADLINE", message, Some(Duration::from_millis(200)))
}

/// The limit on bytes of large requests in work is reached.
pub(super) fn too_large_together() -> Status {
    let message = "the server is overloaded: its limit on bytes of large requests in work is reached; send the same \
                   request again in a moment";
    status(Code::ResourceExhausted, "OVERLOADED", message, Some(CROWDED_RETRY_MIN))
}

/// The request names no actor.
pub(super) fn caller_unknown(problem: &str) -> Status {
    let message = format!("the actor is missing: the metadata {BY}, the name of a person or a system, {problem}");
    status(Code::Unauthenticated, "CALLER_UNKNOWN", message, None)
}

/// The caller is unknown. The text is the same for every cause.
pub(super) fn unauthenticated_status() -> Status {
    let message = "this server requires a valid credential: send an API token or a JWT as the metadata `authorization: \
                   Bearer TOKEN`, or connect with a client certificate; the server's log has the cause of a rejection";
    status(Code::Unauthenticated, "UNAUTHENTICATED", message, None)
}

/// A known caller without the required role.
pub(super) fn role_missing(roles: &[Role]) -> Status {
    let wanted: Vec<&str> = roles.iter().chain([&Role::Admin]).map(|role| role.as_str()).collect();
    let message = format!("this method requires one of the roles {}; your credential has none", wanted.join(", "));
    status(Code::PermissionDenied, "ROLE_MISSING", message, None)
}

/// A caller that is bound to some agents names another.
pub(super) fn agent_rejection_status() -> Status {
    let message = "your credential is for other agents: send a `caller.agent_id` that its pattern matches";
    status(Code::PermissionDenied, "AGENT_REFUSED", message, None)
}

/// From the first token on a credential is required.
pub(super) fn first_token() -> Status {
    let message = "the first token must have the role admin and no expiry: after it every request needs a credential, \
                   and only an administrator can make another";
    status(Code::FailedPrecondition, "FIRST_TOKEN", message, None)
}

pub(super) fn rejection_status(refused: CredentialRejection) -> Status {
    match refused {
        CredentialRejection::Unknown(_) => unauthenticated_status(),
        CredentialRejection::Unchecked => {
            let message = "the database is unavailable, so no credential can be checked; send the same request again";
            status(Code::Unavailable, "CREDENTIALS_UNCHECKED", message, Some(Duration::from_secs(1)))
        }
        CredentialRejection::TooMany(wait) => {
            let message = "too many credentials from this address were invalid; wait before you try another";
            status(Code::ResourceExhausted, "TOO_MANY_FAILURES", message, Some(wait))
        }
    }
}

/// Logs the reason for a rejected credential; never the credential.
pub(super) fn log_rejection(why: &str, from: Option<IpAddr>) {
    if let Some(callers) = seldom("UNAUTHENTICATED") {
        let from = from.map_or_else(|| "a Unix socket".to_owned(), |from| from.to_string());
        tracing::warn!(from, callers, "a credential was rejected: {why}");
    }
}

/// The server ends during a wait.
pub(super) fn shutting_down() -> Status {
    let message = "the server is shutting down; send the same request again, to another replica or in a moment";
    status(Code::Unavailable, "SHUTTING_DOWN", message, Some(Duration::from_secs(1)))
}

/// No follow-up on such a failure was counted.
pub(super) fn profile_unknown(tool: &str, kind: &str) -> Status {
    let message = format!("no follow-up on a {kind} of {tool:?} has been counted yet");
    status(Code::NotFound, "PROFILE_UNKNOWN", message, None)
}

pub(super) fn approval_unknown() -> Status {
    status(Code::NotFound, "APPROVAL_UNKNOWN", "no such approval", None)
}

/// A backtest runs already.
pub(super) fn backtest_running() -> Status {
    let message = "a backtest of this tenant runs on this server, which allows one at a time; try again after its end, \
                   or cancel it";
    status(Code::ResourceExhausted, "BACKTEST_RUNNING", message, Some(CROWDED_RETRY_MAX))
}

impl StatusSource for BacktestError {
    fn into_status(self) -> Status {
        match self {
            Self::TooLong => {
                let message = "the backtest did not finish within half an hour, because the server is busy; select \
                               fewer calls";
                status(Code::DeadlineExceeded, "DEADLINE", message, None)
            }
            Self::NoAnswer(no_answer) => no_answer.into_status(),
        }
    }
}

/// Longest list of problems in one answer, in bytes: a status travels in headers, and clients refuse 16 KiB of those.
pub(super) const PROBLEM_BYTES_MAX: usize = 6 << 10;

/// An invalid policy: its problems by path, each with its line; the first ones when they are too many.
pub(super) fn invalid_policy(errors: &[PolicyProblem]) -> Status {
    let mut details = ErrorDetails::with_error_info("INVALID_POLICY", DOMAIN, HashMap::new());
    let (mut bytes, mut told) = (0, 0);
    for error in errors {
        let (path, problem) = (clip_text(&error.path), clip_text(&error.to_string()));
        bytes += problem.len() + path.len();
        if bytes > PROBLEM_BYTES_MAX {
            break;
        }
        details.add_bad_request_violation(path, problem);
        told += 1;
    }
    let first = errors.first().map(|error| clip_text(&error.to_string())).unwrap_or_default();
    let rest = errors.len() - told;
    let more = if rest == 0 { String::new() } else { format!(" ({rest} more are not listed)") };
    let message = format!("the policy cannot be used, {} problem(s){more}; the first: {first}", errors.len());
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// At most as much of a text as one line may be long.
pub(super) fn clip_text(text: &str) -> String {
    const CHARS_MAX: usize = 500;
    text.chars().take(CHARS_MAX).collect()
}

/// Conversion of the gate's errors to statuses.
pub(super) trait StatusSource {
    /// The documented code and reason, with a text for readers of the status.
    fn into_status(self) -> Status;
}

/// The status of any error of the gate.
pub(super) fn gate(error: impl StatusSource) -> Status {
    error.into_status()
}

impl StatusSource for WorkError {
    fn into_status(self) -> Status {
        match self {
            Self::NotTheirs => {
                let message = "the session was opened with another credential; open one of your own, or have whoever \
                               makes credentials name yours as a sub-agent of that one";
                status(Code::PermissionDenied, "NOT_SESSION_OWNER", message, None)
            }
            Self::NoAnswer(no_answer) => no_answer.into_status(),
        }
    }
}

impl StatusSource for TokenError {
    fn into_status(self) -> Status {
        match self {
            Self::Unknown => status(Code::NotFound, "TOKEN_UNKNOWN", "no such token", None),
            Self::Ended(why) => {
                status(Code::FailedPrecondition, "TOKEN_ENDED", format!("{why}; it cannot be replaced"), None)
            }
            Self::NoAnswer(no_answer) => no_answer.into_status(),
        }
    }
}

impl StatusSource for PrivacyError {
    fn into_status(self) -> Status {
        match self {
            Self::Unknown => status(Code::NotFound, "SUBJECT_UNKNOWN", "nothing is stored under that name", None),
            Self::WithoutKeys => {
                let message = "the tenant has no keys, and its data is stored in clear text; name its keys in the \
                               file of `callgate serve --keys`";
                status(Code::FailedPrecondition, "NOT_ENCRYPTED", message, None)
            }
            Self::NoAnswer(no_answer) => no_answer.into_status(),
        }
    }
}

impl StatusSource for StoreError {
    fn into_status(self) -> Status {
        NoAnswer::from(self).into_status()
    }
}

impl<R: StatusSource> StatusSource for GateError<R> {
    fn into_status(self) -> Status {
        match self {
            Self::Rejected(rejection) => rejection.into_status(),
            Self::NoAnswer(no_answer) => no_answer.into_status(),
        }
    }
}

impl StatusSource for NoAnswer {
    fn into_status(self) -> Status {
        let (code, reason, message, retry_ms) = match &self {
            Self::Overloaded(what) => (
                Code::ResourceExhausted,
                "OVERLOADED",
                format!("the server is overloaded: {what}; send the same request again in a moment"),
                500,
            ),
            Self::Contention => (
                Code::Aborted,
                "CONTENTION",
                "the call tree changed repeatedly during this request; send it again".to_owned(),
                100,
            ),
            Self::OutOfReach(_) => (
                Code::Unavailable,
                "STORE_UNAVAILABLE",
                "the database is unavailable, and no call is permitted unrecorded; send the same request again"
                    .to_owned(),
                1_000,
            ),
            // Admission control logs it, once for many.
            Self::Crowded(wait) => {
                let message = "the server is overloaded: it has more requests than it can answer in time; send the \
                               same request again in a moment";
                let retry = (*wait).clamp(CROWDED_RETRY_MIN, CROWDED_RETRY_MAX);
                return status(Code::ResourceExhausted, "OVERLOADED", message, Some(retry));
            }
            Self::ShuttingDown => return shutting_down(),
            Self::NeedsDatabase => {
                let message = "this method needs a database, and the server stores everything in memory \
                               (`callgate serve --memory`): start it without --memory";
                return status(Code::FailedPrecondition, "NEEDS_DATABASE", message, None);
            }
            Self::NotServed(state) => return unserved_tenant_status(Some(*state)),
            Self::TenantUnknown => return unserved_tenant_status(None),
            Self::Quota(quota) => return quota_status(*quota),
            Self::PolicyUnreadable => {
                let message = "this build of callgate cannot read the tenant's active policy, and does not decide \
                               without it; activate one that it can read, or start the build that stored it";
                return status(Code::FailedPrecondition, "POLICY_UNREADABLE", message, None);
            }
            Self::KeyMissing(_) => {
                if seldom("KEY_MISSING").is_some() {
                    tracing::error!(error = %self, "a request failed without the tenant's key: see --keys");
                }
                return key_missing();
            }
            Self::Fault(_) => {
                tracing::error!(error = %self, "a request failed through a bug in callgate or damaged tables");
                return status(Code::Internal, "INTERNAL", "this is a bug in callgate; its log has the details", None);
            }
        };
        if let Some(callers) = seldom(reason) {
            tracing::warn!(error = %self, callers, "a request failed");
        }
        status(code, reason, message, Some(Duration::from_millis(retry_ms)))
    }
}

/// Counts an error; returns the count since its last log line when the next is due: an outage affects all callers.
fn seldom(reason: &'static str) -> Option<u64> {
    static TOLD: Mutex<BTreeMap<&str, LogLimiter>> = Mutex::new(BTreeMap::new());
    TOLD.lock().entry(reason).or_default().count_event(&Clock::System)
}

impl StatusSource for SessionUnknown {
    fn into_status(self) -> Status {
        status(Code::NotFound, "SESSION_UNKNOWN", "no session has this id: none of its calls was evaluated", None)
    }
}

impl StatusSource for SessionRejection {
    fn into_status(self) -> Status {
        match self {
            Self::ParentChanged { known } => {
                let known = known.map_or_else(|| "none".to_owned(), |parent| format!("{:?}", parent.as_str()));
                let message = format!("the session's parent is {known}, and cannot change");
                status(Code::FailedPrecondition, "PARENT_CHANGED", message, None)
            }
            Self::TooManySessions => {
                let message = format!("this call tree has {SESSIONS_MAX} sessions, the maximum");
                status(Code::ResourceExhausted, "TOO_MANY_SESSIONS", message, None)
            }
        }
    }
}

impl StatusSource for EvaluateRejection {
    fn into_status(self) -> Status {
        match self {
            Self::CallIdReused => {
                let message = "this call_id belongs to a call with another tool or other arguments; choose a new one";
                status(Code::FailedPrecondition, "CALL_ID_REUSED", message, None)
            }
            Self::TooManyOpenCalls => {
                let message = format!("{OPEN_MAX} calls of this call tree have no outcome; record some of them first");
                status(Code::ResourceExhausted, "TOO_MANY_OPEN_CALLS", message, None)
            }
            Self::OtherVersion => NoAnswer::Contention.into_status(),
            Self::QuotaExceeded(quota) => quota_status(quota),
            Self::Session(rejection) => rejection.into_status(),
        }
    }
}

impl StatusSource for RecordRejection {
    fn into_status(self) -> Status {
        let (code, reason, message) = match self {
            Self::UnknownCall => (
                Code::NotFound,
                "CALL_UNKNOWN",
                "this call was never evaluated; to record its outcome all the same, send observed_call with it",
            ),
            Self::NotPermitted => {
                (Code::FailedPrecondition, "CALL_NOT_PERMITTED", "this call was refused, so it has no outcome")
            }
            Self::AlreadySettled => (
                Code::FailedPrecondition,
                "CALL_ALREADY_SETTLED",
                "this call has another outcome already; the first one stays",
            ),
            Self::AttemptSuperseded => (
                Code::FailedPrecondition,
                "ATTEMPT_SUPERSEDED",
                "a newer attempt of the same occurrence was permitted meanwhile; record that one",
            ),
            Self::Session(rejection) => return rejection.into_status(),
        };
        status(code, reason, message, None)
    }
}
