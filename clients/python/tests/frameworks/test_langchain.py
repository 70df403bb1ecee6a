"""The middleware in LangChain's own agent, with a scripted model and the real plane."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from callgate.langchain import CallgateMiddleware

from .conftest import person, questions
from .story import Turn, World, check

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from callgate import Client


HAS_ASYNC_INTERRUPTS = sys.version_info >= (3, 11)


class Scripted(GenericFakeChatModel):
    """Says what it is told to, and remembers which tools it was shown."""

    shown: list[Any] = []  # noqa: RUF012 (pydantic copies it)

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.shown.append(tools)
        return self


def model(turns: list[Turn]) -> Scripted:
    """Ids begin anew with each turn, as those of some servers do."""
    return Scripted(messages=iter([_message(turn) for turn in turns]), shown=[])


def _message(turn: Turn) -> AIMessage:
    if isinstance(turn, str):
        return AIMessage(turn)
    calls = [
        {"name": name, "args": args, "id": f"call_{n}", "type": "tool_call"} for n, (name, args) in enumerate(turn)
    ]
    return AIMessage("", tool_calls=calls)


def seen(messages: list[BaseMessage]) -> list[list[str]]:
    """The texts of the tools, by turn of the model."""
    turns: list[list[str]] = []
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            turns.append([])
        elif isinstance(message, ToolMessage):
            turns[-1].append(str(message.content))
    return turns


def ask(agent: Any, given: Any, thread: str, *, is_async: bool) -> dict[str, Any]:
    config = {"configurable": {"thread_id": thread}}
    answer: dict[str, Any] = asyncio.run(agent.ainvoke(given, config)) if is_async else agent.invoke(given, config)
    return answer


HELLO = {"messages": [HumanMessage("Look after my orders.")]}


@pytest.mark.parametrize("is_async", [False, True])
def test_the_story_is_played_with_a_person_in_callgate(
    client: Client, session: str, world: World, *, is_async: bool
) -> None:
    agent = create_agent(model(world.story), world.tools, middleware=[CallgateMiddleware(client)])
    with person(client, session, world):
        answer = ask(agent, HELLO, session, is_async=is_async)
    assert answer["messages"][-1].content == "All done."
    check(world, seen(answer["messages"]))


@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.skipif("not HAS_ASYNC_INTERRUPTS"))])
def test_the_story_is_played_with_interrupts(client: Client, session: str, world: World, *, is_async: bool) -> None:
    saver = InMemorySaver()
    turns = model(world.story)
    given: Any = HELLO
    for order, reason in world.answers.items():
        # Another process goes on, as it were: nothing but the checkpoint is left.
        agent = create_agent(turns, world.tools, middleware=[CallgateMiddleware(client)], checkpointer=saver)
        (asked,) = ask(agent, given, session, is_async=is_async)["__interrupt__"]
        assert asked.value["type"] == "callgate_approval"
        assert asked.value["args"] == {"order_id": order}
        assert "needs a person's approval" in asked.value["message"]
        assert asked.value["approval_id"] == questions(client, session)[0].approval_id
        assert asked.value["action_requests"][0]["name"] == "refund_order"
        given = Command(resume=True if reason is None else {"approve": False, "reason": reason, "by": "ada"})
    agent = create_agent(turns, world.tools, middleware=[CallgateMiddleware(client)], checkpointer=saver)
    answer = ask(agent, given, session, is_async=is_async)
    check(world, seen(answer["messages"]))
    assert [asked.resolved_by for asked in questions(client, session)] == ["ada", "user"]
