//! Static analysis of shell lines: effects on files and the outside world, by the text alone.
//!
//! A line is a read only if every part is known to change nothing. Unknown are unparsable parts, commands outside the
//! table (`commands.yaml`), and effects beyond the text: functions, aliases, scripts, variables that may hold flags.
//! Files that programs read implicitly (`.gitconfig`, `.curlrc`, shell start-up files) belong to their owner and are
//! ignored; paths are resolved by their text.

mod call;
mod path;
mod scripts;
mod statement;
mod table;
mod word;

use crate::domain::effect::EffectKind;

/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Maximum nesting: substitutions, groups, commands in commands.
const DEPTH_MAX: usize = 100;

/// Maximum number of operator characters. Error recovery of the parser is quadratic in them: 49 s for 64 KB of `a|`, 30
/// ms at this maximum.
const OPERATORS_MAX: usize = 1_000;
const OPERATORS: &[u8] = b"|&;()<>$`{[\n";
/// Maximum progress callbacks of the parser, one per some hundred steps. The longest line takes 2,000.
const PROGRESS_MAX: usize = 8_000;
/// Size of the pieces for the parser, which limits rescans: for a possible pattern (`a@a@`) it scans from every
/// character to the end.
const PIECE_BYTES: usize = 256;
const READS_PER_PIECE: usize = 8;
const READS_MIN: usize = 64;

/// Effect of a part of a line, from the least to the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EffectLevel {
    Read,
    Poll,
    Check,
    Write,
}

/// Effect of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineEffect {
    /// Effect kind.
    pub kind: EffectKind,
    /// Its path, or a common ancestor of its paths; absent: any.
    pub path: Option<String>,
}

/// Analyzes a line that runs in the folder `cwd`; without one, a relative path is any.
#[must_use]
pub fn read(line: &str, cwd: Option<&str>) -> LineEffect {
    let cwd = cwd.filter(|cwd| cwd.starts_with('/'));
    let Some(found) = statement::read(line, cwd, 0) else {
        return LineEffect { kind: EffectKind::Unknown, path: None };
    };
    let kind = match found.kind {
        EffectLevel::Read => EffectKind::Read,
        EffectLevel::Poll => EffectKind::Poll,
        EffectLevel::Check => EffectKind::Check,
        EffectLevel::Write => EffectKind::Write,
    };
    LineEffect { kind, path: found.path() }
}

#[cfg(test)]
mod tests;
