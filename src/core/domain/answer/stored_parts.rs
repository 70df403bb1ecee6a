//! Stored parts of a result: names for the model, and numbers for comparison.

/// Names, each with the key under which it stood, packed into one text to save memory in trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedNames(Box<str>);

impl PackedNames {
    pub(super) fn of<'n>(names: impl Iterator<Item = (&'n str, &'n str)>) -> Self {
        let lines: String = names.map(|(member, name)| format!("{member}\t{name}\n")).collect();
        Self(lines.into())
    }

    /// From the stored form.
    #[must_use]
    pub fn from_stored(text: String) -> Self {
        Self(text.into())
    }

    /// The stored form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Pairs of key (empty for a word of a text) and name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once('\t'))
    }

    /// The pairs whose name satisfies `holds`.
    #[must_use]
    pub fn filter_names(&self, mut holds: impl FnMut(&str) -> bool) -> Self {
        Self::of(self.iter().filter(|(_, name)| holds(name)))
    }
}

/// A number, and whether it may be a counter: neither a price nor part of a longer value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its value.
    pub value: f64,
    /// True for a possible counter.
    pub counts: bool,
}
