//! Glob patterns over tool names: `get_*|list_*`.

use wildmatch::WildMatch;

use super::ids::{Invalid, NAME_BYTES_MAX};

/// Maximum number of alternatives in a pattern.
pub const ALTERNATIVES_MAX: usize = 64;

/// Alternatives separated by `|`; `*` matches any text, `?` any one character.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    text: String,
    alternatives: Vec<WildMatch>,
}

impl Eq for Pattern {}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`Invalid`] naming `field` for an empty alternative, one that is longer than a name, or too many of them.
    pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
        let parts: Vec<&str> = text.split('|').map(str::trim).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(Invalid::new(field, format!("has an empty alternative: {text:?}; `*` matches every tool")));
        }
        if parts.len() > ALTERNATIVES_MAX || parts.iter().any(|part| part.len() > NAME_BYTES_MAX) {
            let most = format!("at most {ALTERNATIVES_MAX} alternatives of {NAME_BYTES_MAX} bytes are allowed");
            return Err(Invalid::new(field, format!("is too long: {most}")));
        }
        let alternatives = parts.iter().map(|part| WildMatch::new(part)).collect();
        Ok(Self { text: text.to_owned(), alternatives })
    }

    /// Does the name of a tool match?
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.alternatives.iter().any(|alternative| alternative.matches(name))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_alternative_matches_by_whole_names() {
        let pattern = Pattern::parse("pattern", "get_*|list_*| v?_ping ").expect("valid");
        for (name, is_match) in
            [("get_order", true), ("list_", true), ("v1_ping", true), ("forget_me", false), ("v12_ping", false)]
        {
            assert_eq!(pattern.matches(name), is_match, "{name}");
        }
        assert!(Pattern::parse("pattern", "get_*|").is_err());
        assert!(Pattern::parse("pattern", "").is_err());
    }
}
