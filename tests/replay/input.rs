//! Input of a replay: compressed, truncated, continued and invalid traces.

use std::io::Write as _;

use callgate::cli::replay::run_on;
use callgate_core::{offline::summary::RefusalCounts, policy::Policy};

use super::{EXCERPT, decisions, replay, rows, source};

fn problem(text: &str) -> (String, String) {
    let mut out = Vec::new();
    let error = run_on([source("x.jsonl", text)], Policy::default(), false, &mut out).expect_err("a bad row");
    (error.to_string(), String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn results_are_compared_by_the_hash_of_the_whole() {
    let declared = "policy_engine: {tool_schemas: {get: {effect: read}}}";
    for (second, expected) in [
        (
            r#""result":"beginn","result_sha256":"AA","result_len":9000"#,
            RefusalCounts { rightly: 1, ..RefusalCounts::default() },
        ),
        (
            r#""result":"begin","result_sha256":"bb","result_len":9000"#,
            RefusalCounts { answer_differed: 1, ..RefusalCounts::default() },
        ),
        (r#""result":null"#, RefusalCounts { unknown: 1, ..RefusalCounts::default() }),
    ] {
        let calls = [("get", r#""result":"begin","result_sha256":"aa","result_len":9000"#), ("get", second)];
        assert_eq!(replay(&rows("t", &calls), declared, false).1.refused, expected, "{second}");
    }
}

#[test]
fn a_cut_result_is_not_taken_for_the_whole() {
    let cut = |hash: &str| format!(r#""result":"begin","result_sha256":"{hash}","result_len":9000"#);
    let calls = [cut("aa"), cut("bb"), cut("cc")];
    let calls: Vec<_> = calls.iter().map(|rest| ("get", rest.as_str())).collect();
    assert_eq!(decisions(&replay(&rows("t", &calls), "", false).0), ["ALLOW", "ALLOW", "ALLOW"]);
}

#[test]
fn a_trace_may_be_compressed_and_go_on_in_the_next_file() {
    let halves = EXCERPT.split_at(EXCERPT.lines().take(21).map(|line| line.len() + 1).sum());
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    };
    let two_members = [gzip(&halves.0[..1_000]), gzip(&halves.0[1_000..])].concat();
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    run_on([source("x", EXCERPT)], Policy::default(), false, &mut whole).expect("good rows");
    let sources = [source("x.gz", two_members.clone()), source("y", halves.1)];
    run_on(sources, Policy::default(), false, &mut parts).expect("good rows");
    assert!(whole == parts);
    let torn = run_on([source("x.gz", &two_members[..500])], Policy::default(), false, &mut parts).expect_err("torn");
    assert!(torn.to_string().starts_with("x.gz:") && torn.to_string().contains("cannot be read"), "{torn}");
}

#[test]
fn bad_input_is_named_by_file_and_line_after_what_was_good() {
    let good = rows("t", &[("get", r#""result":"x""#)]);
    for (line, expected) in [
        ("{", "x.jsonl:2: EOF while parsing an object (column 1)"),
        (
            r#"{"trace":"t","seq":0,"tool":"get","args":{}}"#,
            "x.jsonl:2: field seq: 0 comes after 0 in \"t\"; the rows of a trace must be in order",
        ),
        (
            r#"{"trace":"t","seq":1,"tool":"get","args":{},"call_id":"0"}"#,
            "x.jsonl:2: field call_id: \"0\" belongs to an earlier call of this trace with other arguments",
        ),
    ] {
        let (error, out) = problem(&format!("{good}{line}"));
        assert_eq!(error, expected, "{line}");
        assert_eq!(out.lines().count(), 1, "{line}");
    }
}
