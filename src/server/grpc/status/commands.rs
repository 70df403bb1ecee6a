//! Statuses of rejected commands of operators, approvers and systems.

use tonic::{Code, Status};

use super::{StatusSource, status};
use crate::grpc::time::timestamp;
use callgate_core::domain::{
    approval_notes::COMMENTS_MAX,
    budget::RAISED_MAX,
    grant::GRANTS_MAX,
    rejection::{BudgetNotRaised, BulkRejection, CommandRejection, SessionUnknown},
    time::Timestamp,
};

const SAID_BEFORE: &str = "you have approved it before; the second approval must be another person's";

impl StatusSource for CommandRejection {
    fn into_status(self) -> Status {
        let (code, reason, message) = match self {
            Self::UnknownSession => return SessionUnknown.into_status(),
            Self::PhaseForbidden(objection) => (Code::FailedPrecondition, "PHASE_FORBIDDEN", objection),
            Self::TooManyGrants => (
                Code::ResourceExhausted,
                "TOO_MANY_GRANTS",
                format!("the call tree has {GRANTS_MAX} grants, the maximum"),
            ),
            Self::UnknownGrant => {
                (Code::NotFound, "GRANT_UNKNOWN", "no such grant in this session's call tree".to_owned())
            }
            Self::NotRaised(why) => return why.into_status(),
            Self::UnknownApproval => (
                Code::NotFound,
                "APPROVAL_UNKNOWN",
                "no call waits for this answer: it has no approval request, or was evaluated again without one"
                    .to_owned(),
            ),
            Self::AlreadyAnswered { approved, edited, by } => {
                let (by, what) = (by.as_deref().unwrap_or("an approver"), if approved { "approved" } else { "denied" });
                let with = if edited { " with other arguments" } else { "" };
                let message = format!("{by} {what} it{with} before; the first answer stays");
                (Code::FailedPrecondition, "APPROVAL_ANSWERED", message)
            }
            Self::Withdrawn { by } => (
                Code::FailedPrecondition,
                "APPROVAL_WITHDRAWN",
                format!("{} withdrew the request: its call does not run", by.as_deref().unwrap_or("the requester")),
            ),
            Self::NotTheAsker => (
                Code::PermissionDenied,
                "NOT_THE_REQUESTER",
                "only the call tree that made the request can withdraw it; an approver denies it".to_owned(),
            ),
            Self::ApprovalExpired => (
                Code::FailedPrecondition,
                "APPROVAL_EXPIRED",
                "the approval request expired without an answer, which counts as a denial".to_owned(),
            ),
            Self::NothingNamed => (
                Code::FailedPrecondition,
                "RESOURCE_MISSING",
                "the policy declares no resource for this call: approve the call, or the tool".to_owned(),
            ),
            Self::NotInGroup { groups, later } => {
                (Code::PermissionDenied, "NOT_IN_GROUP", describe_groups(&groups, later))
            }
            Self::SaidBefore => (Code::FailedPrecondition, "APPROVAL_ANSWERED", SAID_BEFORE.to_owned()),
            Self::ScopeForTwo => (
                Code::FailedPrecondition,
                "SCOPE_TOO_WIDE",
                "two approvals are required, and hold for one call: approve without a scope".to_owned(),
            ),
            Self::Edit(rejection) => return rejection.into_status(),
            Self::Bulk(rejection) => return rejection.into_status(),
            Self::Claimed { by, until } => return claimed(&by, until),
            Self::TooManyComments => return too_many_comments(),
            Self::SelfApproval => (
                Code::PermissionDenied,
                "SELF_APPROVAL",
                "the requester of a call, and all of its call tree, cannot approve it".to_owned(),
            ),
            Self::ReasonMissing => (
                Code::InvalidArgument,
                "REASON_MISSING",
                "the policy requires a reason for a denial: set `reason`".to_owned(),
            ),
        };
        status(code, reason, message, None)
    }
}

/// The groups that may answer, and the one that may later.
fn describe_groups(groups: &[String], later: Option<(String, Timestamp)>) -> String {
    let later = later.map(|(group, at)| format!(", and from {} on for {group} too", timestamp(at)));
    let groups = groups.join(" and ");
    format!("the approval request is for approvers of the group {groups}{}", later.unwrap_or_default())
}

fn claimed(by: &str, until: Timestamp) -> Status {
    let message = format!("{by} has claimed it until {}; it can be answered all the same", timestamp(until));
    status(Code::FailedPrecondition, "APPROVAL_CLAIMED", message, None)
}

fn too_many_comments() -> Status {
    let message = format!("the approval request has {COMMENTS_MAX} comments, the maximum");
    status(Code::ResourceExhausted, "TOO_MANY_COMMENTS", message, None)
}

impl StatusSource for BudgetNotRaised {
    fn into_status(self) -> Status {
        let (code, reason, message) = match self {
            Self::NoSuchLimit { scope, dimension } => {
                let (scope, key) = (scope.as_str(), dimension.as_str());
                let message = format!("the policy has no limit budgets.{scope}.{key}, so there is none to raise");
                (Code::FailedPrecondition, "NO_SUCH_LIMIT", message)
            }
            Self::NoRun => (
                Code::FailedPrecondition,
                "NO_RUN",
                "the session has no call yet, and so no run whose budget could be raised".to_owned(),
            ),
            Self::TooMany => (
                Code::ResourceExhausted,
                "TOO_MANY_RAISED",
                format!("{RAISED_MAX} budgets of this call tree are raised already; raise the limit in the policy"),
            ),
        };
        status(code, reason, message, None)
    }
}

impl StatusSource for BulkRejection {
    fn into_status(self) -> Status {
        let (reason, message) = match self {
            Self::ArgumentsChanged => {
                ("ARGUMENTS_CHANGED", "its arguments changed since you read them: read the request again")
            }
            Self::TwoPeople => ("BULK_TWO_PEOPLE", "two approvers are required: approve it on its own page"),
            Self::OnceWithAmount => {
                ("BULK_ONCE_AMOUNT", "its tool is `once` and its arguments hold an amount: approve it by itself")
            }
            Self::NotPermitted => (
                "BULK_NOT_PERMITTED",
                "approve it by itself: its tier has no `bulk_approve: true`, another rule also requires the approval, \
                 or the tool has a condition that asks or raises the risk",
            ),
        };
        status(Code::FailedPrecondition, reason, message, None)
    }
}
