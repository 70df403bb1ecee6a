"""What plain tool loops share: the calls of a model's last turn, run at once and answered in the shape of its API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ._usage import usage_of
from .toolbox import AsyncToolbox, Toolbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ._call import Call
    from .outcome import Outcome

T = TypeVar("T")


def run(
    tools: Toolbox | AsyncToolbox, calls: list[Call], shape: Callable[[list[Outcome]], list[T]], response: Any
) -> list[T] | Awaitable[list[T]]:
    """Runs the calls; with an AsyncToolbox, the answers are to be awaited.

    The usage of a response without calls waits in the toolbox for the next calls.
    """
    if (used := usage_of(response)) is not None:
        tools.used.append(used)
    if calls and tools.used:
        calls[0] = replace(calls[0], usage=tools.used)
        tools.used = []
    if isinstance(tools, Toolbox):
        outcomes = tools.gate.batch(calls)
        tools.heed(outcomes)
        return shape(outcomes) if calls else []
    return _run_aio(tools, calls, shape)


async def _run_aio(tools: AsyncToolbox, calls: list[Call], shape: Callable[[list[Outcome]], list[T]]) -> list[T]:
    outcomes = await tools.gate.batch(calls)
    tools.heed(outcomes)
    return shape(outcomes) if calls else []


def get(thing: Any, name: str) -> Any:
    """A member of what an SDK has as an object, and JSON as a mapping; None where it is not there."""
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def turn(messages: Sequence[Any]) -> str:
    """How many messages the model has given: some servers begin the ids of calls anew with each (`call_0`)."""
    return f"turn-{sum(get(message, 'role') == 'assistant' for message in messages)}"
