"""Tools behind a gate, by name, for loops that one writes oneself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from ._call import Args, Call, ToolOptions
from .errors import CallgateUnavailable, ToolFailed
from .schemas import Added, adapted, name_of
from .v1.gate_service_pb2 import DescribeToolsRequest, ToolDescription

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .gate import AsyncGate, Gate
    from .outcome import Outcome
    from .v1.types_pb2 import Usage

log = logging.getLogger("callgate")

Tools = Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]]
Schemas = Iterable[Mapping[str, Any]]


class ToolboxOptions(TypedDict, total=False):
    """What a toolbox takes beside the tools.

    Attributes:
        repeat_parameter: The name of an optional parameter that every schema gets, by which the model can mean a
            repetition, such as `repeat_intended`; empty: none.
    """

    repeat_parameter: str


class _Base:
    def __init__(self, tools: Tools, options: ToolboxOptions) -> None:
        if isinstance(tools, Mapping):
            self.tools = dict(tools)
        else:
            self.tools = {name_tool(tool): tool for tool in tools}
        self._repeat = options.get("repeat_parameter", "")
        self.added: dict[str, Added] = {}
        self.used: list[Usage] = []
        """Usage of the model that is not booked yet."""
        self.tools_disabled = False
        """True once tools are disabled: omit them from the next request to the model."""
        self.is_over = False
        """True once the model called disabled tools and was refused: end the loop."""

    def call(self, name: str, args: Args, call_id: str | None = None, **options: Unpack[ToolOptions]) -> Call:
        """A call of one of the tools, as `batch` of the gate takes it.

        A name that is no tool's is judged as well: a model that makes up names is told so.
        """
        args, said = self.added.get(name, Added()).taken(args)
        execute = self.tools.get(name) or self._missing(name)
        return Call(name, args, execute, call_id=call_id, **_joined(said, options))

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """Updates `tools_disabled` and `is_over` with outcomes, also of calls that the gate itself ran."""
        self.is_over = self.is_over or (self.tools_disabled and any(not one.ran for one in outcomes))
        self.tools_disabled = self.tools_disabled or any(one.tools_disabled for one in outcomes)

    def _missing(self, name: str) -> Callable[..., Any]:
        def missing(**_: Any) -> None:
            known = ", ".join(sorted(self.tools)) or "none"
            raise ToolFailed(f"There is no tool {name}. The tools are: {known}.", type="UnknownTool", http_status=404)

        return missing

    def _request(self, schemas: list[Mapping[str, Any]]) -> DescribeToolsRequest:
        return DescribeToolsRequest(tools=[name for name in map(name_of, schemas) if name])

    def _adapt(self, schemas: list[Mapping[str, Any]], tools: Iterable[ToolDescription]) -> list[dict[str, Any]]:
        known = {tool.tool: tool for tool in tools}
        shown = []
        for schema in schemas:
            name = name_of(schema)
            made, self.added[name] = adapted(schema, known.get(name, ToolDescription()), repeat_parameter=self._repeat)
            shown.append(made)
        return shown


def name_tool(tool: Any) -> str:
    """The function's name; of a `partial`, that of its function."""
    function = tool
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", "<unnamed>")
    if not callable(tool) or name.startswith("<"):
        shown = "a function without a name" if callable(tool) else f"{tool!r} is no function"
        raise TypeError(f"tools: {shown}; give functions, or a mapping of names to functions")
    return str(name)


def _joined(said: ToolOptions, given: ToolOptions) -> ToolOptions:
    return {**said, **given}


_AWAY = "callgate: the schemas of tools are shown as they are, since the policy cannot be asked: %s"


class Toolbox(_Base):
    """Tools behind a `Gate`."""

    def __init__(self, gate: Gate, tools: Tools, **options: Unpack[ToolboxOptions]) -> None:
        """Functions by name, or functions that are called by their own names."""
        super().__init__(tools, options)
        self.gate = gate

    def schemas(self, schemas: Schemas) -> list[dict[str, Any]]:
        """The tools' schemas as the model is to see them, in the shape that they come in.

        What is no function, such as a search of the provider's own, stays as it is, and so does everything while the
        plane is away.

        Raises:
            CallgateError: The request itself is at fault, such as its credential.
        """
        given = list(schemas)
        plane = self.gate.client.plane
        try:
            answer = self.gate.client.services.calls.DescribeTools(
                self._request(given), timeout=plane.settings.timeout_s
            )
        except CallgateUnavailable as error:
            log.warning(_AWAY, error)
            return self._adapt(given, [])
        return self._adapt(given, answer.tools)

    def run(self, name: str, args: Args, call_id: str | None = None, **options: Unpack[ToolOptions]) -> Outcome:
        """As `Gate.run`, with the tool of that name."""
        outcome = self.gate.run_call(self.call(name, args, call_id, **options))
        self.heed([outcome])
        return outcome


class AsyncToolbox(_Base):
    """Tools behind an `AsyncGate`."""

    def __init__(self, gate: AsyncGate, tools: Tools, **options: Unpack[ToolboxOptions]) -> None:
        """Functions by name, or functions that are called by their own names."""
        super().__init__(tools, options)
        self.gate = gate

    async def schemas(self, schemas: Schemas) -> list[dict[str, Any]]:
        """As `Toolbox.schemas`."""
        given = list(schemas)
        plane = self.gate.client.plane
        try:
            answer = await self.gate.client.services.calls.DescribeTools(
                self._request(given), timeout=plane.settings.timeout_s
            )
        except CallgateUnavailable as error:
            log.warning(_AWAY, error)
            return self._adapt(given, [])
        return self._adapt(given, answer.tools)

    async def run(self, name: str, args: Args, call_id: str | None = None, **options: Unpack[ToolOptions]) -> Outcome:
        """As `AsyncGate.run`, with the tool of that name."""
        outcome = await self.gate.run_call(self.call(name, args, call_id, **options))
        self.heed([outcome])
        return outcome
