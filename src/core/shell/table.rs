//! Table of known commands.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use super::{EffectLevel, word::ShellWord};

/// Known commands.
pub(super) static TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::read(include_str!("commands.yaml")));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    /// Uppercase variables that programs ignore, or that change only the output's format.
    variables: String,
    /// Lowercase variables that shells or programs read; `*` at an end matches any text.
    special_variables: String,
    commands: Vec<CommandRow>,
}

/// A command with some of its flags, and their effect. The first matching row applies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandRow {
    /// Its names.
    command: String,
    /// Subcommands: alternatives, each of one or more words joined by `/`.
    #[serde(default)]
    sub: String,
    /// Flags before the subcommand, common to all of them.
    #[serde(default)]
    before: String,
    pub(super) does: CommandEffect,
    /// Flags, `any` for all; `-#` is a number.
    #[serde(default)]
    flags: String,
    /// Flags with a value.
    #[serde(default)]
    values: String,
    /// Flags of which at least one is present.
    #[serde(default)]
    with: String,
    /// Flags whose value is a written path; at least one is present.
    #[serde(default)]
    writes: String,
    /// Flags with a required value.
    #[serde(default)]
    fixed: BTreeMap<String, String>,
    /// Texts that no word contains.
    #[serde(default)]
    never: String,
    /// Prefixes, one of which each operand has; empty: any.
    #[serde(default)]
    begins: String,
    #[serde(default)]
    pub(super) operands: Operands,
    #[serde(default)]
    least: usize,
    #[serde(default = "unbounded_count")]
    most: usize,
    /// Without operands, the current folder is affected.
    #[serde(default)]
    pub(super) here: bool,
    /// Role of the words after the operands.
    #[serde(default)]
    pub(super) then: Option<OperandContinuation>,
    #[serde(default)]
    pub(super) after: usize,
    /// Example lines with this row's effect.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test of each row"))]
    pub(super) such: Vec<String>,
    /// Example lines that no row matches.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "a test of each row"))]
    pub(super) unknown: Vec<String>,
    /// Example lines that resemble polls and are none.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "a test of each row"))]
    pub(super) unlike: Vec<String>,
}

const fn unbounded_count() -> usize {
    usize::MAX
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CommandEffect {
    Read,
    Poll,
    Check,
    Write,
}

impl From<CommandEffect> for EffectLevel {
    fn from(does: CommandEffect) -> Self {
        match does {
            CommandEffect::Read => Self::Read,
            CommandEffect::Poll => Self::Poll,
            CommandEffect::Check => Self::Check,
            CommandEffect::Write => Self::Write,
        }
    }
}

/// Role of operands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operands {
    /// None.
    #[default]
    None,
    /// No paths.
    Text,
    /// Texts with a leading plus.
    Format,
    /// Read paths.
    Read,
    /// A text, then read paths.
    TextRead,
    /// Written paths.
    Write,
    /// A text, then written paths.
    TextWrite,
    /// Read paths, the last one written.
    ReadWrite,
    /// A changed thing without a path.
    Thing,
}

/// Continuation after the operands of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OperandContinuation {
    /// Another command.
    Command,
    /// Another command, with further unknown words.
    CommandAndMore,
    /// A shell line.
    Line,
    /// A script of sed.
    Sed,
    /// A script of awk.
    Awk,
    /// The expression of find.
    Find,
}

/// A command's words, matched by a row.
#[derive(Debug, Default)]
pub(super) struct CommandMatch<'a> {
    pub(super) operands: Vec<&'a ShellWord>,
    pub(super) written: Vec<Cow<'a, ShellWord>>,
    pub(super) rest: &'a [ShellWord],
}

#[derive(Debug)]
pub(super) struct CommandTable {
    pub(super) rows: Vec<CommandRow>,
    by_command: BTreeMap<String, Vec<usize>>,
    variables: Vec<String>,
    special: Vec<String>,
}

fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|one| one == word)
}

