//! Claims and comments on approval requests.

use callgate_core::domain::{audit::Actor, identity::Role, tenant::Quotas};
use callgate_proto::v1::{self, approval_service_client::ApprovalServiceClient};
use callgate_server::gate::TenantChange;
use tonic::transport::Channel;

use crate::{
    bulk_approvals::{open, open_request, plane},
    common::{
        in_time,
        wire::{from, pair},
    },
    credentials::{bearer, token, who},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_claims_are_seen_by_others_and_bind_nobody() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "send_mail", r#"{"to":"a"}"#).await;
    let grouped = open_request(&mut client, "desk", "group_mail", r#"{"to":"b"}"#).await;
    let (eve, _) = token(&plane.gate, who("eve", &[Role::Approver])).await;
    let (bob, _) = token(&plane.gate, who("bob", &[Role::Approver])).await;
    let claim = async |approvals: &mut ApprovalServiceClient<Channel>, who: &str, id: &str, release| {
        let asked = v1::ClaimApprovalRequest { approval_id: id.into(), release };
        let claimed = in_time("a claim", approvals.claim_approval(bearer(who, asked))).await;
        claimed
            .map(|claimed| claimed.into_inner().approval.expect("a request").claimed_by)
            .map_err(|status| pair(&status).1)
    };
    let claimed = Err("APPROVAL_CLAIMED".to_owned());
    assert_eq!(claim(&mut approvals, &bob, &id, true).await, Ok(String::new()), "there is none to release");
    assert_eq!(claim(&mut approvals, &eve, &id, false).await, Ok("eve".into()));
    assert_eq!(claim(&mut approvals, &eve, &id, false).await, Ok("eve".into()), "a longer one");
    assert_eq!(claim(&mut approvals, &bob, &id, false).await, claimed);
    assert_eq!(claim(&mut approvals, &bob, &id, true).await, claimed);
    assert_eq!(claim(&mut approvals, &bob, &grouped, false).await, Err("NOT_IN_GROUP".into()));
    assert_eq!(claim(&mut approvals, &bob, "apr_0", false).await, Err("APPROVAL_UNKNOWN".into()));
    let page = in_time("a list", approvals.list_approvals(bearer(&bob, open()))).await.expect("a list").into_inner();
    let by: Vec<_> = page.approvals.iter().map(|one| (one.approval_id.as_str(), one.claimed_by.as_str())).collect();
    assert_eq!(by, [(grouped.as_str(), ""), (id.as_str(), "eve")]);
    assert_eq!(claim(&mut approvals, &eve, &id, true).await, Ok(String::new()));
    assert_eq!(claim(&mut approvals, &bob, &id, false).await, Ok("bob".into()));
    // It binds nobody, and ends with the answer.
    let answer = v1::ResolveApprovalRequest { approval_id: id.clone(), approve: true, ..Default::default() };
    approvals.resolve_approval(bearer(&eve, answer)).await.expect("an answer");
    let asked = v1::GetApprovalRequest { approval_id: id.clone() };
    let told = approvals.get_approval(bearer(&bob, asked)).await.expect("a request").into_inner();
    assert_eq!(told.approval.expect("a request").claimed_by, "");
    assert_eq!(claim(&mut approvals, &bob, &id, false).await, Err("APPROVAL_ANSWERED".into()));
    let entries = "select count(*) from audit where kind like 'approval_%' and words[5] = ";
    assert_eq!(plane.postgres.number(&format!("{entries}'{id}'")).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_tells_of_claims_releases_and_comments_once() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "send_mail", r#"{"to":"a"}"#).await;
    let claim = |release| v1::ClaimApprovalRequest { approval_id: id.clone(), release };
    approvals.claim_approval(from("eve", claim(false))).await.expect("a claim");
    let watched = approvals.clone().watch_approvals(v1::WatchApprovalsRequest::default()).await.expect("a watch");
    let mut watched = watched.into_inner();
    let mut next = async || {
        let told = in_time("news", watched.message()).await.expect("open").expect("news");
        let approval = told.approval.expect("a request");
        (told.noted, approval.claimed_by, approval.comments.into_iter().map(|one| one.text).collect::<Vec<_>>())
    };
    let none = Vec::<String>::new();
    assert_eq!(next().await, (false, String::new(), none.clone()), "it is new to this watch");
    approvals.claim_approval(from("eve", claim(true))).await.expect("a release");
    assert_eq!(next().await, (true, String::new(), none.clone()));
    approvals.claim_approval(from("bob", claim(false))).await.expect("a claim");
    assert_eq!(next().await, (true, "bob".into(), none));
    let comment = v1::CommentApprovalRequest { approval_id: id.clone(), text: "asked".into() };
    approvals.comment_approval(from("eve", comment)).await.expect("a comment");
    assert_eq!(next().await, (true, "bob".into(), vec!["asked".to_owned()]));
    let answer = v1::ResolveApprovalRequest { approval_id: id.clone(), approve: true, ..Default::default() };
    approvals.resolve_approval(from("bob", answer)).await.expect("an answer");
    assert!(!next().await.0, "nothing was told twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_comment_that_is_stored_succeeds_also_where_the_others_cannot_be_read() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "send_mail", r#"{"to":"a"}"#).await;
    let asked = |text: &str| v1::CommentApprovalRequest { approval_id: id.clone(), text: text.into() };
    approvals.comment_approval(from("eve", asked("one"))).await.expect("a comment");
    // No time that can be read: from the next comment on, each read fails.
    let spoil = "create function spoil() returns trigger language plpgsql as
        'begin new.at := ''infinity''; return new; end'";
    plane.postgres.tamper(spoil).await;
    plane.postgres.tamper("create trigger spoil before insert on audit for each row execute function spoil()").await;
    let told = approvals.comment_approval(from("eve", asked("two"))).await.expect("a comment").into_inner();
    let comments = told.approval.expect("a request").comments;
    let told: Vec<_> = comments.iter().map(|one| (one.by.as_str(), one.text.as_str())).collect();
    assert_eq!(told, [("eve", "one"), ("eve", "two")]);
    approvals.comment_approval(from("eve", asked("three"))).await.expect_err("nothing can be read");
    let stored = "select count(*) from audit where kind = 'approval_commented'";
    assert_eq!(plane.postgres.number(stored).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_comments_are_seen_by_others_of_the_tenant_and_audited() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "send_mail", r#"{"to":"a"}"#).await;
    let (eve, _) = token(&plane.gate, who("eve", &[Role::Approver])).await;
    let (ann, _) = token(&plane.gate, who("ann", &[Role::Analyst])).await;
    let asked = |text: &str| v1::CommentApprovalRequest { approval_id: id.clone(), text: text.into() };
    for n in 0..50 {
        let text = format!("asked the customer, {n}");
        in_time("a comment", approvals.comment_approval(bearer(&eve, asked(&text)))).await.expect("a comment");
    }
    let (full, empty) = ("TOO_MANY_COMMENTS", "INVALID_FIELD");
    for (who, text, reason) in [(&eve, "more", full), (&eve, " ", empty), (&ann, "me too", "ROLE_MISSING")] {
        let refused = approvals.comment_approval(bearer(who, asked(text))).await.expect_err(reason);
        assert_eq!(pair(&refused).1, reason, "{refused:?}");
    }
    let get = v1::GetApprovalRequest { approval_id: id.clone() };
    let told = approvals.get_approval(bearer(&ann, get)).await.expect("a request").into_inner();
    let comments = told.approval.expect("a request").comments;
    assert_eq!(
        (comments.len(), comments[0].by.as_str(), comments[0].text.as_str()),
        (50, "eve", "asked the customer, 0")
    );
    let entries = "select count(*) from audit where kind = 'approval_commented' and words[1] = 'eve'";
    assert_eq!(plane.postgres.number(entries).await, 50);
    let root = Actor::from("root");
    let TenantChange::Done(acme) =
        plane.gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer")
    else {
        panic!("there was no such tenant")
    };
    let hank = who("hank", &[Role::Admin]);
    let (stranger, _) = plane.gate.identities.create_token(acme.id, hank, None, &root).await.expect("a token");
    let refused = approvals.comment_approval(bearer(&stranger, asked("mine"))).await.expect_err("another tenant");
    assert_eq!(pair(&refused).1, "APPROVAL_UNKNOWN");
}
