//! Audit log over the wire: pages, and verification.

use callgate_proto::v1::{
    self, HaltScope, audit_service_client::AuditServiceClient, session_service_client::SessionServiceClient,
};

use crate::{common::wire::from, people::plane};

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
