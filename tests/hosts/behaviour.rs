//! Hook guarantees for users, with each program.

use std::fs;

use serde_json::{Value, json};

use crate::{
    agent::{Agent, conversation, news},
    stage::Stage,
    work::{
        a_build_is_watched, a_diff_shows_what_a_person_edited, a_file_is_read_again_after_a_compaction,
        a_pull_fetches_what_was_pushed_since, failing_tests_close_nothing_else,
    },
};

/// The same tests for each program.
macro_rules! for_each {
    ($($agent:ident: $host:expr;)*) => {$(
        mod $agent {
            use super::*;
            for_each! {@tests $host;
                a_mail_is_sent_once_and_the_model_is_given_its_result
                a_loop_is_broken_and_the_model_is_told
                an_answer_on_the_command_line_releases_a_call_that_waits
                after_a_compaction_the_model_is_told_what_it_has_done
                without_a_server_no_tool_runs
                without_a_server_tools_run_where_the_owner_wants_that
                a_diff_shows_what_a_person_edited
                a_pull_fetches_what_was_pushed_since
                a_build_is_watched
                failing_tests_close_nothing_else
                a_file_is_read_again_after_a_compaction
            }
        }
    )*};
    (@tests $host:expr; $($name:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "it runs a program that `make hosts` installs"]
        async fn $name() {
            super::$name($host).await;
        }
    )*};
}

for_each! {
    claude_code: Agent::ClaudeCode;
    codex: Agent::Codex;
    gemini: Agent::Gemini;
}

/// Marks of a call in a conversation.
const CALLS: [&str; 3] = ["\"tool_use\"", "\"function_call\"", "\"functionCall\""];

fn call(agent: Agent, tool: &str, text: &str) -> Value {
    json!({"call": agent.tool(tool), "with": {"text": text}})
}

async fn a_mail_is_sent_once_and_the_model_is_given_its_result(agent: Agent) {
    let Some(stage) = Stage::open(agent, &[]).await else { return };
    let (ada, bob) = (call(agent, "send", "hello ada"), call(agent, "send", "hello bob"));
    let told = stage.tell("Send the mails.", &json!([ada, ada, bob])).await;
    assert_eq!(stage.ran(), ["send hello ada", "send hello bob"]);
    let [_, sent, refused, other] = &told[..] else { panic!("{} requests", told.len()) };
    assert!(news(sent).contains("send: done as number 1"), "{}", news(sent));
    assert!(news(refused).contains("This is no error") && news(refused).contains("done as number 1"), "{refused}");
    assert!(news(other).contains("send: done as number 2"), "{}", news(other));
}

async fn a_loop_is_broken_and_the_model_is_told(agent: Agent) {
    let Some(stage) = Stage::open(agent, &[]).await else { return };
    let scripts = json!({"test": "echo 12 passed; echo test >> ../ran", "lint": "echo clean; echo lint >> ../ran"});
    let package = json!({"name": "work", "scripts": scripts});
    fs::write(stage.path("work/package.json"), package.to_string()).expect("writable");
    let turns: Vec<Value> = (0..13).flat_map(|_| ["npm test", "npm run lint"]).map(|line| agent.shell(line)).collect();
    let told = stage.tell("Make the tests pass.", &turns.into()).await;
    let runs = stage.ran().len();
    assert!((3..26).contains(&runs), "{runs} runs");
    // Gemini may see a loop by itself first.
    let refusals = ["was not started", "was not run", "Potential loop detected"];
    let is_told = told.iter().map(news).any(|news| refusals.iter().any(|words| news.contains(words)));
    assert!(is_told, "{}", news(told.last().expect("a request")));
}

async fn an_answer_on_the_command_line_releases_a_call_that_waits(agent: Agent) {
    let Some(stage) = Stage::open(agent, &[]).await else { return };
    for answer in ["approve", "deny"] {
        let turns = json!([call(agent, "pay", answer)]);
        let told = stage.tell("Pay.", &turns);
        let answers = async {
            let id = stage.question().await;
            assert!(!stage.ran().contains(&format!("pay {answer}")), "it ran unanswered");
            stage.does(&format!("approvals {answer} {id} --by eve --reason checked-{answer}")).await;
        };
        let (told, ()) = tokio::join!(told, answers);
        let heard = news(&told[1]);
        assert_eq!(heard.contains("pay: done"), answer == "approve", "{heard}");
        assert_eq!(heard.contains("checked-deny"), answer == "deny", "{heard}");
    }
    assert_eq!(stage.ran(), ["pay approve"]);
}

async fn after_a_compaction_the_model_is_told_what_it_has_done(agent: Agent) {
    let Some(stage) = Stage::open(agent, &[]).await else { return };
    // Codex has no such command in batch mode: it compacts when its context is full.
    let full = json!({"say": "Sent.", "tokens": 60_000});
    stage.tell("Send the mail.", &json!([call(agent, "send", "hello ada"), full])).await;
    let mut told = stage.go_on("/compact", &json!([])).await;
    told.extend(stage.go_on("Go on.", &json!([])).await);
    let said: Vec<String> = told.iter().map(|request| Value::from(conversation(request)).to_string()).collect();
    // Gemini in batch mode compacts during the command's turn: the summary arrives in that.
    let has_forgotten = |said: &&String| agent == Agent::Gemini || !CALLS.iter().any(|call| said.contains(call));
    let is_told = |said: &String| said.contains("Do not do these again") && said.contains("hello ada");
    assert!(said.iter().filter(has_forgotten).any(is_told), "{said:#?}");
}

async fn without_a_server_no_tool_runs(agent: Agent) {
    let Some(mut stage) = Stage::open(agent, &[]).await else { return };
    stage.kill();
    let told = stage.tell("Send the mail.", &json!([call(agent, "send", "hello ada")])).await;
    assert_eq!(stage.ran(), [""; 0]);
    assert!(news(&told[1]).contains("was refused, because callgate is unavailable"), "{}", news(&told[1]));
}

async fn without_a_server_tools_run_where_the_owner_wants_that(agent: Agent) {
    let Some(mut stage) = Stage::open(agent, &["--fail-open"]).await else { return };
    stage.kill();
    let told = stage.tell("Send the mail.", &json!([call(agent, "send", "hello ada")])).await;
    assert_eq!(stage.ran(), ["send hello ada"]);
    assert!(news(&told[1]).contains("send: done as number 1"), "{}", news(&told[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it runs a program that `make hosts` installs"]
async fn the_user_of_claude_code_answers_at_its_own_prompt() {
    let agent = Agent::ClaudeCode;
    let Some(stage) = Stage::open(agent, &[]).await else { return };
    let turns = json!([call(agent, "sign", "contract"), call(agent, "sign", "never")]);
    let told = stage.tell("Sign them.", &turns).await;
    assert_eq!(stage.ran(), ["sign contract"]);
    assert!(news(&told[1]).contains("sign: done as number 1"), "{}", news(&told[1]));
    assert!(news(&told[2]).contains("the user said no"), "{}", news(&told[2]));
    let listed = stage.does("approvals list --all").await;
    let states: Vec<&str> = listed.split_whitespace().filter(|word| ["approved", "withdrawn"].contains(word)).collect();
    assert!(states.contains(&"approved") && states.contains(&"withdrawn"), "{listed}");
    assert!(stage.does("audit list").await.contains("host user"));
}
