use super::*;

fn problem(line: &str) -> String {
    TraceRow::parse(line).expect_err(line)
}

#[test]
fn a_bad_line_is_named_with_its_field() {
    for (line, expected) in [
        ("[]", "is not a JSON object"),
        (r#"{"trace":"t","seq":0 "tool":1}"#, "expected `,` or `}` (column 22)"),
        (r#"{"trace":"t","tool":"x","args":{}}"#, "field seq: is missing"),
        (r#"{"trace":"t","seq":-1,"tool":"x","args":{}}"#, "field seq: invalid value: integer `-1`, expected u64"),
        (r#"{"trace":7,"seq":0,"tool":"x","args":{}}"#, "field trace: invalid type: integer `7`, expected a string"),
        (r#"{"trace":"t","seq":0,"tool":"","args":{}}"#, "field tool: is empty"),
        (r#"{"trace":"t","seq":0,"tool":"x"}"#, "field args: is missing"),
        (r#"{"trace":"t","seq":0,"tool":"x","args":[]}"#, "field args: must be an object"),
        (
            r#"{"trace":"t","seq":0,"tool":"x","args":{},"ts":"noon"}"#,
            "field ts: \"noon\" is no RFC 3339 time such as 2026-05-30T21:23:12.179Z",
        ),
    ] {
        assert_eq!(problem(line), expected, "{line}");
    }
    let twice = problem(r#"{"trace":"t","seq":0,"tool":"x","args":{"a":1,"a":2}}"#);
    assert!(twice.starts_with("field args: ") && twice.contains("\"a\""), "{twice}");
}

#[test]
fn times_without_a_zone_are_utc() {
    let millis = |text| timestamp(text).map(Timestamp::as_millis);
    for text in ["2026-05-30T21:23:12.179231", "2026-05-30T21:23:12.179Z", "2026-05-30T23:23:12.1799+02:00"] {
        assert_eq!(millis(text), Ok(1_780_176_192_179), "{text}");
    }
    assert_eq!(millis("1969-12-31T23:59:59.9995"), Ok(-1));
}

#[test]
fn null_is_absent_and_a_cut_result_is_known_by_its_length() {
    let read = |rest: &str| {
        TraceRow::parse(&format!(r#"{{"trace":"t","seq":4,"tool":"x","args":{{}},"new":1{rest}}}"#)).expect(rest)
    };
    let bare = read(r#","result":null,"ts":null,"run":null,"call_id":null"#);
    assert_eq!((bare.call_id.as_str(), bare.result, bare.at, bare.run), ("4", None, None, None));
    for (rest, text, is_cut) in [
        (r#","result":"é","result_len":1"#, "é", false),
        (r#","result":"é","result_len":2"#, "é", true),
        (r#","result":{"a": 1}"#, "{\"a\": 1}", false),
    ] {
        let result = read(rest).result.expect(rest);
        assert_eq!((result.text.as_str(), result.is_cut, result.is_error), (text, is_cut, false));
    }
}
