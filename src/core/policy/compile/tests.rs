//! Compiled policies, and the messages about invalid ones.

mod mistakes;

use super::*;
use crate::{
    domain::{
        budget::{Budgets, Dimension},
        call::Request,
        effect::{EffectKind, Resource},
        ids::{CallId, DEFAULT_TENANT, HostName, SessionId, ToolName},
        json,
    },
    rules::{levels::DetectorLevels, repeat, tool_circuit_breaker},
};

/// The documents' own block, word for word.
const DOCUMENTS: &str = r#"policy_engine:
  deduplication: {window_ms: 300000, strategy: semantic_hash, loop_threshold: 3}
  idempotency: {generation: content_based, header: X-Agent-Idempotency-Key, ttl_ms: 86400000}
  authorization:
    tiers:
      - {name: reads, pattern: "get_*|list_*", action: allowlist, rate_limit: 100/min}
      - {name: writes, pattern: "create_*|update_*", action: per_conversation_grant, ceiling: 10, ttl_ms: 3600000}
      - {name: destructive, pattern: "delete_*|transfer_*", action: hitl, require_reason: true}
  tool_schemas:
    create_invoice:
      risk_level: MEDIUM
      canonical_fields: ["amount_cents", "currency", "customer_id"]
      normalizers: {amount_cents: to_int, currency: to_upper}
      side_effect_resource: invoice
    send_email: {risk_level: LOW, canonical_fields: ["recipient", "subject"], normalizers: {recipient: to_lower}}
"#;

fn errors_of(text: &str) -> Vec<String> {
    compile(text).expect_err("a bad file").iter().map(ToString::to_string).collect()
}

fn fingerprint(policy: &Policy, tool: &str, arguments: &str) -> String {
    let proposal = policy.propose(Request::new(
        DEFAULT_TENANT,
        SessionId::parse("session", "s").expect("valid"),
        CallId::parse("call_id", "c").expect("valid"),
        ToolName::parse("tool", tool).expect("valid"),
        json::parse(arguments).expect("valid"),
    ));
    proposal.fingerprint.to_hex()
}

