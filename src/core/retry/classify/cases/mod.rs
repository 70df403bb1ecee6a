//! Classified examples: error texts of the recorded sessions, and error formats of real providers.

mod models;
mod services;
mod transport;

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::failure::{
    ErrorReport,
    FailureKind::{self, Internal, InvalidArgument, NotFound, Other},
};

use super::{classify, classify_check, codes, status};

fn text(message: &str) -> ErrorReport {
    ErrorReport { message: message.to_owned(), ..ErrorReport::default() }
}

fn http(status: u16, message: &str) -> ErrorReport {
    ErrorReport { http_status: Some(status), ..text(message) }
}

fn grpc(status: u8, message: &str) -> ErrorReport {
    ErrorReport { grpc_status: Some(status), ..text(message) }
}

fn code(code: &str, status: u16, message: &str) -> ErrorReport {
    ErrorReport { provider_code: Some(code.to_owned()), ..http(status, message) }
}

/// A code without a status.
fn bare(code: &str, message: &str) -> ErrorReport {
    ErrorReport { provider_code: Some(code.to_owned()), ..text(message) }
}

fn of_type(error_type: &str, message: &str) -> ErrorReport {
    ErrorReport { error_type: Some(error_type.to_owned()), ..text(message) }
}

#[test]
fn message_of_a_check_is_its_finding_and_no_evidence() {
    for finding in
        ["error: invalid argument", "FAILED test_login: Connection refused", "429 Too Many Requests", "timeout"]
    {
        assert_eq!(classify_check(&text(finding)), Other, "{finding}");
    }
    assert_ne!(classify(&text("FAILED test_login: Connection refused")), Other);
    assert_eq!(classify_check(&http(503, "")), FailureKind::Unavailable);
    assert_eq!(classify_check(&of_type("timeout", "")), FailureKind::Timeout);
}

fn check(rows: &[(ErrorReport, FailureKind)]) {
    for (row, (report, expected)) in rows.iter().enumerate() {
        assert_eq!(classify(report), *expected, "row {row}: {report:?}");
    }
}

/// Error texts of the recorded airline and clinic sessions, one of each form.
#[rustfmt::skip]
fn recorded_errors() -> Vec<(ErrorReport, FailureKind)> {
    let pydantic = "Error: 1 validation error for Payment\npayment_id\n  Field required [type=missing, input_value={'amount': 500, 'id': 'certificate_3765853'}, input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.12/v/missing";
    let get = "Error in sending the GET request:";
    vec![
        (text("Error: payment amount does not add up, total price is 305, but paid 255"), InvalidArgument),
        (text("Error: Payment amount does not add up, total price is 348, but paid 320"), InvalidArgument),
        (text("Error: flight HAT030 not available on date 2024-05-13"), Other),
        (text("Error: not enough seats on flight HAT229"), Other),
        (text("Error: Not enough seats on flight HAT229"), Other),
        (text("Error: gift card balance is not enough"), Other),
        (text("Error: not enough balance in payment method gift_card_5094406"), Other),
        (text("Error: certificate cannot be used to update reservation"), Other),
        (text("Error: payment method not found"), NotFound),
        (text("Error: payment method certificate_7504069 not found"), NotFound),
        (text("Error: User not found"), NotFound),
        (text("Error: Reservation IFOYWZ not found"), NotFound),
        (text("Invalid POST request"), InvalidArgument),
        (text(pydantic), InvalidArgument),
        // The recorder took the 500 dollars for a status.
        (of_type("server", pydantic), Internal),
        (of_type("validation", pydantic), InvalidArgument),
        (of_type("not_found", "Error: payment method not found"), NotFound),
        (of_type("other", "Error: flight HAT030 not available on date 2024-05-13"), Other),
        (text(&format!("{get} 400 Client Error:  for url: http://localhost:8090/fhir/Observation?code=MG&patient=S6547257&date=2023-11-12T10:15:00Z%20to%202023-11-13T10:15:00Z&_format=json")), InvalidArgument),
        (text(&format!("{get} Invalid URL '{{api_base}}/Patient?identifier=S2874099&_format=json': No scheme supplied. Perhaps you meant https://{{api_base}}/Patient?identifier=S2874099&_format=json?")), InvalidArgument),
        (text(&format!("{get} No connection adapters were found for '{{api_base}}/Observation?code=MG&patient=S6315806&date=ge2023-11-12T10:15:00+00:00&_format=json'")), InvalidArgument),
    ]
}

