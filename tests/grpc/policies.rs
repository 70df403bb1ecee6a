//! Policy service on the wire: responses of each method, and the documented pair of each error.

use callgate_core::{
    domain::ids::DEFAULT_TENANT,
    policy::{self, Policy},
};
use callgate_proto::v1::{
    ActivatePolicyRequest, ApplyMode, ApplyPolicyRequest, ApplyPolicyResponse, GetPolicyRequest, GetPolicyResponse,
    ListPoliciesRequest, PolicyRevision, RollbackPolicyRequest, policy_service_client::PolicyServiceClient,
};
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt as _;

use crate::common::{
    in_time,
    wire::{Plane, call, evaluate, from, pair, question},
};

type Client = PolicyServiceClient<Channel>;

fn text(n: usize) -> String {
    format!("# {n}\npolicy_engine: {{tool_schemas: {{look: {{effect: read}}}}}}\n")
}

fn applying(text: &str) -> ApplyPolicyRequest {
    ApplyPolicyRequest { text: text.to_owned(), note: "a try".to_owned(), ..ApplyPolicyRequest::default() }
}

async fn try_apply(client: &mut Client, request: ApplyPolicyRequest) -> Result<ApplyPolicyResponse, Status> {
    Ok(in_time("an answer", client.apply_policy(from("olga", request))).await?.into_inner())
}

async fn apply(client: &mut Client, text: &str) -> PolicyRevision {
    let applied = try_apply(client, applying(text)).await.expect("applied");
    assert_eq!(applied.hash, policy::hash(text));
    applied.revision.expect("active")
}

async fn get(client: &mut Client, hash: &str) -> Result<GetPolicyResponse, Status> {
    Ok(in_time("an answer", client.get_policy(GetPolicyRequest { hash: hash.to_owned() })).await?.into_inner())
}

async fn activate(client: &mut Client, hash: &str, expected: Option<u64>) -> Result<PolicyRevision, Status> {
    let request = ActivatePolicyRequest { hash: hash.to_owned(), note: String::new(), expected_revision: expected };
    Ok(in_time("an answer", client.activate_policy(from("otto", request)))
        .await?
        .into_inner()
        .revision
        .expect("active"))
}

async fn rollback(client: &mut Client, expected: Option<u64>) -> Result<PolicyRevision, Status> {
    let request = RollbackPolicyRequest { note: String::new(), expected_revision: expected };
    Ok(in_time("an answer", client.rollback_policy(from("otto", request)))
        .await?
        .into_inner()
        .revision
        .expect("active"))
}

fn is(status: &Status, code: Code, reason: &str) {
    assert_eq!(pair(status), (code, reason.to_owned()), "{status:?}");
    assert!(!status.message().is_empty() && !status.message().contains('\n'), "{status:?}");
}

