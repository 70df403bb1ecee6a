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
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {"id": f"r{number}", "object": "response", "created_at": 1, "model": "m", "output": output} | {
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details},
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


def chat_chunks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A chat completion as it is streamed."""
    (choice,) = reply["choices"]
    message = choice["message"]
    calls = [{"tool_calls": [{**call, "index": n}]} for n, call in enumerate(message.pop("tool_calls", []))]
    chunks = [{"delta": delta, "finish_reason": None} for delta in (message, *calls)]
    chunks.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    head = {**reply, "object": "chat.completion.chunk"}
    return [*({**head, "choices": [{"index": 0, **chunk}], "usage": None} for chunk in chunks), {**head, "choices": []}]


def anthropic_chunks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A message as it is streamed."""
    chunks: list[dict[str, Any]] = [{"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}]
    for index, block in enumerate(reply["content"]):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        part = json.dumps(block.get("input"))
        delta = {"type": "text_delta", "text": block["text"]} if is_text else {}
        delta = delta or {"type": "input_json_delta", "partial_json": part}
        chunks += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    return [*chunks, {"type": "message_delta", "delta": end, "usage": reply["usage"]}, {"type": "message_stop"}]


def responses_chunks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A response as it is streamed, without the parts of its items."""
    chunks: list[dict[str, Any]] = [{"type": "response.created", "response": {**reply, "output": []}}]
    for index, item in enumerate(reply["output"]):
        chunks += [
            {"type": f"response.output_item.{what}", "output_index": index, "item": item} for what in ("added", "done")
        ]
    chunks.append({"type": "response.completed", "response": reply})
    return [{**chunk, "sequence_number": n} for n, chunk in enumerate(chunks)]


CHUNKS = {anthropic_reply: anthropic_chunks, chat_reply: chat_chunks, responses_reply: responses_chunks}


def events(chunks: list[dict[str, Any]]) -> bytes:
    """Chunks as server-sent events."""
    named = [f"event: {chunk['type']}\n" if "type" in chunk else "" for chunk in chunks]
    told = "".join(f"{name}data: {json.dumps(chunk)}\n\n" for name, chunk in zip(named, chunks, strict=True))
    return (told if named[0] else f"{told}data: [DONE]\n\n").encode()


class Provider:
    """A server that answers requests to the providers' APIs with a story's turns."""

    def __init__(self, turns: list[Turn]) -> None:
        rest = enumerate(turns)
        self.requests: list[Any] = []
        """The bodies of the requests, in order."""
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                requests.append(asked)
                make = next(make for api, make in APIS.items() if self.path.endswith(api))
                reply = make(*next(rest))
                is_stream = bool(asked.get("stream"))
                body = events(CHUNKS[make](reply)) if is_stream else json.dumps(reply).encode()
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
