//! OAuth through the MCP proxy, step by step as a client does it. `deploy/mcp/oauth` does it with the protocol's SDKs.

use std::net::SocketAddr;

use callgate_proto::v1::CallState;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use url::form_urlencoded;

use super::Scene;
use crate::common::in_time;

/// Of the challenge in RFC 7636.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const BACK: &str = "http://localhost:9/back";

/// Sends a request to an absolute URL, without a redirect.
async fn send(method: &str, url: &str, headers: &[(&str, &str)], body: String) -> Response<Incoming> {
    let (authority, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL");
    let address: SocketAddr = authority.replace("localhost", "127.0.0.1").parse().expect("an address");
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(format!("/{path}")).header("host", authority);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).expect("a request");
    in_time("an answer", sender.send_request(request)).await.expect("an answer")
}

async fn json_of(answer: Response<Incoming>) -> Value {
    let status = answer.status();
    let body = in_time("a body", answer.into_body().collect()).await.expect("a whole body").to_bytes();
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{status}: {}", String::from_utf8_lossy(&body)))
}

async fn get(url: &str) -> Value {
    json_of(send("GET", url, &[], String::new()).await).await
}

fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// The tokens for `resource` from these endpoints; the authorization server's error otherwise.
async fn authorize(server: &Value, resource: &str) -> Value {
    let client = json!({"redirect_uris": [BACK], "client_name": "test"}).to_string();
    let client = json_of(send("POST", text(server, "registration_endpoint"), &[], client).await).await;
    let client_id = text(&client, "client_id");
    let asked = form(&[
        ("response_type", "code"),
        ("client_id", client_id),
        ("redirect_uri", BACK),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("state", "a&b"),
        ("resource", resource),
    ]);
    // A browser follows the redirects until it is back.
    let endpoint = text(server, "authorization_endpoint");
    let mut url = format!("{endpoint}{}{asked}", if endpoint.contains('?') { '&' } else { '?' });
    while !url.starts_with(BACK) {
        let answer = send("GET", &url, &[], String::new()).await;
        if answer.status() != StatusCode::FOUND {
            return json_of(answer).await;
        }
        url = answer.headers()["location"].to_str().expect("ASCII").to_owned();
    }
    let query: Vec<(String, String)> = form_urlencoded::parse(&url.as_bytes()[BACK.len() + 1..]).into_owned().collect();
    let of_query = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!(of_query("state"), Some("a&b"));
    let exchange = form(&[
        ("grant_type", "authorization_code"),
        ("code", of_query("code").expect("a code")),
        ("redirect_uri", BACK),
        ("client_id", client_id),
        ("code_verifier", VERIFIER),
        ("resource", resource),
    ]);
    json_of(send("POST", text(server, "token_endpoint"), &[], exchange).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_authorized_through_the_proxy_by_a_strict_server() {
    let scene = Scene::open().await;
    let proxy = scene.before("oauth_server.py", "", &[]).await;
    // The address is the one that the client uses.
    let own = format!("http://localhost:{}", proxy.address.port());
    let mcp = format!("{own}/mcp");
    let post = async |token: &str, body: String| {
        let bearer = format!("Bearer {token}");
        send("POST", &mcp, &[("authorization", &bearer), ("mcp-session-id", "one")], body).await
    };

    // A call without authorization was not executed: neither a failure nor a reason to refuse the next one.
    let answer = post("none", call(1, "look", &json!({"n": 1}))).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let about = format!("{own}/.well-known/oauth-protected-resource/mcp");
    let challenge = answer.headers()["www-authenticate"].to_str().expect("ASCII").to_owned();
    let expected = format!(r#"Bearer error="invalid_token", resource_metadata="{about}", scope="tools""#);
    assert_eq!(challenge, expected);
    scene.newest("mcp__t__look", CallState::Cancelled).await;

    let resource = get(&about).await;
    assert_eq!(resource, json!({"resource": mcp, "authorization_servers": [own], "scopes_supported": ["tools"]}));
    let server = get(&format!("{own}/.well-known/oauth-authorization-server")).await;
    assert_eq!(text(&server, "issuer"), own);
    let tokens = authorize(&server, &mcp).await;

    let answer = json_of(post(text(&tokens, "access_token"), call(2, "look", &json!({"n": 1}))).await).await;
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"n": 1}"#);
    scene.newest("mcp__t__look", CallState::Succeeded).await;
    let refused = json_of(post(text(&tokens, "access_token"), call(3, "forbidden", &json!({}))).await).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");

    // A token that expires within the session: the same message again, as SDKs send it, after a refresh.
    json_of(post(text(&tokens, "access_token"), call(4, "expire", &json!({}))).await).await;
    let message = call(5, "look", &json!({"n": 2}));
    assert_eq!(post(text(&tokens, "access_token"), message.clone()).await.status(), StatusCode::UNAUTHORIZED);
    let refresh =
        form(&[("grant_type", "refresh_token"), ("refresh_token", text(&tokens, "refresh_token")), ("resource", &mcp)]);
    let tokens = json_of(send("POST", text(&server, "token_endpoint"), &[], refresh).await).await;
    let answer = json_of(post(text(&tokens, "access_token"), message).await).await;
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"n": 2}"#, "{answer}");

    // The proxy's endpoints are for programs of this machine alone.
    for (method, path) in [("POST", "/.callgate/token"), ("GET", "/.callgate/authorize"), ("GET", "/.well-known/x")] {
        let answer = send(method, &format!("{own}{path}"), &[("origin", "https://evil.example")], String::new()).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(send("GET", &format!("{own}/.well-known/x"), &[], String::new()).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorization_server_that_names_itself_is_used_directly() {
    let scene = Scene::open().await;
    let proxy = scene.before("oauth_server.py", "iss", &[]).await;
    let own = format!("http://127.0.0.1:{}", proxy.address.port());
    send("POST", &format!("{own}/mcp"), &[], call(1, "look", &json!({}))).await;
    let resource = get(&format!("{own}/.well-known/oauth-protected-resource/mcp")).await;
    assert_eq!(text(&resource, "resource"), format!("{own}/mcp"));
    // Clients compare the name in its responses with the one that they were given.
    let issuer = resource["authorization_servers"][0].as_str().expect("an issuer");
    assert!(issuer.ends_with("/tenant"), "{issuer}");
    let (origin, path) = issuer.split_at(issuer.len() - "/tenant".len());
    let server = get(&format!("{origin}/.well-known/oauth-authorization-server{path}")).await;
    let tokens = authorize(&server, text(&resource, "resource")).await;
    let bearer = format!("Bearer {}", text(&tokens, "access_token"));
    let headers = [("authorization", bearer.as_str())];
    let answer = json_of(send("POST", &format!("{own}/mcp"), &headers, call(2, "look", &json!({}))).await).await;
    assert_eq!(answer["result"]["content"][0]["text"], "{}");
}
