//! Commands on recorded calls: explanations, policy trials, and suggestions.

use callgate_core::{domain::tool::ToolSpec, policy, rules::RULES};
use callgate_proto::v1::{self, Decision};

use super::{Desk, POLICY, says};
use crate::{
    common::{
        in_time,
        wire::{call, caller, evaluate, question},
    },
    server::{path, ran},
};

/// Sessions that are recorded: as many as a proposed limit takes.
const SESSIONS: u64 = 20;

const LENIENT: &str = "policy_engine: {unknown_tools: allow}\n";
const STRICT: &str = "policy_engine:
  unknown_tools: allow
  authorization:
    tiers:
      - {name: edits, pattern: edit, action: hitl}
      - {name: drops, pattern: drop, action: deny}
      - {name: others, pattern: '*', action: allowlist}
  tool_schemas:
    look: {effect: read, side_effect_resource: page}
    edit: {effect: write, side_effect_resource: page}
    drop: {effect: write, side_effect_resource: page}
";

/// Sessions that read, edit, and read the same twice.
async fn sees_edits(desk: &mut Desk) {
    for n in 0..SESSIONS {
        let session = format!("s{n}");
        for (call_id, tool, result) in
            [("1", "look", "old"), ("2", "edit", "done"), ("3", "look", "new"), ("4", "look", "new")]
        {
            desk.calls(&session, call_id, tool, "{}", result).await;
        }
    }
    desk.calls("s0", "5", "drop", "{}", "gone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_rule_that_fired_and_those_that_did_not() {
    let mut desk = Desk::open(Some(POLICY)).await;
    desk.calls("s1", "c1", "get_order", r#"{"id":1}"#, "open").await;
    assert_eq!(desk.asks("s1", "c2", "get_order", r#"{"id":1}"#).await.decision(), Decision::Reuse);
    let said = desk.does("explain c2").await;
    let version = &policy::hash(POLICY)[..16];
    says(&said, &["REUSE get_order c2 of session s1", version, "duplicate_call_blocked", "declared, read on order/1"]);
    says(&said, &["before     c1, asked for ", " earlier: it had succeeded"]);
    let (_, rules) = said.split_once("rules, in order\n").expect("the rules");
    assert_eq!(rules.lines().count(), RULES.len(), "{said}");
    for (rule, line) in RULES.iter().map(|rule| rule.id).zip(rules.lines()) {
        let words = line.trim().strip_prefix(rule).unwrap_or_else(|| panic!("{rule} is not in {line}")).trim();
        match rule {
            "halted" => assert_eq!(words, "nothing that it belongs to was halted"),
            "tamper_protection" => assert_eq!(words, "no preset asks for it"),
            "unknown_tool" => assert_eq!(words, "get_order is declared"),
            "schema" => assert_eq!(words, "no schema is declared for this tool"),
            "phase" => assert_eq!(words, "no phases in the policy"),
            "requires" => assert_eq!(words, "requires nothing"),
            "same_call" => says(words, &["REUSE duplicate_call_blocked: get_order was not run: this exact call"]),
            "same_success" => assert_eq!(words, "left alone, as a declared read"),
            "poll" => assert_eq!(words, "not declared as a poll"),
            "churn" => assert_eq!(words, "off"),
            "cycle" => says(words, &["nothing to say; it warns from ", " on (shadowed)"]),
            "after_compaction" => assert_eq!(words, "nothing to say; it refuses from 3 on"),
            "side_effects" => assert_eq!(words, "no declared write of a named thing"),
            "tool_circuit_breaker" => assert_eq!(words, "the circuit breaker of get_order let it through"),
            "bulkhead" => assert_eq!(words, "no limit of calls in flight"),
            "growth" => assert_eq!(words, "below 20 calls a second and 5.0M tokens a minute"),
            "budget" => assert_eq!(words, "nearest before it: 1 of 1000 steps in this run"),
            "tier" => assert_eq!(words, "tier reads: allowlist"),
            _ => says(words, &["nothing to say; it warns from "]),
        }
    }
    let said = desk.does("explain c1").await;
    says(&said, &["ALLOW get_order c1", "the same call was not made in this call tree", "it is the first of its run"]);
    says(&said, &["same_call              not made before in this call tree"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_finds_a_call_by_its_id_alone_and_shows_it_in_its_tree() {
    let mut desk = Desk::open(Some(POLICY)).await;
    desk.calls("s1", "c1", "get_order", r#"{"id":1}"#, "open").await;
    let helper = v1::Caller { parent_session_id: "s1".into(), ..caller("helper") };
    let again =
        v1::EvaluateRequest { caller: Some(helper), ..question("helper", call("h1", "get_order", r#"{"id":3}"#)) };
    assert_eq!(evaluate(&mut desk.agent, again).await.decision(), Decision::Allow);
    says(&desk.does("explain h1").await, &["ALLOW get_order h1 of session helper"]);
    desk.asks("s1", "again", "get_order", r#"{"id":1}"#).await;
    let said = desk.does("explain again").await;
    says(&said, &["REUSE get_order again of session s1", "before     c1, asked for "]);

    desk.asks("s1", "c2", "get_order", r#"{"id":1}"#).await;
    let (code, said) = desk.types("explain c9").await;
    assert_eq!((code, said.as_str()), (Some(1), "callgate: no stored call has the id c9\n"));
    desk.calls("s2", "c2", "get_order", r#"{"id":2}"#, "open").await;
    let (code, said) = desk.types("explain c2").await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["--session: s1, s2"]);
    says(&desk.does("explain c2 --session s2").await, &["ALLOW get_order c2 of session s2"]);
    let (code, said) = desk.types("explain c2 --session helper").await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["no stored call of session helper has the id c2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backtest_tells_what_a_stricter_policy_would_change_and_what_that_would_cost() {
    let mut desk = Desk::open(Some(LENIENT)).await;
    let strict = desk.home.file("strict.yaml", STRICT);
    let same = desk.home.file("same.yaml", &format!("# why\n{LENIENT}"));
    let (strict, same) = (path(&strict).to_owned(), path(&same).to_owned());
    let said = desk.does(&format!("policy backtest {strict} --since 1h")).await;
    says(&said, &["There are no calls to test it on."]);
    sees_edits(&mut desk).await;

    let said = desk.does(&format!("policy backtest {strict} --since 1h --examples 1")).await;
    let lines: Vec<String> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "20 newly asked tier edit",
        "20 newly refused same_call look",
        "1 newly refused tier drop",
        "s0 5: ALLOW -> DENY: drop was not run: the policy does not allow it. Use another tool, or tell the user.",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected} is missing in\n{said}");
    }
    says(&said, &["81 calls of 20 sessions", "Of 21 newly refused calls, 1 had succeeded with a new result: check"]);
    says(&said, &["There would be 20 more approval requests"]);
    for policy in [&same, path(&desk.home.file("again.yaml", LENIENT))] {
        let said = desk.does(&format!("policy backtest {policy} --since 1h")).await;
        says(&said, &["81 calls of 20 sessions", "No decision would change."]);
    }

    let (code, said) = desk.types(&format!("policy backtest {strict}")).await;
    assert_eq!(code, Some(2), "{said}");
    says(&said, &["--since <TIME>|TRACE"]);

    let mut database = desk.home.connect().await;
    for foreign in [
        "insert into policy (tenant_id, hash, text, applied_by, note)
           select tenant_id, repeat('f', 64), 'policy_engine: {of_another_version: 1}', 'eve', '' from policy",
        "insert into policy_activation (tenant_id, revision, hash, activated_by, note)
           select tenant_id, max(revision) + 1, repeat('f', 64), 'eve', '' from policy_activation group by tenant_id",
    ] {
        sqlx::query(foreign).execute(&mut database).await.expect("a policy that nobody here can read");
    }
    let (code, said) = desk.types(&format!("policy backtest {strict} --since 1h")).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["this build cannot read the active policy ffffffffffffffff", "of_another_version"]);
    says(&desk.does(&format!("policy backtest {strict} --since 1h --against {same}")).await, &["81 calls"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_tried_on_a_session_that_was_refused_hundreds_of_times() {
    let mut desk = Desk::open(Some(STRICT)).await;
    let calls = (0..320).map(|n| call(&n.to_string(), "drop", &format!(r#"{{"n":{n}}}"#)));
    for turn in calls.collect::<Vec<_>>().chunks(64) {
        let request =
            v1::BatchEvaluateRequest { caller: Some(caller("s")), calls: turn.to_vec(), ..Default::default() };
        let verdicts = in_time("answers", desk.agent.batch_evaluate(request)).await.expect("answers").into_inner();
        assert!(verdicts.verdicts.iter().all(|verdict| verdict.decision() != Decision::Allow));
    }
    let lenient = desk.home.file("lenient.yaml", LENIENT);
    let said = desk.does(&format!("policy backtest {} --since 1h", path(&lenient))).await;
    says(&said, &["320 calls of 1 sessions", "newly allowed      tier             drop"]);
    let test = format!("policy test {} --since 1h --inject-duplicates", path(&lenient));
    let (code, said) = desk.types(&test).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["Nothing was tested: no recorded call succeeded"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suggest_proposes_what_was_seen_and_a_proposal_that_is_agreed_with_holds() {
    let mut desk = Desk::open(Some(LENIENT)).await;
    sees_edits(&mut desk).await;
    let said = desk.does("policy suggest --since 1h").await;
    says(&said, &["# Proposed from 81 recorded calls of 20 sessions."]);
    let effect =
        "# effect: write  # proposed: look: 20 repetitions, changed 0 times unless edit ran between: then 20 of 20";
    says(&said, &["    \"edit\":\n      # 20 calls, 0 failed", effect]);
    says(&said, &["# 60 calls, 0 failed; 40 repetitions, 20 of them with another result"]);
    let as_it_is = policy::compile(&said).unwrap_or_else(|errors| panic!("{errors:?}\n{said}"));
    assert!(as_it_is.tools().all(|(_, spec)| *spec == ToolSpec::default()), "{said}");

    let agreed = desk.home.file("agreed.yaml", &said.replace("# effect: write", "effect: write"));
    let (code, said, _) = ran(&["policy", "check", path(&agreed)]).await;
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["good, ", "1 write tool,", "2 tools without an effect"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubles_of_what_was_recorded_are_refused_by_a_policy_that_declares_the_tools() {
    let mut desk = Desk::open(Some(LENIENT)).await;
    sees_edits(&mut desk).await;
    let strict = desk.home.file("strict.yaml", STRICT);
    let test = format!("policy test {} --since 1h", path(&strict));
    let said = desk.does(&format!("{test} --inject-duplicates")).await;
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    for expected in [["1", "1", "drop"], ["20", "20", "edit"], ["60", "60", "look"]] {
        assert!(lines.iter().any(|line| line == &expected), "{expected:?} is missing in\n{said}");
    }
    says(&said, &["81 of 81 duplicates are refused"]);
    let report = desk.home.file("policy.xml", "");
    let said = desk.does(&format!("{test} --coverage --fail-under 10 --junit {}", path(&report))).await;
    says(&said, &["3        3  tools", "3        3  tiers", "never: ", "% of the policy is covered"]);
    let xml = std::fs::read_to_string(&report).expect("written");
    says(&xml, &["<testsuite name=\"coverage\"", "name=\"drops\"></testcase>", "<skipped message="]);
    let (code, said) = desk.types(&format!("{test} --coverage --fail-under 100")).await;
    assert_eq!(code, Some(1), "{said}");
    // A permitted duplicate of a declared write is the finding of this command.
    let unguarded = format!("{STRICT}  rules: {{same_call: {{mode: 'off'}}, side_effects: {{mode: 'off'}}}}\n");
    let unguarded = desk.home.file("unguarded.yaml", &unguarded.replace("action: hitl", "action: allowlist"));
    let (code, said) = desk.types(&format!("policy test {} --since 1h --inject-duplicates", path(&unguarded))).await;
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["edit  a declared write is allowed twice"]);
    assert_eq!(desk.types(&test).await.0, Some(2), "it says which test is meant");
}
