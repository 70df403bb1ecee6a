"""What the adapters for frameworks share: one connection for threads and event loops, schemas, people's answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._questions import Person
from .client import AsyncClient, Client, default_client, twin
from .schemas import Added
from .toolbox import AsyncToolbox, Toolbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Unpack

    from ._call import Args, Call, CallOptions
    from ._questions import Answer
    from .gate import AsyncGate, Gate, GateOptions

A = TypeVar("A", bound="str | dict[str, Any]")


class Frame:
    """An adapter's connection, for whichever way its framework calls."""

    def __init__(
        self,
        client: Client | AsyncClient | None,
        approvals: Client | AsyncClient | None,
        repeat_parameter: str,
        options: GateOptions,
    ) -> None:
        """Connects to nothing yet.

        Raises:
            TypeError, ValueError: An option of the gates, or a setting, makes no sense.
        """
        client = client or default_client()
        self._client, self._aclient = _threads(client), _loops(client)
        self.person = Person(_threads(approvals or client))
        self._options = options
        # Of any session: schemas are those of the policy.
        self._box = Toolbox(self._client.gate("schemas", **options), {}, repeat_parameter=repeat_parameter)
        self._abox = AsyncToolbox(self._aclient.gate("schemas", **options), {}, repeat_parameter=repeat_parameter)
        self._abox.added = self._box.added

    def gate(self, session_id: str, defaults: GateOptions) -> Gate:
        """The gate of a session, for threads; the adapter's options go before these."""
        options: GateOptions = {**defaults, **self._options}
        return self._client.gate(session_id, **options)

    def agate(self, session_id: str, defaults: GateOptions) -> AsyncGate:
        """The same for event loops."""
        options: GateOptions = {**defaults, **self._options}
        return self._aclient.gate(session_id, **options)

    def schemas(self, schemas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The tools' schemas as the model is to see them."""
        return self._box.schemas(schemas)

    async def aschemas(self, schemas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The same for event loops."""
        return await self._abox.schemas(schemas)

    def knows(self, tool: str) -> bool:
        """Whether this process has shown the tool to a model: only then is it known what was added to its schema."""
        return tool in self._box.added

    def stripped(self, tool: str, args: A) -> A:
        """The arguments without what was added to the tool's schema."""
        return cast("A", self._box.added.get(tool, Added()).taken(args)[0])

    def call(
        self,
        tool: str,
        args: Args,
        execute: Callable[..., Any],
        takes: Callable[[str], bool],
        **options: Unpack[CallOptions],
    ) -> Call:
        """The call as the gate takes it, without what was added to the tool's schema.

        Args:
            tool: Its name.
            args: As the model gave them.
            execute: Hands the arguments to the framework.
            takes: Whether the tool takes an argument of this name: others the framework keeps from it, or fails for.
            options: As of `Gate.run`.
        """
        return replace(self._box.call(tool, args, **options), execute=execute, takes=takes)

    async def aanswer(self, gate: AsyncGate, call: Call, answer: Answer) -> None:
        """As `person.answer_all`, for event loops."""
        await asyncio.to_thread(self.person.answer_all, gate.session_id, call.proposed().call_id, answer)


def names(parameters: Mapping[str, Any], argument: str) -> bool:
    """Whether the schema of a tool's arguments has this one."""
    return argument in (parameters.get("properties") or {}) or bool(parameters.get("additionalProperties"))


def _threads(client: Client | AsyncClient) -> Client:
    return client if isinstance(client, Client) else twin(client)


def _loops(client: Client | AsyncClient) -> AsyncClient:
    return client if isinstance(client, AsyncClient) else twin(client)
