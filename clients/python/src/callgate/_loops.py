"""What plain tool loops share: the calls of a model's last turn, run at once and answered in the shape of its API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .toolbox import AsyncToolbox, Toolbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ._call import Call
    from .outcome import Outcome

T = TypeVar("T")


def run(
    tools: Toolbox | AsyncToolbox, calls: list[Call], shape: Callable[[list[Outcome]], list[T]]
) -> list[T] | Awaitable[list[T]]:
    """Runs the calls; with an AsyncToolbox, the answers are to be awaited."""
    if isinstance(tools, Toolbox):
        return shape(tools.gate.batch(calls)) if calls else []
    return _run_aio(tools, calls, shape)


async def _run_aio(tools: AsyncToolbox, calls: list[Call], shape: Callable[[list[Outcome]], list[T]]) -> list[T]:
    return shape(await tools.gate.batch(calls)) if calls else []


def get(thing: Any, name: str) -> Any:
    """A member of what an SDK has as an object, and JSON as a mapping; None where it is not there."""
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def turn(messages: Sequence[Any]) -> str:
    """How many messages the model has given: some servers begin the ids of calls anew with each (`call_0`)."""
    return f"turn-{sum(get(message, 'role') == 'assistant' for message in messages)}"
