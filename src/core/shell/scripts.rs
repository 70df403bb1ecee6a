//! Embedded scripts: sed, awk, and the expression of find.

use super::{
    EffectLevel, call,
    path::{PartEffect, PathSet, resolve_path},
    statement::Reader,
    word::ShellWord,
};

/// The files after a printing sed script; none for one that may write or run something.
///
/// Known are addresses, `p`, `d`, `q`, `=`, `n`, and `s` with the flags g, i, I, p and a number; not `w`, `e`, `r` and
/// others.
pub(super) fn sed_files(words: &[ShellWord]) -> Option<&[ShellWord]> {
    let (script, files) = words.split_first()?;
    let script = script.plain()?;
    // A flag behind the script counts as one before it.
    if !files.iter().all(is_operand) {
        return None;
    }
    script.split(['\n', ';']).all(|command| is_harmless(command.trim())).then_some(files)
}

/// A word that cannot be a flag.
fn is_operand(word: &ShellWord) -> bool {
    match word {
        ShellWord::Plain(text) | ShellWord::Begins(text) => !text.starts_with('-') || text == "-",
        ShellWord::Opaque => false,
    }
}

fn is_harmless(command: &str) -> bool {
    let command = command
        .trim_start_matches(|char: char| char.is_ascii_digit() || matches!(char, ',' | '$' | ' ' | '!' | '~' | '+'));
    let rest = match command.strip_prefix('/') {
        // An address of one or two patterns.
        Some(pattern) => {
            let Some((_, rest)) = split_unescaped(pattern, '/') else { return false };
            return is_harmless(rest.trim_start_matches(['I', ',']));
        }
        None => command,
    };
    match rest {
        "" | "p" | "d" | "q" | "=" | "n" | "N" | "P" | "D" | "h" | "H" | "g" | "G" | "x" => true,
        _ => {
            let Some(by) = rest.strip_prefix('s').and_then(|rest| rest.chars().next()) else { return false };
            if by.is_alphanumeric() || by == '\\' {
                return false;
            }
            let Some((_, rest)) = split_unescaped(&rest[1 + by.len_utf8()..], by) else { return false };
            let Some((_, flags)) = split_unescaped(rest, by) else { return false };
            flags.chars().all(|flag| matches!(flag, 'g' | 'i' | 'I' | 'p') || flag.is_ascii_digit())
        }
    }
}

/// The text before the first unescaped `by`, and the rest. None after a bracket, which may quote one.
fn split_unescaped(text: &str, by: char) -> Option<(&str, &str)> {
    let mut escaped = false;
    let mut bracket_end = 0;
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // A nested one was checked with its parent.
            '[' if at >= bracket_end => {
                bracket_end = at + text[at..].find(']')?;
                if text[at..bracket_end].contains(by) {
                    return None;
                }
            }
            _ if char == by => return Some((&text[..at], &text[at + by.len_utf8()..])),
            _ => {}
        }
    }
    None
}

/// The files after a printing awk script: without a pipe, an output file or a system call. Quoted text is not
/// distinguished from code, so a script with such a text is unknown.
pub(super) fn awk(words: &[ShellWord]) -> Option<&[ShellWord]> {
    let (script, files) = words.split_first()?;
    let script = script.plain()?;
    let is_harmless = !script.contains(['>', '|', '@', '`'])
        && !["system", "getline", "close", "printf >", "include"].iter().any(|word| script.contains(word));
    (is_harmless && files.iter().all(is_operand)).then_some(files)
}

const FIND_TESTS: &str = "\
    -name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size -mtime -mmin -atime \
    -amin -ctime -cmin -newer -anewer -cnewer -newermt -perm -user -group -uid -gid -maxdepth -mindepth \
    -links -inum -samefile -lname -ilname -fstype -used -regextype -printf -context";
const FIND_WORDS: &str = "\
    -print -print0 -ls -prune -quit -depth -d -mount -xdev -follow -empty -readable -writable -executable \
    -true -false -nouser -nogroup -daystart -noleaf -ignore_readdir_race -noignore_readdir_race -a -and -o \
    -or -not ! ( ) ,";

/// The expression of find: tests, and commands for its matches.
pub(super) fn find(reader: &mut Reader<'_>, words: &[ShellWord]) -> Option<PartEffect> {
    let mut found = PartEffect::of(EffectLevel::Read);
    let begins = words.iter().position(|word| !is_start(word)).unwrap_or(words.len());
    let (starts, expression) = words.split_at(begins);
    for start in starts {
        found.reads.and(PathSet::path(start.plain().and_then(|path| resolve_path(path, reader.cwd.as_deref()))));
    }
    if starts.is_empty() {
        found.reads = PathSet::path(reader.cwd.clone());
    }
    let has = |list: &str, word: &str| list.split_ascii_whitespace().any(|one| one == word);
    let mut at = 0;
    while let Some(word) = expression.get(at) {
        let word = word.plain()?;
        at += 1;
        if has(FIND_TESTS, word) {
            // Its value must be one known word, or flags and values cannot be told apart.
            if matches!(expression.get(at)?, ShellWord::Opaque) {
                return None;
            }
            at += 1;
        } else if matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir") {
            let end = expression[at..].iter().position(|word| matches!(word.plain(), Some(";" | "+")))?;
            let command: Vec<ShellWord> = expression[at..at + end].iter().map(fill_word).collect();
            let cwd = reader.cwd.take();
            let inner = call::read(reader, &command);
            reader.cwd = cwd;
            found.and(inner?);
            at += end + 1;
        } else if word == "-delete" {
            found.and(PartEffect {
                kind: EffectLevel::Write,
                writes: found.reads.clone(),
                ..PartEffect::of(EffectLevel::Read)
            });
        } else if !has(FIND_WORDS, word) {
            return None;
        }
    }
    Some(found)
}

fn is_start(word: &ShellWord) -> bool {
    match word {
        ShellWord::Plain(text) => !text.starts_with('-') && !matches!(text.as_str(), "(" | ")" | "!" | ","),
        ShellWord::Begins(text) => !text.starts_with(['-', '(', '!', ',']),
        ShellWord::Opaque => false,
    }
}

/// A word after substitution: with `{}` it is opaque.
pub(super) fn fill_word(word: &ShellWord) -> ShellWord {
    if word.plain().is_some_and(|text| text.contains("{}")) { ShellWord::Opaque } else { word.clone() }
}
