//! Test helper: stories in text against the engine. It spans all modules of core, and is built for tests only.
//!
//! A story is a line a step; `#` begins a comment.
//!
//! ```text
//! rules repeat cycle                 only these rules run
//! tool pay once order/{id} lease 60s declares a tool
//! limit run max_steps 5              sets a limit; the first one lifts all defaults
//! retry probe_share 1                    sets a key of the policy's `retry`
//! step 0s                            time that passes with each call (1s at first)
//! wait 10m                           time passes
//! run next | session a parent b | agent x | batch (the next calls are one model turn) | turn (it is over)
//! tool get read fresh 30s | always | private_to_call_tree
//! pay {"n":new} cost 0.5 tokens 9 repeat because why in ACT witness w as c1
//!                                      `new` is a fresh value each time, in texts `$n` a fresh number and `$u` a
//!                                      fresh UUID; `sayable`: the model has parameters
//!                                      for a justification and for a repetition that it means
//!                                      (a witness in the outcome is the one after the call)
//!   -> ok text | error KIND [after 2s] [saying …] | cancelled | unstarted | unknown   the call runs whatever the
//!                                      verdict, and is recorded; `unstarted` is cancelled, and known never to have run
//!   => DECISION [reason] [after 2s] [attempt 2] [disabled] [user], level rule count     the verdict holds, and is so;
//!                                      `user`: the model is told to ask the user; `whatever`: nothing is expected, and
//!                                      the outcome is recorded if it runs
//!   ... x10                          the line, ten times; (a; b) x4 repeats a group
//! observe pay {} -> OUTCOME                        a report on an unrequested call
//! summary … end                      the text for a model without context, verbatim
//! summary says | lacks TEXT          texts that it contains, or lacks
//! summary at most 1500 tokens        its maximum size
//! policy … end                       a policy file's `policy_engine`, as YAML; `policy example` is the shipped one
//! mode RULE shadow                   a rule's refusals are only recorded
//! approve | deny [why]               a person answers the newest open request
//! phase ACT [plan a b]               the session enters a phase, perhaps with a plan
//! compacted                          its context was compacted
//! grant PATTERN N                    N calls are granted to the session for an hour
//! halt session s | agent a | tool t | tenant;  resume …
//! record c1 OUTCOME [cost 0.5] [=> retryable | final | superseded | settled]
//! ```
#![expect(clippy::disallowed_methods, reason = "tests read files")]

mod custom_rule;
mod expect;
mod lateness;
mod model_texts;
mod people;
mod stage;
mod step_words;
mod summary;

use std::{fs, panic::catch_unwind, path::PathBuf};

use self::stage::Stage;
use super::{RULES, Rule};
use crate::domain::verdict::Verdict;

/// Plays a story; panics with the line that came out otherwise.
pub(crate) fn check(story: &str) {
    if let Err(problem) = play(story, None) {
        panic!("{problem}");
    }
}

/// Plays a story, with one rule switched off (or none), regardless of its policy; returns the verdicts.
///
/// # Errors
/// The line with another result.
pub(crate) fn play(story: &str, off: Option<&'static str>) -> Result<Vec<Verdict>, String> {
    play_with(RULES, story, off)
}

/// Plays a story, and returns the last text for the model.
///
/// # Errors
/// The line with another result.
pub(crate) fn told_last(story: &str) -> Result<String, String> {
    play_on_stage(RULES, story, None).map(|stage| stage.told)
}

/// The same, with these rules.
///
/// # Errors
/// The line that came out otherwise.
pub(crate) fn play_with(rules: &[Rule], story: &str, off: Option<&'static str>) -> Result<Vec<Verdict>, String> {
    play_on_stage(rules, story, off).map(|stage| stage.said)
}

fn play_on_stage(rules: &[Rule], story: &str, off: Option<&'static str>) -> Result<Stage, String> {
    let mut stage = Stage::new(rules, off);
    let mut policy: Option<String> = None;
    let mut summary: Option<String> = None;
    for (i, line) in story.lines().enumerate() {
        if let Some(expected) = summary.as_mut() {
            if line.trim() == "end" {
                stage.expect_summary(expected)?;
                summary = None;
            } else {
                expected.push_str(line);
                expected.push('\n');
            }
            continue;
        }
        if line.trim() == "summary" {
            summary = Some(String::new());
            continue;
        }
        if let Some(yaml) = policy.as_mut() {
            if line.trim() == "end" {
                stage.policy(yaml)?;
                policy = None;
            } else {
                yaml.push_str(line);
                yaml.push('\n');
            }
            continue;
        }
        if line.trim() == "policy example" {
            stage.policy(include_str!("../../../../deploy/policy.example.yaml"))?;
            continue;
        }
        if line.trim() == "policy" {
            policy = Some("policy_engine:\n".to_owned());
            continue;
        }
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        stage
            .play_line(text)
            .map_err(|problem| format!("line {}: {text}\n{problem}\nso far:\n{}", i + 1, stage.log))?;
    }
    Ok(stage)
}

/// Plays every story of a folder; panics with the files and lines that came out otherwise.
pub(crate) fn check_folder(folder: &str) -> usize {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "trace"));
    paths.sort();
    let problem = |path: &PathBuf| {
        let story = fs::read_to_string(path).expect("readable");
        let played = catch_unwind(|| play(&story, None)).unwrap_or_else(|_| Err("it panicked".to_owned()));
        played.err().map(|problem| format!("{}: {problem}", path.display()))
    };
    let problems: Vec<String> = paths.iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    paths.len()
}
