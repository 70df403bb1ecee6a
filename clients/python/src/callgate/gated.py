"""A decorator for functions that run only behind a gate."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .gate import AsyncGate, Gate
from .toolbox import name_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ._call import CallOptions

F = TypeVar("F", bound="Callable[..., Any]")


def gated(
    gate: Gate | AsyncGate | Callable[[], Gate | AsyncGate], *, tool: str = "", **options: Unpack[CallOptions]
) -> Callable[[F], F]:
    """Lets the function run only as its gate permits.

    The function returns its value. Where the same was done before, it returns the value of that execution, which is of
    the same type, as long as this process has it; else `Replayed`.

    Args:
        gate: The gate, or a function that gives it when the decorated one is called; for a coroutine function an
            `AsyncGate`.
        tool: As the policy names the function; else its own name.
        options: As of `Gate.run`.

    Raises:
        TypeError: The function takes arguments that have no names (`*args`, or positional alone).
        CallRefused: When it is called: the plane did not let it run.
        CallgateError: When it is called: nobody could be asked, or the request is at fault.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        nameless = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}
        if any(parameter.kind in nameless for parameter in signature.parameters.values()):
            raise TypeError(f"{function} takes arguments without names, by which a policy cannot know them")
        name = tool or name_tool(function)

        def bind(*args: Any, **kwargs: Any) -> dict[str, Any]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            named = dict(bound.arguments)
            for parameter in signature.parameters.values():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    named.update(named.pop(parameter.name))
            return named

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                outcome = await _of(gate, AsyncGate).run(name, bind(*args, **kwargs), function, **options)
                return outcome.unwrap()

            return cast("F", run_async)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return _of(gate, Gate).run(name, bind(*args, **kwargs), function, **options).unwrap()

        return cast("F", run)

    return decorate


G = TypeVar("G", Gate, AsyncGate)


def _of(gate: Gate | AsyncGate | Callable[[], Gate | AsyncGate], kind: type[G]) -> G:
    found = gate if isinstance(gate, Gate | AsyncGate) else gate()
    if not isinstance(found, kind):
        raise TypeError(f"gate: this function needs {'an' if kind is AsyncGate else 'a'} {kind.__name__}")
    return found
