"""What the providers of models answer over their real wire, from a script."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .story import Turn


def anthropic_reply(number: int, turn: Turn) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": turn if isinstance(turn, str) else "Let me see."}]
    for n, (name, args) in enumerate(turn if isinstance(turn, list) else []):
        content.append({"type": "tool_use", "id": f"toolu_{number}_{n}", "name": name, "input": args})
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": content} | {
        "stop_reason": "end_turn" if isinstance(turn, str) else "tool_use",
        "stop_sequence": None,
        "usage": usage,
    }


def chat_reply(number: int, turn: Turn) -> dict[str, Any]:
    """Ids begin anew with each message, as those of some servers do."""
    message: dict[str, Any] = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
    if isinstance(turn, list):
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for n, (name, args) in enumerate(turn)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if isinstance(turn, str) else "tool_calls"}
    return {"id": f"c{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def responses_reply(number: int, turn: Turn) -> dict[str, Any]:
    if isinstance(turn, str):
        text = {"type": "output_text", "text": turn, "annotations": []}
        output: list[dict[str, Any]] = [
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        ]
    else:
        output = [
            {"type": "function_call", "call_id": f"call_{number}_{n}", "name": name, "arguments": json.dumps(args)}
            for n, (name, args) in enumerate(turn)
        ]
    return {"id": f"r{number}", "object": "response", "created_at": 1, "model": "m", "output": output} | {
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
    }


APIS = {"/messages": anthropic_reply, "/chat/completions": chat_reply, "/responses": responses_reply}


class Provider:
    """A server that answers requests to Anthropic's and OpenAI's APIs with a story's turns."""

    def __init__(self, turns: list[Turn]) -> None:
        rest = iter(enumerate(turns))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                reply = next(reply for api, reply in APIS.items() if self.path.endswith(api))
                body = json.dumps(reply(*next(rest))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> dict[str, Any]:
        """What a client of an SDK is made with."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return {"api_key": "none", "base_url": self.url, "max_retries": 0}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
