//! Secrets in running text: commands, headers, files, JSON inside of texts.

use std::ops::Range;

use super::{
    RedactionCause, forms,
    names::{self, NAME_MAX, NameSecrecy},
};

/// Maximum length of a value behind a name in a text, in bytes.
const VALUE_MAX: usize = 8_192;
/// Step limit per byte of a text. Ordinary texts take under ten; beyond the limit the rest of the text is redacted as a
/// whole.
const STEPS_PER_BYTE: usize = 64;
/// Additional step limit for short texts.
const STEPS_BESIDES: usize = 1_024;

/// Calls back with each secret of a text, in order and without overlaps, and returns the number of steps. `own` is the
/// policy's rule for a name.
pub(super) fn visit_secrets(
    text: &str,
    own: impl Fn(&str) -> Option<Option<NameSecrecy>>,
    mut tell: impl FnMut(Range<usize>, RedactionCause),
) -> usize {
    let bytes = text.as_bytes();
    let named = |name: &str| own(name).unwrap_or_else(|| names::name_secrecy(name));
    let steps_max = text.len() * STEPS_PER_BYTE + STEPS_BESIDES;
    let mut runs = Runs::default();
    let mut at = 0;
    while at < bytes.len() {
        if runs.steps > steps_max {
            tell(at..text.len(), RedactionCause::Key);
            break;
        }
        let found = match bytes[at] {
            byte if is_word(byte) => match forms::at(text, at, &mut runs) {
                Some((length, kind)) => Some((at..at + length, kind)),
                None => {
                    at += runs.length(text, at, ByteClass::Word);
                    continue;
                }
            },
            b':' if text[at..].starts_with("://") => {
                user(text, at + 3, &mut runs).map(|range| (range, RedactionCause::Name))
            }
            b'=' | b':' => find_assigned_value(text, at, &named, &mut runs).map(|range| (range, RedactionCause::Name)),
            b'-' => match forms::pem(&text[at..], &mut runs) {
                Some(length) => Some((at..at + length, RedactionCause::Key)),
                None => option(text, at, &named, &mut runs).map(|range| (range, RedactionCause::Name)),
            },
            byte if byte < 128 => None,
            // Not a word of ASCII: past the whole character.
            _ => {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
        };
        runs.steps += 1;
        match found {
            Some((range, kind)) => {
                at = range.end.max(at + 1);
                tell(range, kind);
            }
            None => at += 1,
        }
    }
    runs.steps
}

/// Byte class of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteClass {
    /// Of words.
    Word,
    /// Of words that dashes join.
    Dashed,
    /// All but digits.
    NoDigit,
    /// Of an authority's user, password and host.
    Authority,
    /// Of a value without quotes.
    Bare,
    /// Of a header's value.
    Header,
}

impl ByteClass {
    const COUNT: usize = 6;

    fn has(self, b: u8) -> bool {
        match self {
            Self::Word => is_word(b),
            Self::Dashed => is_word(b) || b == b'-',
            Self::NoDigit => !b.is_ascii_digit(),
            Self::Authority => !b.is_ascii_whitespace() && !b"/?#\"'<>\\".contains(&b),
            Self::Bare => !b.is_ascii_whitespace() && !b"\"'`,;&<>(){}[]|\\".contains(&b),
            Self::Header => !b"\r\n\"'\\<>{}".contains(&b),
        }
    }
}

/// The runs of one text. The end of a run is cached for everything inside it, so that each byte is read once per class,
/// however many names or prefixes a run contains.
#[derive(Debug, Default)]
pub(super) struct Runs {
    known: [Range<usize>; ByteClass::COUNT],
    steps: usize,
}

impl Runs {
    /// Length of the run of a class at `from`.
    pub(super) fn length(&mut self, text: &str, from: usize, class: ByteClass) -> usize {
        let known = &self.known[class as usize];
        self.steps += 1;
        if !known.contains(&from) {
            let length = self.count(&text[from..], |byte| class.has(byte));
            self.known[class as usize] = from..from + length;
            return length;
        }
        known.end - from
    }

    /// Number of leading bytes that match. They are counted on each call; classes cover runs that can overlap.
    pub(super) fn count(&mut self, text: &str, is: impl Fn(u8) -> bool) -> usize {
        self.count_steps(text.bytes().take_while(|byte| is(*byte)).count())
    }

