//! What a line of a shell does to files and the rest of the world, as far as its text says.
//!
//! A line is a read only where every part of it is known to change nothing. What cannot be read, what the table
//! (`commands.yaml`) does not know, and what depends on more than the text is unknown: a function, an alias, a script,
//! a variable that may hold a flag. Files that programs read by themselves (`.gitconfig`, `.curlrc`, start-up files of
//! shells) are their owner's, and not looked at; paths are resolved by their text alone.

mod call;
mod path;
mod scripts;
mod statement;
mod table;
mod word;

use crate::domain::effect::EffectKind;

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// How deep a line may be nested: substitutions, groups, commands in commands.
const DEPTH_MAX: usize = 100;

/// How many characters of the shell's own a line may hold. The parser takes time by the square of them where it has to
/// mend a line: 49 s for 64 KB of `a|`, 30 ms for so many of them.
const OPERATORS_MAX: usize = 1_000;
const OPERATORS: &[u8] = b"|&;()<>$`{[\n";
/// How often the parser may tell of its progress, each time after some hundred steps. The longest line takes 2,000.
const PROGRESS_MAX: usize = 8_000;
/// The parser is given a line in pieces, and so many reads of them each: where it may be a pattern (`a@a@`), it looks
/// from every character to the end.
const PIECE_BYTES: usize = 256;
const READS_PER_PIECE: usize = 8;
const READS_MIN: usize = 64;

/// What a part of a line does, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Poll,
    Check,
    Write,
}

/// What a line does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Reads, polls, checks, writes, or nobody knows.
    pub kind: EffectKind,
    /// The path that it is about, or one above all that it is about; absent: anything.
    pub path: Option<String>,
}

/// Reads a line that is run in the folder `cwd`; without one, a path that is not from the root is anything.
#[must_use]
pub fn read(line: &str, cwd: Option<&str>) -> Reading {
    let cwd = cwd.filter(|cwd| cwd.starts_with('/'));
    let Some(found) = statement::read(line, cwd, 0) else {
        return Reading { kind: EffectKind::Unknown, path: None };
    };
    let kind = match found.kind {
        Kind::Read => EffectKind::Read,
        Kind::Poll => EffectKind::Poll,
        Kind::Check => EffectKind::Check,
        Kind::Write => EffectKind::Write,
    };
    Reading { kind, path: found.path() }
}

#[cfg(test)]
mod tests;
