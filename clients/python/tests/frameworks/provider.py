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
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    made = {"id": f"c{number}", "object": "chat.completion", "created": 1, "model": "m"}
    return {**made, "choices": [choice], "usage": usage}


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


def gemini_reply(number: int, turn: Turn) -> dict[str, Any]:
    """Without ids, as the real one."""
    parts: list[dict[str, Any]] = [{"text": turn}] if isinstance(turn, str) else []
    parts += [{"functionCall": {"name": n, "args": args}} for n, args in (turn if isinstance(turn, list) else [])]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": f"g{number}"}


APIS = {
    "/messages": anthropic_reply,
    "/chat/completions": chat_reply,
    "/responses": responses_reply,
    ":generateContent": gemini_reply,
}


def chat_chunks(reply: dict[str, Any]) -> bytes:
    """A chat completion as the events of a stream."""
    (choice,) = reply["choices"]
    message = choice["message"]
    calls = [{"tool_calls": [{**call, "index": n}]} for n, call in enumerate(message.pop("tool_calls", []))]
    chunks = [{"delta": delta, "finish_reason": None} for delta in (message, *calls)]
    chunks.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    head = {**reply, "object": "chat.completion.chunk"}
    events = [json.dumps({**head, "choices": [{"index": 0, **chunk}], "usage": None}) for chunk in chunks]
    events.append(json.dumps({**head, "choices": []}))
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


class Provider:
    """A server that answers requests to the providers' APIs with a story's turns."""

    def __init__(self, turns: list[Turn]) -> None:
        rest = iter(enumerate(turns))
        self.requests: list[Any] = []
        """The bodies of the requests, in order."""
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                requests.append(asked)
                make = next(make for api, make in APIS.items() if self.path.endswith(api))
                reply = make(*next(rest))
                is_stream = make is chat_reply and bool(asked.get("stream"))
                body = chat_chunks(reply) if is_stream else json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
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
