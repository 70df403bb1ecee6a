"""A decorator for functions that run only behind a gate."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from .gate import AsyncGate, Gate
from .toolbox import name_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from typing_extensions import Unpack

    from ._call import ToolOptions
    from .outcome import Outcome

F = TypeVar("F", bound="Callable[..., Any]")
P = ParamSpec("P")
R = TypeVar("R")

AnyGate = Gate | AsyncGate


class _ToText(Protocol):
    """A decorator that keeps the parameters, and makes the result a text."""

    @overload  # the first that fits: a coroutine function is a function too
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, str]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, str]: ...


@overload
def gated(
    gate: AnyGate | Callable[..., AnyGate],
    *,
    for_model: Literal[True],
    tool: str = "",
    context: str = "",
    call_id: str | Callable[[Any], str | None] | None = None,
    **options: Unpack[ToolOptions],
) -> _ToText: ...


@overload
def gated(
    gate: AnyGate | Callable[..., AnyGate],
    *,
    for_model: Literal[False] = False,
    tool: str = "",
    context: str = "",
    call_id: str | Callable[[Any], str | None] | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[F], F]: ...


def gated(
    gate: AnyGate | Callable[..., AnyGate],
    *,
    for_model: bool = False,
    tool: str = "",
    context: str = "",
    call_id: str | Callable[[Any], str | None] | None = None,
    **options: Unpack[ToolOptions],
) -> Any:
    """Lets the function run only as its gate permits. Signature, docstring and name stay those of the function.

    The function returns its value. Where the same was done before, it returns the value of that execution, which is of
    the same type, as long as this process has it; else `Replayed`.

    Args:
        gate: The gate, or a function that gives it when the decorated one is called, such as by the session of that
            moment. A coroutine function runs behind either kind, any other behind a `Gate`.
        for_model: The function is a tool that a framework calls for a model. It returns the text for the model instead,
            also for a refusal, a repetition and an exception of the tool, and its annotation says `str`.
        tool: As the policy names the function; else its own name.
        context: The parameter by which a framework gives the function an object of its own, such as `tool_context`. The
            policy does not see it, and `gate` and `call_id`, where they are functions, are called with it.
        call_id: The framework's id of a call, read from `context`. Without one, each call is a new one.
        options: As of `Gate.run`.

    Raises:
        TypeError: The function takes arguments that have no names (`*args`, or positional alone), yields, or does not
            take `context`.
        CallRefused: When it is called, unless `for_model`: the plane did not let it run.
        CallgateError: When it is called: nobody could be asked (unless `for_model`), or the request is at fault.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = _signature(function, context)
        name = tool or name_tool(function)

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
            named = _bind(signature, args, kwargs)
            if not context:
                return (gate if isinstance(gate, AnyGate) else gate()), named, function, call_id
            given = named.pop(context)
            found = gate if isinstance(gate, AnyGate) else gate(given)
            execute = functools.partial(function, **{context: given})
            return found, named, execute, call_id(given) if callable(call_id) else call_id

        def result(outcome: Outcome) -> Any:
            return outcome.text if for_model else outcome.unwrap()

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                found, named, execute, id_ = prepare(args, kwargs)
                return result(await _for_loops(found).run(name, named, execute, call_id=id_, **options))

            return _described(run_async, function) if for_model else run_async

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            found, named, execute, id_ = prepare(args, kwargs)
            if not isinstance(found, Gate):
                raise TypeError(f"gate: {name} is no coroutine function, and needs a Gate")
            return result(found.run(name, named, execute, call_id=id_, **options))

        return _described(run, function) if for_model else run

    if callable(call_id) and not context:
        raise TypeError("call_id: a function is called with `context`, which is not given")
    return decorate


def _signature(function: Callable[..., Any], context: str) -> inspect.Signature:
    signature = inspect.signature(function)
    nameless = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}
    if any(parameter.kind in nameless for parameter in signature.parameters.values()):
        raise TypeError(f"{function} takes arguments without names, by which a policy cannot know them")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function} yields: its work is not done when it returns, and its outcome is not known then")
    if context and context not in signature.parameters:
        raise TypeError(f"context: {function} has no parameter {context}")
    return signature


def _bind(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(named.pop(parameter.name))
    return named


def _described(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper with the function's signature, and `str` as its result.

    Annotations are evaluated where they can be: a signature that is set is not evaluated by its readers.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # an annotation may be any text, such as a name for type checkers alone
        signature = inspect.signature(function)
    annotations = {one.name: one.annotation for one in signature.parameters.values() if one.annotation is not one.empty}
    wrapper.__annotations__ = {**annotations, "return": str}
    cast("Any", wrapper).__signature__ = signature.replace(return_annotation=str)
    return wrapper


def _for_loops(gate: AnyGate) -> AsyncGate:
    if isinstance(gate, AsyncGate):
        return gate
    from .client import twin

    return AsyncGate(gate.session_id, client=twin(gate.client), **gate.options)