fn expect_conflict(status: &Status, active: &str) {
    is(status, Code::Aborted, "REVISION_CHANGED");
    let info = status.get_details_error_info().expect("told");
    assert_eq!(info.metadata.get("revision").map(String::as_str), Some(active));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_applied_listed_activated_and_rolled_back() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    assert_eq!(get(&mut client, "").await.expect("an answer"), GetPolicyResponse::default(), "the built-in one");

    let first = apply(&mut client, &text(1)).await;
    assert_eq!((first.revision, first.activated_by.as_str(), first.note.as_str()), (1, "olga", "a try"));
    assert!(first.activate_time.is_some_and(|at| at.seconds > 1_700_000_000));
    assert_eq!(apply(&mut client, &text(1)).await, first, "what is active stays so");
    assert_eq!(apply(&mut client, &text(2)).await.revision, 2);
    let judged = evaluate(&mut plane.client().await, question("s", call("c1", "look", "{}"))).await;
    assert_eq!(judged.policy_version, policy::hash(&text(2))[..16], "it judges at once");

    let hash = policy::hash(&text(1));
    let found = get(&mut client, &hash[..8].to_ascii_uppercase()).await.expect("found");
    assert_eq!((found.hash, found.text, found.revision), (hash.clone(), text(1), Some(first)));
    assert_eq!(activate(&mut client, &hash[..8], Some(2)).await.expect("active").revision, 3);
    let told_again = evaluate(&mut plane.client().await, question("s", call("c1", "look", "{}"))).await;
    assert!(told_again.replayed && told_again.policy_version == judged.policy_version, "by the policy that judged");
    let back = rollback(&mut client, Some(3)).await.expect("active");
    assert_eq!((back.revision, back.hash.as_str()), (4, policy::hash(&text(2)).as_str()));
    let active = get(&mut client, "").await.expect("an answer");
    assert_eq!((active.text, active.revision), (text(2), Some(back)));

    let mut page = ListPoliciesRequest { page_size: 3, page_token: String::new() };
    let mut seen = Vec::new();
    loop {
        let list = in_time("a page", client.list_policies(page.clone())).await.expect("a page").into_inner();
        assert!(list.revisions.len() <= 3);
        seen.extend(list.revisions.into_iter().map(|revision| revision.revision));
        if list.next_page_token.is_empty() {
            break;
        }
        page.page_token = list.next_page_token;
    }
    assert_eq!(seen, [4, 3, 2, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checking_stores_nothing_and_storing_activates_nothing() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    for (mode, stored) in [(ApplyMode::Check, 0), (ApplyMode::Store, 1)] {
        let request = ApplyPolicyRequest { mode: mode.into(), ..applying(&text(1)) };
        let answer = try_apply(&mut client, request).await.expect("good");
        assert_eq!((answer.hash, answer.revision), (policy::hash(&text(1)), None));
        assert_eq!(plane.postgres.number("select count(*) from policy").await, stored);
    }
    assert_eq!(plane.postgres.number("select count(*) from policy_activation").await, 0);
    assert_eq!(&*plane.gate.server.policy(DEFAULT_TENANT).version, "default");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_policy_is_told_whole_with_paths_and_lines() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    let bad = "policy_engine:\n  mode: loud\n  loops: {windw: 3}\n";
    let status = try_apply(&mut client, applying(bad)).await.expect_err("refused");
    is(&status, Code::InvalidArgument, "INVALID_POLICY");
    let violations = status.get_details_bad_request().expect("told").field_violations;
    let said: Vec<_> = violations.iter().map(|v| (v.field.as_str(), v.description.as_str())).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    for (line, (field, description)) in [2, 3].into_iter().zip(&said) {
        assert!(field.starts_with("policy_engine."), "{said:?}");
        assert!(description.starts_with(&format!("line {line}: {field}: ")), "{said:?}");
    }
    assert_eq!(plane.postgres.number("select count(*) from policy").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_with_a_thousand_problems_is_still_answered() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    let many: String = (0..1_000).map(|n| format!("    tool_{n}: {{effekt: read}}\n")).collect();
    let long = format!("    ? {}\n    : {{effekt: read}}\n", "ä".repeat(900));
    for tools in [many, long] {
        let text = format!("policy_engine:\n  tool_schemas:\n{tools}");
        let problems = policy::compile(&text).expect_err("bad").len();
        let status = try_apply(&mut client, applying(&text)).await.expect_err("refused");
        is(&status, Code::InvalidArgument, "INVALID_POLICY");
        assert!(status.message().contains(&format!("{problems} problem(s)")), "{status:?}");
        assert!(!status.get_details_bad_request().expect("told").field_violations.is_empty(), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_have_documented_pairs_and_activate_nothing() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    is(&rollback(&mut client, None).await.expect_err("nothing"), Code::NotFound, "POLICY_UNKNOWN");
    apply(&mut client, &text(1)).await;
    let expecting = ApplyPolicyRequest { expected_revision: Some(7), ..applying(&text(2)) };
    expect_conflict(&try_apply(&mut client, expecting).await.expect_err("refused"), "1");
    let hash = policy::hash(&text(2));
    expect_conflict(&activate(&mut client, &hash, Some(0)).await.expect_err("refused"), "1");
    is(&rollback(&mut client, None).await.expect_err("none before"), Code::NotFound, "POLICY_UNKNOWN");
    is(&activate(&mut client, &"0".repeat(64), None).await.expect_err("none"), Code::NotFound, "POLICY_UNKNOWN");
    is(&get(&mut client, "00000000").await.expect_err("none"), Code::NotFound, "POLICY_UNKNOWN");

    let twins = format!("{}{}", "0".repeat(8), "a".repeat(56));
    for hash in [twins.clone(), twins.replace('a', "b")] {
        let sql = format!(
            "insert into policy (tenant_id, hash, text, applied_by, note) \
             values (1, '{hash}', 'policy_engine: {{}}', '', '')"
        );
        plane.postgres.tamper(&sql).await;
    }
    is(&activate(&mut client, "00000000", None).await.expect_err("two"), Code::NotFound, "POLICY_UNKNOWN");

    for hash in ["1234567", "not a hash"] {
        is(&activate(&mut client, hash, None).await.expect_err("malformed"), Code::InvalidArgument, "INVALID_FIELD");
    }
    let malformed = [
        ApplyPolicyRequest { text: String::new(), ..applying("") },
        ApplyPolicyRequest { note: "n".repeat(2_001), ..applying(&text(3)) },
        applying(&format!("{}{}", text(3), "#".repeat(1 << 20))),
        // Postgres cannot store it.
        applying(&format!("{}# \0\n", text(3))),
    ];
    for request in malformed {
        let status = try_apply(&mut client, request).await.expect_err("malformed");
        let (code, reason) = pair(&status);
        assert_eq!(code, Code::InvalidArgument, "{status:?}");
        assert!(["INVALID_FIELD", "INVALID_POLICY"].contains(&reason.as_str()), "{status:?}");
    }
    assert_eq!(plane.postgres.number("select count(*) from policy_activation").await, 1);
    assert_eq!(*plane.gate.server.policy(DEFAULT_TENANT).version, policy::hash(&text(1))[..16]);
}
