//! Statuses of changes of policies and their rollouts.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{DOMAIN, status};
use callgate_core::domain::rollout::{RolloutChange, version};

/// No stored policy, or more than one, matches the hash.
pub(in crate::grpc) fn policy_unknown(named: &str) -> Status {
    let message = format!("no stored policy has a hash that begins with {named}, or more than one has");
    status(Code::NotFound, "POLICY_UNKNOWN", message, None)
}

/// No earlier policy to roll back to.
pub(in crate::grpc) fn no_policy_before() -> Status {
    let message = "no other policy was active before this one: apply another file instead (`policy_engine: {}` is the \
                   built-in policy)";
    status(Code::NotFound, "POLICY_UNKNOWN", message, None)
}

/// A rollout was not begun, changed or ended.
pub(in crate::grpc) fn rollout_status(change: RolloutChange, named: &str) -> Status {
    let (code, reason, message) = match change {
        RolloutChange::Active => {
            (Code::FailedPrecondition, "POLICY_ACTIVE", "it is the active policy already".to_owned())
        }
        RolloutChange::Other(hash) => {
            let message = format!("the rollout of policy {} is running; end it first", version(&hash));
            (Code::FailedPrecondition, "ROLLOUT_RUNNING", message)
        }
        RolloutChange::NotRunning | RolloutChange::Done(_) => {
            (Code::NotFound, "ROLLOUT_UNKNOWN", "no rollout is running, or not of that policy".to_owned())
        }
        RolloutChange::Changed => {
            let message = "the rollout was changed or ended meanwhile; read it, and try again".to_owned();
            (Code::Aborted, "ROLLOUT_CHANGED", message)
        }
        RolloutChange::Unknown => return policy_unknown(named),
    };
    status(code, reason, message, None)
}

/// Conflict: another policy was activated meanwhile.
pub(in crate::grpc) fn revision_conflict_status(active: u64) -> Status {
    let info: HashMap<String, String> = [("revision".to_owned(), active.to_string())].into();
    let details = ErrorDetails::with_error_info("REVISION_CHANGED", DOMAIN, info);
    let message = format!("revision {active} is the active one; read it, and try again");
    Status::with_error_details(Code::Aborted, message, details)
}
