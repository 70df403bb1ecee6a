//! Texts for storage without what is nobody's business.

use std::sync::Arc;

use crate::{
    domain::{
        digest,
        gist::REDACTED,
        tool::{Stored, ToolSpec},
    },
    policy::Policy,
};
use serde_json::Value;

impl Policy {
    /// The arguments of a call as they are stored, by what is known of its tool.
    #[must_use]
    pub fn stored_arguments(&self, spec: &ToolSpec, arguments: &Arc<str>) -> Option<Arc<str>> {
        match spec.stored.0 {
            Stored::Full => Some(Arc::clone(arguments)),
            how => Some(self.for_storage(how, arguments).into()),
        }
    }

    /// The result of a call as it is stored; nothing, when only its digest is.
    #[must_use]
    pub fn stored_result(&self, spec: &ToolSpec, result: Option<String>) -> Option<String> {
        match spec.stored.1 {
            Stored::Full => result,
            Stored::Redacted => result.map(|result| self.for_storage(Stored::Redacted, &result)),
            Stored::Hash => None,
        }
    }

    /// The part of a text that is stored: all of it, without the values of sensitive fields, or nothing but a digest.
    /// A text that is no JSON has no fields: redacted, it is a digest.
    #[must_use]
    pub fn for_storage(&self, stored: Stored, text: &str) -> String {
        let hashed = || format!("{{\"sha256\":\"{}\"}}", digest::of_text(text));
        match stored {
            Stored::Full => text.to_owned(),
            Stored::Hash => hashed(),
            Stored::Redacted => match serde_json::from_str::<Value>(text) {
                Ok(mut value) if !value.is_string() => {
                    self.redact_fields(&mut value);
                    value.to_string()
                }
                _ => hashed(),
            },
        }
    }

    fn redact_fields(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    if self.redact.iter().any(|field| field.eq_ignore_ascii_case(name)) {
                        *member = REDACTED.into();
                    } else {
                        self.redact_fields(member);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_fields(item)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensitive_fields_are_left_out_wherever_they_stand() {
        let policy = Policy { redact: vec!["iban".to_owned()], ..Policy::default() };
        let text = r#"{"to":[{"IBAN":"DE1","name":"Anna"}],"n":1}"#;
        let stored = policy.for_storage(Stored::Redacted, text);
        assert_eq!(stored, r#"{"n":1,"to":[{"IBAN":"[redacted]","name":"Anna"}]}"#);
        assert_eq!(policy.for_storage(Stored::Full, text), text);
        assert!(policy.for_storage(Stored::Hash, text).starts_with("{\"sha256\":\""));
        assert!(policy.for_storage(Stored::Redacted, "plain words").starts_with("{\"sha256\":\""));
    }
}
