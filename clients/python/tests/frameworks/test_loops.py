"""Loops of one's own with the SDKs of Anthropic and OpenAI, over their real wire, and the real plane."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from callgate import AsyncClient
from callgate import anthropic as callgate_anthropic
from callgate import openai as callgate_openai

from ..conftest import calls
from .conftest import person
from .story import Turn, World, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from callgate import Client

    from ..plane import Server


class Provider:
    """A server that answers requests with the story's turns."""

    def __init__(self, turns: list[Turn], reply: Callable[[int, Turn], dict[str, Any]]) -> None:
        replies = (json.dumps(reply(number, turn)).encode() for number, turn in enumerate(turns))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                body = next(replies)
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
        return {"api_key": "none", "base_url": f"http://127.0.0.1:{self._server.server_port}", "max_retries": 0}

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


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


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}


def by_turn(texts: list[str], turns: list[Turn]) -> list[list[str]]:
    rest = iter(texts)
    return [[next(rest) for _ in turn] for turn in turns if isinstance(turn, list)]


def test_anthropic(client: Client, session: str, world: World) -> None:
    tools = client.gate(session).wrap(world.tools)
    messages: Any = [{"role": "user", "content": "Look after my orders."}]
    shown: Any = tools.schemas([{"name": "close_account", "input_schema": SCHEMA}])
    assert shown[0]["input_schema"]["required"] == ["account", "justification"]
    with person(client, session, world), Provider(world.story, anthropic_reply) as provider:
        model = Anthropic(**provider)
        while True:
            reply = model.messages.create(model="m", max_tokens=100, messages=messages, tools=shown)
            messages.append({"role": "assistant", "content": reply.content})
            if not (answers := callgate_anthropic.tool_messages(tools, messages)):
                break
            messages += answers
    results = [b for m in messages if m["role"] == "user" and isinstance(m["content"], list) for b in m["content"]]
    check(world, by_turn([result["content"] for result in results], world.story))
    assert [result["is_error"] for result in results] == [False, False, True, False, False, False, False, True]
    assert [result["tool_use_id"] for result in results[3:5]] == ["toolu_3_0", "toolu_3_1"]


def test_anthropic_in_an_event_loop(server: Server, client: Client, session: str, world: World) -> None:
    async def play(model: AsyncAnthropic) -> Any:
        messages: Any = [{"role": "user", "content": "Look after my orders."}]
        async with AsyncClient(server.address) as aclient:
            tools = aclient.gate(session).wrap(world.tools)
            while True:
                reply = await model.messages.create(model="m", max_tokens=100, messages=messages)
                messages.append({"role": "assistant", "content": reply.content})
                if not (answers := await callgate_anthropic.tool_messages(tools, messages)):
                    return messages
                messages += answers

    with person(client, session, world), Provider(world.story, anthropic_reply) as provider:
        messages = asyncio.run(play(AsyncAnthropic(**provider)))
    results = [b for m in messages if m["role"] == "user" and isinstance(m["content"], list) for b in m["content"]]
    check(world, by_turn([result["content"] for result in results], world.story))


def test_chat_completions(client: Client, session: str, world: World) -> None:
    tools = client.gate(session).wrap(world.tools)
    messages: Any = [{"role": "user", "content": "Look after my orders."}]
    with person(client, session, world), Provider(world.story, chat_reply) as provider:
        model = OpenAI(**provider)
        while True:
            messages.append(model.chat.completions.create(model="m", messages=messages).choices[0].message)
            if not (answers := callgate_openai.tool_messages(tools, messages)):
                break
            messages += answers
    answered = [message for message in messages if isinstance(message, dict) and message["role"] == "tool"]
    check(world, by_turn([message["content"] for message in answered], world.story))
    # A program that begins again with what it has stored asks for the same call, which runs no other time.
    asked = {call.call_id for call in calls(client, session)}
    stored = [message if isinstance(message, dict) else message.model_dump() for message in messages]
    refund = next(n for n, message in enumerate(stored) if world.paid in json.dumps(message.get("tool_calls")))
    (answer,) = callgate_openai.tool_messages(client.gate(session).wrap(world.tools), stored[: refund + 1])
    assert json.loads(str(answer["content"]))["previous_result"] == "refunded"
    assert {call.call_id for call in calls(client, session)} == asked


@pytest.mark.parametrize("whole", [True, False])
def test_responses(server: Server, client: Client, session: str, world: World, *, whole: bool) -> None:
    texts: list[str] = []

    async def play(model: AsyncOpenAI) -> None:
        items: Any = [{"role": "user", "content": "Look after my orders."}]
        async with AsyncClient(server.address) as aclient:
            tools = aclient.gate(session).wrap(world.tools)
            while True:
                response = await model.responses.create(model="m", input=items)
                items = [*items, *response.output] if whole else list(response.output)
                if not (outputs := await callgate_openai.tool_outputs(tools, items)):
                    return
                texts.extend(str(output["output"]) for output in outputs)
                items = [*items, *outputs] if whole else outputs

    with person(client, session, world), Provider(world.story, responses_reply) as provider:
        asyncio.run(play(AsyncOpenAI(**provider)))
    check(world, by_turn(texts, world.story))


def test_a_person_is_told_why_and_the_tool_is_not(client: Client, session: str, world: World) -> None:
    tools = client.gate(session).wrap(world.tools)
    tools.schemas([{"name": "close_account", "input_schema": SCHEMA}])
    use = {"type": "tool_use", "name": "close_account"}

    def said(**args: str) -> Any:
        last = {"role": "assistant", "content": [{**use, "id": str(args), "input": args}]}
        messages: Any = callgate_anthropic.tool_messages(tools, [last])
        return json.loads(messages[0]["content"][0]["content"])

    account = world.paid
    assert "justification" in said(account=account)["message"]
    assert said(account=account, justification="they asked for it")["status"] == "success"
    assert world.done == [f"close {account}"]