/// Business refusals that sound like outages.
#[rustfmt::skip]
fn refusals() -> Vec<(ErrorReport, FailureKind)> {
    vec![
        (text(r#"{"status": "unavailable", "flight": "HAT030"}"#), Other),
        (text(r#"{"error": "unavailable", "seat": "12A"}"#), Other),
        (text(r#"{"error": "Unavailable on that date"}"#), Other),
        (text("Seat 12A is currently unavailable, please try again later"), Other),
        (text("Basic economy reservations cannot be modified"), Other),
        (text("The truck is overloaded: 12,500 kg of 12,000 kg"), Other),
        (text("Error: 500 USD exceeds the balance of 404 USD"), Other),
        (text("Room closed for maintenance"), Other),
        (text("Insufficient balance on account 4711"), Other),
        (text("Changes are not permitted for this fare"), Other),
        (text("Your card was declined."), Other),
        (text("Payment requires authentication by the cardholder"), Other),
        (text("Rate limit on seats: 4 per booking"), Other),
        (text("Date must be in the future"), Other),
        (text(""), Other),
        (of_type("ToolError", "it did not work"), Other),
        (grpc(9, "bucket is not empty"), Other),
        (bare("FAILED_PRECONDITION", "bucket is not empty"), Other),
        (of_type("aborted", "the user pressed escape"), Other),
        (of_type("APIError", "An error occurred during streaming"), Other),
    ]
}

#[test]
fn recorded_sessions() {
    check(&recorded_errors());
}

#[test]
fn refusals_of_a_business_are_other() {
    check(&refusals());
}

#[test]
fn model_providers() {
    check(&models::models());
    check(&models::google());
}

#[test]
fn clouds_and_services() {
    check(&services::aws());
    check(&services::services());
}

#[test]
fn databases_by_state_and_name() {
    check(&services::databases());
}

#[test]
fn connections_statuses_and_mcp() {
    check(&transport::connections());
    check(&transport::statuses());
    check(&transport::mcp());
}

#[test]
fn every_kind_is_reached() {
    let all = [
        recorded_errors(),
        refusals(),
        models::models(),
        models::google(),
        services::aws(),
        services::services(),
        services::databases(),
        transport::connections(),
        transport::statuses(),
        transport::mcp(),
    ]
    .concat();
    let reached: BTreeSet<FailureKind> = all.iter().map(|(report, _)| classify(report)).collect();
    assert_eq!(reached, FailureKind::ALL.into_iter().collect());
}

#[test]
fn every_kind_is_known_by_its_own_name() {
    for kind in FailureKind::ALL {
        assert_eq!(classify(&of_type(kind.as_str(), "")), kind, "{}", kind.as_str());
    }
}

#[test]
fn the_tables_do_not_contradict_each_other() {
    let mut seen = BTreeMap::new();
    for (kind, reading, names) in codes::TABLES.iter().flat_map(|table| table.iter()) {
        for name in *names {
            let key = codes::key(name);
            assert!(!key.is_empty(), "{name} has no letters left");
            let earlier = seen.insert(key, (*kind, *reading, *name));
            let same = earlier.is_none_or(|(k, r, _)| k == *kind && r == *reading);
            assert!(same, "{name} contradicts {earlier:?}");
        }
    }
}

#[test]
fn statuses_that_say_nothing_decide_nothing() {
    for silent in [0, 100, 200, 204, 301, 304, 399, 418, 499, 600, u16::MAX] {
        assert_eq!(status::of_http(silent), None, "{silent}");
    }
    for silent in [0, 1, 2, 9, 17, u8::MAX] {
        assert_eq!(status::of_grpc(silent), None, "{silent}");
    }
}
