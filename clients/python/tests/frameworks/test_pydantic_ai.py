"""The capability in Pydantic AI's own agent, with a scripted model and the real plane."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    Tool,
    ToolApproved,
    ToolDenied,
    ToolReturn,
)
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from callgate.pydantic_ai import CallgateCapability
from callgate.v1.types_pb2 import BUDGET_DIMENSION_TOKENS

from ..conftest import used
from ..test_repetitions import approve_with
from .conftest import edited, person, questions
from .story import Turn, World, check

if TYPE_CHECKING:
    from callgate import Client


def model(turns: list[Turn]) -> FunctionModel:
    """Says what it is told to. Ids begin anew with each turn, as those of some servers do."""
    rest = iter(turns)

    def say(messages: Any, info: Any) -> ModelResponse:
        turn = next(rest)
        if isinstance(turn, str):
            return ModelResponse(parts=[TextPart(turn)])
        calls = [ToolCallPart(name, json.dumps(args), f"call_{n}") for n, (name, args) in enumerate(turn)]
        return ModelResponse(parts=calls)

    return FunctionModel(say)


def seen(messages: list[Any]) -> list[list[str]]:
    """The texts of the tools, by turn of the model."""
    turns = [[str(p.content) for p in message.parts if isinstance(p, ToolReturnPart)] for message in messages]
    return [texts for texts in turns if texts]


def test_the_story_is_played_with_a_person_in_callgate(client: Client, session: str, world: World) -> None:
    clerk = Agent(model(world.story), tools=world.tools, capabilities=[CallgateCapability(client, session_id=session)])
    with person(client, session, world):
        result = clerk.run_sync("Look after my orders.")
    assert result.output == "All done."
    check(world, seen(result.all_messages()))


def test_the_story_is_played_with_deferrals(client: Client, world: World) -> None:
    turns = model(world.story)

    def clerk() -> Agent[None, str | DeferredToolRequests]:
        capability = CallgateCapability(client, deferrals=True)
        return Agent(turns, tools=world.tools, capabilities=[capability], output_type=[str, DeferredToolRequests])

    result = clerk().run_sync("Look after my orders.")
    for order, reason in world.answers.items():
        assert isinstance(result.output, DeferredToolRequests)
        (call,) = result.output.approvals
        question = result.output.metadata[call.tool_call_id]
        assert question["args"] == {"order_id": order}
        assert "needs a person's approval" in question["message"]
        answer: Any = True if reason is None else ToolDenied(reason)
        # It may take days: nothing but the messages is left.
        result = clerk().run_sync(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: answer}),
        )
    assert result.output == "All done."
    texts = seen(result.all_messages())
    # What the model is told of a denial is the application's.
    assert texts[-1] == ["it was never paid"]
    texts[-1] = [json.dumps({"status": "approval_denied", "message": texts[-1][0]})]
    check(world, texts)
    asked = questions(client, str(result.conversation_id))
    assert [(one.resolved_by, one.resolution_reason) for one in asked] == [("user", "it was never paid"), ("user", "")]


def agent(client: Client, turns: list[Turn], session: str, tools: list[Any], **options: Any) -> Agent[None, Any]:
    capability = CallgateCapability(client, session_id=session, **options)
    return Agent(model(turns), tools=tools, capabilities=[capability], output_type=[str, DeferredToolRequests])


def test_a_yes_answers_no_question_that_was_not_put(client: Client, session: str, world: World) -> None:
    """The application asks its user by itself first, who has not heard of callgate's question then."""
    tools = [Tool(world.refund_order, requires_approval=True)]
    clerk = agent(client, [*world.story[5:6], "Done."], session, tools, deferrals=True)

    def approved(result: Any) -> Any:
        results = result.output.build_results(approve_all=True)
        return clerk.run_sync(message_history=result.all_messages(), deferred_tool_results=results)

    first = clerk.run_sync("Look after my orders.")
    assert questions(client, session) == []
    second = approved(first)
    assert isinstance(second.output, DeferredToolRequests)
    assert world.done == []
    assert approved(second).output == "Done."
    assert world.done == [f"refund {world.paid}"]


@pytest.mark.parametrize("where", ["in the application", "in callgate"])
def test_a_yes_with_other_arguments_runs_those(client: Client, session: str, world: World, where: str) -> None:
    clerk = agent(client, [*world.story[5:6], "Done."], session, [world.refund_order], deferrals=True)
    first = clerk.run_sync("Look after my orders.")
    (call,) = first.output.approvals
    approved = ToolApproved(override_args={"order_id": world.unpaid}) if where == "in the application" else True
    if where == "in callgate":
        approve_with(client, first.output.metadata[call.tool_call_id]["approval_id"], {"order_id": world.unpaid})
    results = DeferredToolResults(approvals={call.tool_call_id: approved})
    second = clerk.run_sync(message_history=first.all_messages(), deferred_tool_results=results)
    assert second.output == "Done."
    assert world.done == [f"refund {world.unpaid}"]
    told = json.loads(seen(second.all_messages())[-1][0])
    assert (told["status"], world.unpaid in told["warning"]) == ("success", True)


