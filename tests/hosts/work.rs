//! Ordinary work with concurrent people, colleagues and builds: every call runs, and the model gets current results.

use std::{collections::BTreeSet, fs, io::Write as _, path::Path, process::Command, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    agent::{Agent, news},
    stage::Stage,
};

const WHERE: [&str; 3] = ["work", "colleague", "origin"];

/// A folder with a remote, which a colleague has cloned too.
async fn stage(agent: Agent) -> Option<Stage> {
    let stage = Stage::open(agent, &[]).await?;
    let [work, colleague, origin] = WHERE.map(|name| stage.path(name));
    let remote = origin.to_str().expect("UTF-8");
    git(stage.path("").as_path(), &["init", "--quiet", "--bare", "--initial-branch=main", remote]);
    git(&work, &["init", "--quiet", "--initial-branch=main"]);
    git(&work, &["remote", "add", "origin", remote]);
    commit(&work, "notes", "one\n");
    git(&work, &["push", "--quiet", "--set-upstream", "origin", "main"]);
    git(stage.path("").as_path(), &["clone", "--quiet", remote, colleague.to_str().expect("UTF-8")]);
    Some(stage)
}

fn git(folder: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]).args(words).current_dir(folder);
    let output = command.output().expect("git runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn commit(folder: &Path, file: &str, text: &str) {
    fs::write(folder.join(file), text).expect("writable");
    git(folder, &["add", file]);
    git(folder, &["commit", "--quiet", "--message", file]);
}

/// Text for the model after its last call.
fn last(told: &[Value]) -> String {
    news(told.last().expect("a request"))
}

pub(crate) async fn a_diff_shows_what_a_person_edited(agent: Agent) {
    let Some(stage) = stage(agent).await else { return };
    // Some hosts set GIT_EXTERNAL_DIFF to nothing, which git takes for a program.
    let turns = Value::from(vec![agent.shell("git diff --no-ext-diff"); 3]);
    for (word, goes_on) in [("first-edit", false), ("second-edit", true), ("third-edit", true)] {
        fs::write(stage.path("work/notes"), format!("one\n{word}\n")).expect("writable");
        let told = if goes_on { stage.go_on("Show it.", &turns).await } else { stage.tell("Show it.", &turns).await };
        assert!(last(&told).contains(&format!("+{word}")), "{:#?}", told.iter().map(news).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_pull_fetches_what_was_pushed_since(agent: Agent) {
    let Some(stage) = stage(agent).await else { return };
    let turns = json!([agent.shell("git pull")]);
    for (file, goes_on) in [("first", false), ("second", true)] {
        commit(&stage.path("colleague"), file, "theirs\n");
        git(&stage.path("colleague"), &["push", "--quiet"]);
        let told = if goes_on { stage.go_on("Pull.", &turns).await } else { stage.tell("Pull.", &turns).await };
        assert!(stage.path("work").join(file).exists(), "{}", last(&told));
    }
}

pub(crate) async fn a_build_is_watched(agent: Agent) {
    let Some(stage) = stage(agent).await else { return };
    let log = stage.path("work/build.log");
    let build = async {
        let mut log = fs::File::create(&log).expect("writable");
        for step in 0_u64.. {
            writeln!(log, "compiled {step}").expect("writable");
            sleep(Duration::from_millis(20)).await;
        }
    };
    // Gemini by itself ends a turn with five equal calls in a row.
    let turns = Value::from(vec![agent.shell("tail -n 1 build.log"); 4]);
    let told = tokio::select! {
        told = stage.tell("Watch the build.", &turns) => told,
        () = build => unreachable!("it never ends"),
    };
    let seen: Vec<String> = told[1..].iter().map(news).collect();
    assert!(seen.len() == 4 && seen.iter().all(|news| news.contains("compiled ")), "{seen:#?}");
    let different: BTreeSet<_> = seen.iter().map(|news| news.split("compiled ").nth(1)).collect();
    assert_eq!(different.len(), 4, "{seen:#?}");
}

pub(crate) async fn failing_tests_close_nothing_else(agent: Agent) {
    let Some(stage) = stage(agent).await else { return };
    let failing = |n| agent.shell(&format!("node -e 'console.log(\"test {n} failed\"); process.exit(1)' test-{n}"));
    let turns: Vec<Value> = (1..6).map(failing).chain([agent.shell("ls")]).collect();
    let told = stage.tell("Run the tests.", &turns.into()).await;
    assert!(last(&told).contains("notes"), "{}", last(&told));
}

pub(crate) async fn a_file_is_read_again_after_a_compaction(agent: Agent) {
    let Some(stage) = stage(agent).await else { return };
    let path = stage.path("work/notes");
    let (read, edit) = match agent {
        Agent::ClaudeCode => (
            json!({"call": "Read", "with": {"file_path": path}}),
            json!({"call": "Edit", "with": {"file_path": path, "old_string": "one", "new_string": "two"}}),
        ),
        _ => (agent.shell("cat notes"), agent.shell("sed -i s/one/two/ notes")),
    };
    let full = json!({"say": "Read.", "tokens": 60_000});
    stage.tell("Read the notes.", &json!([read, full])).await;
    stage.go_on("/compact", &json!([])).await;
    let told = stage.go_on("Edit the notes.", &json!([read, edit])).await;
    assert_eq!(fs::read_to_string(&path).expect("readable"), "two\n", "{}", last(&told));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it runs a program that `make hosts` installs"]
async fn a_push_that_the_user_refused_runs_when_they_ask_for_it() {
    let agent = Agent::ClaudeCode;
    let Some(stage) = stage(agent).await else { return };
    commit(&stage.path("work"), "mine", "mine\n");
    let is_pushed = || {
        git(&stage.path("colleague"), &["pull", "--quiet"]);
        stage.path("colleague/mine").exists()
    };
    fs::write(stage.path("ran.no"), "").expect("writable");
    let told = stage.tell("Go on.", &json!([agent.shell("git push")])).await;
    assert!(!is_pushed() && last(&told).contains("the user said no"), "{}", last(&told));
    fs::remove_file(stage.path("ran.no")).expect("there");
    let told = stage.go_on("Now push.", &json!([agent.shell("git push")])).await;
    assert!(is_pushed(), "{}", last(&told));
}
