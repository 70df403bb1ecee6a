//! The texts of a row that is given out, as they were given; where their key is not here, as they are stored, and the
//! row says which key that is.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::{
    decode::Loaded,
    findings,
    sealed::{
        ARGUMENTS, CLEARED, ERROR, ERROR_LINE, GIST, JUSTIFICATION, MADE, NOTE, Opener, REASON, RESOURCE, RESULT,
        SIGNATURE, WHY,
    },
};
use crate::{sealing::is_sealed, store::error::StoreError};

/// The columns that may be sealed, by the kinds of rows.
const CALL: [(&str, &str); 3] = [("arguments", ARGUMENTS), ("resource", RESOURCE), ("justification", JUSTIFICATION)];
const OUTCOME: [(&str, &str); 7] = [
    ("result", RESULT),
    ("error_message", ERROR),
    ("error_line", ERROR_LINE),
    ("error_signature", SIGNATURE),
    ("progress_note", NOTE),
    ("gist", GIST),
    ("made", MADE),
];

/// Opens them. Takes the event's place out of the row, which it is not part of.
pub(super) fn open(kind: &str, row: &mut Map<String, Value>, opener: &Opener) -> Loaded<()> {
    let seq = row.remove("seq").as_ref().and_then(Value::as_u64).unwrap_or_default();
    let session = row.get("session_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut texts = Texts { opener, session: &session, missing: BTreeSet::new() };
    match kind {
        "call" => {
            texts.columns(row, &CALL, seq)?;
            for (at, finding) in row.get_mut("findings").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
            {
                let opened = findings::opened(finding.clone(), at, opener, &session, seq);
                if let Some(Some(opened)) = texts.unless_missing(opened)? {
                    *finding = opened;
                }
            }
        }
        "outcome" => texts.columns(row, &OUTCOME, seq)?,
        "event" => {
            texts.columns(row, &[("reason", REASON)], WHY)?;
            if let Some(clears) = row.get_mut("detail").and_then(|detail| detail.get_mut("clears")?.as_object_mut()) {
                texts.columns(clears, &[("resource", CLEARED)], seq)?;
            }
        }
        "audit" => texts.columns(row, &[("why", REASON)], WHY)?,
        _ => {}
    }
    if !texts.missing.is_empty() {
        row.insert("sealed_with".to_owned(), Value::from_iter(texts.missing));
    }
    Ok(())
}

struct Texts<'a> {
    opener: &'a Opener,
    session: &'a str,
    /// The names of keys that are not here.
    missing: BTreeSet<String>,
}

impl Texts<'_> {
    fn columns(&mut self, row: &mut Map<String, Value>, columns: &[(&str, &str)], seq: u64) -> Loaded<()> {
        for (column, what) in columns {
            let Some(Value::String(stored)) = row.get_mut(*column) else { continue };
            if is_sealed(stored) {
                let opened = self.opener.text(what, self.session, seq, stored.clone());
                if let Some(opened) = self.unless_missing(opened)? {
                    *stored = opened;
                }
            }
        }
        Ok(())
    }

    fn unless_missing<T>(&mut self, opened: Loaded<T>) -> Loaded<Option<T>> {
        match opened {
            Err(StoreError::KeyMissing { key, .. }) => {
                self.missing.insert(key);
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }
}
