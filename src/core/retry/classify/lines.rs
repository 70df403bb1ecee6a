//! Tests of the signatures and readable lines of real errors.

use super::{error_signature, one_line};

const PYDANTIC: &str = "Error: 2 validation errors for Payment\npayment_id\n  Field required [type=missing, input_value={'id': 'credit_card_3563913'}, input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.12/v/missing\namount\n  Input should be a valid integer, unable to parse string as an integer [type=int_parsing, input_value='abc', input_type=str]\n    For further information visit https://errors.pydantic.dev/2.12/v/int_parsing";

#[test]
fn the_line_keeps_what_the_model_needs() {
    let chained = "Traceback (most recent call last):\n  File \"/a.py\", line 1, in f\n    g()\nKeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"/a.py\", line 3, in f\n    raise ValueError(y)\nValueError: seat 12A is taken\n\n";
    let java = "java.lang.IllegalStateException: Could not book\n\tat com.example.Booking.book(Booking.java:42)\n\tat com.example.Main.main(Main.java:7)\nCaused by: java.net.SocketTimeoutException: Read timed out\n\tat java.net.SocketInputStream.read(SocketInputStream.java:150)\n\t... 12 more";
    let node = "Error: boom\n    at Object.<anonymous> (/srv/tool.js:12:7)\n    at async Promise.all (index 0)\n    at processTicksAndRejections (node:internal/process/task_queues:95:5)\n    at file:///srv/x.mjs:3:4";
    let nginx = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx/1.25.3</center>\r\n</body>\r\n</html>";
    let express = "Error code: 404 - <!DOCTYPE html><html><head><title>Error</title></head><body><pre>Cannot GET /v1/a&amp;b</pre></body></html>";
    for (name, message, expected) in [
        ("plain", "Error: not enough seats on flight HAT229", "Error: not enough seats on flight HAT229"),
        ("empty", " \n ", ""),
        (
            "pydantic",
            PYDANTIC,
            "Error: 2 validation errors for Payment; payment_id: Field required; amount: Input should be a valid integer, unable to parse string as an integer (got 'abc')",
        ),
        ("python", chained, "ValueError: seat 12A is taken"),
        (
            "java",
            java,
            "java.lang.IllegalStateException: Could not book; Caused by: java.net.SocketTimeoutException: Read timed out",
        ),
        ("node", node, "Error: boom"),
        ("nginx", nginx, "502 Bad Gateway"),
        ("express", express, "Error code: 404 - Error; Cannot GET /v1/a&b"),
        (
            "json",
            "{\n  \"error\": {\n    \"code\": 429,\n    \"message\": \"slow\"\n  }\n}",
            r#"{ "error": { "code": 429, "message": "slow" } }"#,
        ),
        ("colours", "\u{1b}[31merror\u{1b}[0m: bad\u{7} input", "error: bad input"),
        ("go", "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:5", "panic: boom"),
        ("no frame", "the offer needs:\n  at least one adult", "the offer needs: at least one adult"),
        (
            "cut traceback",
            "Traceback (most recent call last):\n  File \"/a.py\", line 1, in f",
            "File \"/a.py\", line 1, in f",
        ),
    ] {
        assert_eq!(one_line(message), expected, "{name}");
    }
}

#[test]
fn a_traceback_that_ends_in_a_dump_keeps_its_fields() {
    let message = format!(
        "Traceback (most recent call last):\n  File \"/a.py\", line 1, in f\n    g()\npydantic_core.{}",
        &PYDANTIC[7..]
    );
    let line = one_line(&message);
    assert!(line.starts_with("pydantic_core.2 validation errors for Payment; payment_id: Field required;"), "{line}");
}

#[test]
fn lines_and_signatures_are_bounded() {
    for message in ["é".repeat(100_000), "x\n".repeat(50_000), "'".repeat(9_000), "<html>".repeat(9_000)] {
        let (line, signature) = (one_line(&message), error_signature(&message));
        assert!(line.chars().count() <= 300, "{}", line.chars().count());
        assert!(signature.chars().count() <= 200, "{}", signature.chars().count());
        assert!(!line.contains('\n') && !signature.contains('\n'));
    }
    assert!(one_line(&"é".repeat(301)).ends_with('…'));
    assert_eq!(one_line(&"é".repeat(300)), "é".repeat(300));
}

#[test]
fn signatures_mask_what_varies() {
    for (message, expected) in [
        ("Error: flight HAT030 not available on date 2024-05-13", "Error: flight <id> not available on date <time>"),
        ("Error: payment method certificate_7504069 not found", "Error: payment method certificate_<n> not found"),
        (
            "Error: payment amount does not add up, total price is 305, but paid 1,255.50",
            "Error: payment amount does not add up, total price is <n>, but paid <n>",
        ),
        ("No such customer: 'cus_123' of bob.smith+x@example.co.uk", "No such customer: '<v>' of <email>"),
        ("user can't open \"a \\\" b\" or `c`, they don't exist", "user can't open '<v>' or '<v>', they don't exist"),
        (
            "request 3f2504e0-4f89-11d3-9a0c-0305e82c3301 at 2024-05-13T10:15:00.123Z failed",
            "request <uuid> at <time> failed",
        ),
        ("commit 4de83e1a3f24 at 0x7ffdc0de", "commit <hex> at <hex>"),
        ("deadbeef and facade stay", "deadbeef and facade stay"),
        ("request ID FA2D:87B1:8879E3:1176C87:6570B7E6", "request ID <hex>"),
        ("connect ECONNREFUSED 127.0.0.1:5432", "connect ECONNREFUSED <n>"),
        (
            "400 Client Error:  for url: http://localhost:8090/fhir/Patient/S6547257?code=MG&date=2023",
            "<n> Client Error: for url: http://localhost:<n>/fhir/Patient/<id>?<query>",
        ),
        ("Please try again in 6m0s.", "Please try again in <n>."),
        ("Please try again in 20ms.", "Please try again in <n>."),
        (
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"limit of 40,000 \"x\" hit"},"request_id":"req_011C"}"#,
            r#"{"type": "error","error":{"type": "rate_limit_error","message": "limit of <n> \"x\" hit"},"request_id":'<v>'}"#,
        ),
    ] {
        assert_eq!(error_signature(message), expected, "{message}");
    }
}

#[test]
fn the_same_error_has_the_same_signature() {
    for (one, other) in [
        (
            "Error: 1 validation error for Payment\npayment_id\n  Field required [type=missing, input_value={'amount': 128, 'id': 'gift_card_8516878'}, input_type=dict]",
            "Error: 1 validation error for Payment\npayment_id\n  Field required [type=missing, input_value={'amount': 500, 'source': 'x', 'id': 'c'}, input_type=dict]",
        ),
        ("Error: not enough seats on flight HAT229", "Error: not enough  seats on flight HAT7"),
        ("Error: boom 7\n    at f (/srv/a.js:1:2)", "Error: boom 12\n    at g (/srv/b.js:3:4)"),
    ] {
        assert_eq!(error_signature(one), error_signature(other));
    }
}
