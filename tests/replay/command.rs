//! Replay command: arguments, files, figures, a closed output, and the shared traces.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use callgate::cli::{
    replay::{ReplayArgs, run_on, run_to},
    source::RowSource,
};
use callgate_core::{
    offline::summary::RefusalCounts,
    policy::{self, Policy},
};
use clap::Parser as _;
use serde_json::Value;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    replay: ReplayArgs,
}

fn excerpt_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/airline_excerpt.jsonl")
}

fn args(words: &[&str]) -> ReplayArgs {
    Command::try_parse_from([&["replay"], words].concat()).expect("good arguments").replay
}

#[test]
fn command_prints_lines_and_figures_or_figures_alone_as_json() {
    let excerpt = excerpt_path().to_string_lossy().into_owned();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    run_to(&args(&[&excerpt]), &mut out, &mut err).expect("good input");
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 36);
    let text = String::from_utf8(err).expect("UTF-8");
    assert!(text.contains("36 calls of 2 sessions") && text.contains("1  rightly: "), "{text}");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    run_to(&args(&["--json", &excerpt]), &mut out, &mut err).expect("good input");
    assert!(err.is_empty());
    let summary: Value = serde_json::from_slice(&out).expect("one JSON object");
    let refused = serde_json::json!({"rightly": 1, "answer_differed": 0, "wrongly": 0, "unknown": 0});
    assert_eq!((&summary["refused"], &summary["refused_by_rule"]["same_call"]), (&refused, &refused));
    assert_eq!(summary["decisions"]["same_call"], serde_json::json!({"DENY": 1}));
    let figures = ["asks", "waits", "closed", "warnings", "repeats", "rates"];
    assert!(figures.iter().all(|figure| summary.get(figure).is_some()), "{summary}");
}

#[test]
fn a_bad_policy_and_a_missing_file_stop_the_command_before_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.yaml");
    fs::write(&file, "policy_engine: {retry: {attempts: 0}, rules: {repeet: {mode: off}}}").expect("writable");
    let (file, excerpt) = (file.to_string_lossy().into_owned(), excerpt_path().to_string_lossy().into_owned());
    let mut out = Vec::new();
    let error = run_to(&args(&["--policy", &file, &excerpt]), &mut out, &mut Vec::new()).expect_err("bad").to_string();
    assert_eq!(error.lines().filter(|line| line.starts_with(&file)).count(), 2, "{error}");
    let error = run_to(&args(&[&excerpt, "absent.jsonl"]), &mut out, &mut Vec::new()).expect_err("bad").to_string();
    assert!(error.starts_with("absent.jsonl: cannot be opened: "), "{error}");
    assert!(out.is_empty());
    let usage =
        |words: &[&str]| Command::try_parse_from([&["replay"], words].concat()).err().map(|error| error.exit_code());
    assert_eq!((usage(&[]), usage(&["--enforced", "x"]), usage(&["-"])), (Some(2), Some(2), None));
}

/// A pipe whose reader leaves after this many bytes.
struct Pipe(usize);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken > 0 { Ok(taken) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let args = args(&[&excerpt_path().to_string_lossy()]);
    for taken in [0, 100, 9_000] {
        let mut err = Vec::new();
        run_to(&args, &mut Pipe(taken), &mut err).expect("no error");
        assert!(err.is_empty());
    }
}

/// The shared traces; none, with a word, where they are not there.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn shared_traces() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return None;
    }
    Some(folder)
}

#[test]
fn declared_tools_let_most_futile_repeats_be_refused_and_none_wrongly() {
    let Some(folder) = shared_traces() else { return };
    let policy = policy::compile(include_str!("../../deploy/policy.airline.yaml")).expect("a good policy");
    let file = fs::File::open(folder.join("taubench_airline_gpt4o.jsonl.gz")).expect("readable");
    let summary = run_on([RowSource::new("airline", file)], policy, false, &mut io::sink()).expect("good rows");
    assert_eq!(RefusalCounts { rightly: 0, ..summary.refused }, RefusalCounts::default(), "{summary}");
    assert!(summary.refused.rightly >= 25, "at least 80 % of 31: {summary}");
}

#[test]
fn no_call_of_the_shared_traces_is_wrongly_refused() {
    let Some(folder) = shared_traces() else { return };
    for (name, calls, sessions, rightly) in [
        ("taubench_airline_gpt4o", 1_164, 182, 6),
        ("whissle_tau2_medagent", 705, 338, 1),
        ("activegraph_tau2", 106, 29, 0),
    ] {
        let file = folder.join(format!("{name}.jsonl.gz"));
        for enforce in [false, true] {
            let source = RowSource::new(name, fs::File::open(&file).expect("readable"));
            let summary = run_on([source], Policy::default(), enforce, &mut io::sink()).expect("good rows");
            assert_eq!((summary.calls, summary.sessions), (calls, sessions), "{name}");
            assert_eq!(
                (summary.refused.wrongly, summary.refused.answer_differed, summary.waits.calls),
                (0, 0, 0),
                "{name}"
            );
            assert_eq!(summary.refused.unknown, 0, "{name}: {summary}");
            assert!(summary.refused.rightly >= rightly, "{name}: {summary}");
        }
    }
}
