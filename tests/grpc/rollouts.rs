//! Rollouts on the wire: responses of each method, and the documented pair of each error.

use callgate_core::policy::{self, Policy};
use callgate_proto::v1::{
    ApplyMode, ApplyPolicyRequest, EndPolicyRolloutRequest, GetPolicyRolloutRequest, GetPolicyRolloutResponse,
    PolicyRollout, PolicyRolloutEnd, PolicyRolloutState, StartPolicyRolloutRequest,
    policy_service_client::PolicyServiceClient,
};
use tonic::{Code, Status, transport::Channel};

use crate::common::{
    in_time, until,
    wire::{Plane, from, pair},
};

type Client = PolicyServiceClient<Channel>;

fn text(n: usize) -> String {
    format!("# {n}\npolicy_engine: {{tool_schemas: {{look: {{effect: read}}}}}}\n")
}

async fn apply(client: &mut Client, n: usize, mode: ApplyMode) -> String {
    let apply = ApplyPolicyRequest { text: text(n), mode: mode.into(), ..ApplyPolicyRequest::default() };
    client.apply_policy(from("olga", apply)).await.expect("stored").into_inner().hash
}

fn starting(n: usize) -> StartPolicyRolloutRequest {
    let hash = policy::hash(&text(n))[..8].to_ascii_uppercase();
    StartPolicyRolloutRequest { hash, share_basis_points: 1_000, ..StartPolicyRolloutRequest::default() }
}

async fn start(client: &mut Client, request: StartPolicyRolloutRequest) -> Result<PolicyRollout, Status> {
    let started = in_time("an answer", client.start_policy_rollout(from("olga", request))).await?;
    Ok(started.into_inner().rollout.expect("a rollout"))
}

async fn end(client: &mut Client, end: PolicyRolloutEnd, hash: &str) -> Result<PolicyRollout, Status> {
    let request = EndPolicyRolloutRequest { end: end.into(), hash: hash.to_owned(), note: "so".to_owned() };
    let ended = in_time("an answer", client.end_policy_rollout(from("otto", request))).await?;
    Ok(ended.into_inner().rollout.expect("a rollout"))
}

