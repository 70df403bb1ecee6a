"""What models use is booked by every adapter, from the framework's own objects, and budgets stop runs by it."""

from __future__ import annotations

import uuid
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from agents import ModelBehaviorError
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from callgate import Client, Usage, priced
from callgate.langchain import CallgateMiddleware
from callgate.v1.session_service_pb2 import GetCallRequest
from callgate.v1.types_pb2 import (
    BUDGET_DIMENSION_COST_MICROS,
    BUDGET_DIMENSION_TOKENS,
    BUDGET_SCOPE_RUN,
)

from ..conftest import calls, used
from ..plane import Server
from .spenders import CACHED, INPUT, MODEL, OUTPUT, SPENDERS, Spent, call
from .test_langchain import Scripted as LangChainModel
from .test_langchain import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

# Two US dollars a response.
PRICES = [
    {"model": MODEL, "valid_from": date(2026, 1, 1), "input": 20, "output": 55, "cache_read": 2.5},
    {"model": MODEL, "valid_from": "2125-01-01", "input": 1, "output": 1},
]
EVERY = pytest.mark.parametrize("framework", SPENDERS)


@pytest.fixture(scope="module")
def thrifty() -> Iterator[Client]:
    """Of a plane with the default budgets, and one of tokens."""
    policy = "policy_engine: {budgets: {run: {max_tokens: 500000}}, tool_schemas: {search_orders: {effect: read}}}"
    with Server(policy) as server, Client(server.address) as client:
        yield client


def play(framework: str, client: Client, session: str, spent: Spent, turns: list[Any], **options: Any) -> str:
    try:
        return str(SPENDERS[framework](client, session, spent, turns, **options))
    except ModelBehaviorError as error:
        return str(error)


@EVERY
def test_what_a_model_uses_is_booked_once(client: Client, session: str, framework: str) -> None:
    """Three calls a turn at once; the usage of a response is one call's."""
    spent = Spent()
    models: set[str] = set()

    def usage(given: Usage) -> Usage:
        models.add(given.model)
        return given

    play(framework, client, session, spent, [call(0, 3), call(1, 3), "Done."], usage=usage)
    assert models == {MODEL}
    assert sorted(spent.executed) == [0, 1, 2, 3, 4, 5]
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == 2 * (INPUT + CACHED + OUTPUT)
    assert used(client, session, BUDGET_DIMENSION_COST_MICROS) == 0
    usages = [
        client.services.sessions.GetCall(GetCallRequest(session_id=session, call_id=one.call_id)).call.usage
        for one in calls(client, session)
    ]
    booked = [usage for usage in usages if usage != Usage()]
    assert len(booked) == 2
    assert {(u.input_tokens, u.cache_read_tokens, u.output_tokens) for u in booked} == {(INPUT, CACHED, OUTPUT)}


@EVERY
@pytest.mark.parametrize("is_priced", [True, False])
def test_a_budget_stops_the_run(client: Client, thrifty: Client, session: str, framework: str, is_priced: bool) -> None:
    """Of ten dollars by prices; without them, of tokens. The tools go, and a call all the same is the last."""
    spent, plane = Spent(), client if is_priced else thrifty
    options: Any = {"usage": priced(PRICES)} if is_priced else {}
    said = play(framework, plane, session, spent, [call(n) for n in range(20)], **options)
    assert spent.executed == [0, 1, 2, 3]
    dimension = BUDGET_DIMENSION_COST_MICROS if is_priced else BUDGET_DIMENSION_TOKENS
    assert used(plane, session, dimension, BUDGET_SCOPE_RUN) >= (10_000_000 if is_priced else 500_000)
    assert spent.shown == [1] * 5 + [0]
    ends = {"langchain": "The run was ended", "pydantic_ai": "The run was ended", "openai_agents": "not found in agent"}
    assert ends.get(framework, "") in said


@EVERY
def test_a_model_that_is_told_of_the_end_gives_its_answer(client: Client, session: str, framework: str) -> None:
    spent = Spent()
    turns = [*(call(n) for n in range(5)), "That is all I found."]
    assert play(framework, client, session, spent, turns, usage=priced(PRICES)) == "That is all I found."
    assert spent.shown == [1] * 5 + [0]


@EVERY
def test_a_function_says_what_is_booked(
    client: Client, session: str, framework: str, caplog: pytest.LogCaptureFixture
) -> None:
    def usage(given: Usage) -> Usage:
        if given.model != MODEL:
            raise LookupError(given.model)
        return Usage(output_tokens=given.output_tokens, cost_micros=7)

    play(framework, client, session, Spent(), [call(0), "Done."], usage=usage)
    assert used(client, session, BUDGET_DIMENSION_TOKENS) == OUTPUT
    assert used(client, session, BUDGET_DIMENSION_COST_MICROS) == 7
    other = f"{session}-{uuid.uuid4().hex}"
    play(framework, client, other, Spent(), [call(0), "Done."], usage=lambda given: 1 / 0)
    assert used(client, other, BUDGET_DIMENSION_TOKENS) == INPUT + CACHED + OUTPUT
    assert "the function `usage` of the gate failed" in caplog.text


@pytest.mark.parametrize(
    ("kind", "last"),
    [("anthropic-chat", [(1, {"type": "none"})]), ("amazon_bedrock_converse_chat", [(1, None)]), ("openai-chat", [])],
)
def test_langchain_keeps_disabled_tools_where_the_provider_needs_them(
    thrifty: Client, session: str, kind: str, last: list[Any]
) -> None:
    """Anthropic and Bedrock reject calls in the history of a request without tools."""
    bound: list[Any] = []

    class Model(LangChainModel):
        @property
        def _llm_type(self) -> str:
            return kind

        def bind_tools(self, tools: Any, *, tool_choice: Any = None, **_: Any) -> Any:
            bound.append((len(tools), tool_choice))
            return self

    def message(number: int) -> AIMessage:
        call: Any = {"name": "search_orders", "args": {"page": number}, "id": f"call_{number}", "type": "tool_call"}
        used: Any = {"input_tokens": 260_000, "output_tokens": 0, "total_tokens": 260_000}
        return AIMessage("", tool_calls=[call], usage_metadata=used)

    model = Model(messages=iter([message(0), message(1), AIMessage("That is all I found.")]))
    agent = create_agent(model, [Spent().search_orders], middleware=[CallgateMiddleware(thrifty)])
    answer = ask(agent, {"messages": [("user", "Find all.")]}, session, is_async=False)["messages"]
    assert answer[-1].content == "That is all I found."
    assert bound == [(1, None), (1, None), *last]