    /// Counts the steps of a text that is scanned as a whole.
    fn count_steps(&mut self, length: usize) -> usize {
        self.steps += length;
        length
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// `https://name:password@host`: the text between the colon and the last `@` of the authority.
fn user(text: &str, from: usize, runs: &mut Runs) -> Option<Range<usize>> {
    let length = runs.length(text, from, ByteClass::Authority);
    let authority = &text[from..from + runs.count_steps(length)];
    let host = authority.rfind('@')?;
    let colon = authority[..host].find(':')?;
    let password = &authority[colon + 1..host];
    (!password.is_empty() && !password.starts_with(['$', '{', '[', '*'])).then_some(from + colon + 1..from + host)
}

/// `--password hunter2`; with `=` it is like any other value.
fn option(
    text: &str,
    at: usize,
    named: &impl Fn(&str) -> Option<NameSecrecy>,
    runs: &mut Runs,
) -> Option<Range<usize>> {
    let name = text[at..].strip_prefix("--")?;
    let length = Some(runs.length(text, at + 2, ByteClass::Dashed)).filter(|length| *length <= NAME_MAX)?;
    let meaning = named(&name[..runs.count_steps(length)])?;
    let from = at + 2 + length + runs.count(&name[length..], |b| b == b' ');
    let value = value(text, from, ByteClass::Bare, runs)?;
    (from > at + 2 + length && is_secret(meaning, &text[value.clone()], false)).then_some(value)
}

/// The value assigned at `at`, a `=` or `:`.
fn find_assigned_value(
    text: &str,
    at: usize,
    named: &impl Fn(&str) -> Option<NameSecrecy>,
    runs: &mut Runs,
) -> Option<Range<usize>> {
    let before = text[..at].trim_end_matches([' ', '\t']);
    let unquoted = before.trim_end_matches(['"', '\'', '`', '\\']);
    let is_of_name = |b: &u8| is_word(*b) || b"-.".contains(b);
    let begin = unquoted.bytes().rev().take(NAME_MAX + 1).take_while(is_of_name).count();
    runs.count_steps(at - unquoted.len() + begin);
    if begin > NAME_MAX {
        return None;
    }
    let name = &unquoted[unquoted.len() - begin..];
    let meaning = named(name)?;
    let is_member = unquoted.len() < before.len();
    let from = at + 1 + runs.count(&text[at + 1..], |b| b == b' ' || b == b'\t');
    // `==` compares, `:=` assigns.
    let from = if text[at + 1..].starts_with('=') { return None } else { from };
    let is_header = text.as_bytes()[at] == b':' && !is_member && meaning == NameSecrecy::SecretText;
    let value = value(text, from, if is_header { ByteClass::Header } else { ByteClass::Bare }, runs)?;
    let is_quoted = text[..value.start].ends_with(['"', '\'', '`']);
    let found = &text[value.clone()];
    let is_one = is_member || !found.contains(char::is_whitespace) || is_header && is_header_value(found);
    (is_one && is_secret(meaning, found, is_quoted || is_header && is_header_value(found))).then_some(value)
}

/// True for values of these headers, which sentences do not contain: `Basic …`, `a=b; c=d`.
fn is_header_value(value: &str) -> bool {
    let scheme = value.split(' ').next().unwrap_or_default();
    let is_scheme = ["basic", "bearer", "digest", "token", "apikey", "negotiate"];
    let is_scheme = is_scheme.iter().any(|known| known.eq_ignore_ascii_case(scheme)) && value.len() > scheme.len() + 4;
    is_scheme || value.split(';').all(|pair| pair.contains('=') && !pair.trim().contains([' ', ',', '(']))
}

/// The value at `from`: the contents of quotes (escaped, inside JSON text), otherwise a run of `open`.
fn value(text: &str, from: usize, open: ByteClass, runs: &mut Runs) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let escapes = runs.count(rest, |b| b == b'\\');
    let quote = rest.as_bytes().get(escapes).copied().filter(|b| b"\"'`".contains(b));
    let range = if let Some(quote) = quote {
        let from = from + escapes + 1;
        from..from + runs.count_steps(quoted_length(&text[from..], quote, escapes)?)
    } else {
        let run = runs.length(text, from, open);
        let length = rest[..run].trim_end().len();
        runs.count_steps(run - length + length.min(VALUE_MAX));
        from..from + length
    };
    (!range.is_empty() && range.len() <= VALUE_MAX).then_some(range)
}

/// Length up to the closing quote, which has as many backslashes before it as the opening one; none if too long.
fn quoted_length(text: &str, quote: u8, escapes: usize) -> Option<usize> {
    let mut backslashes = 0;
    let ends = VALUE_MAX + escapes.min(VALUE_MAX);
    for (at, byte) in text.bytes().enumerate().take(ends + 1) {
        // In plain quotes a pair of backslashes is one of the text's own.
        let closes = backslashes <= escapes || (escapes == 0 && backslashes % 2 == 0);
        match byte {
            b'\\' => backslashes += 1,
            byte if byte == quote && closes => {
                return Some(at - backslashes.min(escapes)).filter(|length| *length <= VALUE_MAX);
            }
            b'\n' if escapes == 0 && quote != b'`' => return Some(at).filter(|length| *length <= VALUE_MAX),
            _ => backslashes = 0,
        }
    }
    (text.len() <= VALUE_MAX).then_some(text.len())
}

/// True for a secret value by its name. An unquoted one must not be more likely an expression or a word of a sentence.
fn is_secret(meaning: NameSecrecy, value: &str, is_quoted: bool) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let is_reference = value.starts_with(['$', '{', '<', '*', '%', '[']) || value.starts_with("process.env");
    let is_word = value.bytes().all(|b| b.is_ascii_alphabetic() || b"_.-:/".contains(&b));
    if is_reference || super::is_masked(value) {
        return false;
    }
    match meaning {
        NameSecrecy::Secret => (is_quoted && value.len() >= 3) || (value.len() >= 4 && !is_word),
        NameSecrecy::SecretText => {
            (is_quoted && value.len() >= 8) || (value.len() >= 8 && digits > 0 && digits < value.len())
        }
        NameSecrecy::Code => super::is_code(value),
        NameSecrecy::Perhaps => forms::is_drawn_by_lot(value),
    }
}
