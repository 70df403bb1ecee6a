//! The commands by task: the list of `callgate --help`, and the page of `callgate` without arguments.

use std::fmt::Write as _;

use clap::Command;

/// Headings with their commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Serve and demo", &["serve", "demo", "health", "doctor"]),
    ("Policy", &["policy", "replay"]),
    ("Agents and MCP", &["agents", "hook", "mcp", "mcp-proxy"]),
    ("Approvals and sessions", &["approvals", "notifications", "sessions", "grants"]),
    ("Insight", &["top", "explain", "report", "profiles", "audit"]),
    ("Administration", &["tenants", "tokens", "keys", "backup", "restore", "database", "psql", "forget", "export"]),
    ("Scripts and tools", &["run", "evaluate", "record", "tools", "contexts", "completions", "man"]),
];

/// Columns of the longest name of a command.
const NAME_WIDTH: usize = 13;
/// Columns of a terminal.
const COLUMNS_MAX: usize = 80;

/// The command line, with help that lists the commands by task.
pub(super) fn group_commands(command: Command) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "{header}{heading}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {literal}{name:<NAME_WIDTH$}{literal:#}  {about}");
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n\
         {{options}}{{after-help}}"
    ))
}

/// The page of `callgate` without arguments.
pub(super) fn page() -> String {
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        let mut line = format!("  {heading:<22} ");
        for (at, name) in names.iter().enumerate() {
            if line.len() + name.len() + 2 > COLUMNS_MAX {
                let _ = writeln!(groups, "{line}");
                line = format!("{:<25}", "");
            }
            let _ = write!(line, " {name}{}", if at + 1 < names.len() { "," } else { "" });
        }
        let _ = writeln!(groups, "{line}");
    }
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "callgate {version}: the policy plane between LLM agents and their tools\n\n\
         Begin with:\n  \
         callgate demo             Show decisions, without an agent\n  \
         callgate serve            Serve on 127.0.0.1:7600, with a private PostgreSQL\n\n\
         Commands:\n{groups}\n\
         Help:\n  \
         callgate --help           Describe all commands, by task\n  \
         callgate COMMAND --help   Describe a command, with its flags and examples"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn groups_hold_every_command_once() {
        let command = crate::cli::command();
        let all: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all, "each command needs its group in GROUPS");
        assert_eq!(grouped.len(), all.len(), "a command has one group");
    }

    #[test]
    fn page_fits_a_terminal_of_24_lines_and_80_columns() {
        let page = page();
        assert!(page.lines().count() <= 22, "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{page}");
    }
}
