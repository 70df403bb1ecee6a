//! Stable names in JSON output, command by command (docs/cli.md#json).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    scripts::Desk,
    server::{path, program, ran, run_to_end},
};

const APPROVAL: &str = "agentId approvalId approvedBy argsDigest argumentsJson bulkRefusal callId claimedBy \
                        comments createTime editedArgsDigest \
                        editedArgumentsJson effect effectResource escalateGroup expireTime findings group host \
                        idempotent justification once policyVersion ranCallId reasons requestedBy requiredApprovals \
                        resolutionReason resolvedBy resource risk riskReasons rootSessionId rule scope seq sessionId \
                        state tier tool";
const SESSION: &str = "agentId calls costMicros createTime depth halted lastDecision lastReason lastTool openCalls \
                       parentSessionId rootSessionId sessionId status steps updateTime";
const TOP: &str = "approvalsOldestTime approvalsOpen at budgets callTreesActive callsOpen callsPerSecond commitMs \
                   enforced halts judging openCircuitBreakers policyBehind policyRevision policyVersion ready refusals \
                   server sessions sessionsHalted sessionsHasMore sessionsHeld sessionsStopped shedPerSecond version \
                   queued unavailable";
const HALT: &str = "by createTime name reason scope";
const REVISION: &str = "activateTime activatedBy hash note revision";
const TENANT: &str =
    "createTime name quotas retention state stateBy stateReason stateTime tenantId usedBytes usedSessions";
const CONTEXT: &str = "ca certificate current key name server token tokenCommand tokenFile";

/// Output compared with the promised names.
#[derive(Default)]
struct OutputCheck(Vec<String>);

impl OutputCheck {
    fn hold(&mut self, line: &str, said: &[Value], wanted: &str) {
        let Some(last) = said.last() else { return self.0.push(format!("{line} has said nothing")) };
        let names: BTreeSet<&str> = last.as_object().expect("an object").keys().map(String::as_str).collect();
        let wanted: BTreeSet<&str> = wanted.split_whitespace().collect();
        if names != wanted {
            self.0.push(format!("{line}: {}", names.into_iter().collect::<Vec<_>>().join(" ")));
        }
    }

    #[track_caller]
    fn end(self) {
        assert!(self.0.is_empty(), "these have other names than they had:\n{}", self.0.join("\n"));
    }
}

