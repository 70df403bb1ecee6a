//! Why a command of a person or a system was not carried out, as it is told.

use tonic::{Code, Status};

use super::{Told, status};
use crate::{
    domain::{
        grant::GRANTS_MAX,
        rejection::{CommandRejection, SessionUnknown},
    },
    grpc::time::timestamp,
};

impl Told for CommandRejection {
    fn told(self) -> Status {
        let (code, reason, message) = match self {
            Self::UnknownSession => return SessionUnknown.told(),
            Self::PhaseForbidden(objection) => (Code::FailedPrecondition, "PHASE_FORBIDDEN", objection),
            Self::TooManyGrants => {
                (Code::ResourceExhausted, "TOO_MANY_GRANTS", format!("the call tree holds {GRANTS_MAX} grants already"))
            }
            Self::UnknownGrant => {
                (Code::NotFound, "GRANT_UNKNOWN", "no such grant in this session's call tree".to_owned())
            }
            Self::UnknownApproval => (
                Code::NotFound,
                "APPROVAL_UNKNOWN",
                "no call waits for this answer: nobody was asked, or the call was judged again without a question"
                    .to_owned(),
            ),
            Self::AlreadyAnswered { approved, by } => {
                let (by, what) = (by.as_deref().unwrap_or("somebody"), if approved { "approved" } else { "denied" });
                let message = format!("{by} {what} it before; the first answer holds");
                (Code::FailedPrecondition, "APPROVAL_ANSWERED", message)
            }
            Self::Withdrawn { by } => (
                Code::FailedPrecondition,
                "APPROVAL_WITHDRAWN",
                format!("{} withdrew the question: its call does not run", by.as_deref().unwrap_or("who asked")),
            ),
            Self::NotTheAsker => (
                Code::PermissionDenied,
                "NOT_THE_ASKER",
                "only an agent or session of the call tree that asks withdraws the question; who decides about it \
                 denies it"
                    .to_owned(),
            ),
            Self::ApprovalExpired => (
                Code::FailedPrecondition,
                "APPROVAL_EXPIRED",
                "nobody answered in time, which counts as a denial".to_owned(),
            ),
            Self::NothingNamed => (
                Code::FailedPrecondition,
                "NOTHING_NAMED",
                "the policy names no thing that this call touches: answer for the call, or for the tool".to_owned(),
            ),
            Self::NotInGroup { groups, later } => {
                let later = later.map(|(group, at)| format!(", and from {} on for {group} too", timestamp(at)));
                let groups = groups.join(" and ");
                let message = format!("the question is for people of the group {groups}{}", later.unwrap_or_default());
                (Code::PermissionDenied, "NOT_IN_GROUP", message)
            }
            Self::ScopeForTwo => (
                Code::FailedPrecondition,
                "SCOPE_FOR_TWO",
                "two people must approve it, which holds for the one call: answer without a scope".to_owned(),
            ),
            Self::SelfApproval => (
                Code::PermissionDenied,
                "SELF_APPROVAL",
                "whoever asks for a call, or works in the same call tree, cannot approve it".to_owned(),
            ),
            Self::ReasonMissing => (
                Code::InvalidArgument,
                "REASON_MISSING",
                "the policy wants a reason with a denial: give `reason`".to_owned(),
            ),
        };
        status(code, reason, message, None)
    }
}
