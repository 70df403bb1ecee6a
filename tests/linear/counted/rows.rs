//! Table of readers of foreign text, with the allowed steps per byte and the worst texts. A row names its functions by
//! file; `tests/tidy/linear.rs` finds functions without a row.

use std::{fmt::Debug, sync::LazyLock};

use callgate_core::{
    domain::{
        amount, answer, call, content, digest, effect, failure, fingerprint, forgetting, gist, hashing,
        ids::{CallId, DEFAULT_TENANT, HostName, SessionId, ToolName},
        json::{self, Json},
        outcome::OutcomeStatus,
        pattern,
        redaction::{self, REDACTED, Redaction, Secrets},
        report, similarity, tenant,
        time::Timestamp,
        tree::CallTree,
        truncation,
    },
    engine, offline,
    policy::{
        self, Policy,
        arguments::{ArgumentSchema, Coercion, UnknownFields},
        normalizers::Normalizer,
    },
    retry::{classify, next_step},
    rules::condition::{self, Bindings, Condition},
    shell, tool_list,
};
use serde_json::{Value, json};

use crate::{
    hosts, mcp,
    steps::count,
    worst::{self as w, Worst},
};

/// A row of the table.
#[derive(Debug)]
pub struct StepRow {
    /// Files and functions.
    pub of: &'static str,
    /// Steps a byte, at most.
    pub most: u64,
    /// Worst texts.
    pub worst: &'static [Worst],
    /// Its steps for a text.
    pub steps: fn(&str) -> u64,
}

const NOW: Timestamp = Timestamp::from_millis(1_795_219_200_000);

static REDACTION: LazyLock<Redaction> = LazyLock::new(Redaction::default);
static POLICY: LazyLock<Policy> =
    LazyLock::new(|| policy::compile("policy_engine: {presets: [coding_agents]}\n").expect("valid"));
static SCHEMA: LazyLock<ArgumentSchema> = LazyLock::new(|| {
    let item = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
    let properties = json!({
        "q": {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"}, "items": {"type": "array", "items": item},
        "when": {"type": "string", "format": "date-time"}, "mail": {"type": "string", "format": "email"},
        "a": {"anyOf": [{"type": "integer"}, {"type": "object", "additionalProperties": {"type": "integer"}}]},
    });
    let schema = json!({"type": "object", "properties": properties, "required": ["q"], "additionalProperties": false});
    schema_of(&schema).expect("valid")
});

fn schema_of(schema: &Value) -> Result<ArgumentSchema, Vec<String>> {
    ArgumentSchema::compile(schema, UnknownFields::Refuse, Coercion::Repair)
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!({"text": text}))
}

/// The text read, or in a member.
fn json(text: &str) -> Json {
    json::parse(text).unwrap_or_else(|_| member("text", text))
}

fn member(name: &str, text: &str) -> Json {
    Json::Object(vec![(name.to_owned(), Json::String(text.to_owned()))])
}

fn of_json<T: Debug>(text: &str, read: impl FnOnce(&Json) -> T) -> u64 {
    let value = json(text);
    count(|| read(&value))
}

fn normalize_arguments(text: &str, names: &[&str]) -> u64 {
    let value = json::parse(text).unwrap_or_else(|_| Json::String(text.to_owned()));
    let all = names.iter().map(|name| Normalizer::parse(name, Some("US")).expect("known"));
    all.map(|normalizer| count(|| normalizer.apply(&value))).sum()
}

fn request(tool: &str, arguments: Json) -> call::Request {
    let session = SessionId::parse("session", "s").expect("valid");
    let call_id = CallId::parse("call_id", "c").expect("valid");
    let tool = ToolName::parse("tool", tool).expect("valid");
    let host = Some(HostName::parse("host", "claude-code").expect("valid"));
    call::Request { host, ..call::Request::new(DEFAULT_TENANT, session, call_id, tool, arguments) }
}

