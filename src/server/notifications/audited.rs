//! Approval requests in the descriptions of audit entries (`src/core/domain/audit.rs` writes them).

/// The approval request that an entry of a `kind` tells of; none for other entries.
pub(super) fn approval_id<'a>(kind: &str, what: &'a str) -> Option<&'a str> {
    let mut words = what.split([' ', ':']);
    let id = match kind {
        "answered" => words.nth(1),
        "withdrawn" => words.next(),
        _ => None,
    };
    id.filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_id_is_read_from_the_descriptions_of_its_entries() {
        for (kind, what, id) in [
            ("answered", "approved a-1: call c", Some("a-1")),
            ("answered", "denied a-1: call c", Some("a-1")),
            ("answered", "approved a-1 with other arguments, digest 0a instead of 0b: call c", Some("a-1")),
            ("withdrawn", "a-1: call c", Some("a-1")),
            ("answered", "", None),
            ("withdrawn", "", None),
            ("halted", "tool pay", None),
        ] {
            assert_eq!(approval_id(kind, what), id, "{kind} {what}");
        }
    }
}
