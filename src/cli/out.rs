//! What commands print, in one way. A reader may leave before the end (`| head`): what it does not read is dropped,
//! and the command ends as it would have, quietly and with its own exit code.

use std::{
    fmt,
    io::{self, Write as _},
    sync::OnceLock,
};

/// Prints to standard output.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::cli::out::print(format_args!($($text)*)) };
}

/// Prints a line to standard output.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::cli::out::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error. Nobody needs to read it.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::cli::out::note(format_args!("{}\n", format_args!($($text)*))) };
}

/// Why nothing more can be printed.
static ENDED: OnceLock<io::Error> = OnceLock::new();

/// True when nobody reads standard output any more: a command that would print for ever ends.
pub fn is_closed() -> bool {
    ENDED.get().is_some()
}

/// Why standard output could not be written; a reader that left is no reason.
pub fn failure() -> Option<&'static io::Error> {
    ENDED.get().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

pub fn print(text: fmt::Arguments<'_>) {
    if is_closed() {
        return;
    }
    let mut out = anstream::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        let _ = ENDED.set(error);
    }
}

pub fn note(text: fmt::Arguments<'_>) {
    let _ = anstream::stderr().lock().write_fmt(text);
}
