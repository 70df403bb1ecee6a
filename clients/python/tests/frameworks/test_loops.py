"""Loops of one's own with the SDKs of Anthropic and OpenAI, over their real wire, and the real plane."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from callgate import AsyncClient
from callgate import anthropic as callgate_anthropic
from callgate import openai as callgate_openai

from ..conftest import calls
from .conftest import edited, person
from .provider import Provider
from .story import Turn, World, check

if TYPE_CHECKING:
    from callgate import Client

    from ..plane import Server


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}


def by_turn(texts: list[str], turns: list[Turn]) -> list[list[str]]:
    rest = iter(texts)
    return [[next(rest) for _ in turn] for turn in turns if isinstance(turn, list)]


def test_anthropic(client: Client, session: str, world: World) -> None:
    tools = client.gate(session).wrap(world.tools)
    messages: Any = [{"role": "user", "content": "Look after my orders."}]
    shown: Any = tools.schemas([{"name": "close_account", "input_schema": SCHEMA}])
    assert shown[0]["input_schema"]["required"] == ["account", "justification"]
    with person(client, session, world), Provider(world.story) as provider:
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

    with person(client, session, world), Provider(world.story) as provider:
        messages = asyncio.run(play(AsyncAnthropic(**provider)))
    results = [b for m in messages if m["role"] == "user" and isinstance(m["content"], list) for b in m["content"]]
    check(world, by_turn([result["content"] for result in results], world.story))


def test_chat_completions(client: Client, session: str, world: World) -> None:
    tools = client.gate(session).wrap(world.tools)
    messages: Any = [{"role": "user", "content": "Look after my orders."}]
    with person(client, session, world), Provider(world.story) as provider:
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

    with person(client, session, world), Provider(world.story) as provider:
        asyncio.run(play(AsyncOpenAI(**provider)))
    check(world, by_turn(texts, world.story))


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_arguments_that_a_person_chose_are_run(client: Client, session: str, world: World, api: str) -> None:
    tools = client.gate(session).wrap(world.tools)
    args = {"order_id": world.paid}
    with edited(client, session, {"order_id": world.unpaid}):
        if api == "anthropic":
            use = {"type": "tool_use", "id": "toolu_1", "name": "refund_order", "input": args}
            (message,) = callgate_anthropic.tool_messages(tools, [{"role": "assistant", "content": [use]}])
            text = message["content"][0]["content"]  # type: ignore[index]
        elif api == "chat":
            call = {"id": "call_1", "function": {"name": "refund_order", "arguments": json.dumps(args)}}
            (said,) = callgate_openai.tool_messages(tools, [{"role": "assistant", "tool_calls": [call]}])
            text = said["content"]
        else:
            item = {"type": "function_call", "call_id": "call_1", "name": "refund_order", "arguments": json.dumps(args)}
            (output,) = callgate_openai.tool_outputs(tools, [item])
            text = output["output"]
    assert world.done == [f"refund {world.unpaid}"]
    told = json.loads(str(text))
    assert (told["status"], world.unpaid in told["warning"]) == ("success", True)


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
