use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_795_600_000_000);

fn of(text: &str) -> ComparableResult {
    ComparableResult::of(text, &[], NOW)
}

#[test]
fn the_same_answer_at_another_time_has_the_same_digest() {
    for (one, other) in [
        ("done at 2026-11-21T10:00:00Z in 12ms", "done at 2026-11-21T10:00:07.5Z in 9 ms"),
        (r#"{"a":1,"request_id":"req_8f7a6b5c4d3e"}"#, r#"{"request_id":"req_000aaabbbccc","a":1.0}"#),
        (r#"{"a":1,"requestId":"x","pid":7,"elapsedMs":3}"#, r#"{"a":1,"requestId":"y","pid":8,"elapsedMs":4}"#),
        (r#"{"a":1,"duration_ms":12}"#, r#"{"a":1,"duration_ms":13}"#),
        (r#"{"at":1795600000,"ok":true}"#, r#"{"at":1795599993,"ok":true}"#),
    ] {
        assert_eq!(of(one).digest, of(other).digest, "{one} / {other}");
    }
}

#[test]
fn another_answer_has_another_digest() {
    for (one, other) in [
        ("flight on 2026-11-21", "flight on 2026-11-22"),
        ("total 375", "total 376"),
        ("order 123456789012345", "order 123456789012346"),
        ("[]", "{}"),
        ("departure 06:00:00", "departure 07:00:00"),
        (r#"{"id":1,"price":3}"#, r#"{"id":1,"price":4}"#),
        (r#"{"ids":[1,2]}"#, r#"{"ids":[1]}"#),
        (r#"{"id":null}"#, r#"{"id":7}"#),
        (r#"{"departure_time":1895600000}"#, r#"{"departure_time":1895603600}"#),
        (r#"{"now":"2026-11-21T10:00:00Z"}"#, r#"{"now":"2026-11-21T10:00:07Z"}"#),
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:07Z"),
        ("Sat Nov 21 21:26:19 UTC 2026", "Sat Nov 21 21:26:20 UTC 2026"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 650e8400-e29b-41d4-a716-446655440000"),
        ("commit 3f786850e387550fdab8", "commit 89e6c98d92887913cadf"),
    ] {
        assert_ne!(of(one).digest, of(other).digest, "{one} / {other}");
    }
}

#[test]
fn two_answers_are_compared_by_their_parts() {
    use ResultDifference::{Equal, News, Receipt, Risen};
    let receipt = Receipt { lapses: false };
    for (earlier, later, expected) in [
        (r#"{"id":"doc_1","title":"Q3"}"#, r#"{"id":"doc_2","title":"Q3"}"#, receipt),
        (r#"{"documentId":17}"#, r#"{"documentId":18}"#, receipt),
        (r#"{"n":4,"html_url":"https://x.org/i/4"}"#, r#"{"n":5,"html_url":"https://x.org/i/5"}"#, receipt),
        ("created doc_17", "created doc_18", receipt),
        ("made number 17", "made number 18", receipt),
        (
            r#"{"content":[{"type":"text","text":"{\"id\":17}"}]}"#,
            r#"{"content":[{"type":"text","text":"{\"id\":18}"}]}"#,
            receipt,
        ),
        ("made 17 of them", "made 18 of them", Risen),
        ("made 18 of them", "made 17 of them", News),
        ("made 1.5 of them", "made 1.6 of them", News),
        ("balance 100", "balance 75", receipt),
        ("balance 100.00", "balance 75.00", receipt),
        (r#"{"id":"doc_1","rows":[1]}"#, r#"{"id":"doc_2","rows":[2]}"#, receipt),
        (r#"{"rows":[{"id":"doc_1","n":1}]}"#, r#"{"rows":[{"id":"doc_2","n":1}]}"#, News),
        (r#"{"id":"doc_1","title":"Q3"}"#, r#"{"id":"doc_2","title":"Q4 plan"}"#, News),
        (r#"{"code":"4711","ip":"10.0.0.1"}"#, r#"{"code":"4712","ip":"10.0.0.2"}"#, Equal),
        ("the flight of 2026-11-21 is a1b2", "the flight of 2026-11-22 is c3d4", News),
        (
            r#"{"lock":"a1b2","until":"2026-11-25T09:46:50Z"}"#,
            r#"{"lock":"c3d4","until":"2026-11-25T09:46:52Z"}"#,
            Receipt { lapses: true },
        ),
    ] {
        assert_eq!(of(later).marks.compared_with(&of(earlier).marks, &[25.0]), expected, "{earlier} / {later}");
    }
}

#[test]
fn hidden_numbers_are_told_apart_and_not_kept() {
    let hidden = |text: &str| {
        let mut marks = of(text).marks;
        marks.hide_numbers();
        marks
    };
    let [one, other] = ["balance 100", "balance 101"].map(hidden);
    assert!(one.numbers.is_empty());
    assert_eq!(one.compared_with(&other, &[1.0]), ResultDifference::News);
    assert_eq!(one.compared_with(&hidden("balance 100"), &[]), ResultDifference::Equal);
}

#[test]
fn the_names_that_serve_best_are_kept_for_the_model() {
    let named = |text: &str| {
        let marks = of(text).marks;
        marks.named.iter().map(|(member, name)| format!("{member}={name}")).collect::<Vec<_>>()
    };
    assert_eq!(named(r#"{"url":"https://x.org/d/a","id":"doc_1"}"#), ["id=doc_1", "url=https://x.org/d/a"]);
    assert_eq!(named("Created issue ENG-411."), ["=ENG-411"]);
    assert_eq!(named("Order #17 is paid"), ["=#17"]);
    assert_eq!(named("Your confirmation code is XKJPQR."), ["=XKJPQR"]);
    assert_eq!(named("Event created\nID: evt_9\nTitle: Team sync"), ["ID=evt_9"]);
    for none in [
        "the top 10 of 60%, 3rd",
        "Your code is 482913",
        "Balance 1,299.50 EUR of order",
        r#"{"token":"a1b2c3d4e5","exit_code":0,"page_number":3}"#,
        r#"{"request_id":"550e8400-e29b-41d4-a716-446655440000","at":1}"#,
    ] {
        assert!(of(none).marks.names.is_empty(), "{none}: {:?}", of(none).marks);
    }
}

#[test]
fn creation_is_detected_by_its_time_or_its_verb() {
    for (text, made_now) in [
        (r#"{"created_at":"2026-11-25T09:46:30Z"}"#, true),
        (r#"{"created":1795599990}"#, true),
        (r#"{"dateCreated":"Wed, 25 Nov 2026 09:46:30 +0000"}"#, true),
        ("Created issue ENG-411", true),
        (r#"{"message":"Email sent to ann"}"#, true),
        (r#"{"created_at":"2026-11-25T04:46:30Z"}"#, false),
        (r#"{"taken_at":"2026-11-25T09:46:30Z"}"#, false),
        (r#"{"title":"Sent to ann"}"#, false),
        ("one\nCreated issue ENG-411", false),
    ] {
        assert_eq!(of(text).marks.made_now, made_now, "{text}");
    }
}

#[test]
fn volatile_fields_do_not_count() {
    let volatile = ["/elapsed_total".to_owned(), "/rows/*/rank".to_owned()];
    let digest = |text| ComparableResult::of(text, &volatile, NOW).digest;
    assert_eq!(
        digest(r#"{"elapsed_total":1,"rows":[{"id":7,"rank":1}]}"#),
        digest(r#"{"elapsed_total":2,"rows":[{"id":7,"rank":2}]}"#)
    );
    assert_ne!(digest(r#"{"rows":[{"id":7}]}"#), digest(r#"{"rows":[{"id":8}]}"#));
}

#[test]
fn content_differs_from_an_acknowledgement() {
    let long = "line\n".repeat(14);
    for (text, says) in [
        ("ok", ContentAmount::Little),
        ("", ContentAmount::Little),
        (r#"{"sent":true}"#, ContentAmount::Little),
        ("[]", ContentAmount::NoMatches),
        (r#"{"results":[],"total":0}"#, ContentAmount::NoMatches),
        (&long, ContentAmount::Much),
        (&"x".repeat(65), ContentAmount::Little),
        ("Scrolled down by 500 pixels, as far as the window of the page goes, and a bit more", ContentAmount::Little),
        ("The job has not started", ContentAmount::Much),
        ("3f78685", ContentAmount::Much),
        (
            r#"{"status":"accepted","state":"healthy","is_new":true,"owner":null,"nothing_else":"whatever it may be"}"#,
            ContentAmount::Little,
        ),
        (
            r#"{"status":"accepted","state":"healthy","is_new":true,"owner":null,"count_of_what_there_is":12}"#,
            ContentAmount::Much,
        ),
        (r#"{"rows":[1]}"#, ContentAmount::Lists),
        (r#"{"a":[],"b":[0]}"#, ContentAmount::Lists),
        (r#"{"content":[{"type":"text","text":"ok"}]}"#, ContentAmount::Little),
        (r#"{"content":[{"type":"text","text":"{\"rows\":[1]}"}]}"#, ContentAmount::Lists),
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
fn digests_and_frames_are_those_of_earlier_builds() {
    let ComparableResult { digest, marks } = of(r#"{"took_ms": 12, "id": "doc_17", "url": "https://x.org/d/a",
            "rows": [{"n": 1.50, "text": "row 2 of 3 at 2026-11-21T10:00:00Z"}, null]}"#);
    assert_eq!(digest.to_hex()[..16], *"b46b873f5020a49e");
    assert_eq!((marks.frame, marks.inside), (0x89b1_591d_2807_e79d, 0xb479_56f2_6e1c_c87d));
}
