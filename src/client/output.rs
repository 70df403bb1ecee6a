//! Output of commands. A reader may close the pipe early (`| head`): the rest is dropped, and the command ends quietly
//! with its own exit code.
//!
//! Output contains texts of models and tools. Characters that move the cursor, hide or reorder text are printed as JSON
//! escapes (`\u202e`), so that JSON keeps its value; visible colors, line breaks and tabs stay.

use std::{
    borrow::Cow,
    fmt,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    sync::OnceLock,
};

use callgate_core::domain::visible::is_visible;

/// Prints to standard output.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard output.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error, ignoring errors.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::note(format_args!("{}\n", format_args!($($text)*))) };
}

/// Error that ended the output.
static ENDED: OnceLock<io::Error> = OnceLock::new();

/// True when standard output is closed: an endless command should exit.
pub fn is_closed() -> bool {
    ENDED.get().is_some()
}

/// The write error of standard output, except for a closed pipe.
pub fn failure() -> Option<&'static io::Error> {
    ENDED.get().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

pub fn print(text: fmt::Arguments<'_>) {
    if is_closed() {
        return;
    }
    let mut out = anstream::stdout().lock();
    if let Err(error) = out.write_all(escape_invisible(&text.to_string()).as_bytes()).and_then(|()| out.flush()) {
        let _ = ENDED.set(error);
    }
}

/// On a terminal: moves the cursor to the top left, and clears the screen.
pub fn clear_screen() {
    if io::stdout().is_terminal() && !is_closed() {
        let _ = io::stdout().write_all(b"\x1b[H\x1b[J");
    }
}

pub fn note(text: fmt::Arguments<'_>) {
    let _ = anstream::stderr().lock().write_all(escape_invisible(&text.to_string()).as_bytes());
}

/// The text with invisible characters escaped.
fn escape_invisible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_unseen) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(length) = color(rest) {
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        let mut chars = rest.chars();
        let units = chars.next().map(|c| c.encode_utf16(&mut [0; 2]).to_vec()).unwrap_or_default();
        for unit in units {
            let _ = write!(out, "\\u{unit:04x}");
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.into()
}

fn is_unseen(c: char) -> bool {
    !is_visible(c)
}

/// Length of a leading color sequence that keeps text visible on any background: `ESC [ 1 ; 31 m`.
fn color(text: &str) -> Option<usize> {
    const LONGEST: usize = 24;
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.bytes().take(LONGEST).position(|b| !(b.is_ascii_digit() || b == b';'))?;
    let is_seen = parameters[..end].split(';').all(is_seen_in);
    (is_seen && parameters.as_bytes()[end] == b'm').then_some(end + "\u{1b}[m".len())
}

/// True for a visible color: not concealed, and not black, white or gray, the usual backgrounds; no background color,
/// and no extended color, which may be any of these.
fn is_seen_in(parameter: &str) -> bool {
    matches!(parameter.parse(), Ok(0..=4 | 22..=24 | 31..=36 | 39 | 91..=96)) || parameter.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped_and_colors_stay() {
        for (text, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[1;31mred\u{1b}[0m é 漢 \u{1f600}", "\u{1b}[1;31mred\u{1b}[0m é 漢 \u{1f600}"),
            ("pay \u{202e}001", r"pay \u202e001"),
            ("a\u{200b}b\rc", r"a\u200bb\u000dc"),
            ("\u{1b}[2Jgone\u{1b}]0;title\u{7}", r"\u001b[2Jgone\u001b]0;title\u0007"),
            ("\u{1b}[", r"\u001b["),
            ("\u{1b}[8mhidden\u{1b}[0m", "\\u001b[8mhidden\u{1b}[0m"),
            ("\u{1b}[1;8mhidden", r"\u001b[1;8mhidden"),
            ("\u{1b}[008mhidden", r"\u001b[008mhidden"),
            ("\u{1b}[30mblack", r"\u001b[30mblack"),
            ("\u{1b}[90mgray", r"\u001b[90mgray"),
            ("\u{1b}[97mwhite", r"\u001b[97mwhite"),
            ("\u{1b}[31;41mred on red", r"\u001b[31;41mred on red"),
            ("\u{1b}[38;5;0mblack", r"\u001b[38;5;0mblack"),
            ("\u{1b}[7mturned", r"\u001b[7mturned"),
            ("\u{1b}[99999999999mx", r"\u001b[99999999999mx"),
            ("\u{1b}[mx\u{1b}[;1my", "\u{1b}[mx\u{1b}[;1my"),
            ("\u{e0041}", r"\udb40\udc41"),
        ] {
            assert_eq!(escape_invisible(text), expected, "{text:?}");
        }
        let json = escape_invisible("{\"a\":\"x\u{202e}\u{e0041}\"}").into_owned();
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["a"], "x\u{202e}\u{e0041}", "the value is the same");
    }
}
