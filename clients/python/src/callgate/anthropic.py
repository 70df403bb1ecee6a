"""Anthropic's Messages API in a loop of one's own: the calls of the model's last message, run behind a gate.

It takes what `pip install anthropic` gives and takes, and mappings of the same members; it imports nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ._loops import get, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from anthropic.types import MessageParam, ToolResultBlockParam

    from .outcome import Outcome
    from .toolbox import AsyncToolbox, Toolbox


@overload
def tool_messages(tools: Toolbox, messages: Sequence[Any], response: Any = None) -> list[MessageParam]: ...
@overload
def tool_messages(
    tools: AsyncToolbox, messages: Sequence[Any], response: Any = None
) -> Awaitable[list[MessageParam]]: ...
def tool_messages(
    tools: Toolbox | AsyncToolbox, messages: Sequence[Any], response: Any = None
) -> list[MessageParam] | Awaitable[list[MessageParam]]:
    """Runs the calls of the model's last message, and gives the message that answers them.

    The calls are judged together, executed at once, and answered in one message of the user, as the API wants it. The
    ids are the model's own, so a program that begins again with the messages that it has stored runs no call twice; it
    calls `tools.schemas` first.

    Args:
        tools: Of `gate.wrap`; of an `AsyncGate`, the answer is to be awaited.
        messages: The conversation, with the model's last message at its end: `{"role": "assistant", "content":
            reply.content}`.
        response: What the model's API returned, or else what has its `usage` and `model`: they are booked, once for
            these calls. Of a response without calls, with the next calls of these tools.

    Returns:
        One message to append; none where the last message has no calls.

    Raises:
        CallgateError: As of `Gate.run`.
    """
    last = next(reversed(messages), None)
    content = get(last, "content") if get(last, "role") == "assistant" else None
    uses = [block for block in content or [] if get(block, "type") == "tool_use"]
    calls = [tools.call(get(use, "name"), get(use, "input"), call_id=get(use, "id")) for use in uses]

    def shape(outcomes: list[Outcome]) -> list[MessageParam]:
        results: list[ToolResultBlockParam] = [
            {"type": "tool_result", "tool_use_id": get(use, "id"), "content": one.text, "is_error": one.is_error}
            for use, one in zip(uses, outcomes, strict=True)
        ]
        return [{"role": "user", "content": results}]

    return run(tools, calls, shape, response)
