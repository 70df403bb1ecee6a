//! `callgate serve --keys` as a process: missing keys fail a start and are never printed; keys rotate at runtime, and
//! can be removed once no row needs them.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use callgate_proto::v1;
use tonic::Code;

use crate::{
    common::{
        until,
        wire::{call, evaluate, pair, question, record, success},
    },
    server::{Home, Server, fail_to_start, path, ran},
};

/// Three keys, and forms in which each might leak.
const OLD: &str = "1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e1f2e";
const NEW: &str = "7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d7c5d";
const MARK: &str = "3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a3b9a";
const TOLD: [&str; 6] = ["1f2e1f2e", "Hy4f", "7c5d7c5d", "fF18", "3b9a3b9a", "O5o7"];

fn says_no_key(text: &str) {
    for key in TOLD {
        assert!(!text.contains(key), "{key} is in {text}");
    }
}

/// A file of the tenant `default` with these lines as its keys; keys named in them are files beside it.
fn keys(home: &Home, lines: &[String]) -> PathBuf {
    let mark = secret(home, "mark", MARK);
    let text =
        format!("tenants:\n  default:\n    keys:\n{}    fingerprint: {{file: {}}}\n", lines.concat(), path(&mark));
    home.file("keys.yaml", &text)
}

fn secret(home: &Home, name: &str, key: &str) -> PathBuf {
    let file = home.file(name, key);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
    file
}

