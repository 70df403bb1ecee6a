//! Common mistakes in policies with their messages: cause, place and fix, never a library's text.

use crate::policy::compile;

/// The tools of most cases.
const TOOLS: &str = "policy_engine:
  tool_schemas:
    get_order: {effect: read, side_effect_resource: 'order/{order_id}', result_map: {total_matches: /total},
      schema: {properties: {order_id: {type: string}}, required: [order_id]}}
    pay:
      once: true
      schema:
        type: object
        properties:
          order_id: {type: string}
          amount_cents: {type: integer}
          currency: {enum: [EUR, USD], type: string}
          due: {type: string, format: date}
          note: {type: string}
        required: [order_id, amount_cents, currency, due]
";

/// Cases: a name, the file (a leading space puts it below `pay`), and the message.
const MISTAKES: [(&str, &str, &str); 42] = [
    (
        "tools for tool_schemas",
        "policy_engine: {tools: {}}",
        "policy_engine.tools: unknown key `tools`; did you mean `tool_schemas`?",
    ),
    ("a key beside policy_engine", "tool_schemas: {}", "tool_schemas: `tool_schemas` belongs below `policy_engine:`"),
    (
        "a key of another section",
        "policy_engine: {tiers: []}",
        "policy_engine.tiers: `tiers` belongs below `authorization:`",
    ),
    ("an age for a write", "      fresh_ms: 1000", "tool_schemas.pay.fresh_ms: is for a read: set effect: read"),
    (
        "two ages",
        "policy_engine: {tool_schemas: {get: {effect: read, private_to_call_tree: true, fresh_ms: 1000}}}",
        "tool_schemas.get.private_to_call_tree: says how long an answer holds, and so does fresh_ms: set one",
    ),
    (
        "an age in words",
        "policy_engine: {tool_schemas: {get: {effect: read, fresh_ms: forever}}}",
        "fresh_ms: is \"forever\"; it must be a time: milliseconds, or with a unit like 500ms, 90s, 15m, 1h, 7d, or \
         always",
    ),
    (
        "an age beyond all ages",
        "policy_engine: {tool_schemas: {get: {effect: read, fresh_ms: 99999999999999}}}",
        "tool_schemas.get.fresh_ms: must be 31622400000 or less, or always",
    ),
    (
        "an answer for other runs that is not stored",
        "policy_engine: {tool_schemas: {get: {effect: read, fresh_ms: always, storage: {results: hash}}}}",
        "tool_schemas.get.storage.results: must be full: results of a read private_to_call_tree or always",
    ),
    (
        "a slip in a key",
        "policy_engine: {tool_schemas: {pay: {efect: write}}}",
        "unknown key `efect`; did you mean `effect`?",
    ),
    (
        "a part of a key",
        "policy_engine: {tool_schemas: {pay: {resource: order}}}",
        "unknown key `resource`; did you mean `side_effect_resource`?",
    ),
    ("a time without its unit", "policy_engine: {approvals: {ttl: 3600}}", "unknown key `ttl`; did you mean `ttl_ms`?"),
    (
        "a time that is none",
        "policy_engine: {approvals: {ttl_ms: soon}}",
        "policy_engine.approvals.ttl_ms: is \"soon\"; it must be a time: milliseconds, or with a unit like 500ms, \
         90s, 15m, 1h, 7d",
    ),
    (
        "a time that is too long",
        "policy_engine: {approvals: {ttl_ms: 90d}}",
        "policy_engine.approvals.ttl_ms: must lie between 1 and 2678400000 (a month)",
    ),
    (
        "ask for hitl",
        "policy_engine: {authorization: {tiers: [{name: a, pattern: '*', action: ask}]}}",
        "is \"ask\"; did you mean hitl? It must be one of",
    ),
    (
        "a risk in small letters",
        "policy_engine: {tool_schemas: {pay: {risk_level: high}}}",
        "is \"high\"; did you mean HIGH?",
    ),
    (
        "int for integer",
        "policy_engine: {tool_schemas: {pay: {schema: {properties: {n: {type: int}}}}}}",
        "at /properties/n/type: is \"int\"; did you mean integer?",
    ),
    (
        "required as a flag",
        "policy_engine: {tool_schemas: {pay: {schema: {properties: {n: {type: string, required: true}}}}}}",
        "at /properties/n/required: is true; it must be a list of field names, beside `properties`",
    ),
    ("a tab", "policy_engine:\n\tmode: shadow", "line 2: a tab stands where YAML wants spaces: indent with spaces"),
    (
        "a key twice",
        "policy_engine:\n  mode: shadow\n  mode: enforce",
        "line 3: the key `mode` stands twice in one map: keep one of them",
    ),
    (
        "a number as a text",
        "policy_engine: {retry: {attempts: three}}",
        "policy_engine.retry.attempts: is \"three\"; it must be a whole number",
    ),
    (
        "a number below its least",
        "policy_engine: {retry: {attempts: -1}}",
        "policy_engine.retry.attempts: is -1; it must be 0 or more",
    ),
    (
        "a rate without its time",
        "policy_engine: {authorization: {tiers: [{name: a, pattern: '*', action: allowlist, rate_limit: 100}]}}",
        "policy_engine.authorization.tiers[0].rate_limit: is 100; it must be a text",
    ),
    (
        "a host's answer where nobody is asked",
        "policy_engine: {authorization: {tiers: [{name: a, pattern: '*', action: allowlist, approver: host}]}}",
        "policy_engine.authorization.tiers[0].approver: is only for action: hitl, or when_exceeded: ask",
    ),
    (
        "bulk approval where nobody is asked",
        "policy_engine: {authorization: {tiers: [{name: a, pattern: '*', action: allowlist, bulk_approve: true}]}}",
        "policy_engine.authorization.tiers[0].bulk_approve: is only for action: hitl, or when_exceeded: ask",
    ),
    (
        "an approver that is none",
        "policy_engine: {authorization: {tiers: [{name: a, pattern: '*', action: hitl, approver: hosts}]}}",
        "policy_engine.authorization.tiers[0].approver: ",
    ),
    (
        "a tier behind one that takes all",
        "policy_engine: {authorization: {tiers: [{name: a, pattern: '*', action: allowlist}, {name: b, pattern: \
         pay, action: deny}]}}",
        "is unreachable: tier a takes every tool that it could match",
    ),
    (
        "a rule that there is not",
        "policy_engine: {rules: {same_calls: {mode: off}}}",
        "unknown rule `same_calls`; did you mean `same_call`?",
    ),
    (
        "a field of the resource that the schema has not",
        "      side_effect_resource: 'order/{oder_id}'",
        "names {oder_id}, which the schema has not; did you mean order_id?",
    ),
    (
        "a required field that the schema has not",
        "policy_engine: {tool_schemas: {pay: {schema: {properties: {amount: {type: integer}}, required: [amuont]}}}}",
        "requires amuont, which the schema has not; did you mean amount?",
    ),
    (
        "a field of a condition that the schema has not",
        "      conditions: [{when: 'args.amount_cent > 100', then: ask}]",
        "reads args.amount_cent, which the schema has not; did you mean amount_cents?",
    ),
    (
        "a number compared with a text",
        "      conditions: [{when: \"args.amount_cents > '100'\", then: ask}]",
        "compares a number with a text (>), which never works",
    ),
    (
        "a date compared with a time",
        "      conditions: [{check: 'args.due > now'}]",
        "compares a text with a time (>), which never works; date(…) and timestamp(…) read a text as a time",
    ),
    (
        "a value that the field never has",
        "      conditions: [{when: \"args.currency == 'EURO'\", then: deny}]",
        "compares with 'EURO', which the argument never is; did you mean 'EUR'?",
    ),
    (
        "a condition that is no question",
        "      conditions: [{check: 'args.amount_cents + 1'}]",
        "gives a number, not true or false",
    ),
    (
        "an optional field without has()",
        "      conditions: [{when: 'args.note.size() > 10', then: ask}]",
        "warning: line 16: policy_engine.tool_schemas.pay.conditions[0].when: reads args.note, which may be \
         missing: write has(args.note) && … first",
    ),
    (
        "one = in a condition",
        "      conditions: [{check: \"args.currency = 'EUR'\"}]",
        "is not a condition (CEL): write == to compare",
    ),
    (
        "and for &&",
        "      conditions: [{check: 'args.amount_cents > 1 and args.amount_cents < 9'}]",
        "is not a condition (CEL): write && for and, || for or, ! for not",
    ),
    (
        "a member of an answer, misspelt",
        "      requires: [{tool: get_order, match: {order_id: args.order_id}, condition: \"last('get_order').totl > \
         0\"}]",
        "warning: line 16: policy_engine.tool_schemas.pay.requires[0].condition: reads totl of get_order's answer; \
         did you mean total?",
    ),
    (
        "a step that there is not",
        "      requires: [{tool: get_ordr}]",
        "get_ordr matches no declared tool, and undeclared ones are refused; did you mean `get_order`?",
    ),
    (
        "steps that wait for each other",
        "policy_engine: {tool_schemas: {a: {effect: read, requires: [{tool: b}]}, b: {effect: read, requires: \
         [{tool: a}]}}}",
        "policy_engine.tool_schemas.a.requires: can never be met: a → b → a (each requires the next)",
    ),
    (
        "a step that is denied",
        "policy_engine: {authorization: {tiers: [{name: no, pattern: a, action: deny}, {name: rest, pattern: '*', \
         action: allowlist}]}, tool_schemas: {a: {effect: read}, b: {effect: read, requires: [{tool: a}]}}}",
        "can never be met: tier no denies a",
    ),
    (
        "a write that nothing guards",
        "policy_engine: {tool_schemas: {create_invoice: {side_effect_resource: invoice}}}",
        "warning: line 1: policy_engine.tool_schemas.create_invoice: is an unguarded write: nothing says which \
         thing it writes",
    ),
];

