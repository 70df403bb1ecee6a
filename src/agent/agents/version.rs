//! Version detection of hosts, and known problems by version.

use std::{process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

/// Timeout of a version query, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A version by its numbers.
pub(super) type Version = [u32; 3];

/// The last version of Claude Code that ran a tool despite a failed HTTP hook, regardless of `onFailure`, and the first
/// that blocked it.
const IGNORES: Version = [2, 1, 197];
const HONOURS: Version = [2, 1, 329];

/// A program's version output; none without such a program or output.
pub(super) async fn told_by(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    let command = command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = timeout(LIMIT, command.output()).await.ok()?.ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(str::trim).find(|line| parse(line).is_some()).map(str::to_owned)
}

/// The first three dotted numbers.
pub(super) fn parse(line: &str) -> Option<Version> {
    line.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut numbers = word.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some([next()?, next()?, next()?])
    })
}

/// The reason why an HTTP hook may not block a tool in this version of Claude Code.
pub(super) fn objection(told: Option<&str>) -> Option<String> {
    let Some(version) = told.and_then(parse) else {
        return Some("`claude --version` prints no version".to_owned());
    };
    let [a, b, c] = version;
    if version <= IGNORES {
        return Some(format!("Claude Code {a}.{b}.{c} ignores `onFailure`: tools run while the server is unavailable"));
    }
    let is_untried = version < HONOURS;
    is_untried
        .then(|| format!("Claude Code {a}.{b}.{c} is untested for `onFailure`; 2.1.197 ignores it, 2.1.329 honors it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_that_was_seen_to_block_is_trusted() {
        assert_eq!(objection(Some("2.1.329 (Claude Code)")), None);
        assert_eq!(objection(Some("3.0.0 (Claude Code)")), None);
        for (told, expected) in [
            (Some("2.1.197 (Claude Code)"), "Claude Code 2.1.197 ignores `onFailure`"),
            (Some("1.0.128 (Claude Code)"), "Claude Code 1.0.128 ignores"),
            (Some("2.1.300 (Claude Code)"), "Claude Code 2.1.300 is untested"),
            (Some("a beta"), "prints no version"),
            (None, "prints no version"),
        ] {
            let objection = objection(told).unwrap_or_default();
            assert!(objection.contains(expected), "{told:?}: {objection}");
        }
    }

    #[test]
    fn versions_are_read_among_words() {
        assert_eq!(parse("codex-cli 0.169.0"), Some([0, 169, 0]));
        assert_eq!(parse("0.61.0"), Some([0, 61, 0]));
        assert_eq!(parse("version 2.1"), None);
    }
}
