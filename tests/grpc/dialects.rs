//! The contract without gRPC: JSON and protobuf of the Connect protocol.

use std::{io::Write as _, net::SocketAddr};

use bytes::Bytes;
use callgate_net::listener::TransportSettings;
use callgate_proto::v1;
use callgate_server::grpc::GrpcSettings;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Request, StatusCode, request::Builder};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use prost_reflect::DescriptorPool;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::common::{
    gates::policy,
    in_time,
    wire::{Plane, call, question},
};

/// One request over HTTP/1, on a connection of its own.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> (StatusCode, HeaderMap, Bytes) {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(address, request, body).await
}

async fn send(address: SocketAddr, request: Builder, body: impl Into<Bytes>) -> (StatusCode, HeaderMap, Bytes) {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
    tokio::spawn(connection);
    let request = request.header("host", "localhost").body(Full::new(body.into())).expect("a request");
    let (head, body) = in_time("an answer", client.send_request(request)).await.expect("one").into_parts();
    (head.status, head.headers, in_time("its body", body.collect()).await.expect("all of it").to_bytes())
}

const JSON: (&str, &str) = ("content-type", "application/json");

async fn ask(address: SocketAddr, method: &str, body: &Value) -> (StatusCode, Value) {
    let (status, headers, body) = post(address, &format!("/callgate.v1.{method}"), &[JSON], body.to_string()).await;
    assert_eq!(headers["content-type"], "application/json", "{status} {body:?}");
    assert_eq!(headers["cache-control"], "no-store");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

fn evaluation(call_id: &str) -> Value {
    json!({
        "caller": {"sessionId": "s", "agentId": "a"},
        "call": {"callId": call_id, "tool": "get_order", "argumentsJson": "{\"id\":4}"},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_asked_in_json() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let (status, verdict) = ask(plane.address, "GateService/Evaluate", &evaluation("c1")).await;
    assert_eq!((status, &verdict["verdict"]["decision"]), (StatusCode::OK, &json!("DECISION_ALLOW")), "{verdict}");
    let report =
        json!({"caller": {"sessionId": "s"}, "callId": "c1", "status": "OUTCOME_STATUS_SUCCESS", "result": "4"});
    let (status, recorded) = ask(plane.address, "GateService/Record", &report).await;
    assert_eq!((status, &recorded["status"]), (StatusCode::OK, &json!("OUTCOME_STATUS_SUCCESS")), "{recorded}");
    // Names as the contract has them are understood, too.
    let state = json!({"session_id": "s", "last_calls": 5});
    let (status, state) = ask(plane.address, "GateService/GetSessionState", &state).await;
    assert_eq!(status, StatusCode::OK, "{state}");
    assert_eq!(state["state"]["calls"][0]["callId"], "c1", "{state}");
    assert_eq!(plane.postgres.number("select count(*) from call").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_has_the_form_of_connect() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let at = plane.address;
    let info = |error: &Value| error["details"][0]["debug"].clone();

    let mut no_session = evaluation("c1");
    no_session["caller"] = json!({});
    let (status, error) = ask(at, "GateService/Evaluate", &no_session).await;
    assert_eq!((status.as_u16(), &error["code"]), (400, &json!("invalid_argument")), "{error}");
    assert_eq!(info(&error)["reason"], "INVALID_FIELD", "{error}");
    assert_eq!(info(&error)["metadata"]["field"], "caller.session_id", "{error}");
    assert_eq!(error["details"][0]["type"], "google.rpc.ErrorInfo", "{error}");

    let (status, _, body) = post(at, "/callgate.v1.GateService/Evaluate", &[JSON], "{\"call\":").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body:?}");
    let (status, _, _) = post(at, "/callgate.v1.GateService/Guess", &[JSON], "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, error) = ask(at, "SessionService/WatchSession", &json!({"sessionId": "s"})).await;
    assert_eq!((status.as_u16(), &error["code"]), (501, &json!("unimplemented")), "{error}");

    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(5 << 20));
    let (status, _, body) = post(at, "/callgate.v1.GateService/Evaluate", &[JSON], large).await;
    assert!(status == StatusCode::BAD_REQUEST && body.starts_with(b"{\"code\":\"out_of_range\""), "{status} {body:?}");
    let bad = [("connect-timeout-ms", "soon"), ("content-encoding", "br"), ("content-encoding", "gzip")];
    for header in bad {
        let (status, _, body) = post(at, "/callgate.v1.GateService/Evaluate", &[JSON, header], "{}").await;
        let said = String::from_utf8_lossy(&body).into_owned();
        assert!(status == StatusCode::BAD_REQUEST && said.contains(header.0), "{status} {said}");
    }
    assert_eq!(plane.row_count().await, 0, "nothing was stored");
}

/// Field and text of an error.
fn fault(error: &Value) -> (&str, &str) {
    let field = error["details"][0]["debug"]["metadata"]["field"].as_str().unwrap_or_default();
    (field, error["message"].as_str().expect("a message"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_in_json_names_its_field_and_what_is_allowed() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let at = plane.address;
    let evaluate = "GateService/Evaluate";
    let batch = json!({"caller": {"sessionId": "s"}, "calls": [{"callId": "c"}, {"callId": "d", "argumentsJson": {}}]});
    let listed = "ALLOW, DECISION_ASK, DECISION_WAIT, DECISION_REUSE, DECISION_DENY, DECISION_STOP";
    for (method, body, field, said) in [
        (evaluate, json!([]), "body", "is no EvaluateRequest in JSON: invalid type: sequence"),
        (evaluate, json!({"calll": {}}), "calll", "is no field of EvaluateRequest, which has caller, call, "),
        (evaluate, json!({"call": {"toool": "x"}}), "call.toool", "is no field of ToolCall, which has callId, tool, "),
        (evaluate, json!({"call": {"tool": 4}}), "call.tool", "invalid type: integer `4`, expected a string"),
        (evaluate, json!({"call": 4}), "call", "invalid type: integer `4`"),
        (evaluate, json!({"call": {"costEstimateMicros": "much"}}), "call.cost_estimate_micros", "invalid digit"),
        ("GateService/BatchEvaluate", batch, "calls[1].arguments_json", "invalid type: map, expected a string"),
        ("GateService/Record", json!({"status": "SUCCESS"}), "status", "OUTCOME_STATUS_SUCCESS, OUTCOME_STATUS_ERROR"),
        (
            "GateService/Record",
            json!({"status": 99}),
            "status",
            "is 99, which is no value of it; its values are 1 RUNNING",
        ),
        ("SessionService/ListCalls", json!({"filter": {"decision": "allow"}}), "filter.decision", listed),
        ("SessionService/ListCalls", json!({"filter": {"decision": 77}}), "filter.decision", "1 ALLOW, 2 ASK"),
        ("SessionService/Halt", json!({"scope": "EVERYTHING"}), "scope", "HALT_SCOPE_TENANT"),
        ("ApprovalService/ListApprovals", json!({"order": 9}), "order", "1 RISK"),
        ("FleetService/GetFleet", json!({"parts": [1, 99]}), "parts[1]", "1 DECISIONS"),
    ] {
        let mut body = body;
        if let (Some(body), "GateService/Record") = (body.as_object_mut(), method) {
            body.extend([("caller".to_owned(), json!({"sessionId": "s"})), ("callId".to_owned(), json!("c"))]);
        }
        let (status, error) = ask(at, method, &body).await;
        assert_eq!((status.as_u16(), &error["code"]), (400, &json!("invalid_argument")), "{error}");
        let (named, text) = fault(&error);
        assert_eq!(named, field, "{error}");
        assert!(text.starts_with(&format!("{field} ")) && text.contains(said), "{said}: {error}");
    }
    let (status, _, body) = post(at, "/callgate.v1.GateService/Evaluate", &[JSON], "{\"call\": {\"tool\": ").await;
    let error: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((status, fault(&error).0), (StatusCode::BAD_REQUEST, "body"), "{error}");
    let long = json!({"call": {"x".repeat(100_000): 1}});
    let (_, error) = ask(at, evaluate, &long).await;
    assert!(error.to_string().len() < 4_000, "{}", error.to_string().len());
    assert_eq!(plane.row_count().await, 0, "nothing was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_content_type_or_verb_is_told_what_a_method_takes() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let path = "/callgate.v1.GateService/Evaluate";
    let taken = "application/json, application/proto or application/grpc";
    for (headers, is) in [(vec![("content-type", "text/plain")], "is \"text/plain\""), (vec![], "is missing")] {
        let (status, headers, body) = post(plane.address, path, &headers, "{}").await;
        let error: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{error}");
        assert_eq!(headers["accept-post"], "application/json, application/proto, application/grpc");
        let (field, text) = fault(&error);
        assert!(field == "content-type" && text.contains(is) && text.contains(taken), "{error}");
    }
    let (status, headers, body) = send(plane.address, Request::get(path), "").await;
    let error: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((status, headers["allow"].as_bytes()), (StatusCode::METHOD_NOT_ALLOWED, &b"POST"[..]), "{error}");
    assert!(fault(&error).1.contains("takes POST only"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_gzip_deadlines_and_grpc_web_are_understood() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let at = plane.address;
    let path = "/callgate.v1.GateService/Evaluate";
    let asked = |id: &str| question("s", call(id, "get_order", &format!(r#"{{"id":"{id}"}}"#))).encode_to_vec();

    let headers =
        [("content-type", "application/proto"), ("connect-protocol-version", "1"), ("connect-timeout-ms", "5000")];
    let (status, headers, body) = post(at, path, &headers, asked("c1")).await;
    assert_eq!((status, headers["content-type"].as_bytes()), (StatusCode::OK, &b"application/proto"[..]));
    let verdict = v1::EvaluateResponse::decode(body).expect("a message").verdict.expect("a verdict");
    assert_eq!(verdict.decision(), v1::Decision::Allow);

    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(evaluation("c2").to_string().as_bytes()).expect("memory");
    let zipped = zipped.finish().expect("memory");
    let (status, _, body) = post(at, path, &[JSON, ("content-encoding", "gzip")], zipped).await;
    assert_eq!(status, StatusCode::OK, "{body:?}");

    let message = asked("c3");
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(&message);
    let web = [("content-type", "application/grpc-web+proto"), ("x-grpc-web", "1")];
    let (status, ..) = post(at, path, &web, framed).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "gRPC-Web");
    assert_eq!(plane.postgres.number("select count(*) from call").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_listed_origins_may_ask_and_others_may_not() {
    let origins = vec![HeaderValue::from_static("https://console.example")];
    let settings = GrpcSettings { origins, ..GrpcSettings::default() };
    let plane = Plane::serve_with(&policy(&["same_call"]), &TransportSettings::default(), settings).await;
    let (at, path) = (plane.address, "/callgate.v1.GateService/Evaluate");
    let asked = async |origin: &str, id: &str| {
        let (status, headers, body) = post(at, path, &[JSON, ("origin", origin)], evaluation(id).to_string()).await;
        (status.as_u16(), headers.get("access-control-allow-origin").cloned(), body)
    };
    let (status, allowed, body) = asked("https://console.example", "c1").await;
    assert_eq!(
        (status, allowed.expect("told")),
        (200, HeaderValue::from_static("https://console.example")),
        "{body:?}"
    );
    let (status, allowed, _) = asked("http://localhost:5173", "c2").await;
    assert_eq!((status, allowed), (200, None), "its browser does not let it read that");
    // A foreign name that resolves to this machine.
    for foreign in
        ["http://evil.example:7600", "https://console.example.evil.example", "null", "http://127.0.0.1.evil.example"]
    {
        let (status, allowed, body) = asked(foreign, "c3").await;
        assert_eq!((status, allowed), (403, None), "{foreign}");
        assert!(String::from_utf8_lossy(&body).contains("ORIGIN_REFUSED"), "{body:?}");
    }
    assert_eq!(plane.postgres.number("select count(*) from call").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_answers_in_json() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let pool = DescriptorPool::decode(v1::DESCRIPTORS).expect("descriptors");
    let services: Vec<_> = pool.services().filter(|service| service.package_name() == "callgate.v1").collect();
    let mut count = 0;
    for method in services.iter().flat_map(|service| service.methods()) {
        let path = format!("{}/{}", method.parent_service().name(), method.name());
        let (status, answer) = ask(plane.address, &path, &json!({})).await;
        let streams = method.is_client_streaming() || method.is_server_streaming();
        assert_eq!(status == StatusCode::NOT_IMPLEMENTED, streams, "{path}: {answer}");
        assert!(status == StatusCode::OK || answer["code"].is_string(), "{path}: {status} {answer}");
        assert!(!status.is_server_error() || streams, "{path}: {status} {answer}");
        count += 1;
    }
    assert!(count > 40, "{count}");
}

/// A browser sends these types for any page without asking whether it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simple_cross_origin_request_is_no_call() {
    let plane = Plane::start(&policy(&[])).await;
    let asked = v1::EvaluateRequest::encode_to_vec(&question("s", call("c1", "look", "{}")));
    let frame = [&[0][..], &u32::try_from(asked.len()).expect("short").to_be_bytes(), &asked].concat();
    let path = "/callgate.v1.GateService/Evaluate";
    for kind in ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded", ""] {
        let headers: &[(&str, &str)] = if kind.is_empty() { &[] } else { &[("content-type", kind)] };
        let (status, _, _) = post(plane.address, path, headers, frame.clone()).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        let (status, _, _) = post(plane.address, "/callgate.v1.GateService/Guess", headers, frame.clone()).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{kind}");
    }
    assert_eq!(plane.postgres.number("select count(*) from call").await, 0);
}
