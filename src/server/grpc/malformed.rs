//! A malformed field of a request: its path and its fault. Nothing was stored.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::status::DOMAIN;
use callgate_core::domain::ids::Invalid;

/// A malformed field.
#[derive(Debug)]
pub(super) struct MalformedField {
    /// As a path in the request: `call.arguments_json`.
    pub(super) field: String,
    /// The fault and its fix; it completes a sentence that begins with the field.
    pub(super) problem: String,
}

impl MalformedField {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// The same of a field within `outer`.
    pub(super) fn with_outer(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

impl From<Invalid> for MalformedField {
    fn from(Invalid { field, problem }: Invalid) -> Self {
        Self { field, problem }
    }
}

impl From<MalformedField> for Status {
    fn from(MalformedField { field, problem }: MalformedField) -> Self {
        let info: HashMap<String, String> = [("field".to_owned(), field.clone())].into();
        let mut details = ErrorDetails::with_error_info("INVALID_FIELD", DOMAIN, info);
        details.add_bad_request_violation(&field, &problem);
        Self::with_error_details(Code::InvalidArgument, format!("{field} {problem}"), details)
    }
}