def test_a_person_chooses_values_of_pythons_own(client: Client, session: str) -> None:
    """They are checked as the model's arguments are."""
    at: list[date] = []

    def refund_order(order_id: str, on: date) -> str:
        """Pays an order back."""
        at.append(on)
        return "refunded"

    clerk = agent(
        client, [[("refund_order", {"order_id": session, "on": "2026-01-02"})], "Done."], session, [refund_order]
    )
    with edited(client, session, {"order_id": session, "on": "2026-02-03"}):
        clerk.run_sync("Refund it.")
    assert at == [date(2026, 2, 3)]


def test_the_model_is_shown_what_the_policy_wants(client: Client, session: str, world: World) -> None:
    call = ("close_account", {"account": world.paid, "justification": "They asked for it."})
    result = agent(client, [[call], "Done."], session, world.tools).run_sync("Close it.")
    assert json.loads(seen(result.all_messages())[0][0])["status"] == "success"
    assert world.done == [f"close {world.paid}"]
    assert result.output == "Done."


def test_what_a_tool_says_of_its_failure_stays(client: Client, session: str) -> None:
    """A retry that a tool asks for counts, and is told with the tool's own words; it is never made with the same."""
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """Knows towns of Switzerland alone."""
        asked.append(city)
        if city == "Rome":
            raise ModelRetry("Rome is in Italy")
        return "sunny"

    turns: list[Turn] = [[("get_weather", {"city": "Rome"})], [("get_weather", {"city": "Bern"})], "Done."]
    result = agent(client, turns, session, [get_weather]).run_sync("How is it?")
    answers: list[Any] = [
        p for m in result.all_messages() for p in m.parts if getattr(p, "tool_name", "") and m.kind == "request"
    ]
    retry, success = answers
    assert retry.part_kind == "retry-prompt" or retry.outcome == "retried"
    assert "Rome is in Italy" in str(retry.content)
    assert success.outcome == "success"
    assert asked == ["Rome", "Bern"]


def broken(how: str) -> str:
    """A provider that gives no answer, and what a tool makes of it."""
    if how == "said":
        raise ModelRetry("the provider timed out; try again")
    try:
        raise TimeoutError("no answer within 5 s")
    except TimeoutError as error:
        if how == "from":
            raise ModelRetry("try again") from error
        if how == "within":
            raise ModelRetry("try again")  # noqa: B904
        raise ToolFailed("it is no use") from error


@pytest.mark.parametrize("how", ["said", "from", "within", "failed"])
def test_what_a_tool_says_of_a_timeout_is_one(client: Client, session: str, how: str) -> None:
    """Else the model would be told to call it again with other arguments, and mail would be sent twice."""
    sent: list[str] = []

    def send_mail(to: str) -> str:
        """Sends a mail."""
        sent.append(to)
        return broken(how)

    turn: Turn = [("send_mail", {"to": session})]
    result = agent(client, [turn, turn, "Done."], session, [send_mail]).run_sync("Send it.")
    parts: list[Any] = [p for m in result.all_messages() for p in m.parts if getattr(p, "tool_name", "")]
    first, again = (json.loads(str(part.content)) for part in parts if part.part_kind != "tool-call")
    assert (first["status"], first["error_type"]) == ("outcome_unknown", "timeout")
    assert "may have taken effect" in first["message"]
    assert (again["status"], sent) == ("outcome_unknown", [session])


def test_what_is_more_than_text_stays(client: Client, session: str) -> None:
    def get_weather() -> ToolReturn:
        """Shows the sky."""
        return ToolReturn([BinaryContent(b"\0", media_type="image/png")], metadata={"raw": 1})

    def search_orders() -> ToolReturn:
        """Finds orders."""
        return ToolReturn("two", metadata={"raw": 2})

    turns: list[Turn] = [[("get_weather", {}), ("search_orders", {})], "Done."]
    result = agent(client, turns, session, [get_weather, search_orders]).run_sync("How is it?")
    sky, orders = (p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart))
    assert sky.content == [BinaryContent(b"\0", media_type="image/png")]
    assert (sky.metadata, orders.metadata) == ({"raw": 1}, {"raw": 2})
    assert json.loads(str(orders.content))["results"] == "two"


def test_a_run_may_be_streamed(client: Client, session: str, world: World) -> None:
    async def say(messages: Any, info: Any) -> Any:
        if len(messages) == 1:
            yield {0: DeltaToolCall("search_orders", '{"query": "late"}', tool_call_id="call_0")}
        else:
            yield "Do"
            yield "ne."

    async def run() -> str:
        capability = CallgateCapability(client, session_id=session)
        clerk = Agent(FunctionModel(stream_function=say), tools=world.tools, capabilities=[capability])
        async with clerk.run_stream("Look after my orders.") as result:
            return "".join([text async for text in result.stream_text(delta=True, debounce_by=None)])

    assert asyncio.run(run()) == "Done."
    assert world.done == ["search late"]
    assert used(client, session, BUDGET_DIMENSION_TOKENS) > 0


def test_what_the_policy_mends_is_what_runs(client: Client, session: str) -> None:
    seen_by_tool: list[Any] = []

    def set_limit(at: date, amount: int) -> str:
        """Takes values of Python's own."""
        seen_by_tool.append((at, amount))
        return "set"

    args = {"at": "2026-01-02", "amount": "7"}
    result = agent(client, [[("set_limit", args)], "Done."], session, [set_limit]).run_sync("Set it.")
    assert json.loads(seen(result.all_messages())[0][0])["status"] == "success"
    assert seen_by_tool == [(date(2026, 1, 2), 7)]
