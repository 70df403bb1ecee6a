//! Parts of a result that are kept: names for the model, and numbers.

/// Names, each with the member under which it stood, in one text: trees keep very many of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named(Box<str>);

impl Named {
    pub(super) fn of<'n>(names: impl Iterator<Item = (&'n str, &'n str)>) -> Self {
        let lines: String = names.map(|(member, name)| format!("{member}\t{name}\n")).collect();
        Self(lines.into())
    }

    /// As it was stored.
    #[must_use]
    pub fn stored(text: String) -> Self {
        Self(text.into())
    }

    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Each member, empty for a word of a text, and the name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once('\t'))
    }

    /// Those that hold.
    #[must_use]
    pub fn filtered(&self, mut holds: impl FnMut(&str) -> bool) -> Self {
        Self::of(self.iter().filter(|(_, name)| holds(name)))
    }
}

/// A number, and whether it may be one that counts: no price, and no word of a longer value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its value.
    pub value: f64,
    /// It may have risen beside what differs.
    pub counts: bool,
}
