"""Agents of every framework whose model calls a tool in each turn, and states what each of its responses used."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from agents import Agent as OpenAIAgent
from agents import ModelResponse as AgentsResponse
from agents import Runner, Usage, function_tool
from anthropic.types import Message
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from openai.types.responses.response_usage import InputTokensDetails
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from callgate import anthropic, openai
from callgate.langchain import CallgateMiddleware
from callgate.openai_agents import gated_tools
from callgate.pydantic_ai import CallgateCapability

from .provider import anthropic_reply, chat_reply, responses_reply
from .test_langchain import Scripted as LangChainModel
from .test_langchain import ask
from .test_openai_agents import Scripted as AgentsModel
from .test_openai_agents import _items

if TYPE_CHECKING:
    from collections.abc import Callable

    from callgate import Client

    from .story import Turn

MODEL = "model-of-these-tests"
INPUT, CACHED, OUTPUT = 70_000, 20_000, 10_000
"""Of each response, in tokens; the cached ones come on top of the input's."""


class Spent:
    """What happened in a run: the tool calls that were executed, and the tools that each request to the model had."""

    def __init__(self) -> None:
        self.executed: list[int] = []
        self.shown: list[int] = []

    def search_orders(self, page: int) -> str:
        """Finds orders."""
        self.executed.append(page)
        return f"page {page}"


def call(number: int, calls: int = 1) -> Turn:
    return [("search_orders", {"page": number * calls + n}) for n in range(calls)]


