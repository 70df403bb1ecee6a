//! Approvals by two people against one person posing as both: on two replicas at once, by two credentials, or after
//! removal from the group.

use std::time::Duration;

use callgate_core::{
    domain::{
        audit::Actor,
        identity::{MappedIdentity, Role},
        ids::DEFAULT_TENANT,
    },
    policy::{self, Policy},
};
use callgate_proto::v1::{self, ApprovalState, Decision, approval_service_client::ApprovalServiceClient};
use tonic::{Code, Request, transport::Channel};

use crate::{
    common::{
        all, until,
        wire::{Client, Plane, call, evaluate, evaluate_as, question},
    },
    credentials::{bearer, token, who},
    people::{answer, resolve},
};

fn rules(route: &str) -> Policy {
    let text = format!(
        "policy_engine:
  authorization:
    tiers: [{{name: pays, pattern: pay, action: hitl}}, {{name: rest, pattern: '*', action: allowlist}}]
  tool_schemas: {{pay: {{effect: write}}}}
  approvals: {{routes: [{{tools: pay, {route}}}]}}
"
    );
    policy::compile(&text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn pay(session: &str, call_id: &str) -> v1::EvaluateRequest {
    question(session, call(call_id, "pay", r#"{"to":"anna"}"#))
}

fn yes(token: &str, id: &str) -> Request<v1::ResolveApprovalRequest> {
    bearer(token, answer(id, "", true, "").into_inner())
}

/// The two identities of one person have approved as often as possible.
fn is_once(answers: &[Result<v1::Approval, (Code, String)>], by: &str) {
    for answer in answers {
        let told = answer.as_ref().expect("a yes may be said again");
        assert_eq!((told.state(), told.approved_by.as_slice()), (ApprovalState::Pending, [by.to_owned()].as_slice()));
    }
}

const SAID: &str = "select count(*) from session_event where kind in ('seconded', 'answered')";

/// Two replicas, and the services for answers on each.
struct Scene {
    plane: Plane,
    clients: [Client; 2],
    approvals: [ApprovalServiceClient<Channel>; 2],
}

impl Scene {
    async fn start(route: &str) -> Self {
        let rules = rules(route);
        let plane = Plane::start(&rules).await;
        let channels = [plane.channel().await, plane.postgres_gate(&rules).await];
        let clients = channels.clone().map(Client::new);
        Self { plane, clients, approvals: channels.map(ApprovalServiceClient::new) }
    }

    async fn token(
        &self,
        name: &str,
        role: Role,
        groups: &[&str],
    ) -> (String, callgate_core::domain::token::StoredToken) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        token(&self.plane.gate, MappedIdentity { groups, ..who(name, &[role]) }).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_person_on_two_replicas_is_one_yes_and_two_people_are_two() {
    let Scene { plane, clients: [mut here, mut there], approvals } = Scene::start("required_approvals: 2").await;
    for n in 0..6 {
        let session = format!("s{n}");
        let asked = evaluate(&mut here, pay(&session, "c1")).await;
        assert_eq!(asked.decision(), Decision::Ask);
        let id = asked.approval_id;
        // In another case it is the same name.
        let says = |by: &'static str, at: usize| resolve(approvals[at].clone(), answer(&id, by, true, ""));
        let same = all((0..8).map(|n| says("ada", n % 2))).await;
        is_once(&same, "ada");
        is_once(&Box::pin(all([says("Ada", 0), says("ADA", 1)])).await, "ada");
        assert_eq!(plane.postgres.number(SAID).await, 2 * n + 1);
        for client in [&mut here, &mut there] {
            let request = v1::EvaluateRequest { dry_run: true, ..pay(&session, "c1") };
            assert_eq!(evaluate(client, request).await.decision(), Decision::Ask, "one person is not two");
        }
        // Of several concurrent approvals on both replicas, one is the second.
        let others = [("bob", 0), ("cem", 1), ("dan", 0), ("eve", 1)].map(|(by, at)| Box::pin(says(by, at)));
        let others = Box::pin(all(others)).await;
        let second: Vec<&v1::Approval> = others.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        let [second] = second[..] else { panic!("{others:?}") };
        assert_eq!(second.state(), ApprovalState::Approved);
        let late = others.iter().filter_map(|answer| answer.as_ref().err());
        assert!(late.into_iter().all(|(_, reason)| reason == "APPROVAL_ANSWERED"), "{others:?}");
        let (first, other) =
            tokio::join!(evaluate(&mut here, pay(&session, "c1")), evaluate(&mut there, pay(&session, "c1")));
        assert_eq!((first.decision(), other.decision()), (Decision::Allow, Decision::Allow));
        assert_eq!(first.permit, other.permit, "one call has one permit");
        assert_eq!(evaluate(&mut there, pay(&session, "c2")).await.permit, None, "the yes was for one call");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_credentials_of_one_person_are_one_yes() {
    let scene = Scene::start("required_approvals: 2").await;
    let (robot, _) = scene.token("robot", Role::Agent, &[]).await;
    let tokens = [scene.token("ada", Role::Approver, &[]).await.0, scene.token("ada", Role::Admin, &[]).await.0];
    let (bob, _) = scene.token("bob", Role::Approver, &[]).await;
    let mut here = scene.clients[0].clone();
    let id = evaluate_as(Some(&robot), &mut here, pay("s", "c1")).await.approval_id;
    let says = (0..8).map(|n| resolve(scene.approvals[n % 2].clone(), yes(&tokens[n / 2 % 2], &id)));
    is_once(&all(says).await, "ada");
    let second = resolve(scene.approvals[1].clone(), yes(&bob, &id)).await.expect("a second person");
    assert_eq!((second.state(), second.resolved_by.as_str()), (ApprovalState::Approved, "bob"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_member_answers_nothing_and_former_answers_stand() {
    let scene = Scene::start("group: finance, required_approvals: 2").await;
    let (robot, _) = scene.token("robot", Role::Agent, &[]).await;
    let (ada, of_ada) = scene.token("ada", Role::Approver, &["finance"]).await;
    let (eve, of_eve) = scene.token("eve", Role::Approver, &["finance"]).await;
    let (bob, _) = scene.token("bob", Role::Approver, &["finance"]).await;
    let (root, _) = scene.token("root", Role::Admin, &["Finance", "finance ", "operations"]).await;
    let mut here = scene.clients[0].clone();
    let id = evaluate_as(Some(&robot), &mut here, pay("s", "c1")).await.approval_id;
    let listed = v1::ListApprovalsRequest { group: "finance".into(), ..Default::default() };
    let listed = scene.approvals[1].clone().list_approvals(bearer(&eve, listed)).await.expect("questions");
    assert_eq!(listed.into_inner().approvals.len(), 1, "while they are in it they see it");
    let first = resolve(scene.approvals[0].clone(), yes(&ada, &id)).await.expect("a member");
    assert_eq!(first.approved_by, ["ada"]);

    // Eve is taken out of the group, and Ada leaves altogether.
    let admin = Actor::from("root");
    for token in [&of_ada, &of_eve] {
        scene.plane.gate.identities.revoke_token(DEFAULT_TENANT, &token.id, &admin).await.expect("revoked");
    }
    let (outside, _) = scene.token("eve", Role::Approver, &["operations"]).await;
    let not_in_group = Err((Code::PermissionDenied, "NOT_IN_GROUP".to_owned()));
    let unknown = Err((Code::Unauthenticated, "UNAUTHENTICATED".to_owned()));
    for approvals in &scene.approvals {
        for token in [&outside, &root] {
            assert_eq!(resolve(approvals.clone(), yes(token, &id)).await, not_in_group);
        }
        for token in [&ada, &eve] {
            until("the revocation", async || {
                tokio::time::sleep(Duration::from_millis(400)).await;
                Box::pin(resolve(approvals.clone(), yes(token, &id))).await == unknown
            })
            .await;
        }
    }
    let open = evaluate_as(Some(&robot), &mut here, v1::EvaluateRequest { dry_run: true, ..pay("s", "c1") }).await;
    assert_eq!(open.decision(), Decision::Ask);
    let second = resolve(scene.approvals[1].clone(), yes(&bob, &id)).await.expect("another member");
    assert_eq!(
        (second.state(), second.approved_by.as_slice()),
        (ApprovalState::Approved, ["ada".to_owned()].as_slice())
    );
}
