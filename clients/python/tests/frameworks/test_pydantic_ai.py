"""The capability in Pydantic AI's own agent, with a scripted model and the real plane."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from callgate.pydantic_ai import CallgateCapability

from .conftest import person, questions
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
