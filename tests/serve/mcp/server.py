"""An MCP server for tests: keeps every line it reads, as bytes, in the file named first; answers calls by their tool."""

import json
import os
import sys
import time

kept = open(sys.argv[1], "ab", buffering=0)
listed = sys.argv[2] if len(sys.argv) > 2 else None


def say(line):
    sys.stdout.buffer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(request, text, **more):
    return {"result": {"content": [{"type": "text", "text": text}], **more}, "id": request["id"], "jsonrpc": "2.0"}


def call(request):
    name, arguments = request["params"]["name"], request["params"].get("arguments", {})
    if name == "die":
        os._exit(3)
    if name == "fail":
        return text(request, "ENOENT: no such file", isError=True)
    if name == "late":
        return text(request, "timed out", isError=True)
    if name == "broken":
        return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "Unknown tool: broken"}}
    if name == "asks" and "inputResponses" not in request["params"]:
        return {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "input_required", "requestState": "s"}}
    if name == "samples":
        # A request of the server's own, by the same id.
        say({"jsonrpc": "2.0", "id": request["id"], "method": "sampling/createMessage", "params": {}})
        kept.write(sys.stdin.buffer.readline())
    if name == "large":
        return text(request, "x" * (20 << 20))
    if name == "slow":
        time.sleep(arguments["s"])
    if name == "never":
        return None
    return text(request, json.dumps(arguments))


if "environment" in sys.argv:
    say({"environment": sorted(name for name in os.environ if name.startswith("CALLGATE"))})
for line in iter(sys.stdin.buffer.readline, b""):
    kept.write(line)
    try:
        message = json.loads(line)
    except ValueError:
        say(b"not json: " + line)
        continue
    requests = message if isinstance(message, list) else [message]
    answers = []
    for request in requests:
        method = request.get("method")
        if method == "tools/call":
            answers.append(call(request))
        elif method == "tools/list":
            answers.append({"jsonrpc": "2.0", "id": request["id"], "result": json.load(open(listed))})
        elif "id" in request and method:
            # As few spaces as no writer makes them, in an order of its own.
            say(b'{ "result" :{"is":"odd"},"id":%s , "jsonrpc":"2.0"}\r\n' % json.dumps(request["id"]).encode())
    answers = [answer for answer in answers if answer]
    if answers:
        say(answers if isinstance(message, list) else answers[0])
