//! CSV (RFC 4180) of audit entries, for spreadsheets.

use callgate_proto::v1::AuditEntry;

use crate::remote::at;

/// Names of the columns, as a line.
#[must_use]
pub fn audit_header() -> String {
    to_csv_line([
        "number",
        "time",
        "kind",
        "by",
        "credential",
        "origin",
        "session",
        "action",
        "reason",
        "erased_by",
        "hash",
    ])
}

/// An entry as a line.
#[must_use]
pub fn audit_line(entry: &AuditEntry) -> String {
    let AuditEntry { number, create_time, kind, by, credential, origin, session_id, action, reason, erased_by, hash } =
        entry;
    let erased_by = if *erased_by == 0 { String::new() } else { erased_by.to_string() };
    let (number, time) = (number.to_string(), at(create_time.as_ref()));
    to_csv_line([&number, &time, kind, by, credential, origin, session_id, action, reason, &erased_by, hash])
}

/// Characters with which a spreadsheet's formula begins, or that it skips before one.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// A row as a line. A text that a spreadsheet would read as a formula has an apostrophe in front.
fn to_csv_line<const N: usize>(fields: [&str; N]) -> String {
    let fields = fields.map(|field| {
        let mark = if field.starts_with(FORMULA) || field.starts_with('\n') { "'" } else { "" };
        match field.contains([',', '"', '\n', '\r']) {
            true => format!("\"{mark}{}\"", field.replace('"', "\"\"")),
            false => format!("{mark}{field}"),
        }
    });
    fields.join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_text_is_quoted_and_runs_no_formula() {
        assert_eq!(to_csv_line(["1", "a b", ""]), "1,a b,\r\n");
        assert_eq!(to_csv_line(["a,b", "a\"b", "a\nb"]), "\"a,b\",\"a\"\"b\",\"a\nb\"\r\n");
        for formula in ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"] {
            let line = to_csv_line([formula]);
            assert!(line.starts_with('\'') || line.starts_with("\"'"), "{line:?}");
        }
    }
}
