//! Operator commands on a running server: search, policy trials, answers, halts.

mod figures;
mod log;
mod recorded;

use callgate_core::policy;
use callgate_proto::v1::{self, Decision};

use crate::{
    common::{
        until,
        wire::{Client, call, evaluate, question, record, success},
        within,
    },
    server::{Home, Server, path, ran},
};

/// Guaranteed propagation time of a halt.
const HALTS: std::time::Duration = std::time::Duration::from_secs(2);

const POLICY: &str = "policy_engine:
  authorization:
    tiers:
      - {name: reads, pattern: 'get_*', action: allowlist}
      - {name: writes, pattern: 'create_*', action: per_conversation_grant, explicit: true}
      - {name: drops, pattern: 'delete_*', action: hitl, require_reason: true}
  tool_schemas:
    get_order: {effect: read, side_effect_resource: 'order/{id}'}
    delete_order: {effect: write, side_effect_resource: 'order/{id}', second_change: allow}
    create_order: {effect: write, second_change: allow}
  rules: {churn: {mode: 'off'}, cycle: {mode: shadow}}
";

/// A server, an agent that calls, and a terminal.
struct Desk {
    agent: Client,
    url: String,
    // Before the home, which waits for the end of its database.
    server: Server,
    home: Home,
}

impl Desk {
    async fn open(policy: Option<&str>) -> Self {
        let home = Home::with_cluster().await;
        let file = policy.map(|text| home.file("policy.yaml", text));
        let args: Vec<&str> = file.iter().flat_map(|file| ["--policy", path(file)]).collect();
        let server = Server::start(&home, &args);
        Self { agent: server.client().await, url: format!("http://{}", server.address), server, home }
    }

    /// Runs a command; returns its exit code and output.
    async fn types(&self, line: &str) -> (Option<i32>, String) {
        self.types_words(&line.split(' ').collect::<Vec<_>>()).await
    }

    async fn types_words(&self, words: &[&str]) -> (Option<i32>, String) {
        let (code, said, error) = ran(&[words, &["--server", &self.url]].concat()).await;
        (code, format!("{said}{error}"))
    }

    /// Runs a command that should succeed; returns its output.
    #[track_caller]
    fn does(&self, line: &str) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let (code, said) = self.types(line).await;
            assert_eq!(code, Some(0), "{line} at {caller} said {said}");
            said
        }
    }

    /// An agent requests a call, with a justification.
    async fn asks(&mut self, session: &str, call_id: &str, tool: &str, arguments: &str) -> v1::Verdict {
        let call = v1::ToolCall { justification: "the user said so".into(), ..call(call_id, tool, arguments) };
        evaluate(&mut self.agent, question(session, call)).await
    }

    /// A permitted, successful call.
    async fn calls(&mut self, session: &str, call_id: &str, tool: &str, arguments: &str, result: &str) {
        let verdict = self.asks(session, call_id, tool, arguments).await;
        assert_eq!(verdict.decision(), Decision::Allow, "{verdict:?}");
        record(&mut self.agent, success(session, call_id, result)).await;
    }
}

