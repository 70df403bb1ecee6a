//! Parser of scenarios.

use std::{fs, path::Path};

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// Each with file and line.
    pub(crate) steps: Vec<(String, Step)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The stage's own line.
    Setup(String),
    Person(String),
    Colleague(String),
    Turn,
    /// The next action is refused at the host's prompt.
    No,
    Compact,
    /// Milliseconds.
    Wait(u64),
    /// An action, of a sub-agent if there is a name.
    Action(Option<String>, Action),
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Bash(String),
    Read(String),
    Grep(String),
    Glob(String),
    Fetch(String),
    Edit { path: String, old: String, new: String },
    Write { path: String, text: String },
}

/// The scenarios of a folder, in the order of their files.
pub(crate) fn read(folder: &Path) -> Vec<Scenario> {
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let mut scenarios: Vec<Scenario> = Vec::new();
    for path in files {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a text");
        for (at, line) in text.lines().enumerate() {
            let (place, line) = (format!("{name}:{}", at + 1), line.trim());
            if let Some(title) = line.strip_prefix("## ") {
                scenarios.push(Scenario { name: title.to_owned(), steps: Vec::new() });
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (line, times) = match line.rsplit_once(" x") {
                Some((rest, times)) if !times.is_empty() && times.bytes().all(|b| b.is_ascii_digit()) => {
                    (rest, times.parse().expect("a number"))
                }
                _ => (line, 1),
            };
            let step = step(line).unwrap_or_else(|| panic!("{place}: {line:?} is no step"));
            let scenario = scenarios.last_mut().unwrap_or_else(|| panic!("{place}: no scenario has begun"));
            scenario.steps.extend((0..times).map(|_| (place.clone(), step.clone())));
        }
    }
    scenarios
}

fn step(line: &str) -> Option<Step> {
    let text = |line: &str| line.trim().replace("\\n", "\n");
    Some(match line {
        "turn" => Step::Turn,
        "no" => Step::No,
        "compact" => Step::Compact,
        _ => match line.split_once([' ', ':'])? {
            ("setup", rest) => Step::Setup(text(rest)),
            ("person", rest) => Step::Person(text(rest)),
            ("colleague", rest) => Step::Colleague(text(rest)),
            ("wait", rest) => Step::Wait(rest.trim().parse().ok()?),
            ("sub", rest) => {
                let (name, rest) = rest.split_once(':')?;
                Step::Action(Some(name.trim().to_owned()), action(rest.trim())?)
            }
            _ => Step::Action(None, action(line)?),
        },
    })
}

fn action(line: &str) -> Option<Action> {
    let text = |line: &str| line.trim().replace("\\n", "\n");
    let (word, rest) = line.split_once(' ')?;
    Some(match word {
        "$" => Action::Bash(rest.to_owned()),
        "read" => Action::Read(rest.to_owned()),
        "grep" => Action::Grep(rest.to_owned()),
        "glob" => Action::Glob(rest.to_owned()),
        "fetch" => Action::Fetch(rest.to_owned()),
        "edit" => {
            let (path, change) = rest.split_once(": ")?;
            let (old, new) = change.split_once(" => ")?;
            Action::Edit { path: path.to_owned(), old: text(old), new: text(new) }
        }
        "write" => {
            let (path, content) = rest.split_once(": ")?;
            Action::Write { path: path.to_owned(), text: text(content) + "\n" }
        }
        _ => return None,
    })
}
