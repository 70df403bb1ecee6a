//! Environment settings of a server, as listed in `.env.example`: generated from the command line's definition by this
//! test (`UPDATE=1 cargo test --lib cli::settings`), so that none is missing or has another default.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

const FILE: &str = ".env.example";
const COLUMNS_MAX: usize = 118;
const HEAD: &str = "\
# Settings of `callgate serve`, one NAME=value a line: for a unit (EnvironmentFile), a container (--env-file) or a
# shell. The values are the defaults: remove the # of a line to change it. A flag precedes its variable. Decisions on
# calls depend on the policy, not on these settings. Other standard variables of OpenTelemetry (OTEL_…) work too:
# docs/telemetry.md#setting-it-up.
";

fn serve() -> Command {
    let mut serve = Cli::command().find_subcommand("serve").expect("a command").clone();
    serve.build();
    serve
}

/// Expected file.
fn expected_file() -> String {
    let serve = serve();
    let (mut text, mut heading) = (HEAD.to_owned(), None);
    // Those without a heading come first: a heading holds for all that follow it.
    let (plain, headed): (Vec<&Arg>, Vec<&Arg>) = serve
        .get_arguments()
        .filter(|arg| arg.get_env().is_some() && !arg.is_hide_set())
        .partition(|arg| arg.get_help_heading().is_none());
    for arg in plain.into_iter().chain(headed) {
        if arg.get_help_heading() != heading {
            heading = arg.get_help_heading();
            let _ = writeln!(text, "\n## {}", heading.unwrap_or_default());
        }
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        text.push('\n');
        for line in wrap_lines(&help) {
            let _ = writeln!(text, "# {line}");
        }
        let name = arg.get_env().expect("filtered").to_string_lossy();
        let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let _ = writeln!(text, "#{name}={}", default.join(","));
    }
    text
}

/// Wrapped lines.
fn wrap_lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one at least");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

#[test]
fn the_example_lists_what_a_server_takes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let expected = expected_file();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &expected).expect("writable");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{FILE} is not of this build: UPDATE=1 cargo test --lib cli::settings");
}

#[test]
fn every_setting_can_be_given_by_the_environment() {
    let serve = serve();
    let without: BTreeSet<_> = serve.get_arguments().filter(|arg| arg.get_env().is_none()).map(Arg::get_id).collect();
    let names: Vec<&str> = without.iter().map(|id| id.as_str()).collect();
    assert_eq!(names, ["help"], "a container and a unit set nothing else");
}