#[test]
fn host_decides_on_named_tools_and_on_who_waits() {
    let policy = compile("policy_engine: {presets: [coding_agents]}").expect("a good file");
    let from = |host: &str, tool: &str| {
        let mut request = Request::new(
            DEFAULT_TENANT,
            SessionId::parse("session", "s").expect("valid"),
            CallId::parse("call_id", "c").expect("valid"),
            ToolName::parse("tool", tool).expect("valid"),
            json::parse(r#"{"file_path":"/w/a","notebook_path":"/w/a","path":"/w/a"}"#).expect("valid"),
        );
        request.host = (!host.is_empty()).then(|| HostName::parse("host", host).expect("valid"));
        let proposal = policy.propose(request);
        (policy.suggested_next(&proposal).join(" "), proposal.caller_waits)
    };
    assert_eq!(from("claude-code", "Edit"), ("Read".to_owned(), false));
    assert_eq!(from("gemini", "replace"), ("read_file".to_owned(), false));
    assert_eq!(from("codex", "Edit"), ("view_image".to_owned(), false));
    // The proxy waits for two seconds; then its model has to.
    assert!(!from("mcp-proxy", "Edit").1);
    let (every, waits) = from("", "Edit");
    assert!(every.split(' ').count() > 1 && waits, "{every}");
}

#[test]
fn the_vocabulary_of_the_documents_loads_unchanged() {
    let policy = compile(DOCUMENTS).expect("a good file");
    assert_eq!(policy.rules.get::<repeat::Params>().plain.loop_threshold, Some(3));
    assert_eq!(policy.rules.get::<tier::Params>().tiers.len(), 3);
    let of = |tool: &str| ToolName::parse("tool", tool).expect("valid");
    assert_eq!(policy.tool(&of("create_invoice")).effect, EffectKind::Write);
    let email = |arguments| fingerprint(&policy, "send_email", arguments);
    let one = email(r#"{"recipient":"Anna@example.com","subject":"Hi","body":"a"}"#);
    assert_eq!(one, email(r#"{"recipient":"anna@example.com","subject":"Hi","body":"b"}"#));
    assert_ne!(one, email(r#"{"recipient":"anna@example.com","subject":"Ho","body":"b"}"#));
    let invoice = |arguments| fingerprint(&policy, "create_invoice", arguments);
    let text = r#"{"amount_cents":"100","currency":"eur","customer_id":"c1","note":"x"}"#;
    assert_eq!(invoice(text), invoice(r#"{"amount_cents":1e2,"currency":"EUR","customer_id":"c1"}"#));
    let warnings: Vec<String> = policy.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings.iter().any(|warning| warning.contains("line 6") && warning.contains("get_*|list_*")),
        "{warnings:?}"
    );
}

#[test]
fn byte_hash_takes_arguments_as_they_are() {
    let text = DOCUMENTS.replace("semantic_hash", "byte_hash");
    let policy = compile(&text).expect("a good file");
    let email = |arguments| fingerprint(&policy, "send_email", arguments);
    assert_ne!(email(r#"{"recipient":"Anna"}"#), email(r#"{"recipient":"anna"}"#));
}

#[test]
fn a_file_changes_what_it_names_and_nothing_else() {
    let policy = compile(
        "policy_engine:
  deduplication: {window_ms: 60000}
  loops: {repeat: {warning: 2, critical: 4, break: 6}}
  budgets: {run: {max_steps: 12, max_total_cost_usd: 0}}
  tool_circuit_breaker: {max_ms: 60000}
  retry: {probe_share: 0, share_of_calls: 0.5, exclude_honored_waits: true}
  rules: {growth: {mode: shadow}}
  tool_schemas:
    pay: {once: true, side_effect_resource: 'order/{order_id}', cost_usd: 0.25}
    get_order: {effect: read, side_effect_resource: 'order/{order_id}', retryable: false}
",
    )
    .expect("a good file");
    let tool = ToolName::parse("tool", "pay").expect("valid");
    assert!(policy.tool(&tool).once);
    assert_eq!(policy.tool(&tool).cost_micros, 250_000);
    assert_eq!(policy.rules.get::<same_call::Params>().window_ms, 60_000);
    assert_eq!(policy.rules.get::<repeat::Params>().levels, DetectorLevels::new(2, 4, 6));
    let budgets = policy.rules.get::<Budgets>();
    assert_eq!(budgets.run.of(Dimension::Steps), Some(12));
    assert_eq!(budgets.run.of(Dimension::Cost), None);
    assert_eq!(budgets.call_tree, Budgets::default().call_tree);
    let retry = &policy.retry;
    assert_eq!((retry.probe_share, retry.allowance.share, retry.exclude_honored_waits), (0.0, 0.5, true));
    assert_eq!(retry.allowance.max, Policy::default().retry.allowance.max);
    assert_eq!(policy.rules.get::<tool_circuit_breaker::Params>().max_ms, 60_000);
    assert_eq!(policy.tools().find_map(|(_, spec)| spec.retryable), Some(false));
    assert_eq!(policy.rules.mode("growth"), Mode::Shadow);
    assert_eq!(policy.version.len(), 16);
}

#[test]
fn everything_that_is_wrong_with_the_form_is_said_at_once() {
    let errors = errors_of(
        "policy_engine:
  loops:
    windw: 3
  budgets: {run: {max_steps: many}}
  rules: {growth: {mode: shadw}}
  tool_schemas:
    pay: {onse: true, effect: wirte}
",
    );
    for part in [
        "line 3: policy_engine.loops.windw: unknown key `windw`; did you mean `window`?",
        "line 4: policy_engine.budgets.run.max_steps: is \"many\"; it must be a whole number",
        "line 5: policy_engine.rules.growth.mode: is \"shadw\"; did you mean shadow?",
        "line 7: policy_engine.tool_schemas.pay.onse: unknown key `onse`; did you mean `once`?",
        "line 7: policy_engine.tool_schemas.pay.effect: is \"wirte\"; did you mean write?",
    ] {
        assert!(errors.iter().any(|error| error.starts_with(part)), "{part} in {errors:#?}");
    }
    assert_eq!(errors.len(), 5, "{errors:#?}");
}

#[test]
fn everything_that_makes_no_sense_is_said_at_once() {
    let text = "policy_engine:
  loops: {cycle: {warning: 5, critical: 4, break: 40}, after_compaction: {critical: 4}}
  deduplication: {loop_threshold: 9, last_n: 5}
  rules: {repeet: {mode: off}, budget: {message: 'stop {now}'}}
  retry: {probe_share: 5, per_minute: -1}
  after_failed_write: PLN
  phases:
    - {name: PLAN, next: [ACT]}
    - {name: ACT, tools: '*', next: [PLAM]}
    - {name: LOST, tools: '*'}
  authorization:
    tiers:
      - {name: all, pattern: '*', action: allowlist, ceiling: 5}
      - {name: reads, pattern: 'get_*', action: hitl, rate_limit: fast}
  tool_schemas:
    pay: {once: true, idempotent: true, side_effect_resource: 'order/{id', volatile: [at]}
    get:
      effect: read
      idempotent: true
      schema: {type: object, properties: {id: {type: object}}}
      normalizers: {id: to_int, ide: trim}
      canonical_fields: [idd]
      conditions: [{check: arg.id > 1}, {when: args.id > 1}]
      requires: [{tool: pay, match: {id: nowhere}, condition: \"last('gett').id == 1\"}]
      loops: {growth: {warning: 1}}
";
    let errors = errors_of(text);
    for part in [
        "line 2: policy_engine.loops.cycle: needs 40",
        "line 2: policy_engine.loops.cycle: warning, critical and break",
        "line 2: policy_engine.loops.after_compaction: needs 4",
        "line 3: policy_engine.deduplication.loop_threshold: is 9, and last_n",
        "line 4: policy_engine.rules.repeet: unknown rule `repeet`; did you mean `repeat`?",
        "line 4: policy_engine.rules.budget.message: has {now}",
        "line 5: policy_engine.retry.probe_share: must be a share",
        "line 5: policy_engine.retry.per_minute: is -1",
        "line 6: policy_engine.after_failed_write: unknown phase `PLN`; did you mean `PLAN`?",
        "line 9: policy_engine.phases[1].next[0]: unknown phase `PLAM`; did you mean `PLAN`?",
        "line 10: policy_engine.phases[2]: LOST is unreachable",
        "line 13: policy_engine.authorization.tiers[0].ceiling: is only for action",
        "line 14: policy_engine.authorization.tiers[1].pattern: is unreachable: tier all",
        "line 14: policy_engine.authorization.tiers[1].rate_limit: is \"fast\"",
        "line 16: policy_engine.tool_schemas.pay: is both once and idempotent",
        "line 16: policy_engine.tool_schemas.pay.side_effect_resource: has a '{'",
        "line 16: policy_engine.tool_schemas.pay.volatile: \"at\" is not a JSON pointer",
        "line 17: policy_engine.tool_schemas.get: is idempotent, which only a write can be",
        "line 21: policy_engine.tool_schemas.get.normalizers.id: does not fit",
        "line 21: policy_engine.tool_schemas.get.normalizers.ide: has no effect",
        "line 22: policy_engine.tool_schemas.get.canonical_fields[0]: unknown field of the schema `idd`; did you mean",
        "line 23: policy_engine.tool_schemas.get.conditions[0].check: has no variable arg",
        "line 23: policy_engine.tool_schemas.get.conditions[1]: must have either",
        "line 24: policy_engine.tool_schemas.get.requires[0].match.id: is \"nowhere\"",
        "line 24: policy_engine.tool_schemas.get.requires[0].condition: asks for last('gett')",
        "line 25: policy_engine.tool_schemas.get.loops.growth: unknown per-tool detector `growth`; it must be",
    ] {
        assert!(errors.iter().any(|error| error.starts_with(part)), "{part} in {errors:#?}");
    }
}

#[test]
fn an_effect_may_depend_on_the_arguments() {
    let policy = compile(
        "policy_engine:
  tool_schemas:
    query:
      effect: write
      side_effect_resource: 'db/{db}'
      effects:
        - {field: sql, matches: '(?i)^\\s*select', effect: read}
        - {when: args.dry_run, effect: read}
",
    )
    .expect("a good file");
    let kind = |arguments: &str| {
        let arguments = json::parse(arguments).expect("valid");
        policy.of(&ToolName::parse("tool", "query").expect("valid")).effect_of(&arguments).0.kind
    };
    assert_eq!(kind(r#"{"sql":" SELECT 1","db":"a"}"#), EffectKind::Read);
    assert_eq!(kind(r#"{"sql":"update t","db":"a"}"#), EffectKind::Write);
    assert_eq!(kind(r#"{"sql":"update t","db":"a","dry_run":true}"#), EffectKind::Read);
}

#[test]
fn the_effect_of_a_line_is_read_from_the_line() {
    let policy = compile("policy_engine: {presets: [coding_agents]}\n").expect("a good policy");
    let effect = |tool: &str, arguments: &str| {
        let arguments = json::parse(arguments).expect("valid");
        let (effect, _) = policy.of(&ToolName::parse("tool", tool).expect("valid")).effect_of(&arguments);
        (effect.kind, effect.resource)
    };
    let file = |path: &str| Some(Resource::new(format!("file/{path}")));
    assert_eq!(effect("Bash", r#"{"command":"cat a","cwd":"/w"}"#), (EffectKind::Read, file("/w/a")));
    assert_eq!(effect("Read", r#"{"file_path":"/w/a"}"#), (EffectKind::Read, file("/w/a")));
    assert_eq!(effect("Bash", r#"{"command":"cat a > b","cwd":"/w"}"#), (EffectKind::Write, file("/w/b")));
    assert_eq!(effect("Bash", r#"{"command":"cat a"}"#), (EffectKind::Read, None));
    assert_eq!(effect("Bash", r#"{"command":"cargo test"}"#), (EffectKind::Check, None));
    assert_eq!(effect("Bash", r#"{"command":"./deploy"}"#), (EffectKind::Unknown, None));
    assert_eq!(effect("Bash", r#"{"command":3}"#), (EffectKind::Unknown, None));
    let wrong = errors_of("policy_engine: {tool_schemas: {sh: {command_line: c, effect: read}}}\n");
    assert!(wrong[0].contains("give either, not both"), "{wrong:?}");
}

#[test]
fn reads_of_coding_agents_are_the_presets_reads() {
    let policy = compile("policy_engine: {presets: [coding_agents]}\n").expect("a good policy");
    for (name, _) in policy.tools() {
        let (effect, _) =
            policy.of(&ToolName::parse("tool", name).expect("valid")).effect_of(&json::parse("{}").expect("valid"));
        let reads = matches!(effect.kind, EffectKind::Read | EffectKind::Poll) && !effect.in_steps;
        assert_eq!(is_coding_agent_read(name), reads, "{name}");
    }
    assert!(is_coding_agent_read("Read") && is_coding_agent_read("Glob") && !is_coding_agent_read("fetch"));
}

#[test]
fn a_preset_knows_tools_and_declares_none() {
    let policy = compile("policy_engine: {presets: [command_polls]}\n").expect("a good policy");
    let names: Vec<&str> = policy.tools().map(|(name, _)| name).collect();
    assert_eq!(names, ["command_status", "process", "process.log", "process.poll"]);
    assert_eq!(policy.rules.get::<unknown_tool::Params>().unknown(), UnknownToolMode::Allow, "nothing was declared");
    let file = "policy_engine: {presets: [command_polls], tool_schemas: {process: {effect: read}}}\n";
    let policy = compile(file).expect("a good policy");
    assert_eq!(policy.rules.get::<unknown_tool::Params>().unknown(), UnknownToolMode::Deny);
    let process = policy.tools().find(|(name, _)| *name == "process").expect("known");
    assert_eq!(process.1.effect, EffectKind::Read, "the owner's word counts");
}
