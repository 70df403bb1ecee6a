"""An MCP server that requires OAuth, and a strict authorization server: tokens are for the resource that was named, and
no other one is accepted. `iss`: it names itself in its responses (RFC 9207). Prints both ports."""

import base64
import hashlib
import http.server
import json
import secrets
import sys
import threading
import urllib.parse

names_itself = "iss" in sys.argv[1:]
clients, codes, tokens = {}, {}, {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, **headers):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if text:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()


class Issuer(Handler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/.well-known/oauth-authorization-server/tenant":
            metadata = {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize" + ("" if names_itself else "?fixed=1"),
                "token_endpoint": f"{issuer}/token",
                "registration_endpoint": f"{issuer}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            }
            if names_itself:
                metadata["authorization_response_iss_parameter_supported"] = True
            return self.answer(200, metadata)
        if url.path != "/tenant/authorize":
            return self.answer(404)
        # One that names itself is not told of resources here, as most are not.
        if not names_itself and (query.get("resource") != resource or query.get("fixed") != "1"):
            return self.answer(400, {"error": "invalid_target", "resource": query.get("resource")})
        if query["redirect_uri"] not in clients[query["client_id"]]["redirect_uris"]:
            return self.answer(400, {"error": "invalid_request"})
        code = secrets.token_hex(8)
        codes[code] = query
        back = {"code": code, "state": query.get("state", ""), **({"iss": issuer} if names_itself else {})}
        self.answer(302, Location=query["redirect_uri"] + "?" + urllib.parse.urlencode(back))

    def do_POST(self):
        if self.path == "/tenant/register":
            client = {**json.loads(self.body()), "client_id": secrets.token_hex(8)}
            clients[client["client_id"]] = client
            return self.answer(201, client)
        form = dict(urllib.parse.parse_qsl(self.body()))
        if form.get("resource") != resource and not names_itself:
            return self.answer(400, {"error": "invalid_target", "resource": form.get("resource")})
        if form["grant_type"] == "authorization_code":
            asked = codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
                return self.answer(400, {"error": "invalid_grant"})
        elif not tokens.pop(form["refresh_token"], None):
            return self.answer(400, {"error": "invalid_grant"})
        access, refresh = "a-" + secrets.token_hex(8), "r-" + secrets.token_hex(8)
        tokens.update({access: resource, refresh: resource})
        answer = {"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600}
        self.answer(200, answer, Cache_Control="no-store")


class Mcp(Handler):
    def do_GET(self):
        if self.path == "/about/mcp":
            metadata = {"resource": resource, "authorization_servers": [issuer], "scopes_supported": ["tools"]}
            return self.answer(200, metadata)
        self.answer(405 if self.path == "/mcp" else 404)

    def do_POST(self):
        message, token = json.loads(self.body()), (self.headers["Authorization"] or "").removeprefix("Bearer ")
        if tokens.get(token) != resource:
            about = f'Bearer error="invalid_token", resource_metadata="{origin}/about/mcp", scope="tools"'
            # With the id of the call, as some write it.
            error = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32001, "message": "Unauthorized"}}
            return self.answer(401, error, WWW_Authenticate=about)
        if "id" not in message:
            return self.answer(202)
        result = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "safe", "version": "1"},
            },
            "tools/list": {
                "tools": [
                    {"name": name, "inputSchema": {"type": "object"}} for name in ("look", "expire", "forbidden")
                ]
            },
        }.get(message["method"])
        if message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments", {}))}]}
            if message["params"]["name"] == "expire":
                del tokens[token]
        if result is None:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}}
            return self.answer(200, error)
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, Mcp_Session_Id="one")

    def do_DELETE(self):
        self.answer(200)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


issuing, serving = Server(("127.0.0.1", 0), Issuer), Server(("127.0.0.1", 0), Mcp)
issuer, origin = f"http://127.0.0.1:{issuing.server_port}/tenant", f"http://127.0.0.1:{serving.server_port}"
resource = f"{origin}/mcp"
threading.Thread(target=issuing.serve_forever, daemon=True).start()
print(serving.server_port, issuing.server_port, flush=True)
serving.serve_forever()