fn read(said: &str) -> Vec<Value> {
    said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// Of a recorded outcome.
const RECORDED: &str =
    "budgets doubleEffect effectOpen failure isError nextContextHint replayed status toolResultJson toolsDisabled";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_of_a_server_keeps_its_names() {
    let (desk, mut held) = (Desk::open().await, OutputCheck::default());
    for line in [
        "evaluate --session s1 --tool get_order --call-id c1",
        "record c1 success --session s1 --result 1",
        "evaluate --session s1 --tool delete_order --call-id c2 --wait 0",
        "evaluate --session s1 --tool delete_order --call-id c3 --arguments {\"n\":3} --wait 0",
        "evaluate --session s1 --tool delete_order --call-id c4 --arguments {\"n\":4} --wait 0",
        "evaluate --session s3 --tool delete_order --call-id c5 --arguments {\"n\":5} --wait 0",
        "sessions halt tool drop_table --reason why",
        "sessions halt all",
        "sessions resume all",
        "grants create s1 get_* 5",
        "tenants create acme --sessions 9",
    ] {
        let (code, said, error) = desk.types(line).await;
        assert!(matches!(code, Some(0 | 10)), "{line}: {said}{error}");
    }
    let (_, open) = desk.json("approvals list").await;
    let open = open.iter().filter(|one| one["sessionId"] == "s1");
    let ids: Vec<String> = open.map(|one| one["approvalId"].as_str().expect("an id").to_owned()).collect();
    let (_, grants) = desk.json("grants list s1").await;
    let grant = grants[0]["grantId"].as_str().expect("an id").to_owned();
    let second = desk.home.file("second.yaml", "policy_engine:\n  loops: {repeat: {warning: 5}}\n");
    let apply = format!("policy apply {}", path(&second));
    let backtest = format!("policy backtest {} --since 1h --against {}", path(&second), path(&second));
    let suggest = "policy suggest --since 1h";
    let test = format!("policy test {} --inject-duplicates --since 1h", path(&second));
    for (line, wanted) in [
        ("approvals list", APPROVAL),
        (&format!("approvals show {}", ids[0]), APPROVAL),
        (&format!("approvals approve {}", ids[0]), &format!("{APPROVAL} resolveTime")),
        (&format!("approvals deny {}", ids[1]), &format!("{APPROVAL} resolveTime")),
        (&format!("approvals withdraw {} --by s1", ids[2]), &format!("{APPROVAL} resolveTime")),
        ("audit list", "action by createTime credential erasedBy hash kind number origin reason sessionId"),
        ("audit verify", "anchor erasedTexts problems"),
        ("evaluate --session s1 --tool get_order --call-id c9 --arguments {\"n\":9}", "verdict"),
        ("record c9 success --session s1", RECORDED),
        ("explain c1", "approvals call rules"),
        ("forget session s1", "callTrees otherRows percent sessions"),
        ("grants list s1", "by ceiling expireTime grantId sessionId toolPattern used"),
        ("grants create s1 list_* 5", "by ceiling expireTime grantId sessionId toolPattern used"),
        (&format!("grants revoke s1 {grant}"), ""),
        ("policy list", REVISION),
        ("policy show", "hash revision text"),
        (&test, "duplicates isWrite refused tool"),
        (suggest, "calls policy sessions"),
        (&apply, "hash revision warnings"),
        ("policy rollback", REVISION),
        ("profiles rebuild", "trials"),
        ("report", "asOfTime loopEnds nearPairs tools unknownTools"),
        ("sessions halts", HALT),
        ("sessions halt session s9", HALT),
        ("sessions list", SESSION),
        ("sessions show s1", "state"),
        ("sessions raise s1 max_steps 5", "budgets"),
        ("sessions resume session s9", "wasHalted"),
        ("tenants list", TENANT),
        ("top", TOP),
    ] {
        let (code, said) = desk.json(line).await;
        if code != Some(0) && !line.starts_with("policy test") {
            held.0.push(format!("{line}: exit code {code:?}"));
        }
        held.hold(line, &said, wanted);
    }
    held.end();
    texts(&desk, &backtest).await;
}

/// The text output of the same commands.
async fn texts(desk: &Desk, backtest: &str) {
    let (code, said) = desk.json(backtest).await;
    assert_eq!((code, said.len()), (Some(0), 0), "a policy against itself changes nothing, and that is no line");
    let (code, text, error) = desk.types("top").await;
    assert!(code == Some(0) && text.starts_with("callgate ") && text.contains("\nApprovals\n"), "{text}{error}");
    let (_, text, _) = desk.types("audit list").await;
    assert!(text.contains("  everything  by ") && !text.contains("  tenant  "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_of_files_keeps_its_names() {
    let (folder, mut held) = (tempfile::tempdir().expect("a folder"), OutputCheck::default());
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path
    };
    let (one, two) = (file("one.yaml", "policy_engine: {}\n"), file("two.yaml", "policy_engine: {mode: shadow}\n"));
    let tools =
        file("tools.json", r#"[{"name": "pay", "input_schema": {"properties": {"amount": {"type": "number"}}}}]"#);
    for (words, wanted) in [
        (vec!["policy", "check", path(&one)], "errors file unlistedTools version warnings"),
        (vec!["policy", "diff", path(&one), path(&two)], "after before key"),
        (vec!["tools", "lint", "--list"], "lint severity summary"),
        (vec!["tools", "lint", path(&tools)], "better file guessed line lint message pointer reason severity tool"),
        (vec!["agents", "list"], "file host installed scope status version"),
    ] {
        let (_, said, error) = ran(&[words.as_slice(), &["--json"]].concat()).await;
        assert!(!error.contains("panicked"), "{error}");
        held.hold(&words.join(" "), &read(&said), wanted);
    }
    let config = file("contexts.yaml", "contexts: {}\n");
    std::fs::write(&config, "contexts:\n  here: {server: 'http://127.0.0.1:9'}\n").expect("writable");
    let with = async |line: &str| {
        let mut command = program();
        command.args(line.split(' ')).env("CALLGATE_CONFIG", &config);
        run_to_end(command).await
    };
    for line in ["contexts list --json", "contexts use here --json", "contexts show --json"] {
        let (code, said, error) = with(line).await;
        assert_eq!(code, Some(0), "{line}: {error}");
        held.hold(line, &read(&said), CONTEXT);
    }
    held.end();
    let (code, _, error) = with("contexts use zz").await;
    assert!(code == Some(1) && error.contains("has no context \"zz\": it has here"), "{error}");
}

#[test]
fn the_page_on_machines_shows_what_its_script_says() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs").join(concat!("scale", ".md"))).expect("a page");
    let fenced = |kind: &str| {
        let from = page.split_once(&format!("```{kind}\n")).expect(kind).1;
        from.split_once("\n```").expect("an end").0
    };
    let command: Vec<&str> = fenced("sh").split_whitespace().collect();
    let said = |args: &[&str]| {
        let output = std::process::Command::new(root.join(command[0])).args(args).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"), output.stderr)
    };
    assert_eq!(said(&command[1..]).1.trim_end(), fenced("text"));
    for wrong in [&["1", "2", "3", "4"][..], &["1", "2", "3", "4", "x"], &["1", "0", "3", "4", "5"]] {
        let (code, said, error) = said(wrong);
        assert_eq!((code, said.as_str(), error.is_empty()), (Some(2), "", false), "{wrong:?}");
    }
}
