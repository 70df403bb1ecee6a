//! Checks of schema compatibility and of the user's rights.

use super::check::{Area, DoctorCheck};
use callgate_store::{Inspection, SchemaState};

/// All checks.
pub(super) fn check_rights(found: &Inspection) -> Vec<DoctorCheck> {
    vec![migrations(found), partitions(found), migrating(found), running(found), check_row_security(found)]
}

fn list_numbers(numbers: &[i64]) -> String {
    match numbers {
        [] => "none".to_owned(),
        [one] => one.to_string(),
        [first, .., last] => format!("{} from {first} to {last}", numbers.len()),
    }
}

fn migrations(found: &Inspection) -> DoctorCheck {
    let (area, schema, newest) = (Area::Schema, &found.schema, SchemaState::newest());
    if let Some(refusal) = schema.refusal() {
        let cure = if schema.is_foreign { "an empty database" } else { "the newer build, or a backup from before it" };
        return DoctorCheck::wrong(area, "migrations", refusal, cure);
    }
    let newer = match schema.newer.as_slice() {
        [] => String::new(),
        newer => format!("; a newer build applied more ({}), compatible with this one", list_numbers(newer)),
    };
    match (schema.applied, schema.pending.as_slice()) {
        (0, _) => DoctorCheck::ok(area, "migrations", "there is no schema yet; the first server creates it"),
        (_, []) => DoctorCheck::ok(area, "migrations", format!("all of this build are applied, up to {newest}{newer}")),
        (_, pending) => DoctorCheck::warning(
            area,
            "migrations",
            format!("not applied yet: {}{newer}", list_numbers(pending)),
            "take a backup, then start a server of this build, which applies them while other servers run",
        ),
    }
}

fn partitions(found: &Inspection) -> DoctorCheck {
    let area = Area::Schema;
    match (found.schema.applied, found.has_partitions) {
        (0, _) => DoctorCheck::skipped(area, "partitions", "there is no schema yet"),
        (_, true) => DoctorCheck::ok(area, "partitions", "this month's exist"),
        (_, false) => DoctorCheck::warning(
            area,
            "partitions",
            "this month's are missing: no server has run for two months",
            "start a server, which creates them first",
        ),
    }
}

fn list_names(names: &[String]) -> String {
    let more = names.len().saturating_sub(3);
    let first = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

fn migrating(found: &Inspection) -> DoctorCheck {
    let (area, rights, name) = (Area::Rights, &found.rights, "migrate");
    let user = &rights.user;
    let lacks = if !rights.has_schema && !rights.may_make_schema {
        Some((format!("{user} may not create the schema"), format!("grant create on database … to {user}")))
    } else if !rights.owns_schema || !rights.not_owned.is_empty() {
        let of_others = match rights.not_owned.as_slice() {
            [] => "the schema".to_owned(),
            tables => list_names(tables),
        };
        let cure = format!("grant the role that owns them to {user}, or start new builds once as that role");
        Some((format!("{user} does not own {of_others}"), cure))
    } else {
        None
    };
    match lacks {
        None => DoctorCheck::ok(area, name, format!("{user} may apply migrations")),
        Some((text, cure)) if !found.schema.pending.is_empty() => DoctorCheck::wrong(
            area,
            name,
            format!("{text}, and migrations are pending: no server of this build can start"),
            cure,
        ),
        Some((text, cure)) => {
            DoctorCheck::warning(area, name, format!("{text}: the next release cannot migrate"), cure)
        }
    }
}

fn running(found: &Inspection) -> DoctorCheck {
    let (area, rights, name) = (Area::Rights, &found.rights, "tables");
    match rights.not_usable.as_slice() {
        [] if !rights.has_schema => DoctorCheck::skipped(area, name, "there is no schema yet"),
        [] => DoctorCheck::ok(area, name, format!("{} reads and writes every table", rights.user)),
        tables => DoctorCheck::wrong(
            area,
            name,
            format!("{} may not read and write {}", rights.user, list_names(tables)),
            format!("grant select, insert, update, delete on all tables in schema callgate to {}", rights.user),
        ),
    }
}

fn check_row_security(found: &Inspection) -> DoctorCheck {
    let (area, rights, name) = (Area::Rights, &found.rights, "row_security");
    let user = &rights.user;
    if !rights.has_schema {
        return DoctorCheck::skipped(area, name, "there is no schema yet");
    }
    let cure =
        format!("create role callgate_reader nologin; grant callgate_reader to {user}; then restart the servers");
    match (rights.has_reader, rights.acts_as_reader) {
        (true, true) => {
            let analysts = if rights.has_analyst { "" } else { "; there is no role callgate_analyst for analysts" };
            DoctorCheck::ok(area, name, format!("callgate_reader limits reads to their tenant{analysts}"))
        }
        (false, _) => DoctorCheck::warning(
            area,
            name,
            "there is no role callgate_reader: only callgate's statements limit reads to their tenant",
            cure,
        ),
        (true, false) => DoctorCheck::warning(
            area,
            name,
            format!("{user} may not act as callgate_reader: only callgate's statements limit reads to their tenant"),
            format!("grant callgate_reader to {user}; then restart the servers"),
        ),
    }
}
