"""OpenAI's Chat Completions and Responses in a loop of one's own: the model's open calls, run behind a gate.

It takes what `pip install openai` gives and takes, and mappings of the same members, so that it serves whatever speaks
these APIs; it imports nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ._loops import get, run, turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from openai.types.chat import ChatCompletionToolMessageParam
    from openai.types.responses.response_input_param import FunctionCallOutput

    from .outcome import Outcome
    from .toolbox import AsyncToolbox, Toolbox


@overload
def tool_messages(
    tools: Toolbox, messages: Sequence[Any], response: Any = None
) -> list[ChatCompletionToolMessageParam]: ...
@overload
def tool_messages(
    tools: AsyncToolbox, messages: Sequence[Any], response: Any = None
) -> Awaitable[list[ChatCompletionToolMessageParam]]: ...
def tool_messages(
    tools: Toolbox | AsyncToolbox, messages: Sequence[Any], response: Any = None
) -> list[ChatCompletionToolMessageParam] | Awaitable[list[ChatCompletionToolMessageParam]]:
    """Chat Completions: runs the calls of the model's last message, and gives the messages that answer them.

    The calls are judged together and executed at once. The number of the model's message goes before their ids, which
    some servers begin anew with each message: a program that begins again with the messages that it has stored runs no
    call twice; it calls `tools.schemas` first.

    Args:
        tools: Of `gate.wrap`; of an `AsyncGate`, the answer is to be awaited.
        messages: The conversation, with the model's last message, `completion.choices[0].message`, at its end.
        response: What the model's API returned, or else what has its `usage` and `model`: they are booked, once for
            these calls. Of a response without calls, with the next calls of these tools.

    Returns:
        One message a call, to append; none where the last message has no calls.

    Raises:
        CallgateError: As of `Gate.run`.
    """
    last = next(reversed(messages), None)
    asked = [call for call in get(last, "tool_calls") or [] if get(call, "function") is not None]
    functions = [get(call, "function") for call in asked]
    number = turn(messages)
    calls = [
        tools.call(get(function, "name"), get(function, "arguments"), call_id=get(call, "id"), turn=number)
        for call, function in zip(asked, functions, strict=True)
    ]

    def shape(outcomes: list[Outcome]) -> list[ChatCompletionToolMessageParam]:
        return [
            {"role": "tool", "tool_call_id": get(call, "id"), "content": one.text}
            for call, one in zip(asked, outcomes, strict=True)
        ]

    return run(tools, calls, shape, response)


@overload
def tool_outputs(tools: Toolbox, items: Sequence[Any], response: Any = None) -> list[FunctionCallOutput]: ...
@overload
def tool_outputs(
    tools: AsyncToolbox, items: Sequence[Any], response: Any = None
) -> Awaitable[list[FunctionCallOutput]]: ...
def tool_outputs(
    tools: Toolbox | AsyncToolbox, items: Sequence[Any], response: Any = None
) -> list[FunctionCallOutput] | Awaitable[list[FunctionCallOutput]]:
    """Responses: runs the function calls that have no output yet, and gives their outputs.

    As `tool_messages`; the ids are the model's own.

    Args:
        tools: Of `gate.wrap`; of an `AsyncGate`, the answer is to be awaited.
        items: The conversation with `response.output` at its end, or that alone.
        response: What the model's API returned, or else what has its `usage` and `model`: they are booked, once for
            these calls. Of a response without calls, with the next calls of these tools.

    Returns:
        One output a call, to append (or to send, with `previous_response_id`); none where no call is open.

    Raises:
        CallgateError: As of `Gate.run`.
    """
    answered = {get(item, "call_id") for item in items if get(item, "type") == "function_call_output"}
    asked = [i for i in items if get(i, "type") == "function_call" and get(i, "call_id") not in answered]
    calls = [tools.call(get(item, "name"), get(item, "arguments"), call_id=get(item, "call_id")) for item in asked]

    def shape(outcomes: list[Outcome]) -> list[FunctionCallOutput]:
        return [
            {"type": "function_call_output", "call_id": get(item, "call_id"), "output": one.text}
            for item, one in zip(asked, outcomes, strict=True)
        ]

    return run(tools, calls, shape, response)
