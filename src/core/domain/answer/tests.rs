use super::*;

fn of(text: &str) -> Answer {
    Answer::of(text, &[])
}

#[test]
fn the_same_answer_at_another_time_has_the_same_digest() {
    for (one, other) in [
        ("done at 2026-11-21T10:00:00Z in 12ms", "done at 2026-11-21T10:00:07.5Z in 9 ms"),
        (r#"{"a":1,"request_id":"req_8f7a6b5c4d3e"}"#, r#"{"request_id":"req_000aaabbbccc","a":1.0}"#),
        (r#"{"a":1,"requestId":"x","pid":7,"elapsedMs":3}"#, r#"{"a":1,"requestId":"y","pid":8,"elapsedMs":4}"#),
        (r#"{"a":1,"duration_ms":12}"#, r#"{"a":1,"duration_ms":13}"#),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 650E8400-e29b-41d4-a716-446655440000"),
        ("commit 3f786850e387550fdab8", "commit 89e6c98d92887913cadf"),
    ] {
        assert_eq!(of(one).digest, of(other).digest, "{one} / {other}");
    }
}

#[test]
fn another_answer_has_another_digest_and_shape() {
    for (one, other) in [
        ("flight on 2026-11-21", "flight on 2026-11-22"),
        ("total 375", "total 376"),
        ("order 123456789012345", "order 123456789012346"),
        ("[]", "{}"),
        ("departure 06:00:00", "departure 07:00:00"),
        (r#"{"id":1,"price":3}"#, r#"{"id":1,"price":4}"#),
        (r#"{"ids":[1,2]}"#, r#"{"ids":[1]}"#),
        (r#"{"id":null}"#, r#"{"id":7}"#),
    ] {
        assert_ne!(of(one).digest, of(other).digest, "{one} / {other}");
        assert_ne!(of(one).marks.shape, of(other).marks.shape, "{one} / {other}");
    }
}

#[test]
fn what_names_an_occurrence_has_one_shape_and_another_name() {
    for (one, other) in [
        (r#"{"id":"doc_1","title":"Q3"}"#, r#"{"id":"doc_2","title":"Q3"}"#),
        (r#"{"documentId":17}"#, r#"{"documentId":18}"#),
        (r#"{"number":4,"html_url":"https://x.org/i/4"}"#, r#"{"number":5,"html_url":"https://x.org/i/5"}"#),
        ("created doc_17", "created doc_18"),
        ("created 550e8400-e29b-41d4-a716-446655440000", "created 650e8400-e29b-41d4-a716-446655440000"),
        (
            r#"{"content":[{"type":"text","text":"{\"id\":17}"}]}"#,
            r#"{"content":[{"type":"text","text":"{\"id\":18}"}]}"#,
        ),
    ] {
        let (one, other) = (of(one).marks, of(other).marks);
        assert_eq!(one.shape, other.shape, "{one:?}");
        assert!(one.names.is_some() && one.names != other.names, "{one:?} {other:?}");
    }
    assert_eq!(of(r#"{"url":"https://x.org/d/a","id":"doc_1"}"#).marks.named, ["doc_1", "https://x.org/d/a"]);
    let (one, other) = (of("made number 17").marks, of("made number 18").marks);
    assert!(one.shape != other.shape && one.numberless == other.numberless && one.names.is_none());
    assert_eq!(of(r#"{"request_id":"550e8400-e29b-41d4-a716-446655440000","at":1}"#).marks.names, None);
}

#[test]
fn volatile_fields_do_not_count() {
    let volatile = ["/elapsed_total".to_owned(), "/rows/*/rank".to_owned()];
    let digest = |text| Answer::of(text, &volatile).digest;
    assert_eq!(
        digest(r#"{"elapsed_total":1,"rows":[{"id":7,"rank":1}]}"#),
        digest(r#"{"elapsed_total":2,"rows":[{"id":7,"rank":2}]}"#)
    );
    assert_ne!(digest(r#"{"rows":[{"id":7}]}"#), digest(r#"{"rows":[{"id":8}]}"#));
}

#[test]
fn what_a_result_says_is_told_from_an_acknowledgement() {
    let long = "line\n".repeat(14);
    for (text, says) in [
        ("ok", Says::Little),
        ("", Says::Little),
        (r#"{"sent":true}"#, Says::Little),
        ("[]", Says::NoMatches),
        (r#"{"results":[],"total":0}"#, Says::NoMatches),
        (&long, Says::Much),
        (&"x".repeat(65), Says::Little),
        ("Scrolled down by 500 pixels, as far as the window of the page goes, and a bit more", Says::Little),
        ("The job has not started", Says::Much),
        ("3f78685", Says::Much),
        (
            r#"{"status":"accepted","state":"healthy","is_new":true,"owner":null,"nothing_else":"whatever it may be"}"#,
            Says::Little,
        ),
        (
            r#"{"status":"accepted","state":"healthy","is_new":true,"owner":null,"count_of_what_there_is":12}"#,
            Says::Much,
        ),
        (r#"{"rows":[1]}"#, Says::Lists),
        (r#"{"a":[],"b":[0]}"#, Says::Lists),
        (r#"{"content":[{"type":"text","text":"ok"}]}"#, Says::Little),
        (r#"{"content":[{"type":"text","text":"{\"rows\":[1]}"}]}"#, Says::Lists),
    ] {
        assert_eq!(of(text).marks.says, says, "{text}");
    }
}

#[test]
fn a_result_that_repeats_its_arguments_is_an_echo() {
    let asked = json::parse(r#"{"order":"ord_417","lines":[{"sku":"A-7","n":2}],"note":"two\nlines"}"#).unwrap();
    for (result, is_echo) in [
        (r#"{"order":"ord_417","status":"accepted","is_new":true}"#, true),
        (r#"{"status":"accepted","got":{"lines":[{"n":2,"sku":"A-7"}],"note":"two\nlines"}}"#, true),
        (r#"{"content":[{"type":"text","text":"{\"order\":\"ord_417\",\"status\":\"accepted\"}"}]}"#, true),
        (r#"{"content":[{"type":"text","text":"{\"order\":\"ord_417\",\"reference\":\"r-88\"}"}]}"#, false),
        (r#"{"order":"ord_417","reference":"r-88"}"#, false),
        (r#"{"order":"ord_417","n":3}"#, false),
        (r#"{"order":"ord_417","state":"not paid"}"#, false),
    ] {
        assert_eq!(super::is_echo(&json::parse(result).unwrap(), &asked), is_echo, "{result}");
    }
}

#[test]
fn an_unmistakable_failure_is_seen_and_a_test_that_fails_is_none() {
    for text in [
        r#"{"isError":true,"content":[{"type":"text","text":"no such file"}]}"#,
        r#"{"status":"failed","reason":"no seats"}"#,
        r#"{"ok":false,"error":"channel_not_found"}"#,
        r#"{"exit_code":127,"stderr":"not found"}"#,
        "sh: foo: not found\nexit code: 127",
        "Command exited with code 2\nusage: foo",
        r#"{"content":[{"type":"text","text":"boom\n[exit status 101]"}]}"#,
    ] {
        assert!(of(text).marks.failed, "{text}");
    }
    for text in [
        r#"{"exit_code":1,"stdout":"3 tests failed"}"#,
        r#"{"job":{"status":"failed"}}"#,
        r#"{"ok":false}"#,
        "exit code 1",
        "the status: failed jobs are listed below",
        "exit code 0",
    ] {
        assert!(!of(text).marks.failed, "{text}");
    }
}

/// They are stored: a build that makes others takes every result for a new one.
#[test]
fn digests_and_shapes_are_those_of_earlier_builds() {
    let Answer { digest, marks } = of(r#"{"took_ms": 12, "id": "doc_17", "url": "https://x.org/d/a",
            "rows": [{"n": 1.50, "text": "row 2 of 3 at 2026-11-21T10:00:00Z"}, null]}"#);
    assert_eq!(digest.to_hex()[..16], *"23026f525fa7b79d");
    assert_eq!((marks.shape, marks.numberless), (0xe8c2_4423_fbd7_967a, 0x9935_ebaf_3d14_3cf5));
    assert_eq!(marks.named, ["doc_17", "https://x.org/d/a"]);
}
