"""An MCP server with one tool, `pay`, which appends to the file of executions: tool.py FILE TENANT."""

import json
import sys
from pathlib import Path

from history import append

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result: dict[str, object] = {}
    if request["method"] == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bank", "version": "1"},
        }
    if request["method"] == "tools/list":
        result = {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}
    if request["method"] == "tools/call":
        append(Path(sys.argv[1]), sys.argv[2], "mcp__bank__pay", request["params"]["arguments"], "mcp")
        result = {"content": [{"type": "text", "text": f"done for mark-{sys.argv[2]}"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
