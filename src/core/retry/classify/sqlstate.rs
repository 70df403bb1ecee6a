//! SQLSTATE codes of `PostgreSQL`.

use crate::domain::failure::FailureKind::{
    self, Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Permission, Timeout, Unavailable,
};

use super::codes::{Meaning, NameCertainty};

/// Code prefixes; the first match decides. Classes 22, 23, 42 and 53 are listed narrowly, because other providers use
/// five-digit codes, too.
const STATES: &[(&str, FailureKind)] = &[
    ("08", Network),
    ("0A000", InvalidArgument),
    ("21000", InvalidArgument),
    ("220", InvalidArgument),
    ("22P", InvalidArgument),
    // Existing rows stay: the same statement fails again.
    ("23505", InvalidArgument),
    ("23P01", InvalidArgument),
    ("23000", InvalidArgument),
    ("23001", InvalidArgument),
    ("235", InvalidArgument),
    ("28", Auth),
    ("3D000", NotFound),
    ("3F000", NotFound),
    // The commit may have happened, as after a broken connection.
    ("40003", Network),
    ("40", Conflict),
    ("42501", Permission),
    ("42P01", NotFound),
    ("42704", NotFound),
    ("42883", NotFound),
    ("42710", InvalidArgument),
    ("42P04", InvalidArgument),
    ("42P06", InvalidArgument),
    ("42P07", InvalidArgument),
    ("42000", InvalidArgument),
    ("425", InvalidArgument),
    ("426", InvalidArgument),
    ("427", InvalidArgument),
    ("428", InvalidArgument),
    ("429", InvalidArgument),
    ("42P", InvalidArgument),
    ("44000", InvalidArgument),
    ("53000", Unavailable),
    ("53100", Unavailable),
    ("53200", Unavailable),
    ("53300", Unavailable),
    ("53400", Unavailable),
    ("54000", InvalidArgument),
    ("54001", InvalidArgument),
    ("54011", InvalidArgument),
    ("54023", InvalidArgument),
    ("55006", Conflict),
    ("55P03", Conflict),
    ("57P01", Unavailable),
    ("57P02", Unavailable),
    ("57P03", Unavailable),
    ("57P04", NotFound),
    ("57P05", Network),
    ("58P01", NotFound),
    ("58", Internal),
    ("XX", Internal),
];

/// The meaning of `code`, if it is an SQLSTATE of the table.
pub(super) fn find_sqlstate(code: &str) -> Option<Meaning> {
    let shaped = code.len() == 5 && code.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    // Postgres' classes hold a digit; words of five capitals are no states.
    if !shaped || !code.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if code == "57014" {
        return Some(Meaning { kind: Timeout, reading: NameCertainty::AskText });
    }
    let (_, kind) = STATES.iter().find(|(prefix, _)| code.starts_with(prefix))?;
    Some(Meaning { kind: *kind, reading: NameCertainty::Sure })
}
