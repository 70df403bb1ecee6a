//! Redaction of texts for storage.

use std::{borrow::Cow, sync::Arc};

use crate::{
    domain::{
        json::{self, Json},
        redaction::Secrets,
        tool::{StorageMode, ToolSpec},
    },
    policy::Policy,
};

impl Policy {
    /// The stored form of a call's arguments, by its tool's storage mode.
    pub(super) fn stored_arguments(
        &self,
        spec: &ToolSpec,
        arguments: &Json,
        canonical: &Arc<str>,
        secrets: &mut Secrets,
    ) -> Arc<str> {
        if spec.stored.0 == StorageMode::Raw {
            return Arc::clone(canonical);
        }
        let left_out = self.redaction.json(arguments, secrets);
        match (spec.stored.0, left_out) {
            (StorageMode::Hash, _) => self.hash_text(canonical).into(),
            (_, Some(left_out)) => left_out.canonical().into(),
            (_, None) => Arc::clone(canonical),
        }
    }

    /// The stored form of a call's result; none when only its digest is stored. `read` is the result as JSON, if
    /// parsed.
    #[must_use]
    pub fn stored_result(
        &self,
        spec: &ToolSpec,
        result: &str,
        read: Option<&Json>,
        secrets: &mut Secrets,
    ) -> Option<String> {
        let how = spec.stored.1;
        match how {
            StorageMode::Hash => None,
            StorageMode::Raw => Some(result.to_owned()),
            StorageMode::Full | StorageMode::Redacted => {
                let anew = if read.is_none() { json::parse(result.trim()).ok() } else { None };
                let read = read.or(anew.as_ref());
                let left_out = self.redaction.redact_stored(result, read, secrets);
                // A text has no fields, so its secrets are unknown.
                let is_text = matches!(read, None | Some(Json::String(_)));
                Some(if how == StorageMode::Redacted && is_text {
                    self.hash_text(result)
                } else {
                    left_out.into_owned()
                })
            }
        }
    }

    /// A text of a person, redacted.
    #[must_use]
    pub fn without_secrets(&self, text: &str) -> String {
        self.stored_text(StorageMode::Full, text, &mut Secrets::default()).into_owned()
    }

    /// The stored form of a text beside a call or its result: a reason, a note, an error.
    #[must_use]
    pub fn stored_text<'t>(&self, how: StorageMode, text: &'t str, secrets: &mut Secrets) -> Cow<'t, str> {
        match how {
            StorageMode::Raw => Cow::Borrowed(text),
            _ => {
                let is_json = text.trim_start().starts_with(['{', '[']);
                let read = if is_json { json::parse(text.trim()).ok() } else { None };
                match self.redaction.redact_stored(text, read.as_ref(), secrets) {
                    Cow::Borrowed(text) => secrets.without(text),
                    Cow::Owned(text) => secrets.without(&text).into_owned().into(),
                }
            }
        }
    }

    fn hash_text(&self, text: &str) -> String {
        format!("{{\"sha256\":\"{}\"}}", self.hashing.of_text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::redaction::Redaction;

    #[test]
    fn a_text_is_stored_as_its_tool_says() {
        let policy = Policy { redaction: Redaction::new(["iban"], [], Vec::new()), ..Policy::default() };
        let stored = |how, text: &str| {
            let spec = ToolSpec { stored: (how, how), ..ToolSpec::default() };
            policy.stored_result(&spec, text, None, &mut Secrets::default())
        };
        let text = r#"{"to":[{"IBAN":"DE1","name":"Anna","password":"sesame"}],"n":1}"#;
        let left_out = r#"{"n":1,"to":[{"IBAN":"[redacted]","name":"Anna","password":"[redacted]"}]}"#;
        for how in [StorageMode::Full, StorageMode::Redacted] {
            assert_eq!(stored(how, text).as_deref(), Some(left_out));
        }
        assert_eq!(stored(StorageMode::Raw, text).as_deref(), Some(text));
        assert_eq!(stored(StorageMode::Hash, text), None);
        assert_eq!(stored(StorageMode::Full, "plain words").as_deref(), Some("plain words"));
        assert!(stored(StorageMode::Redacted, "plain words").is_some_and(|text| text.starts_with("{\"sha256\":\"")));
    }
}