impl CommandTable {
    fn read(text: &str) -> Self {
        let file: TableFile = serde_saphyr::from_str(text).expect("the table is tested");
        let mut by_command: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, row) in file.commands.iter().enumerate() {
            for name in row.command.split_ascii_whitespace() {
                by_command.entry(name.to_owned()).or_default().push(at);
            }
        }
        let names = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
        let (variables, special) = (names(&file.variables), names(&file.special_variables));
        Self { rows: file.commands, by_command, variables, special }
    }

    pub(super) fn may_set(&self, name: &str) -> bool {
        let is_lower = name.starts_with(|first: char| first.is_ascii_lowercase());
        let is = |one: &String| match (one.strip_prefix('*'), one.strip_suffix('*')) {
            (Some(end), _) => name.ends_with(end),
            (None, Some(begin)) => name.starts_with(begin),
            (None, None) => one == name,
        };
        (is_lower && !self.special.iter().any(is)) || self.variables.iter().any(|one| one == name)
    }

    /// The first row that matches these words of a command.
    pub(super) fn find<'a>(&self, name: &str, words: &'a [ShellWord]) -> Option<(&CommandRow, CommandMatch<'a>)> {
        let rows = self.by_command.get(name)?.iter().map(|at| &self.rows[*at]);
        rows.filter_map(|row| Some((row, row.fits(words)?))).next()
    }
}