/// A call, read and judged.
fn judge_call(tool: &str, arguments: Json) -> u64 {
    let request = request(tool, arguments);
    count(|| {
        let (proposal, tree) = (POLICY.propose(request), CallTree::new(DEFAULT_TENANT, session(), NOW));
        engine::evaluate(&POLICY, &tree, &engine::SharedState::default(), &proposal, None, NOW).is_ok()
    })
}

fn session() -> SessionId {
    SessionId::parse("session", "s").expect("valid")
}

/// Outcome of a recorded call.
fn record_report(report: report::OutcomeReport) -> u64 {
    let (proposal, mut tree) =
        (POLICY.propose(request("look", json("{\"q\":1}"))), CallTree::new(DEFAULT_TENANT, session(), NOW));
    let judged = engine::evaluate(&POLICY, &tree, &engine::SharedState::default(), &proposal, None, NOW);
    let Ok(engine::Evaluation::New(_, change)) = judged else { panic!("a new call") };
    drop(engine::advance(&mut tree, *change));
    count(|| engine::record(&POLICY, &tree, &engine::SharedState::default(), &report, NOW.plus_ms(5)).is_ok())
}

fn outcome_report(status: OutcomeStatus) -> report::OutcomeReport {
    report::OutcomeReport::new(session(), CallId::parse("call_id", "c").expect("valid"), status)
}

fn error(message: &str) -> failure::ErrorReport {
    let name = || Some(message.to_owned());
    failure::ErrorReport {
        message: message.to_owned(),
        error_type: name(),
        provider_code: name(),
        ..failure::ErrorReport::default()
    }
}

/// Does the condition hold of arguments of that text?
fn test_condition(condition: &str, text: &str) -> u64 {
    let condition = Condition::parse(condition).expect("a condition");
    let (args, last) = (Json::Object(vec![("a".to_owned(), json(text))]), |_: &str| None);
    let known = Bindings { args: &args, now: NOW, steps: 1, calls: 1, cost_micros: 1, phase: None, last: &last };
    count(|| condition.evaluate(&known))
}

/// A list with one tool that is described so.
fn list_text(text: &str) -> String {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "description": text}}});
    json!({"tools": [{"name": "get_x", "description": text, "inputSchema": schema}]}).to_string()
}

/// Response of a host to a call with these arguments and this answer.
fn render_host_response(text: &str) -> u64 {
    let input = value(text);
    let told = json!({"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "Bash", "tool_input": input,
        "tool_response": input})
    .to_string();
    let hosts = [hosts::Host::ClaudeCode, hosts::Host::Codex, hosts::Host::Gemini, hosts::Host::Cursor];
    hosts.into_iter().map(|host| count(|| host.read(&told).is_ok())).sum()
}

const TEXTS: &[Worst] = &[w::ACCENTS, w::QUOTES, w::OPEN, w::REMARKS];
const JSONS: &[Worst] =
    &[w::MEMBERS, w::ALIKE, w::NUMBERS, w::NUMBER, w::EQUAL, w::OBJECTS, w::NAME, w::ESCAPES, w::DEEP];
const SAID: &[Worst] = &[w::SPOKEN, w::HEADS, w::ADDRESSES, w::ACCENTS, w::QUOTES];
const ANSWERS: &[Worst] = &[w::TIMES, w::CONTENT, w::OBJECTS, w::NUMBERS, w::ESCAPES];
const ERRORS: &[Worst] =
    &[w::PAGE, w::TRACEBACKS, w::REFUSED, w::POINTS, w::ACCENTS, w::GROWING, w::QUOTES, w::LINES, w::WAITS, w::MEMBERS];
const SHELL: &[Worst] =
    &[w::LETTERS, w::PIPES, w::COMMANDS, w::WORDS, w::HERE, w::OPEN, w::NESTED, w::QUOTES, w::TRACEBACKS, w::PAGE];

macro_rules! rows {
    ($($of:literal <= $most:literal $worst:expr, |$text:ident| $steps:expr;)*) => {
        /// All rows.
        pub const ROWS: &[StepRow] = &[$(StepRow { of: $of, most: $most, worst: $worst, steps: |$text| $steps }),*];
    };
}

