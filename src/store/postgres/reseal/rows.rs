//! Re-encryption of one row: each text is decrypted and encrypted for the same place.

use serde_json::{Map, Value};

use super::super::{
    decode::{LoadedRow, corrupt},
    findings, marks,
    sealed::{AUDITED, MARKS, Opener, finding_at, with_sealed},
    text_retention::GONE,
    texts,
};
use crate::{
    error::StoreError,
    sealing::{Sealer, TenantKeys, ValueLocation, is_sealed},
};

/// Encrypts the texts of rows.
pub(super) struct Resealer<'k> {
    opener: &'k Opener,
    sealer: Sealer<'k>,
}

/// Keys of a row, and whether any of its texts changed.
struct At<'r> {
    session: &'r str,
    seq: u64,
    is_changed: bool,
}

impl<'k> Resealer<'k> {
    pub(super) fn new(opener: &'k Opener, keys: &'k TenantKeys) -> LoadedRow<Self> {
        let sealer = Sealer::new(keys).ok_or_else(|| StoreError::Rejected("it could not be sealed".to_owned()))?;
        Ok(Self { opener, sealer })
    }

    /// The row with all texts under the newest key; none if nothing could be changed.
    pub(super) fn row(&mut self, kind: &str, mut row: Map<String, Value>) -> LoadedRow<Option<Value>> {
        let seq = row.get("seq").and_then(Value::as_u64).unwrap_or_default();
        let session = row.get("session_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut at = At { session: &session, seq, is_changed: false };
        texts::visit_texts(kind, &mut row, seq, &mut |what, seq, stored| {
            at.is_changed |= self.anew(what, &session, seq, stored)?;
            Ok(())
        })?;
        for (place, finding) in row.get_mut("findings").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            self.finding(&mut at, place, finding)?;
        }
        if row.get("marks").is_some_and(|marks| !marks.is_null()) {
            self.marks(&mut at, &mut row)?;
        }
        Ok(at.is_changed.then_some(Value::Object(row)))
    }

    /// The reason of an audit entry under the newest key; none if unchanged.
    pub(super) fn reason(&mut self, number: u64, row: &Map<String, Value>) -> LoadedRow<Option<String>> {
        let text = |column: &str| row.get(column).and_then(Value::as_str).map(str::to_owned);
        let session = text("session_id").unwrap_or_default();
        let opened = skip_unopened(self.opener.reason(&session, number, text("why"), text("resealed")))?;
        opened.flatten().map(|why| self.seal(AUDITED, &session, number, &why)).transpose()
    }

    fn seal(&mut self, what: &str, session: &str, seq: u64, text: &str) -> LoadedRow<String> {
        let place = ValueLocation { tenant: self.opener.tenant(), session, seq, what };
        self.sealer.seal(text, &place).ok_or_else(|| StoreError::Rejected("it could not be sealed".to_owned()))
    }

    /// True for a re-encrypted text.
    fn anew(&mut self, what: &str, session: &str, seq: u64, stored: &mut String) -> LoadedRow<bool> {
        if self.sealer.is_newest(stored) {
            return Ok(false);
        }
        let opened = skip_unopened(self.opener.text(what, session, seq, stored.clone()))?;
        let Some(opened) = opened else { return Ok(false) };
        *stored = self.seal(what, session, seq, &opened)?;
        Ok(true)
    }

    fn finding(&mut self, at: &mut At<'_>, place: usize, finding: &mut Value) -> LoadedRow<()> {
        let what = finding_at(place);
        match finding.get_mut("message") {
            Some(Value::String(message)) if is_sealed(message) => {
                at.is_changed |= self.anew(&what, at.session, at.seq, message)?;
            }
            Some(Value::String(message)) if message != GONE => {
                if let Some((mut parted, words)) = findings::split_texts(finding.clone())? {
                    parted["message"] = Value::from(self.seal(&what, at.session, at.seq, &words)?);
                    *finding = parted;
                    at.is_changed = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn marks(&mut self, at: &mut At<'_>, row: &mut Map<String, Value>) -> LoadedRow<()> {
        if let Some(Value::String(sealed)) = row["marks"].get_mut("named")
            && is_sealed(sealed)
        {
            at.is_changed |= self.anew(MARKS, at.session, at.seq, sealed)?;
            return Ok(());
        }
        let stored = marks::read(&row["marks"].to_string())?;
        if stored.frame == 0 && stored.named.as_str().is_empty() {
            return Ok(());
        }
        let sealed = with_sealed(&stored, self.seal(MARKS, at.session, at.seq, &marks::json(&stored))?);
        row["marks"] = serde_json::from_str(&marks::json(&sealed)).map_err(|error| corrupt(&error.to_string()))?;
        at.is_changed = true;
        Ok(())
    }
}

/// The decrypted value; none, with a log line, if that fails: the others continue.
fn skip_unopened<T>(opened: LoadedRow<T>) -> LoadedRow<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        // Counted by the rows that still need the key.
        Err(StoreError::KeyMissing { .. }) => Ok(None),
        Err(error @ StoreError::Corrupt(_)) => {
            tracing::error!(%error, "a value cannot be re-encrypted, and stays under its key");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
