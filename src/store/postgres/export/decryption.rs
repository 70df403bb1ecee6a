//! Decryption of exported texts. Without their key they stay as stored, and the row names the key.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::{decode::LoadedRow, findings, sealed::Opener, texts};
use crate::{error::StoreError, sealing::is_sealed};

/// Decrypts them, and removes the event's `seq`, which is not exported.
pub(super) fn open(kind: &str, row: &mut Map<String, Value>, opener: &Opener) -> LoadedRow<()> {
    let seq = row.remove("seq").as_ref().and_then(Value::as_u64).unwrap_or_default();
    // Of a call and of an entry of the audit alike.
    let session = row.get("session_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut missing = BTreeSet::new();
    texts::visit_texts(kind, row, seq, &mut |what, seq, stored| {
        if is_sealed(stored)
            && let Some(opened) = unless_missing(opener.text(what, &session, seq, stored.clone()), &mut missing)?
        {
            *stored = opened;
        }
        Ok(())
    })?;
    for (at, finding) in row.get_mut("findings").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        let opened = findings::decrypt_finding(finding.clone(), at, opener, &session, seq);
        if let Some(Some(opened)) = unless_missing(opened, &mut missing)? {
            *finding = opened;
        }
    }
    if !missing.is_empty() {
        row.insert("missing_keys".to_owned(), Value::from_iter(missing));
    }
    Ok(())
}

/// The decrypted value; without its key none, and the key's name is added to the missing ones.
fn unless_missing<T>(opened: LoadedRow<T>, missing: &mut BTreeSet<String>) -> LoadedRow<Option<T>> {
    match opened {
        Err(StoreError::KeyMissing { key, .. }) => {
            missing.insert(key);
            Ok(None)
        }
        opened => opened.map(Some),
    }
}
