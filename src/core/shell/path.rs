//! Paths of a shell line.

use super::EffectLevel;

/// Effect of one part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartEffect {
    pub(super) kind: EffectLevel,
    pub(super) reads: PathSet,
    pub(super) writes: PathSet,
}

/// Paths, or an unknown one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathSet {
    These(Vec<String>),
    Anything,
}

impl PathSet {
    pub(super) const fn unknown() -> Self {
        Self::These(Vec::new())
    }

    pub(super) fn path(path: Option<String>) -> Self {
        path.map_or(Self::Anything, |path| Self::These(vec![path]))
    }

    pub(super) fn and(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::These(mine), Self::These(others)) => mine.extend(others),
            _ => *self = Self::Anything,
        }
    }

    /// The common ancestor of all paths.
    fn common(&self) -> Option<String> {
        let Self::These(paths) = self else { return None };
        let (first, rest) = paths.split_first()?;
        let mut parts: Vec<&str> = first.split('/').collect();
        for path in rest {
            let same = parts.iter().zip(path.split('/')).take_while(|(a, b)| **a == *b).count();
            parts.truncate(same);
        }
        Some(parts.join("/")).filter(|path| path.len() > 1)
    }
}

impl PartEffect {
    pub(super) const fn of(kind: EffectLevel) -> Self {
        Self { kind, reads: PathSet::unknown(), writes: PathSet::unknown() }
    }

    pub(super) fn reading(path: Option<String>) -> Self {
        Self { reads: PathSet::path(path), ..Self::of(EffectLevel::Read) }
    }

    pub(super) fn writing(path: Option<String>) -> Self {
        Self { writes: PathSet::path(path), ..Self::of(EffectLevel::Write) }
    }

    /// Combines both effects.
    pub(super) fn and(&mut self, other: Self) {
        self.kind = self.kind.max(other.kind);
        self.reads.and(other.reads);
        self.writes.and(other.writes);
    }

    /// The affected path.
    pub(super) fn path(&self) -> Option<String> {
        match self.kind {
            EffectLevel::Read | EffectLevel::Poll => self.reads.common(),
            EffectLevel::Write => self.writes.common(),
            EffectLevel::Check => None,
        }
    }
}

/// The absolute path, by its text: symbolic links are not followed.
pub(super) fn resolve_path(path: &str, cwd: Option<&str>) -> Option<String> {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", cwd?) };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}
