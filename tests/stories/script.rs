//! Parser of stories.

use std::{fs, path::Path};

/// A story.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) name: String,
    /// File and line.
    pub(crate) place: String,
    /// The policy file; empty for the built-in policy.
    pub(crate) policy: String,
    pub(crate) steps: Vec<Step>,
}

/// One line, once.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Number within its repetition, from 1.
    pub(crate) round: usize,
    pub(crate) action: Action,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Duration of each call, in milliseconds.
    Pace(u64),
    /// Time passes, in milliseconds.
    Wait(u64),
    Run(String),
    Compacted,
    Call(Call),
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) then: Ending,
}

/// Outcome of a call.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Result(String),
    Error {
        kind: String,
        message: String,
    },
    /// Needs approval, and is denied.
    Denied(String),
}

/// The stories of a folder, in the order of their files.
pub(crate) fn read(folder: &Path) -> Vec<Story> {
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files.iter().flat_map(|path| stories(path)).collect()
}

fn stories(path: &Path) -> Vec<Story> {
    let text = fs::read_to_string(path).expect("a text");
    let name = path.file_name().expect("a name").to_string_lossy();
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line)).peekable();
    let mut stories: Vec<Story> = Vec::new();
    while let Some((at, line)) = lines.next() {
        let place = format!("{name}:{at}");
        let text = line.trim();
        if let Some(title) = text.strip_prefix("## ") {
            stories.push(Story { name: title.to_owned(), place, ..Story::default() });
            continue;
        }
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let story = stories.last_mut().unwrap_or_else(|| panic!("{place}: no story has begun"));
        let mut block = || {
            let rest = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "end");
            rest.map(str::to_owned).collect::<Vec<_>>()
        };
        match text.split_once(' ') {
            None if text == "policy" => story.policy = block().join("\n"),
            Some(("repeat", times)) => {
                let (times, lines) = (number(&place, times), block());
                let steps = |round| lines.iter().map(move |line| (round, line.clone()));
                let all = (1..=times).flat_map(steps);
                story.steps.extend(all.map(|(round, line)| Step { round, action: action(&place, line.trim()) }));
            }
            _ => {
                let (line, times) = match text.rsplit_once(" x") {
                    Some((line, times)) if times.bytes().all(|b| b.is_ascii_digit()) => (line, number(&place, times)),
                    _ => (text, 1),
                };
                let action = action(&place, line);
                story.steps.extend((1..=times).map(|round| Step { round, action: action.clone() }));
            }
        }
    }
    stories
}

fn number(place: &str, text: &str) -> usize {
    text.trim().parse().unwrap_or_else(|_| panic!("{place}: {text:?} is no number"))
}

fn millis(place: &str, text: &str) -> u64 {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => panic!("{place}: {text:?} is no duration"),
    };
    number.parse::<u64>().unwrap_or_else(|_| panic!("{place}: {text:?} is no duration")) * unit
}

fn action(place: &str, line: &str) -> Action {
    if line == "compacted" {
        return Action::Compacted;
    }
    let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{place}: {line:?} is no step"));
    match word {
        "step" => Action::Pace(millis(place, rest)),
        "wait" => Action::Wait(millis(place, rest)),
        "run" => Action::Run(rest.to_owned()),
        tool => Action::Call(call(place, tool, rest)),
    }
}

fn call(place: &str, tool: &str, rest: &str) -> Call {
    let split = |mark: &str| rest.split_once(mark).map(|(arguments, then)| (arguments.trim(), then.trim()));
    let (arguments, then) = if let Some((arguments, then)) = split(" !! ") {
        let (kind, message) = then.split_once(':').unwrap_or_else(|| panic!("{place}: an error is KIND: MESSAGE"));
        (arguments, Ending::Error { kind: kind.to_owned(), message: message.trim().to_owned() })
    } else if let Some((arguments, then)) = split(" ?? deny ") {
        (arguments, Ending::Denied(then.to_owned()))
    } else {
        let (arguments, then) = split(" ->").unwrap_or_else(|| panic!("{place}: no result"));
        (arguments, Ending::Result(then.to_owned()))
    };
    assert!(arguments.starts_with('{') && arguments.ends_with('}'), "{place}: arguments are an object: {arguments}");
    Call { tool: tool.to_owned(), arguments: arguments.to_owned(), then }
}

/// The values of one call.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) round: usize,
    pub(crate) number: u64,
    pub(crate) now_ms: i64,
}

impl Values {
    /// The text with its values in place.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out += before;
            let (name, after) = after.split_at(after.chars().next().map_or(0, char::len_utf8));
            rest = after;
            match name {
                "i" => out += &self.round.to_string(),
                "n" => out += &(10_000 + self.number).to_string(),
                "N" => out += &(3_000_000_000 + self.number * 7_919).to_string(),
                "u" => {
                    let hex = format!("{:016x}{:016x}", random(self.number, 1), random(self.number, 2));
                    out += &format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
                }
                "k" => {
                    let digit = |i: u32| {
                        let n = random(self.number, 3 + u64::from(i)) % 62;
                        char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[n as usize])
                    };
                    out.extend((0..14).map(digit));
                }
                "t" => out += &chrono::DateTime::from_timestamp_millis(self.now_ms).expect("a time").to_rfc3339(),
                "e" => out += &(self.now_ms / 1_000).to_string(),
                "[" => {
                    let (list, after) = after.split_once(']').expect("a list ends with ]");
                    let values: Vec<&str> = list.split('|').collect();
                    out += values[(self.round - 1) % values.len()];
                    rest = after;
                }
                other => {
                    out.push('$');
                    out += other;
                }
            }
        }
        out + rest
    }
}

/// The same for the same numbers, in every run.
fn random(number: u64, salt: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
