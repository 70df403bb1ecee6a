//! Comments on approval requests at rest: encrypted like other reasons, and erased with their session.

use callgate_core::domain::{
    audit::{Actor, AuditOperation},
    forgetting::ErasureSubject,
    ids::DEFAULT_TENANT,
};
use tokio::sync::mpsc;

use crate::{
    common::{
        gates::{ask, evaluate, gate, seal, session},
        postgres::Postgres,
    },
    sealing::{KEY, rules},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_comments_are_encrypted_and_forgotten_with_their_session() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &rules()).await;
    seal(&gate, KEY).await;
    let asked = evaluate(&gate, ask("one", "q", "charge", r#"{"nest":"n"}"#)).await;
    let id = asked.verdict.approval.expect("a request").id;
    let by = Actor::from("eve");
    gate.approvals.comment(DEFAULT_TENANT, &id, by.clone(), "the linnet is safe").await.expect("stored");
    gate.approvals.claim(DEFAULT_TENANT, &id, by.clone(), false).await.expect("stored");
    let stored = "select words[6] from audit where kind = 'approval_commented' and starts_with(words[6], 'encrypted:')";
    assert_eq!(postgres.rows(stored).await.len(), 1);
    let read = async || {
        let notes = gate.approvals.notes(DEFAULT_TENANT, std::slice::from_ref(&id)).await.expect("readable");
        notes.into_values().flatten().map(|note| (note.kind, note.text)).collect::<Vec<_>>()
    };
    let text = Some("the linnet is safe".to_owned());
    let both = [(AuditOperation::ApprovalCommented, text), (AuditOperation::ApprovalClaimed, None)];
    assert_eq!(read().await, both);
    let (told, _told) = mpsc::channel(500);
    let whom = ErasureSubject::Session(session("one"));
    Box::pin(gate.privacy.forget(DEFAULT_TENANT, &whom, (&by, "asked"), &told)).await.expect("forgotten");
    assert_eq!(read().await, []);
    assert_eq!(
        postgres.rows("select 1 from audit where kind like 'approval_%' and words[6] is not null").await.len(),
        0
    );
    assert!(gate.store.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("readable").problems.is_empty());
}
