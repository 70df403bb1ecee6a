//! A host's pipes before a server over HTTP (`callgate mcp-proxy --stdio`), as `callgate mcp wrap` writes them.

use std::{fs, process::Stdio};

use callgate_proto::v1::CallState;
use serde_json::{Value, json};
use tokio::{io::BufReader, process::Command};

use super::{Client, Scene, open_ones, read_text};
use crate::{
    common::until,
    server::{path, program},
};
use callgate_proto::v1::approval_service_client::ApprovalServiceClient;

impl Scene {
    /// A host with the server of `web_server.py` at its pipes.
    async fn piped(&self) -> (Client, super::http::Proxy) {
        let behind = self.http(&[]).await;
        let mut command = Command::from(program());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("XDG_STATE_HOME", behind.kept.with_file_name("piped")).env("HOME", "/nowhere");
        command.env("CALLGATE_HEADER_Authorization", "Bearer secret");
        command.args(["mcp-proxy", "--server", &self.url, "--session", "s", "--server-name", "t", "--stdio"]);
        command.args(["--restores", "url:http", "--url", &format!("http://{}/mcp", behind.server_address)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let errors = child.stderr.take().expect("piped");
        (Client { input: child.stdin.take(), output, errors, child, kept: behind.kept.clone() }, behind)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_calls_tools_of_a_url_through_its_pipes() {
    let scene = Scene::open().await;
    let (mut host, behind) = scene.piped().await;
    host.sends(r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}"#).await;
    assert_eq!(host.reads().await, "{ \"id\":\"a\", \"result\":{} }\n");
    host.sends(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!(read_text(&host.calls(1, "look", json!({"n": 1})).await), json!({"n": 1}));
    let sent: Vec<Value> = behind.sent_requests().into_iter().filter(|sent| sent["method"] == "POST").collect();
    assert!(sent.iter().all(|sent| sent["headers"]["authorization"] == "Bearer secret"), "{sent:?}");
    assert!(sent[1..].iter().all(|sent| sent["headers"]["mcp-session-id"] == "one"), "{sent:?}");
    scene.newest("mcp__t__look", CallState::Succeeded).await;
    assert_eq!(read_text(&host.calls(2, "forbidden", json!({})).await)["status"], "tool_denied");

    // A stream: the server's own messages, then the answer; and one that continues on another stream.
    host.asks(3, "stream", json!({})).await;
    assert!(host.reads().await.contains("notifications/message"));
    assert!(host.reads().await.contains("streamed"));
    let resumed = host.calls(4, "resume", json!({})).await;
    assert_eq!(read_text(&resumed), "resumed");
    scene.newest("mcp__t__resume", CallState::Succeeded).await;

    // Whatever happens, a request gets an answer.
    for (id, tool, why) in [(5, "quiet", "may have taken effect"), (6, "overload", "HTTP status 503")] {
        host.asks(id, tool, json!({})).await;
        let answer: Value = serde_json::from_str(&host.reads().await).expect("JSON");
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(answer["id"] == id && text.contains(why), "{answer}");
    }

    // A cancelled call that is held goes no further.
    let mut people = ApprovalServiceClient::new(scene.server.as_ref().expect("it runs").channel().await);
    let mut open = async || people.list_approvals(open_ones()).await.expect("a list").into_inner().approvals.len();
    host.asks(7, "drop", json!({})).await;
    until("the question", async || open().await == 1).await;
    host.sends(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
    until("the withdrawal", async || open().await == 0).await;
    let (code, said) = host.leaves().await;
    assert_eq!(code, Some(0), "{said}");
    let sent = fs::read_to_string(path(&behind.kept)).expect("a file");
    assert!(!sent.contains("drop") && sent.contains("DELETE"), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_authorization_is_said_to_the_user() {
    let scene = Scene::open().await;
    let server = scene.before("oauth_server.py", "", &[]).await;
    let config = scene.home.file(
        "mcp.json",
        &json!({"mcpServers": {"safe": {"type": "http", "url": format!("http://{}/mcp", server.server_address)}}})
            .to_string(),
    );
    // Its host signs in by itself: it stays as it is.
    let (is_done, said) = scene.wraps(&scene.url, &[path(&config)]).await;
    assert!(is_done && said.contains("safe is unchanged: it asks its host to sign in"), "{said}");
}