impl CommandRow {
    fn fits<'a>(&self, words: &'a [ShellWord]) -> Option<CommandMatch<'a>> {
        let mut fit = CommandMatch::default();
        let holds = |word: &ShellWord| {
            let (ShellWord::Plain(text) | ShellWord::Begins(text)) = word else { return false };
            self.never.split_ascii_whitespace().any(|never| text.contains(never))
        };
        if words.iter().any(holds) {
            return None;
        }
        let words = if self.sub.is_empty() { words } else { self.after_sub(words)? };
        if self.then == Some(OperandContinuation::Find) {
            let is_link_flag = |word: &&ShellWord| matches!(word.plain(), Some("-H" | "-L" | "-P"));
            return Some(CommandMatch { rest: &words[words.iter().take_while(is_link_flag).count()..], ..fit });
        }
        let (mut at, mut is_with, mut flags_end) = (0, self.with.is_empty(), false);
        while let Some(word) = words.get(at) {
            if self.then.is_some() && fit.operands.len() == self.after && (flags_end || !is_flag(word)) {
                fit.rest = &words[at..];
                break;
            }
            at += 1;
            match word {
                _ if flags_end => fit.operands.push(word),
                ShellWord::Plain(text) if text == "--" => flags_end = true,
                // Where the count of operands matters, a flag behind one may be one more of them.
                ShellWord::Plain(text) if text.len() > 1 && text.starts_with('-') => {
                    if self.most != usize::MAX && !fit.operands.is_empty() {
                        return None;
                    }
                    let flag = self.flag(text)?;
                    is_with |= flag.is_with;
                    let value = match &flag.takes {
                        FlagArity::Nothing => None,
                        FlagArity::Attached(value) => Some(Cow::Owned(ShellWord::Plain(value.clone()))),
                        FlagArity::Next => {
                            at += 1;
                            Some(Cow::Borrowed(words.get(at - 1).filter(|value| self.is_value(value))?))
                        }
                    };
                    if let Some(fixed) = flag.fixed
                        && value.as_deref().and_then(ShellWord::plain) != Some(fixed)
                    {
                        return None;
                    }
                    if let Some(value) = value.filter(|_| flag.is_written) {
                        fit.written.push(value);
                    }
                }
                ShellWord::Opaque if self.flags != "any" => return None,
                ShellWord::Begins(text) if text.starts_with('-') && self.flags != "any" => return None,
                _ => fit.operands.push(word),
            }
        }
        let is_complete = self.then.is_none() || !fit.rest.is_empty();
        let count = fit.operands.len();
        if self.operands == Operands::Format && !fit.operands.iter().all(|word| is_format(word)) {
            return None;
        }
        let begins = |word: &&ShellWord| {
            let mut texts = self.begins.split_ascii_whitespace();
            word.plain().is_some_and(|text| texts.any(|begin| text.starts_with(begin)))
        };
        if !self.begins.is_empty() && !fit.operands.iter().all(begins) {
            return None;
        }
        let fits = is_with
            && is_complete
            && (self.least..=self.most).contains(&count)
            && (self.writes.is_empty() || !fit.written.is_empty())
            && (self.operands != Operands::None || count == 0 || self.then.is_some());
        fits.then_some(fit)
    }

    /// True for a separate value, not a flag: if the program takes it as an operand, it has no effect.
    fn is_value(&self, word: &ShellWord) -> bool {
        match word {
            ShellWord::Plain(text) | ShellWord::Begins(text) => !text.starts_with('-') || self.flags == "any",
            ShellWord::Opaque => self.flags == "any",
        }
    }

    fn after_sub<'a>(&self, words: &'a [ShellWord]) -> Option<&'a [ShellWord]> {
        if let Some(rest) = self.behind_sub(words) {
            return Some(rest);
        }
        let mut words = words;
        while let Some(text) = words.first()?.plain().filter(|text| text.starts_with('-')) {
            if has(&self.before, &format!("{text}=")) {
                words.get(1)?.plain()?;
                words = words.get(2..)?;
            } else if has(&self.before, text) {
                words = &words[1..];
            } else {
                return None;
            }
        }
        self.behind_sub(words)
    }

    fn behind_sub<'a>(&self, words: &'a [ShellWord]) -> Option<&'a [ShellWord]> {
        self.sub.split_ascii_whitespace().find_map(|sub| {
            let mut rest = words;
            for part in sub.split('/') {
                let word = rest.first()?.plain()?;
                if part.strip_suffix('*').map_or(word != part, |begin| !word.starts_with(begin)) {
                    return None;
                }
                rest = &rest[1..];
            }
            Some(rest)
        })
    }

    /// The meaning of a flag; none if unknown.
    fn flag(&self, text: &str) -> Option<Flag<'_>> {
        let kind = |name: &str| self.kind_of(name);
        if let Some(kind) = kind(text) {
            let takes = if kind.has_value { FlagArity::Next } else { FlagArity::Nothing };
            return Some(Flag { takes, ..kind.flag });
        }
        if let Some((name, value)) = text.split_once('=') {
            if let Some(known) = kind(name).filter(|known| known.has_value) {
                return Some(Flag { takes: FlagArity::Attached(value.to_owned()), ..known.flag });
            }
            if has(&self.flags, &format!("{name}=")) {
                return Some(Flag::default());
            }
        }
        if has(&self.flags, "-#") && text[1..].bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Flag::default());
        }
        if !text.starts_with("--")
            && let Some(flag) = self.cluster(text)
        {
            return Some(flag);
        }
        (self.flags == "any").then(Flag::default)
    }

    /// `-lah`, and `-k2`.
    fn cluster(&self, text: &str) -> Option<Flag<'_>> {
        let mut all = Flag::default();
        for (at, letter) in text.char_indices().skip(1) {
            let known = self.kind_of(&format!("-{letter}"))?;
            all.is_with |= known.flag.is_with;
            all.is_written |= known.flag.is_written;
            all.fixed = all.fixed.or(known.flag.fixed);
            if known.has_value {
                let value = &text[at + letter.len_utf8()..];
                all.takes = if value.is_empty() { FlagArity::Next } else { FlagArity::Attached(value.to_owned()) };
                return Some(all);
            }
        }
        Some(all)
    }

    fn kind_of(&self, name: &str) -> Option<KnownCommand<'_>> {
        let is_written = has(&self.writes, name);
        let with_value = format!("{name}=");
        let is_with = has(&self.with, name) || has(&self.with, &with_value);
        let fixed = self.fixed.get(name).map(String::as_str);
        let is_plain = has(&self.flags, name) || has(&self.with, name);
        let has_value = !is_plain && (is_written || fixed.is_some() || has(&self.values, name) || is_with);
        (has_value || is_plain)
            .then_some(KnownCommand { has_value, flag: Flag { is_with, is_written, fixed, takes: FlagArity::Nothing } })
    }
}

fn is_flag(word: &ShellWord) -> bool {
    matches!(word, ShellWord::Plain(text) if text.starts_with('-') && text.len() > 1)
}

struct KnownCommand<'a> {
    has_value: bool,
    flag: Flag<'a>,
}

#[derive(Default)]
struct Flag<'a> {
    is_with: bool,
    is_written: bool,
    fixed: Option<&'a str>,
    takes: FlagArity,
}

#[derive(Default)]
enum FlagArity {
    #[default]
    Nothing,
    Attached(String),
    Next,
}

fn is_format(word: &ShellWord) -> bool {
    match word {
        ShellWord::Plain(text) | ShellWord::Begins(text) => text.starts_with('+'),
        _ => false,
    }
}