#[track_caller]
fn says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_listed_and_approved_once_and_the_call_runs() {
    let mut desk = Desk::open(Some(POLICY)).await;
    assert_eq!(desk.does("approvals list").await, "No approval requests are open.\n");
    let asked = desk.asks("s1", "c1", "delete_order", r#"{"id":3}"#).await;
    assert_eq!(asked.decision(), Decision::Ask, "{asked:?}");
    let id = asked.approval_id;
    let said = desk.does("approvals list").await;
    says(&said, &[&format!("{id}  open"), r#"delete_order {"id":3}  (s1)"#]);
    let said = desk.does(&format!("approvals show {id}")).await;
    says(
        &said,
        &["call       c1 of session s1", "purpose    the user said so", "rule       delete_order needs a person's"],
    );

    let (code, said) = desk.types(&format!("approvals approve {id} --by s1")).await;
    assert_eq!(code, Some(1), "the session approves itself: {said}");
    let said = desk.does(&format!("approvals approve {id} --by eve")).await;
    says(&said, &[&format!("{id}  approved")]);
    let (code, said) = desk.types(&format!("approvals deny {id} --by bob --reason no")).await;
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said, "callgate: eve approved it before; the first answer stays [APPROVAL_ANSWERED]\n");
    assert_eq!(desk.does("approvals list").await, "No approval requests are open.\n");
    says(&desk.does("approvals list --all").await, &[&format!("{id}  approved")]);
    says(&desk.does(&format!("approvals show {id}")).await, &["by eve"]);

    desk.calls("s1", "c1", "delete_order", r#"{"id":3}"#, "gone").await;
    let said = desk.does("explain c1").await;
    says(&said, &["ALLOW delete_order c1", &format!("approval   {id} approved "), "by eve"]);
    says(&said, &["tier drops: hitl; eve approved it", "outcome    success"]);
    let (code, said) = desk.types(&format!("approvals approve {id} --by bob")).await;
    assert_eq!(code, Some(1), "the approval is used up: {said}");
    says(&said, &["eve approved it before"]);
    let (code, said) = desk.types("approvals show apr_0").await;
    assert_eq!((code, said.as_str()), (Some(1), "callgate: no such approval [APPROVAL_UNKNOWN]\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_withdrawn_by_who_asked_it() {
    let mut desk = Desk::open(Some(POLICY)).await;
    let id = desk.asks("s1", "c1", "delete_order", r#"{"id":3}"#).await.approval_id;
    let (code, said) = desk.types(&format!("approvals withdraw {id} --by eve")).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["only the call tree that made the request", "[NOT_THE_REQUESTER]"]);
    says(&desk.does(&format!("approvals withdraw {id} --by s1")).await, &[&format!("{id}  withdrawn")]);
    says(&desk.does(&format!("approvals show {id}")).await, &["withdrawn  20", "by s1"]);
    let (code, said) = desk.types(&format!("approvals approve {id} --by eve")).await;
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said, "callgate: s1 withdrew the request: its call does not run [APPROVAL_WITHDRAWN]\n");
    let told = desk.asks("s1", "c1", "delete_order", r#"{"id":3}"#).await;
    assert_eq!((told.decision(), told.reason.as_str()), (Decision::Deny, "approval_withdrawn"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_needs_a_reason_and_the_model_is_told_it() {
    let mut desk = Desk::open(Some(POLICY)).await;
    let id = desk.asks("s1", "c1", "delete_order", r#"{"id":4}"#).await.approval_id;
    let (code, said) = desk.types(&format!("approvals deny {id} --by eve")).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["Add --reason TEXT"]);
    let words = ["approvals", "deny", &id, "--by", "eve", "--reason", "order 4 is shipped"];
    let (code, said) = desk.types_words(&words).await;
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["denied"]);
    let refused = desk.asks("s1", "c1", "delete_order", r#"{"id":4}"#).await;
    assert_eq!((refused.decision(), refused.reason.as_str()), (Decision::Deny, "approval_denied"));
    says(&refused.tool_result_json, &["order 4 is shipped"]);
    says(&desk.does("explain c1").await, &[&format!("approval   {id} denied "), "by eve: order 4 is shipped"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_halted_session_is_refused_with_its_reason_until_it_is_resumed() {
    let mut desk = Desk::open(Some(POLICY)).await;
    assert_eq!(desk.does("sessions list").await, "No sessions have calls yet.\n");
    desk.calls("s1", "c0", "get_order", r#"{"id":0}"#, "open").await;
    let said = desk.does("sessions halt session s1 --by eve --reason drill").await;
    says(&said, &["halted: session s1, since ", " by eve: drill"]);
    let mut n = 0;
    let refused = until("the refusal", async || {
        n += 1;
        let verdict = desk.asks("s1", &format!("h{n}"), "get_order", &format!(r#"{{"id":{n}}}"#)).await;
        verdict.decision() == Decision::Stop && verdict.tool_result_json.contains("by an operator: drill.")
    });
    within(HALTS, "the halt", refused).await;
    desk.calls("s2", "c0", "get_order", r#"{"id":0}"#, "open").await;

    let said = desk.does("sessions list").await;
    let of = |session: &str| said.lines().find(|line| line.contains(&format!("Z  {session} "))).expect("listed");
    assert!(of("s1").ends_with("halted") && !of("s2").contains("halted"), "{said}");
    says(&said, &["halted: session s1, since "]);
    says(&desk.does("sessions show s1").await, &["halted: session s1, since ", "- {id: 0}: \"open\""]);
    says(&desk.does("sessions halt session s1 --by bob").await, &["halted before: session s1, ", "by eve: drill"]);
    says(&desk.does("sessions halt session s7 --by bob").await, &["note: session s7 has no calls yet"]);

    assert_eq!(desk.does("sessions resume session s1 --by eve").await, "session s1 is resumed\n");
    desk.calls("s1", "c1", "get_order", r#"{"id":1}"#, "open").await;
    assert_eq!(desk.does("sessions resume session s1 --by eve").await, "session s1 was not halted\n");
    let said = desk.does("audit list").await;
    says(&said, &["resumed           session s1  session s1  by eve", "session s1  by eve: drill"]);
    let said = desk.does("audit verify").await;
    says(&said, &["The audit chain is intact.", "note: store the anchor"]);
    let (code, said) = desk.types(&format!("audit verify --anchor 9:{}", "0".repeat(64))).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["entry 9 is missing, and an anchor was taken of it"]);
    let (code, said) = desk.types("sessions halt session").await;
    assert_eq!(code, Some(2), "{said}");
    says(&said, &["<NAME>"]);
    let (code, said) = desk.types("sessions show s9").await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["no session has this id: none of its calls was evaluated"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_needs_a_grant_runs_as_often_as_was_granted() {
    let mut desk = Desk::open(Some(POLICY)).await;
    let create = |n: u64| (format!("c{n}"), format!(r#"{{"n":{n}}}"#));
    let (id, arguments) = create(0);
    assert_eq!(desk.asks("s1", &id, "create_order", &arguments).await.reason, "grant_exceeded");
    assert_eq!(desk.does("grants list s1").await, "No grants are open.\n");
    let said = desk.does("grants create s1 create_* 1 --by eve --reason trusted").await;
    says(&said, &[": 1 calls of create_* for session s1, until "]);
    let first = said.split(':').next().expect("an id").to_owned();
    let (id, arguments) = create(1);
    desk.calls("s1", &id, "create_order", &arguments, "made").await;
    let (id, arguments) = create(2);
    assert_eq!(desk.asks("s1", &id, "create_order", &arguments).await.reason, "grant_exceeded");
    assert_eq!(desk.asks("s2", &id, "create_order", &arguments).await.reason, "grant_exceeded", "it was s1's");
    says(&desk.does("grants list s1").await, &[&format!("{first}  create_*  1 of 1 used, until ")]);

    let said = desk.does("grants create s1 create_* 5 --by eve").await;
    let second = said.split(':').next().expect("an id").to_owned();
    let said = desk.does(&format!("grants revoke s1 {second} --by eve")).await;
    assert_eq!(said, format!("{second} is revoked\n"));
    let (id, arguments) = create(3);
    assert_eq!(desk.asks("s1", &id, "create_order", &arguments).await.reason, "grant_exceeded");
    let (code, said) = desk.types(&format!("grants revoke s1 {second} --by eve")).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["no such grant in this session's call tree"]);
    assert!(!desk.does("grants list s1").await.contains(&second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activated_policy_judges_the_next_call_and_a_rollback_takes_it_back() {
    let mut desk = Desk::open(None).await;
    says(&desk.does("policy list").await, &["No policy was applied yet: the built-in one is active"]);
    for (line, why) in [
        ("policy rollback", "no other policy was active before this one: apply another file instead"),
        ("policy activate 12345678", "no stored policy has a hash that begins with 12345678, or more than one has"),
        ("policy show", "the built-in one is active, which has no text"),
        ("sessions phase s1 ACT", "There is no phase ACT: the policy has no phases. [PHASE_FORBIDDEN]"),
    ] {
        let (code, said) = desk.types(line).await;
        assert_eq!(code, Some(1), "{line} said {said}");
        says(&said, &[why]);
    }
    let open = "policy_engine: {unknown_tools: allow}\n";
    let (first, second) = (desk.home.file("first.yaml", POLICY), desk.home.file("second.yaml", open));
    let hash = policy::hash(open);
    says(&desk.does(&format!("policy apply {} --by olga", path(&first))).await, &["revision 1 is active: "]);
    let said = desk.does(&format!("policy apply {} --by olga --store-only", path(&second))).await;
    assert_eq!(said, format!("stored: {}\n", &hash[..16]));
    assert_eq!(desk.asks("s1", "c1", "drop", "{}").await.decision(), Decision::Deny);
    assert_eq!(desk.does(&format!("policy show {}", &hash[..8])).await, open);

    let said = desk.does(&format!("policy activate {} --by otto --note quick", &hash[..8])).await;
    says(&said, &["revision 2 is active: ", "by otto"]);
    assert_eq!(desk.asks("s1", "c2", "drop", "{}").await.decision(), Decision::Allow);
    says(&desk.does("policy rollback --by olga").await, &["revision 3 is active: ", &policy::hash(POLICY)[..16]]);
    assert_eq!(desk.asks("s1", "c3", "drop", r#"{"n":3}"#).await.decision(), Decision::Deny);
    assert_eq!(desk.does("policy show").await, POLICY);
    let said = desk.does("policy list").await;
    let lines: Vec<&str> = said.lines().collect();
    let [third, second, _] = lines[..] else { panic!("{said}") };
    says(third, &["    3  ", "  active  olga"]);
    says(second, &["    2  ", &hash[..16], "otto  quick"]);
}
