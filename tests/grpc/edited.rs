//! Approvals with edited arguments, over gRPC on real Postgres: the requested call never runs, and the approved one
//! runs once.

use callgate_core::policy::{self, Policy};
use callgate_proto::v1::{
    self, ApprovalState, Decision, approval_service_client::ApprovalServiceClient,
    audit_service_client::AuditServiceClient, session_service_client::SessionServiceClient,
};
use tonic::{Code, Request, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{
    approved::read_approver,
    common::{
        in_time,
        wire::{Client, Plane, call, caller, evaluate, from, question, record, success},
    },
    people::resolve,
};

const POLICY: &str = "policy_engine:
  authorization:
    tiers:
      - {name: pays, pattern: 'pay', action: hitl}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas:
    pay:
      effect: write
      risk_level: HIGH
      schema:
        type: object
        required: [to, amount]
        properties: {to: {type: string}, amount: {type: integer, minimum: 1}, password: {type: string}}
        additionalProperties: false
      conditions:
        - {when: 'args.amount > 1000', then: deny, message: 'More than 1,000 is never paid.'}
  validation: {coercion: repair}
";
const ASKED: &str = r#"{"to":"anna","amount":500}"#;
pub(crate) const CHOSEN: &str = r#"{"amount":50,"to":"anna"}"#;

fn rules() -> Policy {
    policy::compile(POLICY).unwrap_or_else(|errors| panic!("{errors:?}"))
}

pub(crate) async fn plane() -> Plane {
    Plane::start(&rules()).await
}

pub(crate) fn pay(session: &str, call_id: &str, arguments: &str) -> v1::EvaluateRequest {
    let caller = v1::Caller { agent_id: "robot".into(), ..caller(session) };
    v1::EvaluateRequest { caller: Some(caller), ..question(session, call(call_id, "pay", arguments)) }
}

pub(crate) async fn open_request(client: &mut Client, session: &str, call_id: &str) -> String {
    let verdict = evaluate(client, pay(session, call_id, ASKED)).await;
    assert_eq!(verdict.decision(), Decision::Ask, "{verdict:?}");
    verdict.approval_id
}

pub(crate) fn edit(id: &str, by: &str, arguments: &str) -> Request<v1::ResolveApprovalRequest> {
    let (approval_id, edited_arguments_json) = (id.to_owned(), arguments.to_owned());
    let reason = "less will do".to_owned();
    from(
        by,
        v1::ResolveApprovalRequest { approval_id, approve: true, reason, edited_arguments_json, ..Default::default() },
    )
}

fn resolve_as(by: &str, what: v1::ResolveApprovalRequest) -> Request<v1::ResolveApprovalRequest> {
    from(by, what)
}

pub(crate) async fn approvals(plane: &Plane) -> ApprovalServiceClient<Channel> {
    ApprovalServiceClient::new(plane.channel().await)
}

/// The requested call is refused, and the model gets the complete approved arguments.
fn is_refused(told: &v1::Verdict) {
    assert_eq!((told.decision(), told.reason.as_str()), (Decision::Deny, "approval_edited"), "{told:?}");
    assert!(told.permit.is_none() && told.is_error);
    assert_eq!(told.approved_arguments_json, CHOSEN);
    assert_eq!(told.approved_args_digest.len(), 64);
    let text: serde_json::Value = serde_json::from_str(&told.tool_result_json).expect("an object");
    assert_eq!(text["approved_arguments"], serde_json::from_str::<serde_json::Value>(CHOSEN).expect("JSON"));
    let message = text["message"].as_str().expect("a message");
    assert!(message.contains("less will do") && message.contains("exactly"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn original_call_never_runs_and_the_edited_one_runs_once() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, approvals(&plane).await);
    let id = open_request(&mut client, "s", "c1").await;
    let told = resolve(approvals.clone(), edit(&id, "eve", r#"{"to":"anna","amount":"50"}"#)).await.expect("an answer");
    assert_eq!((told.state(), told.resolved_by.as_str()), (ApprovalState::Edited, "eve"));
    assert_eq!(
        (told.arguments_json.as_str(), told.edited_arguments_json.as_str()),
        (r#"{"amount":500,"to":"anna"}"#, CHOSEN)
    );
    assert_eq!((told.scope(), told.edited_args_digest.len()), (v1::ApprovalScope::Unspecified, 64));
    assert!(told.edited_expire_time.is_some() && told.edited_args_digest != told.args_digest);
    // A retry of a client whose answer was stored and whose response was lost; others get the earlier answer.
    assert_eq!(resolve(approvals.clone(), edit(&id, "eve", CHOSEN)).await.as_ref(), Ok(&told));
    let answered = || Err((Code::FailedPrecondition, "APPROVAL_ANSWERED".to_owned()));
    assert_eq!(resolve(approvals.clone(), edit(&id, "eve", r#"{"to":"anna","amount":51}"#)).await, answered());
    assert_eq!(resolve(approvals.clone(), crate::people::answer(&id, "eve", true, "")).await, answered());
    let shown = approvals.get_approval(v1::GetApprovalRequest { approval_id: id.clone() }).await.expect("a question");
    assert_eq!(shown.into_inner().approval.as_ref(), Some(&told));
    let page = v1::ListApprovalsRequest { state: ApprovalState::Edited.into(), ..Default::default() };
    let listed = approvals.list_approvals(page).await.expect("a list").into_inner().approvals;
    assert_eq!(listed, std::slice::from_ref(&told));

    // Polled, under another id, in a batch, and at a replica that knows nothing but the rows.
    is_refused(&evaluate(&mut client, pay("s", "c1", ASKED)).await);
    is_refused(&evaluate(&mut client, pay("s", "c1", ASKED)).await);
    is_refused(&evaluate(&mut client, pay("s", "c2", ASKED)).await);
    let calls = ["c1", "c3"].map(|id| call(id, "pay", ASKED)).to_vec();
    let batch = v1::BatchEvaluateRequest { caller: pay("s", "c1", ASKED).caller, calls, ..Default::default() };
    let batch = client.batch_evaluate(batch).await.expect("verdicts").into_inner();
    assert_eq!(batch.verdicts.len(), 2);
    batch.verdicts.iter().for_each(is_refused);
    let mut other = Client::new(plane.postgres_gate(&rules()).await);
    is_refused(&evaluate(&mut other, pay("s", "c1", ASKED)).await);
    is_refused(&evaluate(&mut other, pay("s", "c4", ASKED)).await);

    // Other arguments, or another session, need other requests.
    for request in [pay("s", "c5", r#"{"to":"anna","amount":51}"#), pay("s2", "c1", CHOSEN)] {
        assert_eq!(evaluate(&mut client, request).await.decision(), Decision::Ask);
    }
    let ran = evaluate(&mut other, pay("s", "c6", CHOSEN)).await;
    assert_eq!(ran.decision(), Decision::Allow, "{ran:?}");
    record(&mut other, v1::RecordRequest { caller: pay("s", "c6", "").caller, ..failure_report("s", "c6") }).await;
    let mut third = Client::new(plane.postgres_gate(&rules()).await);
    for client in [&mut client, &mut other, &mut third] {
        is_refused(&evaluate(client, pay("s", "c1", ASKED)).await);
        let again = evaluate(client, v1::EvaluateRequest { dry_run: true, ..pay("s", "c7", CHOSEN) }).await;
        // It failed, which another rule has a word on; and a person is asked.
        assert_ne!(again.decision(), Decision::Allow, "it was good for one: {again:?}");
        let asks = |finding: &&v1::Finding| finding.rule == "tier" && finding.decision() == Decision::Ask;
        assert_eq!(again.findings.iter().filter(asks).count(), 1, "{again:?}");
    }
    let mut audit = AuditServiceClient::new(plane.channel().await);
    let page = v1::ListAuditEntriesRequest::default();
    let entries = audit.list_audit_entries(page).await.expect("entries").into_inner().entries;
    let what = format!(
        "approved {id} with other arguments, digest {} instead of {}",
        told.edited_args_digest, told.args_digest
    );
    assert_eq!(entries.iter().filter(|entry| entry.action.starts_with(&what)).count(), 1, "{entries:?}");
    assert!(!entries.iter().any(|entry| entry.action.contains("anna")), "no word of an argument: {entries:?}");
    let row = format!("select count(*) from approvals where status = 'edited' and edited_arguments = '{CHOSEN}'");
    assert_eq!(plane.postgres.number(&row).await, 1);
    // A build without edited answers reads a denial.
    let old = "select count(*) from session_event where kind = 'answered' and detail ->> 'approved' = 'false'";
    assert_eq!(plane.postgres.number(old).await, 1);
}

pub(crate) fn failure_report(session: &str, call_id: &str) -> v1::RecordRequest {
    let error = v1::ToolError { message: "connection refused".into(), ..Default::default() };
    v1::RecordRequest {
        status: v1::OutcomeStatus::Error.into(),
        error: Some(error),
        result: None,
        ..success(session, call_id, "")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_edit_is_reported_and_answers_nothing() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, approvals(&plane).await);
    let id = open_request(&mut client, "s", "c1").await;
    let wrong = edit(&id, "eve", r#"{"amount":"much","who":"bert"}"#);
    let status = approvals.resolve_approval(wrong).await.expect_err("it is wrong");
    assert_eq!(status.code(), Code::InvalidArgument);
    let fields = status.get_details_bad_request().expect("fields").field_violations;
    let named: Vec<&str> = fields.iter().map(|field| field.field.as_str()).collect();
    for field in ["edited_arguments_json.amount", "edited_arguments_json.who", "edited_arguments_json.to"] {
        assert!(named.contains(&field), "{named:?}");
    }
    // In the words that a model gets.
    let model = evaluate(&mut client, pay("other", "c1", r#"{"amount":"much","who":"bert"}"#)).await;
    for field in &fields {
        let told: serde_json::Value = field.description.as_str().into();
        assert!(model.tool_result_json.contains(&told.to_string()), "{field:?}: {}", model.tool_result_json);
    }
    let refused = |code, reason: &str| Err((code, reason.to_owned()));
    let (invalid, failed) = (Code::InvalidArgument, Code::FailedPrecondition);
    let much = edit(&id, "eve", r#"{"to":"anna","amount":5000}"#);
    assert_eq!(resolve(approvals.clone(), much).await, refused(failed, "EDIT_REFUSED"));
    let much = edit(&id, "eve", r#"{"to":"anna","amount":5000}"#);
    let why = approvals.resolve_approval(much).await.expect_err("it is too much");
    assert!(why.message().contains("More than 1,000 is never paid."), "{}", why.message());
    for secret in [r#"{"to":"anna","amount":5,"password":"hunter2"}"#, r#"{"to":"[redacted]","amount":5}"#] {
        let mark = callgate_core::domain::redaction::REDACTED;
        let secret = edit(&id, "eve", &secret.replace("[redacted]", mark));
        assert_eq!(resolve(approvals.clone(), secret).await, refused(failed, "EDIT_NOT_STORED"));
    }
    for bad in ["no JSON", "[1]", r#"{"a":1,"a":2}"#] {
        assert_eq!(resolve(approvals.clone(), edit(&id, "eve", bad)).await, refused(invalid, "INVALID_FIELD"));
    }
    let plain = |what: v1::ResolveApprovalRequest| {
        resolve_as("eve", v1::ResolveApprovalRequest { approval_id: id.clone(), ..what })
    };
    let edited = || edit(&id, "eve", CHOSEN).into_inner();
    for bad in [
        v1::ResolveApprovalRequest { approve: false, ..edited() },
        v1::ResolveApprovalRequest { scope: v1::ApprovalScope::Tool.into(), ..edited() },
        v1::ResolveApprovalRequest { edited_args_digest: "00".into(), ..edited() },
        v1::ResolveApprovalRequest { approve: true, validate_only: true, ..Default::default() },
    ] {
        assert_eq!(resolve(approvals.clone(), plain(bad)).await, refused(invalid, "INVALID_FIELD"));
    }
    // A validation answers nothing; the validated arguments are those approved.
    let look = v1::ResolveApprovalRequest { validate_only: true, ..edited() };
    let seen = resolve(approvals.clone(), plain(look)).await.expect("a look");
    assert_eq!((seen.state(), seen.edited_arguments_json.as_str()), (ApprovalState::Pending, CHOSEN));
    let other = v1::ResolveApprovalRequest { edited_args_digest: "00".repeat(32), ..edited() };
    assert_eq!(resolve(approvals.clone(), plain(other)).await, refused(failed, "EDIT_REFUSED"));
    assert_eq!(plane.postgres.number("select count(*) from session_event").await, 0);
    assert_eq!(evaluate(&mut client, pay("s", "c1", ASKED)).await.decision(), Decision::Ask);
    let same = v1::ResolveApprovalRequest { edited_args_digest: seen.edited_args_digest, ..edited() };
    let told = resolve(approvals.clone(), plain(same)).await.expect("an answer");
    assert_eq!(told.state(), ApprovalState::Edited);

    // The very arguments that were asked about are a plain yes.
    let id = open_request(&mut client, "s3", "c1").await;
    let told = resolve(approvals, edit(&id, "eve", ASKED)).await.expect("an answer");
    assert_eq!((told.state(), told.edited_args_digest.as_str()), (ApprovalState::Approved, ""));
    assert_eq!(evaluate(&mut client, pay("s3", "c1", ASKED)).await.decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_people_approve_the_very_same_arguments() {
    let routes = "policy_engine:\n  approvals: {routes: [{tools: 'pay', required_approvals: 2}]}\n";
    let rules = policy::compile(&POLICY.replacen("policy_engine:\n", routes, 1)).expect("a good policy");
    let plane = Plane::start(&rules).await;
    let (mut client, approvals) = (plane.client().await, approvals(&plane).await);
    let id = open_request(&mut client, "s", "c1").await;
    let first = resolve(approvals.clone(), edit(&id, "eve", CHOSEN)).await.expect("the first yes");
    assert_eq!((first.state(), first.approved_by.as_slice()), (ApprovalState::Pending, ["eve".to_owned()].as_slice()));
    assert_eq!(first.edited_arguments_json, CHOSEN, "the other one sees what it is to");
    assert_eq!(resolve(approvals.clone(), edit(&id, "eve", CHOSEN)).await.as_ref(), Ok(&first), "sent again");
    let otherwise = || Err((Code::FailedPrecondition, "OTHER_ARGUMENTS".to_owned()));
    let plain = |by: &str| crate::people::answer(&id, by, true, "");
    let less = r#"{"to":"anna","amount":49}"#;
    for (gate, by) in [(&plane, "max"), (&plane, "eve")] {
        let approvals = self::approvals(gate).await;
        assert_eq!(resolve(approvals.clone(), plain(by)).await, otherwise(), "{by}");
        assert_eq!(resolve(approvals.clone(), edit(&id, by, less)).await, otherwise(), "{by}");
    }
    for arguments in [ASKED, CHOSEN] {
        let request = v1::EvaluateRequest { dry_run: true, ..pay("s", "c2", arguments) };
        assert_eq!(evaluate(&mut client, request).await.decision(), Decision::Ask, "one yes is none: {arguments}");
    }
    // A build that knows of no edited answers does not count it.
    let old = "select count(*) from session_event where kind = 'seconded' and detail ->> 'approval_id' = ''";
    assert_eq!(plane.postgres.number(old).await, 1);
    let mut other = Client::new(plane.postgres_gate(&rules).await);
    assert_eq!(evaluate(&mut other, pay("s", "c1", ASKED)).await.decision(), Decision::Ask);
    let second = resolve(approvals.clone(), edit(&id, "max", CHOSEN)).await.expect("the second yes");
    assert_eq!((second.state(), second.resolved_by.as_str()), (ApprovalState::Edited, "max"));
    is_refused(&evaluate(&mut other, pay("s", "c1", ASKED)).await);
    assert_eq!(evaluate(&mut other, pay("s", "c3", CHOSEN)).await.decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edit_and_another_answer_at_once_have_one_winner() {
    let plane = plane().await;
    let (mut client, approvals) = (plane.client().await, approvals(&plane).await);
    for n in 0..12 {
        let session = format!("s{n}");
        let id = open_request(&mut client, &session, "c1").await;
        let approve = n % 2 == 0;
        let (edited, plain) = tokio::join!(
            resolve(approvals.clone(), edit(&id, "eve", CHOSEN)),
            resolve(approvals.clone(), crate::people::answer(&id, "max", approve, "seen"))
        );
        let verdict = evaluate(&mut client, pay(&session, "c1", ASKED)).await;
        let chosen = evaluate(&mut client, pay(&session, "c2", CHOSEN)).await.decision();
        let lost = |lost: Result<v1::Approval, (Code, String)>| lost.expect_err("one is first").1;
        if edited.is_ok() {
            assert_eq!(lost(plain), "APPROVAL_ANSWERED");
            is_refused(&verdict);
            assert_eq!(chosen, Decision::Allow);
        } else {
            plain.expect("one is first");
            assert_eq!(lost(edited), "APPROVAL_ANSWERED");
            assert_eq!(verdict.decision(), if approve { Decision::Allow } else { Decision::Deny });
            assert_eq!(chosen, Decision::Ask);
        }
    }
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'answered'").await, 12);
}

/// In every mode of the rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn original_call_does_not_run_in_shadow_mode_either() {
    let plane = plane().await;
    let (mut client, approvals) = (plane.client().await, approvals(&plane).await);
    let id = open_request(&mut client, "s", "c1").await;
    resolve(approvals, edit(&id, "eve", CHOSEN)).await.expect("an answer");
    for mode in ["policy_engine:\n  mode: shadow\n", "policy_engine:\n  rules: {same_call: {mode: 'off'}}\n"] {
        let watching = policy::compile(&POLICY.replacen("policy_engine:\n", mode, 1));
        let watching = watching.unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut other = Client::new(plane.postgres_gate(&watching).await);
        let request = v1::EvaluateRequest { dry_run: true, ..pay("s", "c1", ASKED) };
        is_refused(&evaluate(&mut other, request).await);
    }
    in_time("a poll", async { is_refused(&evaluate(&mut client, pay("s", "c1", ASKED)).await) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_a_prompt_of_the_host_may_approve_is_not_edited() {
    let text = POLICY.replace("action: hitl}", "action: hitl, approver: host}");
    let plane = Plane::start(&policy::compile(&text).expect("a good policy")).await;
    let id = open_request(&mut plane.client().await, "s", "c1").await;
    let refused = resolve(approvals(&plane).await, edit(&id, "eve", CHOSEN)).await;
    assert_eq!(refused, Err((Code::FailedPrecondition, "EDIT_REFUSED".to_owned())));
    assert_eq!(plane.postgres.number("select count(*) from session_event").await, 0);
}

pub(crate) async fn chosen_by(plane: &Plane, session: &str, call_id: &str) -> String {
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let asked = v1::GetCallRequest { session_id: session.into(), call_id: call_id.into(), include_rows: false };
    sessions.get_call(asked).await.expect("a call").into_inner().chosen_by_approval_id
}

async fn ran(approvals: &mut ApprovalServiceClient<Channel>, id: &str) -> String {
    let found = approvals.get_approval(v1::GetApprovalRequest { approval_id: id.into() }).await.expect("a question");
    found.into_inner().approval.expect("a question").ran_call_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_and_the_call_that_ran_instead_lead_to_each_other() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, approvals(&plane).await);
    // The same words in another session are another yes.
    for session in ["s", "other"] {
        let id = open_request(&mut client, session, "c1").await;
        assert_eq!(ran(&mut approvals, &id).await, "", "nobody has answered");
        resolve(approvals.clone(), edit(&id, "eve", CHOSEN)).await.expect("an answer");
        assert_eq!(ran(&mut approvals, &id).await, "", "nothing ran yet");
        is_refused(&evaluate(&mut client, pay(session, "c1", ASKED)).await);
        let call_id = format!("ran-in-{session}");
        assert_eq!(evaluate(&mut client, pay(session, &call_id, CHOSEN)).await.decision(), Decision::Allow);
        assert_eq!(ran(&mut approvals, &id).await, call_id);
        assert_eq!(chosen_by(&plane, session, &call_id).await, id);
        assert_eq!(chosen_by(&plane, session, "c1").await, "", "it never ran");
        assert_eq!(
            read_approver(&plane, session, &call_id).await,
            ("(eve)".into(), true, "tier pays: hitl; eve approved it".into())
        );
        let (by, is_approved, _) = read_approver(&plane, session, "c1").await;
        assert_eq!((by.as_str(), is_approved), ("()", false));
    }
    // A plain approval ran by its own request.
    let id = open_request(&mut client, "plain", "c1").await;
    resolve(approvals.clone(), crate::people::answer(&id, "eve", true, "")).await.expect("an answer");
    assert_eq!(evaluate(&mut client, pay("plain", "c1", ASKED)).await.decision(), Decision::Allow);
    assert_eq!((ran(&mut approvals, &id).await, chosen_by(&plane, "plain", "c1").await), Default::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_yes_that_has_expired_lets_nothing_through() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, approvals(&plane).await);
    let id = open_request(&mut client, "s", "c1").await;
    resolve(approvals.clone(), edit(&id, "eve", CHOSEN)).await.expect("an answer");
    let late = "update session_event set detail = jsonb_set(detail, '{edit,until_ms}', '1000')
                where kind = 'answered' and detail -> 'edit' is not null";
    assert_eq!(plane.postgres.tamper(late).await, 1);
    // A replica with the rows alone: the same call needs another request, and the requested one does not run either.
    let mut other = Client::new(plane.postgres_gate(&rules()).await);
    let again = evaluate(&mut other, pay("s", "c2", CHOSEN)).await;
    assert_eq!(again.decision(), Decision::Ask, "{again:?}");
    assert_ne!(again.approval_id, id);
    is_refused(&evaluate(&mut other, pay("s", "c1", ASKED)).await);
    let yes = crate::people::answer(&again.approval_id, "fay", true, "");
    let mut answers = ApprovalServiceClient::new(plane.channel().await);
    assert!(resolve(answers.clone(), yes).await.is_ok());
    assert_eq!(evaluate(&mut other, pay("s", "c2", CHOSEN)).await.decision(), Decision::Allow);
    assert_eq!(ran(&mut answers, &id).await, "", "it ran by a question of its own");
    assert_eq!(chosen_by(&plane, "s", "c2").await, "");
    assert_eq!(
        read_approver(&plane, "s", "c2").await,
        ("(fay)".into(), true, "tier pays: hitl; fay approved it".into())
    );
    assert_eq!(ran(&mut approvals, &again.approval_id).await, "");
}
