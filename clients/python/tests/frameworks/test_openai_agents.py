"""Gated tools in the OpenAI Agents SDK's own runner, with a scripted model and the real plane."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    RunState,
    ToolOutputImage,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from callgate.openai_agents import answer, gated_tools
from callgate.v1.approval_service_pb2 import APPROVAL_STATE_APPROVED, APPROVAL_STATE_PENDING

from .conftest import person, questions
from .story import Turn, World, check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from callgate import Client

set_tracing_disabled(disabled=True)


class Scripted(Model):
    """Says what it is told to, and remembers what it was shown. Ids are unique, as the SDK wants them."""

    def __init__(self, turns: list[Turn]) -> None:
        self._turns = iter(turns)
        self.input: Any = None
        self.tools: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: A002
        self.input = input
        self.tools = kwargs["tools"] if "tools" in kwargs else args[1]
        return ModelResponse(output=_items(next(self._turns)), usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _items(turn: Turn) -> list[Any]:
    if isinstance(turn, str):
        text = ResponseOutputText(type="output_text", text=turn, annotations=[])
        return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])]
    return [
        ResponseFunctionToolCall(
            type="function_call", call_id=f"call_{uuid.uuid4().hex}", name=name, arguments=json.dumps(args)
        )
        for name, args in turn
    ]


def seen(items: list[Any], turns: list[Turn]) -> list[list[str]]:
    """The texts of the tools, by turn of the model."""
    texts = iter([item["output"] for item in items if item.get("type") == "function_call_output"])
    return [[next(texts) for _ in turn] for turn in turns if not isinstance(turn, str)]


def agent(world: World, model: Scripted, **options: Any) -> Agent[Any]:
    return Agent("clerk", model=model, tools=gated_tools([function_tool(tool) for tool in world.tools], **options))


def test_the_story_is_played_with_a_person_in_callgate(client: Client, session: str, world: World) -> None:
    model = Scripted(world.story)
    with person(client, session, world):
        result = asyncio.run(
            Runner.run(agent(world, model, client=client, session_id=session), "Look after my orders.")
        )
    assert result.final_output == "All done."
    check(world, seen(model.input, world.story))


def test_the_story_is_played_with_interruptions(client: Client, session: str, world: World) -> None:
    model = Scripted(world.story)

    async def play() -> Any:
        clerk = agent(world, model, client=client, session_id=lambda ctx: ctx.context["session"], interruptions=True)
        given: Any = "Look after my orders."
        for order, reason in world.answers.items():
            result = await Runner.run(clerk, given, context={"session": session})
            (item,) = result.interruptions
            assert json.loads(item.arguments or "") == {"order_id": order}
            # It may take days: nothing but the state is left.
            clerk = agent(
                world, model, client=client, session_id=lambda ctx: ctx.context["session"], interruptions=True
            )
            given = await RunState.from_string(clerk, result.to_state().to_string())
            (item,) = given.get_interruptions()
            await answer(given, item, approve=reason is None, reason=reason or "", by="ada")
        return await Runner.run(clerk, given, context={"session": session})

    result = asyncio.run(play())
    assert result.final_output == "All done."
    check(world, seen(model.input, world.story))
    assert [asked.resolved_by for asked in questions(client, session)] == ["ada", "ada"]


def test_a_yes_with_other_arguments_runs_those(client: Client, session: str, world: World) -> None:
    model = Scripted([*world.story[5:6], "Done."])

    async def play() -> Any:
        clerk = agent(world, model, client=client, session_id=session, interruptions=True)
        result = await Runner.run(clerk, "Look after my orders.")
        state = result.to_state()
        with pytest.raises(ValueError, match=r"^arguments: a denied call has none"):
            await answer(state, result.interruptions[0], approve=False, arguments={"order_id": world.unpaid})
        await answer(state, result.interruptions[0], approve=True, arguments={"order_id": world.unpaid})
        return await Runner.run(clerk, state)

    asyncio.run(play())
    assert world.done == [f"refund {world.unpaid}"]
    told = json.loads(seen(model.input, world.story[5:6])[0][0])
    assert (told["status"], world.unpaid in told["warning"]) == ("success", True)


def test_a_yes_for_good_answers_no_question_of_callgate(client: Client, session: str, world: World) -> None:
    """The user said yes to a tool once and for all; what callgate asks of a later call, nobody has seen."""
    model = Scripted([*world.story[5:7], "Done."])

    async def play() -> Any:
        clerk = agent(world, model, client=client, session_id=session, interruptions=True, approval_wait_s=0.5)
        result = await Runner.run(clerk, "Look after my orders.")
        state = result.to_state()
        state.approve(result.interruptions[0], always_approve=True)
        return await Runner.run(clerk, state)

    asyncio.run(play())
    assert world.done == [f"refund {world.paid}"]
    texts = [json.loads(turn[0])["status"] for turn in seen(model.input, world.story[5:7])]
    assert texts == ["success", "approval_required"]
    assert [asked.state for asked in questions(client, session)] == [APPROVAL_STATE_PENDING, APPROVAL_STATE_APPROVED]


def test_the_model_is_shown_what_the_policy_wants(client: Client, session: str, world: World) -> None:
    call = ("close_account", {"account": world.paid, "justification": "They asked for it.", "again": None})
    model = Scripted([[call], "Done."])
    clerk = agent(world, model, client=client, session_id=session, repeat_parameter="again")
    asyncio.run(Runner.run(clerk, "Close it."))
    shown = next(tool for tool in model.tools if tool.name == "close_account")
    # OpenAI's strict schemas stay strict.
    assert shown.params_json_schema["required"] == ["account", "justification", "again"]
    assert shown.params_json_schema["additionalProperties"] is False
    assert world.done == [f"close {world.paid}"]


def test_what_went_wrong_is_known_and_time_is_kept(client: Client, session: str) -> None:
    @function_tool(timeout=0.2)
    async def get_weather(city: str) -> str:
        """Takes its time."""
        await asyncio.sleep(30)
        return city

    model = Scripted([[("get_weather", {"city": uuid.uuid4().hex})], [("get_weather", {"town": 1})], "Done."])
    tools = gated_tools([get_weather], client, session_id=session, patience_s=0)
    asyncio.run(Runner.run(Agent("clerk", model=model, tools=tools), "How is it?"))
    timeout, wrong = (json.loads(turn[0]) for turn in seen(model.input, [[("", {})], [("", {})]]))
    assert timeout["error_type"] == "timeout"
    assert (wrong["error_type"], wrong["retryable"]) == ("invalid_argument", False)


def test_what_is_more_than_text_stays(client: Client, session: str) -> None:
    @function_tool
    def get_weather() -> ToolOutputImage:
        """Shows the sky."""
        return ToolOutputImage(image_url="data:image/png;base64,AA==")

    model = Scripted([[("get_weather", {})], "Done."])
    tools = gated_tools([get_weather], client, session_id=session)
    asyncio.run(Runner.run(Agent("clerk", model=model, tools=tools), "How is it?"))
    assert "data:image/png;base64,AA==" in json.dumps(model.input)