/// All messages about a file, including warnings.
fn list_messages(text: &str) -> Vec<String> {
    match compile(text) {
        Ok(policy) => policy.warnings.iter().map(|warning| format!("warning: {warning}")).collect(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// Texts that only a library would produce.
const FOREIGN: [&str; 8] = [
    "expected <",
    "mismatched",
    "regex parse",
    "anyOf",
    "under any of the schemas",
    "expected u",
    "DuplicateKey",
    "is not of type",
];

#[test]
fn every_mistake_is_told_with_its_cause_and_remedy() {
    let mut wrong = Vec::new();
    for (name, part, expected) in MISTAKES {
        let text = if part.starts_with(' ') { format!("{TOOLS}{part}\n") } else { part.to_owned() };
        let said = list_messages(&text);
        let is_ours = |line: &String| !FOREIGN.iter().any(|foreign| line.contains(foreign));
        if !said.iter().any(|line| line.contains(expected)) || !said.iter().all(is_ours) || said.len() > 2 {
            wrong.push(format!("{name}: {said:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_tools_that_they_are_about_are_right() {
    assert_eq!(list_messages(TOOLS), [""; 0]);
    let fit = "      conditions:
        - {when: 'has(args.note) && args.note.size() > 10 && args.amount_cents * 2 > 100', then: ask}
        - {check: \"date(args.due) > now && args.currency in ['EUR', 'USD'] && args.order_id.startsWith('o')\"}
      requires: [{tool: get_order, match: {order_id: args.order_id}, condition: \"last('get_order').refundable > 0\"}]
";
    assert_eq!(list_messages(&format!("{TOOLS}{fit}")), [""; 0]);
}

#[test]
fn effectless_tools_of_a_tier_and_tools_of_no_phase_are_named() {
    let tiers = "policy_engine:
  authorization: {tiers: [{name: all, pattern: '*', action: allowlist}]}
  tool_schemas: {look: {effect: read}, frob: {risk_level: LOW}, final_answer: {terminal: true}}
";
    let expected = "warning: line 2: policy_engine.authorization.tiers[0]: has 1 tool that has no effect: frob. \
     Until read, \
                    write, poll or check is declared, their repetitions are judged by their results alone";
    assert_eq!(list_messages(tiers), [expected]);
    let phases = "policy_engine:
  phases: [{name: GATHER, tools: look}]
  tool_schemas: {look: {effect: read}, put: {effect: write, idempotent: true}}
";
    let expected = "warning: line 3: policy_engine.tool_schemas.put: can never be called: no phase allows it";
    assert_eq!(list_messages(phases), [expected]);
}

#[test]
fn times_may_have_units_wherever_they_are_milliseconds() {
    let text = "policy_engine:
  approvals: {ttl_ms: 2h}
  deduplication: {window_ms: 90s}
  tool_schemas: {slow: {effect: read, lease_ms: 1h30m}}
";
    let policy = compile(text).expect("a good policy");
    assert_eq!(policy.approval_ttl_ms, 7_200_000);
    let (_, slow) = policy.tools().next().expect("a tool");
    assert_eq!(slow.lease_ms, 5_400_000);
}
