//! Encrypted texts of a row in JSON form: one list for export and re-encryption.

use serde_json::{Map, Value};

use super::{
    columns::encryptable_columns,
    decode::LoadedRow,
    row::{CallRow, OutcomeRow},
    sealed::{AUDITED, CLEARED, EDITED, REASON, WHY},
};

const EVENT: [(&str, &str); 1] = [("reason", REASON)];

/// Calls `f` with each text of the row, its kind and its event; `seq` is the row's. Findings and marks are excluded.
pub(super) fn visit_texts(
    kind: &str,
    row: &mut Map<String, Value>,
    seq: u64,
    f: &mut impl FnMut(&str, u64, &mut String) -> LoadedRow<()>,
) -> LoadedRow<()> {
    match kind {
        "call" => encryptable_columns(CallRow::LIST)
            .try_for_each(|(column, _)| texts(row, &[(column, &format!("call.{column}"))], seq, f)),
        "outcome" => encryptable_columns(OutcomeRow::LIST)
            .try_for_each(|(column, _)| texts(row, &[(column, &format!("outcome.{column}"))], seq, f)),
        "event" => {
            texts(row, &EVENT, WHY, f)?;
            let clears = row.get_mut("detail").and_then(|detail| detail.get_mut("clears")?.as_object_mut());
            clears.map_or(Ok(()), |clears| texts(clears, &[("resource", CLEARED)], seq, f))?;
            let edit = row.get_mut("detail").and_then(|detail| detail.get_mut("edit")?.as_object_mut());
            edit.map_or(Ok(()), |edit| texts(edit, &[("arguments", EDITED)], seq, f))
        }
        "audit" => match row.remove("resealed").filter(|resealed| !resealed.is_null()) {
            Some(resealed) => {
                row.insert("why".to_owned(), resealed);
                let number = row.get("number").and_then(Value::as_u64).unwrap_or_default();
                texts(row, &[("why", AUDITED)], number, f)
            }
            None => texts(row, &[("why", REASON)], WHY, f),
        },
        _ => Ok(()),
    }
}

fn texts(
    row: &mut Map<String, Value>,
    columns: &[(&str, &str)],
    seq: u64,
    f: &mut impl FnMut(&str, u64, &mut String) -> LoadedRow<()>,
) -> LoadedRow<()> {
    for (column, what) in columns {
        if let Some(Value::String(stored)) = row.get_mut(*column) {
            f(what, seq, stored)?;
        }
    }
    Ok(())
}
