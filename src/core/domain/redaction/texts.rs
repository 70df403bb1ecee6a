//! Secrets in running text: commands, headers, files, JSON inside of texts.

use std::ops::Range;

use super::{
    Kind,
    forms::{self, run},
    names::{self, Named},
};

/// Longest value that a name is given in a text, in bytes.
const VALUE_MAX: usize = 8_192;

/// Tells every secret of a text, in order and apart from each other. `own` says what the owner makes of a name.
pub(super) fn each(text: &str, own: impl Fn(&str) -> Option<Option<Named>>, mut tell: impl FnMut(Range<usize>, Kind)) {
    let bytes = text.as_bytes();
    let named = |name: &str| own(name).unwrap_or_else(|| names::named(name));
    let mut at = 0;
    while at < bytes.len() {
        let found = match bytes[at] {
            byte if is_word(byte) => match forms::at(text, at) {
                Some((length, kind)) => Some((at..at + length, kind)),
                None => {
                    at += run(&text[at..], is_word);
                    continue;
                }
            },
            b':' if text[at..].starts_with("://") => user(text, at + 3).map(|range| (range, Kind::Name)),
            b'=' | b':' => assigned(text, at, &named).map(|range| (range, Kind::Name)),
            b'-' => match forms::pem(&text[at..]) {
                Some(length) => Some((at..at + length, Kind::Key)),
                None => option(text, at, &named).map(|range| (range, Kind::Name)),
            },
            byte if byte < 128 => None,
            // Not a word of ASCII: past the whole character.
            _ => {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
        };
        match found {
            Some((range, kind)) => {
                at = range.end.max(at + 1);
                tell(range, kind);
            }
            None => at += 1,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// `https://name:password@host`: what stands between the colon and the last `@` of the authority.
fn user(text: &str, from: usize) -> Option<Range<usize>> {
    let length = run(&text[from..], |b| !b.is_ascii_whitespace() && !b"/?#\"'<>\\".contains(&b));
    let authority = &text[from..from + length];
    let host = authority.rfind('@')?;
    let colon = authority[..host].find(':')?;
    let password = &authority[colon + 1..host];
    (!password.is_empty() && !password.starts_with(['$', '{', '[', '*'])).then_some(from + colon + 1..from + host)
}

/// `--password hunter2`; with `=` it is as any other value.
fn option(text: &str, at: usize, named: &impl Fn(&str) -> Option<Named>) -> Option<Range<usize>> {
    let name = text[at..].strip_prefix("--")?;
    let length = run(name, |b| is_word(b) || b == b'-');
    let meaning = named(&name[..length])?;
    let from = at + 2 + length + run(&name[length..], |b| b == b' ');
    let value = value(text, from, Open::Option)?;
    (from > at + 2 + length && is_secret(meaning, &text[value.clone()], false)).then_some(value)
}

/// The value that a name is given at `at`, a `=` or `:`.
fn assigned(text: &str, at: usize, named: &impl Fn(&str) -> Option<Named>) -> Option<Range<usize>> {
    let before = text[..at].trim_end_matches([' ', '\t']);
    let unquoted = before.trim_end_matches(['"', '\'', '`', '\\']);
    let begin = unquoted.bytes().rev().take_while(|b| is_word(*b) || b"-.".contains(b)).count();
    let name = &unquoted[unquoted.len() - begin..];
    let meaning = named(name)?;
    let is_member = unquoted.len() < before.len();
    let from = at + 1 + run(&text[at + 1..], |b| b == b' ' || b == b'\t');
    // `==` compares, `:=` assigns.
    let from = if text[at + 1..].starts_with('=') { return None } else { from };
    let is_header = text.as_bytes()[at] == b':' && !is_member && meaning == Named::SecretText;
    let value = value(text, from, if is_header { Open::Header } else { Open::Word })?;
    let is_quoted = text[..value.start].ends_with(['"', '\'', '`']);
    let found = &text[value.clone()];
    let is_one = is_member || !found.contains(char::is_whitespace) || is_header && is_header_value(found);
    (is_one && is_secret(meaning, found, is_quoted || is_header && is_header_value(found))).then_some(value)
}

/// `Basic …`, `a=b; c=d`: what headers of these names hold, and sentences do not.
fn is_header_value(value: &str) -> bool {
    let scheme = value.split(' ').next().unwrap_or_default();
    let is_scheme = ["basic", "bearer", "digest", "token", "apikey", "negotiate"];
    let is_scheme = is_scheme.iter().any(|known| known.eq_ignore_ascii_case(scheme)) && value.len() > scheme.len() + 4;
    is_scheme || value.split(';').all(|pair| pair.contains('=') && !pair.trim().contains([' ', ',', '(']))
}

/// What may follow a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Word,
    Option,
    /// To the end of its line.
    Header,
}

/// The value that begins `from`: what stands in quotes (escaped, inside a text of JSON), else a word.
fn value(text: &str, from: usize, open: Open) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let escapes = run(rest, |b| b == b'\\');
    let quote = rest.as_bytes().get(escapes).copied().filter(|b| b"\"'`".contains(b));
    let range = if let Some(quote) = quote {
        let from = from + escapes + 1;
        from..from + quoted(&text[from..], quote, escapes)
    } else {
        let ends = |b: u8| match open {
            Open::Header => b"\r\n\"'\\<>{}".contains(&b),
            _ => b.is_ascii_whitespace() || b"\"'`,;&<>(){}[]|\\".contains(&b),
        };
        let length = run(rest, |b| !ends(b));
        from..from + rest[..length].trim_end().len()
    };
    (!range.is_empty() && range.len() <= VALUE_MAX).then_some(range)
}

/// The length of a text up to the quote that closes it, which has as many backslashes before it as the opening one.
fn quoted(text: &str, quote: u8, escapes: usize) -> usize {
    let mut backslashes = 0;
    for (at, byte) in text.bytes().enumerate() {
        // In plain quotes a pair of backslashes is one of the text's own.
        let closes = backslashes <= escapes || (escapes == 0 && backslashes % 2 == 0);
        match byte {
            b'\\' => backslashes += 1,
            byte if byte == quote && closes => return at - backslashes.min(escapes),
            b'\n' if escapes == 0 && quote != b'`' => return at,
            _ => backslashes = 0,
        }
    }
    text.len()
}

/// Whether a value in a text is a secret, as its name has it. One without quotes is only if nothing else is likelier:
/// an expression, a word of a sentence.
fn is_secret(meaning: Named, value: &str, is_quoted: bool) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let is_reference = value.starts_with(['$', '{', '<', '*', '%', '[']) || value.starts_with("process.env");
    let is_word = value.bytes().all(|b| b.is_ascii_alphabetic() || b"_.-:/".contains(&b));
    if is_reference || super::is_masked(value) {
        return false;
    }
    match meaning {
        Named::Secret => (is_quoted && value.len() >= 3) || (value.len() >= 4 && !is_word),
        Named::SecretText => {
            (is_quoted && value.len() >= 8) || (value.len() >= 8 && digits > 0 && digits < value.len())
        }
        Named::Code => super::is_code(value),
        Named::Perhaps => forms::is_drawn_by_lot(value),
    }
}
