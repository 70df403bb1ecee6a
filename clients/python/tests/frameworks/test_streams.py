"""Answers of models that are streamed, over the providers' real wire: calls pass the gate, and usage is booked once."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from agents import Agent, OpenAIResponsesModel, Runner, function_tool
from anthropic import Anthropic
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI

from callgate import anthropic as callgate_anthropic
from callgate import openai as callgate_openai
from callgate.langchain import CallgateMiddleware
from callgate.openai_agents import gated_tools
from callgate.v1.types_pb2 import BUDGET_DIMENSION_TOKENS

from ..conftest import used
from .conftest import person
from .provider import Provider
from .story import Turn, World, check
from .test_langchain import HELLO
from .test_loops import by_turn

if TYPE_CHECKING:
    from callgate import Client

    from .story import Turn

SEARCH: Turn = [("search_orders", {"query": "late"}), ("search_orders", {"query": "lost"})]


def loop_of_messages(tools: Any, provider: dict[str, Any]) -> list[str]:
    model = Anthropic(**provider)
    texts: list[str] = []
    messages: Any = [{"role": "user", "content": "Look after my orders."}]
    while True:
        with model.messages.stream(model="m", max_tokens=100, messages=messages) as stream:
            reply = stream.get_final_message()
        messages.append({"role": "assistant", "content": reply.content})
        if not (answers := callgate_anthropic.tool_messages(tools, messages, reply)):
            return texts
        messages += answers
        texts += [str(result["content"]) for answer in answers for result in answer["content"]]


def loop_of_completions(tools: Any, provider: dict[str, Any]) -> list[str]:
    model = OpenAI(**provider)
    texts: list[str] = []
    messages: Any = [{"role": "user", "content": "Look after my orders."}]
    while True:
        with model.chat.completions.stream(
            model="m", messages=messages, stream_options={"include_usage": True}
        ) as stream:
            completion = stream.get_final_completion()
        messages.append(completion.choices[0].message)
        if not (answers := callgate_openai.tool_messages(tools, messages, completion)):
            return texts
        messages += answers
        texts += [str(answer["content"]) for answer in answers]


def loop_of_responses(tools: Any, provider: dict[str, Any]) -> list[str]:
    model = OpenAI(**provider)
    texts: list[str] = []
    items: Any = [{"role": "user", "content": "Look after my orders."}]
    while True:
        with model.responses.stream(model="m", input=items) as stream:
            response = stream.get_final_response()
        items += response.output
        if not (outputs := callgate_openai.tool_outputs(tools, items, response)):
            return texts
        items += outputs
        texts += [str(output["output"]) for output in outputs]


@pytest.mark.parametrize("loop", [loop_of_messages, loop_of_completions, loop_of_responses])
def test_a_loop_with_streams_plays_the_story(client: Client, session: str, world: World, loop: Any) -> None:
    with person(client, session, world), Provider(world.story) as provider:
        texts = loop(client.gate(session).wrap(world.tools), provider)
    check(world, by_turn(texts, world.story))
    # Two of each of the seven answers with calls.
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 2 * 7


def test_a_run_of_openai_agents_may_be_streamed(client: Client, session: str, world: World) -> None:
    async def play(model: AsyncOpenAI) -> Any:
        tools = gated_tools([function_tool(tool) for tool in world.tools], client, session_id=session)
        clerk = Agent("clerk", model=OpenAIResponsesModel("m", openai_client=model), tools=tools)
        result = Runner.run_streamed(clerk, "Look after my orders.")
        kinds = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
        return result, kinds

    provider = Provider([SEARCH, SEARCH[:1], "All done."])
    with provider as settings:
        result, kinds = asyncio.run(play(AsyncOpenAI(**settings)))
    assert result.final_output == "All done."
    assert [kinds.count(kind) for kind in ("tool_called", "tool_output", "message_output_created")] == [3, 3, 1]
    assert sorted(world.done) == ["search late", "search lost"]
    outputs = [item["output"] for item in result.to_input_list() if item.get("type") == "function_call_output"]
    assert [json.loads(output)["status"] for output in outputs] == ["success", "success", "duplicate_call_blocked"]
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 2 * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_tokens_of_langchain_may_be_streamed(client: Client, session: str, world: World, is_async: bool) -> None:
    config: Any = {"configurable": {"thread_id": session}}

    async def astream(clerk: Any) -> list[Any]:
        return [part async for part in clerk.astream(HELLO, config, stream_mode="messages")]

    with Provider([SEARCH, SEARCH[:1], "All done."]) as provider:
        options: Any = {"api_key": "none", "base_url": provider["base_url"]}
        model = ChatOpenAI(model="m", streaming=True, stream_usage=True, **options)
        clerk: Any = create_agent(model, world.tools, middleware=[CallgateMiddleware(client)])
        parts = asyncio.run(astream(clerk)) if is_async else list(clerk.stream(HELLO, config, stream_mode="messages"))
    chunks = [message for message, _ in parts if message.type == "AIMessageChunk"]
    assert "".join(str(chunk.content) for chunk in chunks) == "All done."
    assert [chunk["name"] for message in chunks for chunk in message.tool_call_chunks] == ["search_orders"] * 3
    told = [json.loads(message.content)["status"] for message, _ in parts if message.type == "tool"]
    assert told == ["success", "success", "duplicate_call_blocked"]
    assert sorted(world.done) == ["search late", "search lost"]
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 2 * 2
