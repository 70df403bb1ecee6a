"""What a flow asks its driver for."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .outcome import Outcome

if TYPE_CHECKING:
    from ._call import Call
    from ._permit import Granted
    from ._reports import Report
    from .v1.gate_service_pb2 import EvaluateRequest, RecordRequest


class Evaluate(NamedTuple):
    """Ask; the answer is a Verdict."""

    request: EvaluateRequest
    wait_s: float


class Record(NamedTuple):
    """Report; the answer is a RecordResponse."""

    request: RecordRequest


class Sleep(NamedTuple):
    """Wait; the answer is nothing."""

    seconds: float


class Settle(NamedTuple):
    """Wait a moment for a report in the background; the answer is nothing."""

    report: Report


class Execute(NamedTuple):
    """Execute; the answer is a Ran, whatever is raised."""

    call: Call
    args: dict[str, Any]
    granted: Granted


@dataclass
class Ran:
    """What came of an execution."""

    value: Any = None
    error: BaseException | None = None
    started: bool = True
    goes_on: bool = False
    """It was called off, and cannot be stopped."""


T = TypeVar("T")
Effect = Evaluate | Record | Sleep | Settle | Execute
Steps = Generator[Effect, Any, T]
"""What a flow yields, is sent, and returns."""
Flow = Steps[Outcome]
