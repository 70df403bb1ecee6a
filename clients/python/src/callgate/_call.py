"""A call as a program hands it over, and what holds for it."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from . import _usage, _values
from .v1.types_pb2 import ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .v1.types_pb2 import Caller

log = logging.getLogger("callgate")
_ID_BYTES_MAX = 200
_WITNESS_BYTES_MAX = 256

Args = Mapping[str, Any] | str
"""The arguments of a call: a mapping, or the model's own JSON text, which is passed on byte for byte."""
FailOpen = bool | frozenset[str] | Callable[[str], bool]
"""Which tools run while the plane is away: all, these, or those of which the function says so."""


@dataclass(frozen=True)
class Call:
    """One tool call of a model, as `Gate.batch` takes it and `Gate.run` makes it.

    Attributes:
        tool: As the model calls it and the policy names it.
        args: A mapping, or the model's own JSON text: where that is wrong, the model is told so.
        execute: Called with the arguments by keyword, once for each permit.
        call_id: As the framework names the call; one id is one call, however often it is run. None: a new one.
        turn: Goes before the `call_id`, for frameworks whose ids begin anew with each turn (`call_0`).
        justification: Why the agent wants it, for people.
        repeat_intended: The agent means to repeat an earlier call.
        read_only: The tool changes nothing, so that a retry after a timeout does no harm. What the policy declares
            goes before it.
        witness: Called with the arguments by keyword before and after `execute`: the state of what the call reads, such
            as an ETag or a version, or None where that is not known. A declared look whose state is the same is
            answered by its previous result; one whose state differs is executed.
        cost_estimate_micros: What it is expected to cost, in millionths of a US dollar.
        usage: What the model used since the last call, as `usage_of` reads it, by response where these are several. It
            is booked with the first judgement of this id, whatever the decision.
        patience_s: Instead of the gate's; None: as the gate has it.
        approval_wait_s: Instead of the gate's; None: as the gate has it.
        timeout_s: How long `execute` may take, in seconds; for `AsyncGate` alone, since threads cannot be stopped.
        justification_parameter: Under which name the model can give the reason, if it can.
        repeat_parameter: Under which name the model can mean a repetition, if it can.
        takes: Whether what `execute` hands the arguments to takes one of this name, such as the one for the idempotency
            key; None: as the signature of `execute` says.
    """

    tool: str
    args: Args
    execute: Callable[..., Any]
    _: KW_ONLY
    call_id: str | None = None
    turn: str = ""
    justification: str = ""
    repeat_intended: bool = False
    read_only: bool = False
    witness: Callable[..., str | None] | None = field(default=None, repr=False)
    cost_estimate_micros: int | None = None
    usage: Usage | Sequence[Usage] | None = field(default=None, repr=False)
    patience_s: float | None = None
    approval_wait_s: float | None = None
    timeout_s: float | None = None
    justification_parameter: str = ""
    repeat_parameter: str = ""
    takes: Callable[[str], bool] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError naming what makes no sense, before anything is asked."""
        _check_times(self)
        cost = self.cost_estimate_micros
        if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int)):
            raise TypeError(f"cost_estimate_micros: {cost!r} is no number of millionths of a US dollar")
        if cost is not None and not 0 <= cost < 2**63:
            raise ValueError(f"cost_estimate_micros: {cost} is no cost")
        if self.witness is not None and not callable(self.witness):
            raise TypeError(f"witness: {type(self.witness).__name__} is no function")
        if self.usage is not None and not _are_usages(self.usage):
            raise TypeError(
                f"usage: {type(self.usage).__name__} is no Usage; usage_of reads one from a model's response"
            )
        if not callable(self.execute):
            raise TypeError(f"execute: {type(self.execute).__name__} is no function; give the function, not its result")
        for name in ("tool", "call_id"):
            given = getattr(self, name)
            if not isinstance(given, str) and (given is not None or name == "tool"):
                raise TypeError(f"{name}: {given!r} is no text")

    def proposed(self) -> ToolCall:
        """As the plane is asked.

        Raises:
            TypeError: The arguments are neither text nor a mapping of JSON values.
        """
        return ToolCall(
            call_id=self._id(),
            tool=self.tool,
            arguments_json=_values.arguments(self.args),
            justification=self.justification,
            repeat_intended=self.repeat_intended,
            cost_estimate_micros=self.cost_estimate_micros,
            justification_parameter=self.justification_parameter,
            repeat_parameter=self.repeat_parameter,
        )

    def state(self) -> str:
        """What `witness` says now; empty where it says nothing or fails."""
        if self.witness is None:
            return ""
        try:
            args = json.loads(self.args or "{}") if isinstance(self.args, str) else self.args
            state = self.witness(**args) or ""
            raw = state.encode()
        except Exception as error:
            log.warning("callgate: the witness of %s failed, and its state is unknown: %r", self.tool, error)
            return ""
        return state if len(raw) <= _WITNESS_BYTES_MAX else f"sha256:{hashlib.sha256(raw).hexdigest()}"

    def _id(self) -> str:
        if self.call_id is None:
            return uuid.uuid4().hex
        named = f"{self.turn}/{self.call_id}" if self.turn else self.call_id
        raw = named.encode(errors="replace")
        return named if len(raw) <= _ID_BYTES_MAX else f"sha256:{hashlib.sha256(raw).hexdigest()}"


class ToolOptions(TypedDict, total=False):
    """What a call has beside tool, arguments, `execute` and `call_id`: as `Call` explains it."""

    turn: str
    justification: str
    repeat_intended: bool
    read_only: bool
    witness: Callable[..., str | None] | None
    cost_estimate_micros: int | None
    usage: Usage | Sequence[Usage] | None
    patience_s: float | None
    approval_wait_s: float | None
    timeout_s: float | None
    justification_parameter: str
    repeat_parameter: str


class CallOptions(ToolOptions, total=False):
    """What `Gate.run` takes beside tool, arguments and `execute`: as `Call` explains it."""

    call_id: str | None


@dataclass(frozen=True)
class Rules:
    """What holds for the calls of a gate.

    Attributes:
        caller: Who asks.
        patience_s: How long a call waits in all for WAITs and for retries that were advised, in seconds.
        approval_wait_s: How long it waits for a person, in seconds; 0 not at all.
        fail_open: Which tools run while the plane is away.
        usage: What is called with a model's usage before it is booked.
    """

    caller: Caller
    patience_s: float = 60.0
    approval_wait_s: float = 300.0
    fail_open: FailOpen = False
    usage: _usage.OnUsage | None = None

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError for a time that is none, and for a `usage` that is no function."""
        _check_times(self)
        if self.usage is not None and not callable(self.usage):
            raise TypeError(f"usage: {type(self.usage).__name__} is no function")

    def runs_without_plane(self, tool: str) -> bool:
        """Whether this tool runs while nobody can be asked."""
        if callable(self.fail_open):
            return self.fail_open(tool)
        return self.fail_open if isinstance(self.fail_open, bool) else tool in self.fail_open


def _are_usages(given: Any) -> bool:
    return isinstance(given, Usage) or (isinstance(given, list | tuple) and all(isinstance(u, Usage) for u in given))


def _check_times(waits: Call | Rules) -> None:
    for name in ("patience_s", "approval_wait_s", "timeout_s"):
        seconds = getattr(waits, name, None)
        if seconds is None:
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"{name}: {seconds!r} is no number of seconds")
        if not seconds >= 0:
            raise ValueError(f"{name}: {seconds} is no time to wait")
