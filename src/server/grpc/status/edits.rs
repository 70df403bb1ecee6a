//! Statuses of rejected edits of a call's arguments.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{DOMAIN, StatusSource, status};
use crate::grpc::approvals::EDITED;
use callgate_core::domain::{rejection::EditRejection, violation::Violation};

impl StatusSource for EditRejection {
    fn into_status(self) -> Status {
        let (reason, message) = match self {
            Self::Invalid(violations) => return invalid(&violations),
            Self::OtherArguments { by } => (
                "OTHER_ARGUMENTS",
                format!("{by} approved other arguments, and two approvals must have the same: approve those, or deny"),
            ),
            Self::Refused(why) => ("EDIT_REFUSED", format!("the call would be refused with these arguments: {why}")),
            Self::AtHost => (
                "EDIT_REFUSED",
                "the user of the agent's host may be answering it at a prompt, which cannot show other arguments"
                    .to_owned(),
            ),
            Self::NotStored(fields) => ("EDIT_NOT_STORED", describe_unstored_fields(&fields)),
        };
        status(Code::FailedPrecondition, reason, message, None)
    }
}

/// Edited arguments that the tool does not accept: each field by name, with the message for a model.
fn invalid(violations: &[Violation]) -> Status {
    let named = |violation: &Violation| match violation.field.as_str() {
        "" => EDITED.to_owned(),
        field => format!("{EDITED}.{field}"),
    };
    let info = violations.first().map(|first| ("field".to_owned(), named(first)));
    let info: HashMap<String, String> = info.into_iter().collect();
    let mut details = ErrorDetails::with_error_info("INVALID_FIELD", DOMAIN, info);
    let mut said = Vec::with_capacity(violations.len());
    for violation in violations {
        details.add_bad_request_violation(named(violation), &violation.message);
        said.push(format!("{}: {}", named(violation), violation.message));
    }
    Status::with_error_details(Code::InvalidArgument, said.join("; "), details)
}

/// The model gets the stored arguments.
fn describe_unstored_fields(fields: &[String]) -> String {
    let (which, it) = match fields {
        [] => ("these arguments are".to_owned(), "them"),
        fields => (format!("{} is", fields.join(", ")), "it"),
    };
    format!(
        "{which} not stored, by the policy, so the model could not get {it}: approve the call as it is, or deny it \
         with the right arguments as the reason"
    )
}