fn in_file(id: &str, file: &str) -> String {
    format!("    - {{id: {id}, file: {file}}}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_whose_keys_cannot_be_had_begins_nothing() {
    let home = Home::empty();
    let dir = home.data_dir();
    let short = secret(&home, "short", &OLD[..62]);
    let folder = path(dir.parent().expect("a folder")).to_owned();
    let by = |command: &str| vec![format!("    - {{id: old, command: {command}}}\n")];
    let [short, missing] = [path(&short).to_owned(), format!("{folder}/nowhere")];
    let twice = [in_file("old", &short), in_file("old", &short)];
    for (lines, told) in [
        (vec![in_file("old", &missing)], "key \"old\": the file"),
        (vec![in_file("old", &folder)], "cannot be read: Is a directory"),
        (vec![in_file("old", &short)], "gave something other than 32 bytes in base64 or hexadecimal"),
        (vec![in_file("'o l d'", &short)], "tenants.default.keys[0].id has to have 1 to 64 letters"),
        (twice.to_vec(), "tenants.default.keys[1].id is \"old\", as another key's of the tenant"),
        (vec!["    - {id: old, key: x}\n".to_owned()], "unknown field"),
        (by(&format!("[sh, -c, 'echo {OLD} >&2; exit 4']")), "the command \"sh\" gave no key: it failed: exit status"),
        (by(&format!("[echo, {OLD}{OLD}]")), "the command \"echo\" gave something other"),
        (by("[sleep, '1000']"), "the command \"sleep\" did not end within 10s"),
    ] {
        let file = keys(&home, &lines);
        let args = ["--listen", "127.0.0.1:0", "--data-dir", path(&dir), "--keys", path(&file)];
        let (code, said) = fail_to_start(&args).await;
        assert!(code == Some(1) && said.contains(told) && said.contains(path(&file)), "{told}: {said}");
        // Error output of the command itself goes to the log.
        says_no_key(&said.replace(&format!("{OLD}\n"), ""));
        assert!(!dir.exists(), "no database is created: {told}");
    }
    let (code, said) = fail_to_start(&["--data-dir", path(&dir), "--keys", &missing]).await;
    assert!(code == Some(1) && said.contains(&format!("cannot read --keys {missing}")), "{said}");
}

/// Output of `callgate keys` on this server.
async fn run_keys_command(server: &Server, what: &str) -> String {
    let url = format!("http://{}", server.address);
    let (code, said, error) = ran(&["keys", what, "--server", &url]).await;
    says_no_key(&format!("{said}{error}"));
    assert_eq!(code, Some(0), "{error}");
    said
}

async fn evaluate_call(server: &Server, session: &str, call_id: &str) -> Result<v1::Decision, (Code, String)> {
    let asked = server.client().await.evaluate(question(session, call(call_id, "look", r#"{"of":"dunnock"}"#))).await;
    asked.map(|answer| answer.into_inner().verdict.expect("a verdict").decision()).map_err(|status| {
        says_no_key(status.message());
        pair(&status)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_rotated_sealed_over_and_taken_away_while_nothing_tells_it() {
    let home = Home::with_cluster().await;
    let [old, new] = [("old", OLD), ("new", NEW)].map(|(id, key)| in_file(id, path(&secret(&home, id, key))));
    let file = keys(&home, std::slice::from_ref(&old));
    let (dir, log) = (home.data_dir(), home.file("log", ""));
    let args = ["--data-dir", path(&dir), "--keys", path(&file), "--log", "trace"];
    let server = Server::logging(&args, &log);
    let mut agent = server.client().await;
    evaluate(&mut agent, question("s", call("a", "look", r#"{"of":"wagtail"}"#))).await;
    record(&mut agent, success("s", "a", "redstart")).await;
    assert_eq!(run_keys_command(&server, "list").await, "old: 2 rows; encrypts new values\n");

    // A file that becomes unusable changes nothing, and is logged once.
    fs::write(&file, "tenants: {default: {}}").expect("written");
    let troubled = "the keys of tenants cannot be read, and the last ones hold";
    until("the word", async || fs::read_to_string(&log).expect("a log").contains(troubled)).await;
    evaluate(&mut agent, question("s", call("b", "look", r#"{"of":"siskin"}"#))).await;
    keys(&home, &[new.clone(), old.clone()]);
    until("the new key", async || {
        Box::pin(run_keys_command(&server, "list")).await.starts_with("new: 0 rows; encrypts new values")
    })
    .await;
    assert_eq!(run_keys_command(&server, "list").await, "new: 0 rows; encrypts new values\nold: 3 rows; is needed\n");
    let sealed = run_keys_command(&server, "reencrypt").await;
    assert_eq!(sealed, "Rows re-encrypted: 3.\nnew: 3 rows; encrypts new values\nold: 0 rows; is unused\n");
    let arguments = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("a process");
    says_no_key(&String::from_utf8_lossy(&arguments));
    says_no_key(&server.greeting);
    server.kill();

    // The old key is not needed; without the new one nothing of the tree is readable.
    keys(&home, &[new]);
    let server = Server::logging(&args, &log);
    assert_eq!(evaluate_call(&server, "s", "c").await, Ok(v1::Decision::Allow));
    server.kill();
    says_no_key(&fs::read_to_string(&log).expect("a log"));
    keys(&home, &[old]);
    let server = Server::logging(&args, &log);
    let refused = evaluate_call(&server, "s", "d").await;
    assert_eq!(refused, Err((Code::FailedPrecondition, "KEY_MISSING".to_owned())));
    assert_eq!(evaluate_call(&server, "t", "a").await, Ok(v1::Decision::Allow), "what needs no other key goes on");
    assert_eq!(
        run_keys_command(&server, "list").await,
        "old: 1 rows; encrypts new values\nnew: 4 rows; is needed, but missing on the server\n"
    );
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("the key \"new\" of tenant 1 is not on this server"), "{text}");
    says_no_key(&text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_everybody_may_read_is_told() {
    let home = Home::with_cluster().await;
    let open = home.file("open", OLD);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("ours");
    let file = keys(&home, &[in_file("old", path(&open))]);
    let (dir, log) = (home.data_dir(), home.file("log", ""));
    let _server = Server::logging(&["--data-dir", path(&dir), "--keys", path(&file)], &log);
    let text = fs::read_to_string(&log).expect("a log");
    let warned =
        text.lines().filter(|line| line.contains("every user of this machine can read it")).collect::<Vec<_>>();
    assert!(warned.len() == 1 && warned[0].contains(path(&open)), "{text}");
    says_no_key(&text);
}