rows! {
    "domain/json/parse.rs: parse" <= 200 JSONS, |t| count(|| json::parse(t));
    "domain/json.rs: canonical" <= 46 JSONS, |t| of_json(t, Json::canonical);
    "domain/amount.rs: find_amount may_have_amount" <= 1_000 JSONS,
        |t| count(|| (amount::find_amount(t), amount::may_have_amount(t)));
    "domain/redaction.rs: text without" <= 1_100 SAID, |t| count(|| {
        let mut secrets = Secrets::default();
        (REDACTION.text(t, &mut secrets).len(), secrets.without(t).len())
    });
    "domain/redaction.rs: json redact_stored" <= 2_200
        &[w::SECRETS, w::NUMBERS, w::ALIKE, w::ADDRESSES], |t| of_json(t, |value| {
        let mut secrets = Secrets::default();
        (REDACTION.json(value, &mut secrets), REDACTION.redact_stored(t, Some(value), &mut secrets).len())
    });
    "domain/redaction.rs: missing" <= 200 &[w::EQUAL, w::OBJECTS, w::NUMBER], |t| {
        let stored = t.replace('a', REDACTED);
        count(|| redaction::missing(&stored, 100))
    };
    "policy/redact.rs: stored_result without_secrets stored_text" <= 2_200 SAID, |t| of_json(t, |value| {
        let spec = POLICY.tool(&ToolName::parse("tool", "x").expect("valid"));
        let mut secrets = Secrets::default();
        (POLICY.stored_result(spec, t, Some(value), &mut secrets), POLICY.without_secrets(t))
    });
    "domain/answer.rs: of of_read of_digest" <= 420 ANSWERS, |t|
        count(|| answer::ComparableResult::of(t, &["/items/*/id".to_owned()], NOW));
    "domain/answer.rs: is_echo" <= 410 ANSWERS, |t| of_json(t, |value| answer::is_echo(value, value));
    "domain/gist.rs: of truncate_line is_empty" <= 450 &[w::REMARKS, w::CONTENT, w::OBJECTS, w::LINES, w::BLANKS], |t|
        of_json(t, |value| {
            let summary = gist::SuccessSummary::of(t, Some(value), Some(t));
            (summary, gist::truncate_line(t, 80), gist::is_empty(t, Some(value)))
        });
    "domain/gist.rs: arguments" <= 760 JSONS, |t| count(|| gist::arguments(t, &REDACTION, 100));
    "engine/envelope.rs: success" <= 710 JSONS, |t| record_report(report::OutcomeReport { result: Some(t.to_owned()),
        ..outcome_report(OutcomeStatus::Success) });
    "domain/similarity.rs: of of_json are_near differing_fields" <= 530 JSONS, |t| count(|| {
        let other = t.replace('1', "2");
        (similarity::are_near(t, &other), similarity::differing_fields(t, &other))
    });
    "domain/content.rs: of has_lines amounts" <= 290 JSONS, |t|
        of_json(t, |value| (content::of(value), content::has_lines(value), content::amounts(value)));
    "domain/digest.rs: of_text in_hexadecimal; domain/hashing.rs: of_text" <= 10 TEXTS, |t|
        count(|| (digest::of_text(t), hashing::Hashing::default().of_text(t)));
    "domain/fingerprint.rs: of of_success of_error" <= 10 TEXTS, |t|
        count(|| (fingerprint::ResultDigest::of_success(t), fingerprint::ResultDigest::of_error("x", t)));
    "domain/effect.rs: parse" <= 46 &[w::EQUAL, w::OPEN, Worst::Repeat("", "{a,b}", "")], |t|
        count(|| effect::ResourceTemplate::parse("resource", t).is_ok());
    "domain/effect.rs: fill; domain/tool.rs: effect_of" <= 38 JSONS, |t| {
        let template = effect::ResourceTemplate::parse("resource", "x/{a}/{text}").expect("valid");
        of_json(t, |value| template.fill(value))
    };
    "domain/forgetting.rs: holds is_named_in" <= 10 &[w::GROWING, w::ACCENTS], |t|
        count(|| forgetting::holds(t, "aaaaaaaaaaaaaaaab"));
    "domain/truncation.rs: truncate_text" <= 10 TEXTS, |t| {
        let mut text = t.to_owned();
        count(|| truncation::truncate_text(&mut text, 100))
    };
    "domain/pattern.rs: parse; domain/ids.rs: parse; domain/tenant.rs: tenant_name; domain/audit/chain.rs: parse" <= 78
        &[Worst::Repeat("", "a|", ""), w::POINTS], |t| count(|| (pattern::Pattern::parse("tool", t).is_ok(),
            SessionId::parse("session", t).is_ok(), tenant::tenant_name("tenant", t).is_ok()));
    "policy/compile/mod.rs: compile compile_stored compile_with hash; rules/rule.rs: take_in" <= 4_800
        &[w::MEMBERS, w::YAML, w::ITEMS, w::DEEP, w::NAME, w::QUOTES], |t| count(|| policy::compile(t).is_ok());
    "policy/differences.rs: keys" <= 2_400 &[w::MEMBERS, w::YAML, w::ITEMS, w::DEEP], |t|
        count(|| policy::differences::keys(t));
    "policy/arguments.rs: check drop_defaults" <= 1_800 JSONS, |t|
        of_json(t, |value| (SCHEMA.check(value), SCHEMA.drop_defaults(value).into_owned()));
    "policy/arguments.rs: compile" <= 1_700 &[w::MEMBERS, w::OBJECTS, w::ALIKE], |t| {
        let schema = json!({"type": "object", "properties": value(t), "required": value(t)});
        count(|| schema_of(&schema).is_ok())
    };
    "policy/normalizers.rs: apply; policy/normalizers/canonical.rs: text" <= 1_600
        &[w::GROWING, w::NUMBERS, w::EQUAL, w::POINTS, w::BLANKS, w::PATH, w::ADDRESSES, w::TIMES], |t|
        normalize_arguments(t, &["to_int", "to_number", "to_bool", "to_upper", "to_lower", "trim",
            "collapse_whitespace", "sort", "iso_date", "iso_datetime_utc", "email", "url", "path", "e164"]);
    "retry/classify/mod.rs: classify; retry/classify/open_effects.rs: may_have_taken_effect" <= 22_000 ERRORS, |t| {
        let error = error(t);
        count(|| (classify::classify(&error), classify::may_have_taken_effect(failure::FailureKind::Timeout, &error)))
    };
    "retry/classify/mask.rs: error_signature" <= 3_600 ERRORS, |t| count(|| classify::error_signature(t));
    "retry/classify/reduce.rs: one_line message_in_json" <= 430 ERRORS, |t|
        count(|| (classify::one_line(t), classify::message_in_json(t)));
    "retry/classify/wait.rs: retry_after_ms retry_after_in_message" <= 850 &[w::WAITS, w::POINTS, w::BLANKS], |t|
        count(|| (classify::retry_after_ms(t, 0), classify::retry_after_in_message(t)));
    "retry/next_step.rs: exists_already next_step" <= 14 &[w::GROWING, Worst::Repeat("", "already exist", "")], |t|
        count(|| next_step::next_step(failure::FailureKind::InvalidArgument, t));
    "rules/condition.rs: parse; rules/condition/messages.rs: no_regex" <= 30 TEXTS, |t|
        count(|| (Condition::parse(t).is_ok(), condition::no_regex(t)));
    "rules/condition/messages.rs: nearest" <= 10 TEXTS, |t|
        count(|| condition::nearest(t, &["command", "description"]));
    "rules/condition.rs: evaluate" <= 80 JSONS, |t|
        test_condition("args.a.exists(k, args.a[k] == 1) || args.a.text.matches('^(a|b)+$')", t);
    "shell/mod.rs: read" <= 2_300 SHELL, |t| count(|| shell::read(t, Some("/home/x")));
    "domain/call.rs: new; policy/mod.rs: propose" <= 410 JSONS, |t| judge_call("look", json(t));
    "policy/mod.rs: propose; \
     rules/tamper_protection.rs: check" <= 2_800 SHELL, |t| judge_call("Bash", member("command", t));
    "rules/tamper_protection.rs: check" <= 880 &[w::PATH, w::LETTERS, w::QUOTES, w::GROWING], |t|
        judge_call("Edit", member("file_path", t));
    "engine/record.rs: record, of an error; offline/world.rs: record record_as" <= 4_200 ERRORS, |t|
        record_report(report::OutcomeReport { error: Some(error(t)), ..outcome_report(OutcomeStatus::Error) });
    "tool_list/read.rs: read" <= 210 JSONS, |t| count(|| (tool_list::read("list", t).is_ok(),
        tool_list::read("list", &json!({"tools": value(t)}).to_string()).is_ok()));
    "tool_list/params.rs: nodes forms types is_only is_bound; policy/normalizers.rs: fits; \
     rules/condition.rs: misfits" <= 16_000
        TEXTS, |t| {
        let Ok(list) = tool_list::read("list", &list_text(t)) else { return 0 };
        count(|| {
            let declared = std::collections::BTreeMap::new();
            let facts = tool_list::lint::ListFacts::new(&list, &declared);
            let overrides = tool_list::lint::SeverityOverrides::default();
            (tool_list::lint::check(&facts, &overrides).len(), tool_list::import(&list, true))
        })
    };
    "offline/trace.rs: parse" <= 24 JSONS, |t| {
        let line = json!({"trace": "s", "call_id": "c", "tool": "t", "arguments": value(t), "result": t}).to_string();
        count(|| offline::trace::TraceRow::parse(&line).is_ok())
    };
    "hosts/mod.rs: read" <= 360 JSONS, |t| render_host_response(t);
    "hosts/texts.rs: refusal describe_lifting truncate_text" <= 160 &[w::OBJECTS, w::CONTENT, w::GROWING], |t|
        count(|| (hosts::Host::Codex.refusal("s", "t", t), hosts::truncate_text(t)));
    "mcp/message.rs: read" <= 430 &[w::MEMBERS, w::DEEP, w::EQUAL, w::ESCAPES, w::OPEN], |t|
        count(|| std::mem::size_of_val(&mcp::message::read(t)));
    "mcp/events.rs: push data id with_data event" <= 500 &[w::EVENTS, w::LINES, w::LETTERS], |t| count(|| {
        let mut events = mcp::events::Events::new(1 << 16);
        for part in t.as_bytes().chunks(3) {
            events.push(part);
            while events.next_piece().is_some() {}
        }
        (mcp::events::data(t), mcp::events::id(t), mcp::events::event(t))
    });
    "mcp/config.rs: wrap unwrap list_addresses" <= 150 &[w::MEMBERS, w::OBJECTS, w::NAME], |t| {
        let settings = json!({"mcpServers": {"x": value(t)}}).to_string();
        count(|| {
            let wrapped = mcp::config::wrap(&settings, "callgate", &[], |_| None).is_ok();
            (wrapped, mcp::config::unwrap(t).is_ok(), mcp::config::list_addresses(t).is_ok())
        })
    };
    "mcp/inventory.rs: observe; mcp/reported.rs: reported_tools" <= 400 &[w::OBJECTS, w::MEMBERS], |t| {
        let page = value(&t.replace("items", "tools").replace("\"id\"", "\"name\""));
        count(|| {
            let reported = mcp::reported::reported_tools(&page, str::to_owned);
            (mcp::inventory::Inventory::default().observe(&page), reported)
        })
    };
    "mcp/answer.rs: result render_unjudged render_server_lost unreadable progress with_note; \
     mcp/call.rs: with_arguments with_argument" <= 1_300
        &[w::CONTENT, w::MEMBERS, w::QUOTES], |t| count(|| (mcp::answer::with_note(t, t), mcp::answer::unreadable(t),
            mcp::call::with_argument(t, "k", "1"), mcp::call::with_arguments(t, t)));
}
