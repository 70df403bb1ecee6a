//! A malformed field of a request: its path and its fault. Nothing was stored.

use std::{collections::HashMap, fmt};

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

    /// A field whose number is no member of the contract's set `M`.
    pub(super) fn no_member<M: TryFrom<i32> + fmt::Debug>(field: impl Into<String>, given: i32) -> Self {
        let problem =
            if given == 0 { "is required".to_owned() } else { format!("is {given}, which is no value of it") };
        Self::new(field, format!("{problem}; its values are {}", list_members::<M>()))
    }

    /// The same of a field within `outer`.
    pub(super) fn with_outer(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

/// Numbers of members are below this.
const NUMBERS_END: i32 = 64;

/// The members of a set of the contract but `UNSPECIFIED`: `1 RUNNING, 2 SUCCESS`.
fn list_members<M: TryFrom<i32> + fmt::Debug>() -> String {
    let member = |number| Some((number, M::try_from(number).ok()?));
    let named = (1..NUMBERS_END).filter_map(member).map(|(number, member)| {
        let mut name = String::new();
        for c in format!("{member:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        format!("{number} {name}")
    });
    named.collect::<Vec<_>>().join(", ")
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