async fn get(client: &mut Client) -> GetPolicyRolloutResponse {
    in_time("an answer", client.get_policy_rollout(GetPolicyRolloutRequest {})).await.expect("an answer").into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_started_changed_shown_and_ended() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    assert_eq!(get(&mut client).await, GetPolicyRolloutResponse::default(), "there was none");
    apply(&mut client, 1, ApplyMode::Store).await;
    let agents = vec!["clerk".to_owned(), "billing".to_owned(), "clerk".to_owned()];
    let request = StartPolicyRolloutRequest { agent_ids: agents, note: "a try".to_owned(), ..starting(1) };
    let started = start(&mut client, request.clone()).await.expect("started");
    assert_eq!((started.hash.as_str(), started.baseline_hash.as_str()), (policy::hash(&text(1)).as_str(), ""));
    assert_eq!((started.share_basis_points, started.agent_ids.join(" ")), (1_000, "billing clerk".to_owned()));
    assert_eq!((started.changed_by.as_str(), started.note.as_str()), ("olga", "a try"));
    assert_eq!(start(&mut client, request).await.expect("the same"), started);
    let more = StartPolicyRolloutRequest { share_basis_points: 5_000, ..starting(1) };
    let more = start(&mut client, more).await.expect("changed");
    assert_eq!((more.share_basis_points, more.start_time), (5_000, started.start_time));
    assert!(more.agent_ids.is_empty(), "a change is of all of the part");
    let found = get(&mut client).await;
    assert_eq!((found.rollout.as_ref(), found.comparison.is_some()), (Some(&more), true));
    let ended = end(&mut client, PolicyRolloutEnd::Promote, &more.hash[..8]).await.expect("promoted");
    assert_eq!((ended.state(), ended.changed_by.as_str()), (PolicyRolloutState::Promoted, "otto"));
    assert_eq!(get(&mut client).await.rollout, Some(ended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_has_its_documented_pair() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    let is = |answer: Result<PolicyRollout, Status>, code: Code, reason: &str| {
        let status = answer.expect_err(reason);
        assert_eq!(pair(&status), (code, reason.to_owned()), "{status:?}");
    };
    is(start(&mut client, starting(1)).await, Code::NotFound, "POLICY_UNKNOWN");
    apply(&mut client, 1, ApplyMode::Activate).await;
    is(start(&mut client, starting(1)).await, Code::FailedPrecondition, "POLICY_ACTIVE");
    for request in [
        StartPolicyRolloutRequest { hash: "abc".to_owned(), ..starting(1) },
        StartPolicyRolloutRequest { share_basis_points: 10_001, ..starting(1) },
        StartPolicyRolloutRequest { agent_ids: vec![String::new()], ..starting(1) },
        StartPolicyRolloutRequest { agent_ids: vec!["a".to_owned(); 101], ..starting(1) },
        StartPolicyRolloutRequest { note: "n".repeat(2_001), ..starting(1) },
    ] {
        is(start(&mut client, request).await, Code::InvalidArgument, "INVALID_FIELD");
    }
    is(end(&mut client, PolicyRolloutEnd::Unspecified, "").await, Code::InvalidArgument, "INVALID_FIELD");
    is(end(&mut client, PolicyRolloutEnd::Abort, "abc").await, Code::InvalidArgument, "INVALID_FIELD");
    is(end(&mut client, PolicyRolloutEnd::Promote, "").await, Code::NotFound, "ROLLOUT_UNKNOWN");
    let (second, third) =
        (apply(&mut client, 2, ApplyMode::Store).await, apply(&mut client, 3, ApplyMode::Store).await);
    start(&mut client, starting(2)).await.expect("started");
    is(start(&mut client, starting(3)).await, Code::FailedPrecondition, "ROLLOUT_RUNNING");
    is(end(&mut client, PolicyRolloutEnd::Abort, &third).await, Code::NotFound, "ROLLOUT_UNKNOWN");
    end(&mut client, PolicyRolloutEnd::Abort, &second).await.expect("aborted");
    is(end(&mut client, PolicyRolloutEnd::Abort, &second).await, Code::NotFound, "ROLLOUT_UNKNOWN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promotion_of_a_rollout_that_ends_meanwhile_activates_nothing() {
    let plane = Plane::start(&Policy::default()).await;
    let mut client = PolicyServiceClient::new(plane.channel().await);
    apply(&mut client, 1, ApplyMode::Store).await;
    start(&mut client, starting(1)).await.expect("started");
    // The promotion has read the running rollout, and waits for its tenant's row.
    let mut other = plane.postgres.connect().await;
    let lock = "begin; select from tenant where tenant_id = 1 for no key update";
    sqlx::raw_sql(lock).execute(&mut other).await.expect("a lock");
    let mut promoting = client.clone();
    let promoted = tokio::spawn(async move { end(&mut promoting, PolicyRolloutEnd::Promote, "").await });
    let waiting = "select count(*) from pg_locks where not granted";
    until("the promotion to wait", async || plane.postgres.number(waiting).await > 0).await;
    let abort = "insert into policy_rollout
       select tenant_id, step + 1, hash, baseline, share, agents, 'aborted', started_at, now(), 'eve', ''
       from policy_rollout; commit";
    sqlx::raw_sql(abort).execute(&mut other).await.expect("aborted");
    let status = promoted.await.expect("no panic").expect_err("it has ended");
    assert_eq!(pair(&status), (Code::Aborted, "ROLLOUT_CHANGED".to_owned()), "{status:?}");
    let ended = get(&mut client).await.rollout.expect("a rollout");
    assert_eq!((ended.state(), ended.changed_by.as_str()), (PolicyRolloutState::Aborted, "eve"));
    assert_eq!(plane.postgres.number("select count(*) from policy_activation").await, 0);
}