def langchain(client: Client, session: str, spent: Spent, turns: list[Turn], **options: Any) -> Any:
    def message(turn: Turn) -> AIMessage:
        calls = [
            {"name": name, "args": args, "id": f"call_{n}", "type": "tool_call"}
            for n, (name, args) in enumerate(turn if isinstance(turn, list) else [])
        ]
        return AIMessage(
            turn if isinstance(turn, str) else "",
            tool_calls=calls,
            response_metadata={"model_name": MODEL},
            usage_metadata={
                "input_tokens": INPUT + CACHED,
                "output_tokens": OUTPUT,
                "total_tokens": INPUT + CACHED + OUTPUT,
                "input_token_details": {"cache_read": CACHED},
            },
        )

    class Model(LangChainModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            spent.shown.append(len(tools))
            return self

        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            made = super()._generate(*args, **kwargs)
            if len(self.shown) == len(spent.shown):
                spent.shown.append(0)
            self.shown.append(None)
            return made

    model = Model(messages=iter([message(turn) for turn in turns]), shown=[])
    agent = create_agent(model, [spent.search_orders], middleware=[CallgateMiddleware(client, **options)])
    return ask(agent, {"messages": [HumanMessage("Find all.")]}, session, is_async=False)["messages"][-1].content


def openai_agents(client: Client, session: str, spent: Spent, turns: list[Turn], **options: Any) -> Any:
    class Model(AgentsModel):
        async def get_response(self, *args: Any, **kwargs: Any) -> AgentsResponse:
            spent.shown.append(len(kwargs["tools"] if "tools" in kwargs else args[3]))
            usage = Usage(
                requests=1,
                input_tokens=INPUT + CACHED,
                input_tokens_details=InputTokensDetails(cached_tokens=CACHED, cache_write_tokens=0),
                output_tokens=OUTPUT,
                total_tokens=INPUT + CACHED + OUTPUT,
            )
            return AgentsResponse(output=_items(next(self._turns)), usage=usage, response_id=None)

    model = Model(turns)
    model.model = MODEL  # type: ignore[attr-defined]
    tools = gated_tools([function_tool(spent.search_orders)], client, session_id=session, **options)
    agent = OpenAIAgent("clerk", model=model, tools=tools)
    return asyncio.run(Runner.run(agent, "Find all.", max_turns=30)).final_output


def pydantic_ai(client: Client, session: str, spent: Spent, turns: list[Turn], **options: Any) -> Any:
    rest = iter(turns)

    def say(messages: Any, info: Any) -> ModelResponse:
        spent.shown.append(len(info.function_tools))
        turn = next(rest)
        usage = RequestUsage(input_tokens=INPUT + CACHED, cache_read_tokens=CACHED, output_tokens=OUTPUT)
        if isinstance(turn, str):
            return ModelResponse(parts=[TextPart(turn)], usage=usage, model_name=MODEL)
        calls = [ToolCallPart(name, json.dumps(args), f"call_{n}") for n, (name, args) in enumerate(turn)]
        return ModelResponse(parts=calls, usage=usage, model_name=MODEL)

    capability = CallgateCapability(client, session_id=session, **options)
    agent = Agent(FunctionModel(say, model_name=MODEL), tools=[spent.search_orders], capabilities=[capability])
    return agent.run_sync("Find all.").output


def _loop(
    client: Client, session: str, spent: Spent, turns: list[Turn], answer: Callable[[Any, list[Any], int, Turn], Any]
) -> Any:
    tools = client.gate(session, **spent_options(spent)).wrap([spent.search_orders])
    messages: list[Any] = []
    said = ""
    for number, turn in enumerate(turns):
        spent.shown.append(0 if tools.tools_disabled else 1)
        said = turn if isinstance(turn, str) else ""
        if not answer(tools, messages, number, turn) or tools.is_over:
            break
    return said


def spent_options(spent: Spent) -> Any:
    return getattr(spent, "options", {})


def anthropic_loop(client: Client, session: str, spent: Spent, turns: list[Turn], **options: Any) -> Any:
    spent.options = options  # type: ignore[attr-defined]

    def answer(tools: Any, messages: list[Any], number: int, turn: Turn) -> Any:
        usage = {"input_tokens": INPUT, "cache_read_input_tokens": CACHED, "output_tokens": OUTPUT}
        reply = Message.model_validate({**anthropic_reply(number, turn), "model": MODEL, "usage": usage})
        messages.append({"role": "assistant", "content": reply.content})
        made = anthropic.tool_messages(tools, messages, reply)
        messages.extend(made)
        return made

    return _loop(client, session, spent, turns, answer)


def chat_loop(client: Client, session: str, spent: Spent, turns: list[Turn], **options: Any) -> Any:
    spent.options = options  # type: ignore[attr-defined]

    def answer(tools: Any, messages: list[Any], number: int, turn: Turn) -> Any:
        usage = {
            "prompt_tokens": INPUT + CACHED,
            "completion_tokens": OUTPUT,
            "total_tokens": INPUT + CACHED + OUTPUT,
            "prompt_tokens_details": {"cached_tokens": CACHED},
        }
        reply = ChatCompletion.model_validate({**chat_reply(number, turn), "model": MODEL, "usage": usage})
        messages.append(reply.choices[0].message)
        made = openai.tool_messages(tools, messages, reply)
        messages.extend(made)
        return made

    return _loop(client, session, spent, turns, answer)


def responses_loop(client: Client, session: str, spent: Spent, turns: list[Turn], **options: Any) -> Any:
    spent.options = options  # type: ignore[attr-defined]

    def answer(tools: Any, items: list[Any], number: int, turn: Turn) -> Any:
        usage = {
            "input_tokens": INPUT + CACHED,
            "input_tokens_details": {"cached_tokens": CACHED, "cache_write_tokens": 0},
            "output_tokens": OUTPUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT + CACHED + OUTPUT,
        }
        reply = Response.model_validate({**responses_reply(number, turn), "model": MODEL, "usage": usage})
        items.extend(reply.output)
        made = openai.tool_outputs(tools, items, reply)
        items.extend(made)
        return made

    return _loop(client, session, spent, turns, answer)


SPENDERS: dict[str, Callable[..., Any]] = {
    "langchain": langchain,
    "openai_agents": openai_agents,
    "pydantic_ai": pydantic_ai,
    "anthropic": anthropic_loop,
    "openai chat": chat_loop,
    "openai responses": responses_loop,
}
