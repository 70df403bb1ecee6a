"""An MCP server over HTTP for tests: keeps what it is sent in the file named first; answers calls by their tool."""

import gzip
import http.server
import json
import os
import sys
import time
import zlib

kept = open(sys.argv[1], "a", buffering=1)
waiting = {}


def result(request, text, **more):
    # As few spaces as no writer makes them, in an order of its own.
    return json.dumps({"result": {"content": [{"type": "text", "text": text}], **more}, "id": request["id"], "jsonrpc": "2.0"}, separators=(" ,", " :"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def keep(self, body=""):
        names = ["mcp-session-id", "mcp-protocol-version", "mcp-method", "authorization", "last-event-id", "accept-encoding"]
        headers = {name: self.headers[name] for name in names if self.headers[name]}
        kept.write(json.dumps({"method": self.command, "path": self.path, "headers": headers, "body": body}) + "\n")

    def whole(self, body, status=200, kind="application/json", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if body:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def stream(self, *events):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(event.encode())
            self.wfile.flush()
        self.close_connection = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.keep(body)
        message = json.loads(body)
        if isinstance(message, list):
            return self.whole("[" + ", ".join(result(one, "listed") for one in message if "id" in one) + "]")
        if message.get("method") == "initialize":
            return self.whole('{ "id":%s, "result":{} }' % json.dumps(message["id"]), Mcp_Session_Id="one")
        if message.get("method") != "tools/call":
            return self.whole("", 202)
        getattr(self, "call_" + message["params"]["name"], self.call_look)(message)

    def call_look(self, request):
        self.whole(result(request, json.dumps(request["params"].get("arguments", {}))))

    def call_stream(self, request):
        told = '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"a\\u00e4"}}'
        self.stream(": hello\r\n\r\n", "event: message\r\nid: 7\r\ndata:" + told + "\r\n\r\n", "data: " + result(request, "streamed") + "\n\n")

    def call_resume(self, request):
        waiting["x"] = result(request, "resumed")
        self.stream("id: x\nretry: 10\ndata: \n\n")

    def call_accept(self, request):
        waiting["y"] = result(request, "elsewhere")
        self.whole("", 202)

    def call_quiet(self, request):
        self.stream(": nothing more\n\n")

    def call_never(self, request):
        self.stream(": wait\n\n")
        while True:
            time.sleep(0.05)
            self.wfile.write(b": still\n\n")

    def bytes(self, body, kind, coding):
        self.send_response(200)
        for name, value in [("Content-Type", kind), ("Content-Encoding", coding), ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def call_gzip(self, request):
        self.bytes(gzip.compress(result(request, "zipped").encode()), "application/json", "gzip")

    def call_deflate(self, request):
        self.bytes(zlib.compress(result(request, "zipped").encode()), "application/json", "deflate")

    def call_huge(self, request):
        # A quarter of a gibibyte of spaces in 256 kilobytes: a reader that keeps all of it notices.
        packer = zlib.compressobj(wbits=31)
        block = packer.compress(b" " * (1 << 20))
        block += b"".join(packer.compress(b" " * (1 << 20)) for _ in range(255)) + packer.flush()
        self.bytes(block, "application/json", "gzip")

    def call_cut(self, request):
        self.bytes(gzip.compress(result(request, "zipped").encode())[:-9], "application/json", "gzip")

    def call_brotli(self, request):
        self.bytes(b"\x0b\x02\x80{}\x03", "text/event-stream", "br")

    def call_zipped_stream(self, request):
        self.send_response(200)
        for name, value in [("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip"), ("Connection", "close")]:
            self.send_header(name, value)
        self.end_headers()
        packer = zlib.compressobj(wbits=31)
        for event in [": hello\n\n", "data: " + result(request, "streamed") + "\n\n"]:
            self.wfile.write(packer.compress(event.encode()) + packer.flush(zlib.Z_SYNC_FLUSH))
            self.wfile.flush()
            if event.startswith(":"):
                while not os.path.exists(sys.argv[1] + ".go"):
                    time.sleep(0.02)
        self.wfile.write(packer.flush())
        self.close_connection = True

    def call_overload(self, request):
        self.whole("no\n", 503, "text/plain")

    def call_fail(self, request):
        self.whole(result(request, "ENOENT: no such file", isError=True))

    def call_away(self, request):
        self.whole("", 307, Location="http://127.0.0.1:9/elsewhere")

    def call_die(self, request):
        os._exit(3)

    def do_GET(self):
        self.keep()
        self.stream(": resumed\n\n", *("data: " + waiting[key] + "\n\n" for key in [self.headers["last-event-id"]] if key))

    def do_DELETE(self):
        self.keep()
        self.whole("")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
