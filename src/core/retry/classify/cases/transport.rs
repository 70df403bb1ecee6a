//! Transport errors between the caller and the tool.

use crate::domain::failure::{
    ErrorReport,
    FailureKind::{
        self, Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted,
        RateLimited, Timeout, Unavailable,
    },
};

use super::{bare, grpc, http, of_type, text};

/// Clients, systems and languages.
#[rustfmt::skip]
pub(super) fn connections() -> Vec<(ErrorReport, FailureKind)> {
    let traceback = "Traceback (most recent call last):\n  File \"/app/tool.py\", line 12, in call\n    raise_for_timeout(timed_out=True)\nrequests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example.com', port=443): Max retries exceeded with url: /v1 (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))";
    vec![
        (bare("ECONNRESET", "read ECONNRESET"), Network),
        (bare("ETIMEDOUT", "connect ETIMEDOUT 10.0.0.1:443"), Timeout),
        (bare("ENOTFOUND", "getaddrinfo ENOTFOUND api.example.com"), Network),
        (text("connect ECONNREFUSED 127.0.0.1:5432"), Network),
        (bare("ECONNABORTED", "timeout of 1000ms exceeded"), Timeout),
        (bare("ENOENT", "no such file or directory, open '/tmp/x'"), NotFound),
        (text("ENOENT: no such file or directory, open '/tmp/x'"), NotFound),
        (text("EACCES: permission denied, open '/etc/shadow'"), Permission),
        (text("Access denied - path outside allowed directories: /etc not in /srv"), Permission),
        (bare("EDQUOT", "disk quota exceeded"), QuotaExhausted),
        (of_type("requests.exceptions.ReadTimeout", "HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=5)"), Timeout),
        (of_type("TimeoutError", ""), Timeout),
        (of_type("FileNotFoundError", "[Errno 2] No such file or directory: 'x'"), NotFound),
        (of_type("rate_limited", ""), RateLimited),
        (of_type("quota_exhausted", ""), QuotaExhausted),
        (text(traceback), Network),
        (text("TypeError: fetch failed"), Network),
        (text("book_flight() got an unexpected keyword argument 'timeout'"), InvalidArgument),
        (text("java.net.SocketTimeoutException: Read timed out\n\tat java.net.SocketInputStream.read(SocketInputStream.java:150)"), Timeout),
        (text("context deadline exceeded"), Timeout),
        (text("Tool execution failed: ReadTimeout"), Timeout),
        (text("Faraday::ConnectionFailed: end of file reached"), Network),
        (text("curl: (6) Could not resolve host: api.example.com"), Network),
        (text("fatal: Unable to create '/repo/.git/index.lock': File exists."), Conflict),
        (text("KeyError: 'reservation_id'"), Other),
        (text("JSONDecodeError: Expecting value: line 1 column 1 (char 0)"), Other),
    ]
}

/// HTTP and gRPC.
#[rustfmt::skip]
pub(super) fn statuses() -> Vec<(ErrorReport, FailureKind)> {
    vec![
        (http(400, "Invalid value for rate_limit: must be a positive integer"), InvalidArgument),
        (http(400, ""), InvalidArgument),
        (http(401, ""), Auth),
        (http(402, ""), QuotaExhausted),
        (http(403, ""), Permission),
        (http(404, ""), NotFound),
        (http(408, ""), Timeout),
        (http(409, ""), Conflict),
        (http(410, ""), NotFound),
        (http(412, ""), Conflict),
        (http(422, ""), InvalidArgument),
        (http(423, ""), Conflict),
        (http(429, ""), RateLimited),
        (http(500, ""), Internal),
        (http(500, "upstream request timeout"), Timeout),
        (http(502, "<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>"), Unavailable),
        (text("<html><head><title>502 Bad Gateway</title></head><body></body></html>"), Unavailable),
        (http(503, "upstream connect error or disconnect/reset before headers. reset reason: connection timeout"), Unavailable),
        (http(503, "upstream connect error or disconnect/reset before headers. reset reason: connection termination"), Network),
        (http(503, "Slow down: rate limit exceeded"), RateLimited),
        (http(504, ""), Timeout),
        (http(529, ""), Unavailable),
        (http(418, "I'm a teapot"), Other),
        (http(200, "not enough seats"), Other),
        (text("503 Server Error: Service Unavailable for url: https://api.example.com/v1"), Unavailable),
        (bare("429", ""), RateLimited),
        (of_type("HTTP 503", ""), Unavailable),
        (grpc(3, ""), InvalidArgument),
        (grpc(4, ""), Timeout),
        (grpc(5, ""), NotFound),
        (grpc(6, ""), InvalidArgument),
        (grpc(7, ""), Permission),
        (grpc(8, ""), RateLimited),
        (grpc(8, "daily quota exceeded"), QuotaExhausted),
        (grpc(10, ""), Conflict),
        (grpc(13, ""), Internal),
        (grpc(14, ""), Unavailable),
        (grpc(14, "error reading from server: EOF"), Network),
        (grpc(16, ""), Auth),
        (text("rpc error: code = NotFound desc = user missing"), NotFound),
        (text("rpc error: code = Unavailable desc = connection error: desc = \"transport: dial tcp 127.0.0.1:50051: connect: connection refused\""), Network),
        (text("status: ResourceExhausted, message: \"slow\", details: []"), RateLimited),
        (text("<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.DEADLINE_EXCEEDED"), Timeout),
    ]
}

/// MCP servers.
#[rustfmt::skip]
pub(super) fn mcp() -> Vec<(ErrorReport, FailureKind)> {
    vec![
        (text("MCP error -32602: Invalid params"), InvalidArgument),
        (text("MCP error -32601: Method not found"), NotFound),
        (text("MCP error -32603: Internal error"), Internal),
        (text("MCP error -32603: fetch failed"), Network),
        (text("MCP error -32001: Request timed out"), Timeout),
        (text("MCP error -32001: Session not found"), NotFound),
        (text("MCP error -32000: Connection closed"), Network),
        (text(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"Unknown arguments"}}"#), InvalidArgument),
        (text("Unknown tool: book_hotel"), NotFound),
        (text("Internal Server Error"), Internal),
        // The words of a JSON error are those of its message, not of advice, links and echoes.
        (text(r#"{"message":"seat 14A is taken","help":"after a timeout call get_seats; rate limit 10/s","request":{"note":"too many requests"}}"#), Other),
        (text(r#"{"error":{"message":"The service is temporarily unavailable","docs":"see /errors/invalid-argument"}}"#), Unavailable),
        (text(r#"{"error":{"code":"RESOURCE_EXHAUSTED","message":"Come back later"}}"#), RateLimited),
        (text(r#"{"reason":"connection timed out"}"#), Timeout),
    ]
}
