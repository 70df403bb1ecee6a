//! Audit log over the wire: pages, and verification.

use callgate_proto::v1::{
    self, HaltScope, audit_service_client::AuditServiceClient, session_service_client::SessionServiceClient,
};

use callgate_core::domain::identity::Role;

use crate::{
    common::wire::from,
    console::{Browser, serve_console},
    people::plane,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_listed_in_pages_and_verified_against_an_anchor() {
    let plane = plane().await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let mut audit = AuditServiceClient::new(plane.channel().await);
    let empty = audit.verify_audit(v1::VerifyAuditRequest::default()).await.expect("checked").into_inner();
    assert_eq!(empty, v1::VerifyAuditResponse::default());
    for name in ["a", "b", "c"] {
        let halt = v1::HaltRequest { name: name.into(), reason: "a drill".into(), scope: HaltScope::Agent.into() };
        sessions.halt(from("eve", halt)).await.expect("a halt");
    }
    let mut request = v1::ListAuditEntriesRequest { page_size: 2, ..Default::default() };
    let first = audit.list_audit_entries(request.clone()).await.expect("a page").into_inner();
    request.page_token = first.next_page_token.clone();
    let last = audit.list_audit_entries(request).await.expect("a page").into_inner();
    assert_eq!(last.next_page_token, "");
    let entries = [first.entries, last.entries].concat();
    let told: Vec<String> = entries
        .iter()
        .map(|one| [&*one.number.to_string(), &one.kind, &one.by, &one.credential, &one.action, &one.reason].join(" "))
        .collect();
    let expected = ["3 halted eve local agent c a drill", "2 halted eve local agent b a drill"];
    assert_eq!(told[..2], expected);
    assert_eq!((told.len(), entries[0].create_time.is_some()), (3, true));
    let checked = audit.verify_audit(v1::VerifyAuditRequest::default()).await.expect("checked").into_inner();
    assert_eq!(checked.anchor, format!("3:{}", entries[0].hash));
    plane.postgres.tamper("delete from audit where number = 3").await;
    plane.postgres.tamper("update audit_head set number = 2, hash = (select hash from audit where number = 2)").await;
    let request = v1::VerifyAuditRequest { anchors: vec![checked.anchor] };
    let cut = audit.verify_audit(request).await.expect("checked").into_inner();
    assert_eq!(cut.problems, ["entry 3 is missing, and an anchor was taken of it: the end was cut off"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_anchor_is_refused_by_its_position() {
    let plane = plane().await;
    let mut audit = AuditServiceClient::new(plane.channel().await);
    let hash = "0".repeat(64);
    for bad in ["", "3", "x:00", "0:00", &format!("0:{hash}"), &format!("3:{hash}0")] {
        let anchors = vec![format!("3:{hash}"), bad.to_owned()];
        let refused = audit.verify_audit(v1::VerifyAuditRequest { anchors }).await.expect_err(bad);
        assert!(refused.message().contains("anchors[1]"), "{bad:?}: {refused:?}");
    }
    let many = v1::VerifyAuditRequest { anchors: vec![format!("3:{hash}"); 101] };
    assert!(audit.verify_audit(many).await.expect_err("too many").message().contains("anchors"));
}

/// Numbers of the entries that a filter selects, page by page.
async fn numbers(audit: &mut AuditServiceClient<tonic::transport::Channel>, filter: v1::AuditFilter) -> Vec<u64> {
    let mut request = v1::ListAuditEntriesRequest { page_size: 2, filter: Some(filter), ..Default::default() };
    let mut numbers = Vec::new();
    loop {
        let page = audit.list_audit_entries(request.clone()).await.expect("a page").into_inner();
        numbers.extend(page.entries.iter().map(|entry| entry.number));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return numbers;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_entries_are_filtered_by_actor_kind_subject_and_time() {
    let plane = plane().await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let mut audit = AuditServiceClient::new(plane.channel().await);
    let scope = HaltScope::Agent.into();
    for (by, name) in [("eve", "robot-1"), ("bob", "robot-2"), ("Eve", "desk")] {
        let halt = v1::HaltRequest { name: name.into(), reason: "a drill".into(), scope };
        sessions.halt(from(by, halt)).await.expect("a halt");
    }
    let resume = v1::ResumeRequest { name: "desk".into(), reason: "over".into(), scope };
    sessions.resume(from("bob", resume)).await.expect("lifted");
    let none = v1::AuditFilter::default();
    assert_eq!(numbers(&mut audit, none.clone()).await, [4, 3, 2, 1]);
    assert_eq!(numbers(&mut audit, v1::AuditFilter { by: "EVE".into(), ..none.clone() }).await, [3, 1]);
    assert_eq!(numbers(&mut audit, v1::AuditFilter { kind: "resumed".into(), ..none.clone() }).await, [4]);
    assert_eq!(numbers(&mut audit, v1::AuditFilter { subject: "Robot".into(), ..none.clone() }).await, [2, 1]);
    assert!(numbers(&mut audit, v1::AuditFilter { subject: "ro%t".into(), ..none.clone() }).await.is_empty());
    let both = v1::AuditFilter { subject: "desk".into(), by: "bob".into(), ..none.clone() };
    assert_eq!(numbers(&mut audit, both).await, [4]);
    plane.postgres.tamper("alter table audit disable trigger user").await;
    plane.postgres.tamper("update audit set at = at - interval '2 days' where number <= 2").await;
    let day_ago = plane.postgres.number("select extract(epoch from now())::bigint - 86400").await;
    let day_ago = Some(prost_types::Timestamp { seconds: day_ago, nanos: 0 });
    let since = v1::AuditFilter { start_time: day_ago, ..none.clone() };
    assert_eq!(numbers(&mut audit, since).await, [4, 3]);
    assert_eq!(numbers(&mut audit, v1::AuditFilter { end_time: day_ago, ..none }).await, [2, 1]);
    let long = v1::AuditFilter { by: "x".repeat(300), ..Default::default() };
    let request = v1::ListAuditEntriesRequest { filter: Some(long), ..Default::default() };
    let refused = audit.list_audit_entries(request).await.expect_err("too long");
    assert!(refused.message().contains("filter.by"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_of_audit_entries_goes_on_after_its_limit_and_ends_at_the_first() {
    let plane = plane().await;
    // One page searches 20,000 entries.
    plane
        .postgres
        .tamper(
            "insert into audit (tenant_id, number, at, kind, words, salts, marks, previous, hash)
             select 1, n, timestamptz '2026-01-01' + n * interval '1 second', 'halted',
               array[case when n = 5 then 'alice' else 'bob' end, null, null, null, 'tool pay', null],
               array_fill(null::bytea, array[6]), array_fill(null::bytea, array[6]), '', ''
             from generate_series(1, 20050) n",
        )
        .await;
    let mut audit = AuditServiceClient::new(plane.channel().await);
    let mut search = async |filter: v1::AuditFilter, page_token: String| {
        let request = v1::ListAuditEntriesRequest { filter: Some(filter), page_token, ..Default::default() };
        let page = audit.list_audit_entries(request).await.expect("a page").into_inner();
        (page.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), page.next_page_token)
    };
    let by_alice = v1::AuditFilter { by: "alice".into(), ..Default::default() };
    let (found, next) = search(by_alice.clone(), String::new()).await;
    assert_eq!(found, [0; 0]);
    assert_ne!(next, "", "not all was searched");
    assert_eq!(search(by_alice.clone(), next).await, (vec![5], String::new()));
    let from = prost_types::Timestamp { seconds: 1_767_225_600 + 10_000, nanos: 0 };
    let recent = v1::AuditFilter { start_time: Some(from), ..by_alice };
    assert_eq!(search(recent, String::new()).await, (vec![], String::new()), "older entries are not of the period");

    // A period that ended long ago is found at once, whatever came after it.
    let at = |seconds: i64| Some(prost_types::Timestamp { seconds: 1_767_225_600 + seconds, nanos: 0 });
    for (until, expected) in [(1, vec![]), (2, vec![1]), (4, vec![3, 2, 1]), (6, vec![5, 4, 3, 2, 1])] {
        let old = v1::AuditFilter { end_time: at(until), ..Default::default() };
        assert_eq!(search(old, String::new()).await, (expected, String::new()), "{until}");
    }
    let all = v1::AuditFilter { end_time: at(30_000), ..Default::default() };
    assert_eq!(search(all, String::new()).await.0.first(), Some(&20_050));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_page_exports_what_it_filters_without_a_formula() {
    let plane = serve_console(&callgate_core::policy::Policy::default()).await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    for name in ["=cmd()", "other"] {
        let scope = HaltScope::Session.into();
        let halt = v1::HaltRequest { name: name.into(), reason: "=1+1, \"quoted\"".into(), scope };
        sessions.halt(from("eve", halt)).await.expect("a halt");
    }
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    let html = ada.get("/audit?by=eve&subject=cmd").await.ok();
    assert!(html.contains("session =cmd()") && !html.contains("session other"), "{html}");
    assert!(html.contains("href=\"/audit/export?by=eve&#38;subject=cmd\""), "{html}");
    let file = ada.get("/audit/export?by=eve&subject=cmd").await;
    assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
    let lines: Vec<&str> = file.html.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("number,time,kind,by,"), "{lines:?}");
    assert!(lines[1].contains(",'=cmd(),"), "{lines:?}");
    assert!(lines[1].contains(",\"'=1+1, \"\"quoted\"\"\","), "{lines:?}");
    assert!(ada.get("/audit?from=soon").await.html.contains("from: soon is no day such as 2026-01-31"));
    let mut approver = Browser::of(&plane, "ann", &[Role::Approver]).await;
    assert_eq!(approver.get("/audit/export").await.status, http::StatusCode::FORBIDDEN);
}
