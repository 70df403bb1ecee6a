"""Asks callgate before an agent's tool call, executes what may run, and reports what came of it.

    from callgate import Gate

    outcome = Gate("session-1").run("get_order", {"order_id": 42}, get_order)
    print(outcome.text)  # what the model is to see

`Client` and `AsyncClient` have all services of the contract; `Gate` and `AsyncGate` do what every agent's loop needs.
"""

from ._call import Args, Call, CallOptions, ToolOptions
from ._firsts import Replayed
from ._permit import permit
from ._reports import Unsent
from ._usage import priced, usage_of
from .client import AsyncClient, Client
from .errors import (
    CallAlreadySettled,
    CallgateError,
    CallgateUnavailable,
    CallIdReused,
    CallRefused,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    NotStarted,
    PermissionDenied,
    ResourceExhausted,
    ToolFailed,
    Unauthenticated,
)
from .gate import AsyncGate, Gate, GateOptions
from .gated import gated
from .outcome import Decision, Outcome, Result
from .schemas import Added
from .toolbox import AsyncToolbox, Toolbox
from .v1.types_pb2 import SessionState, Usage

__version__ = "0.1.0"

__all__ = [
    "Added",
    "Args",
    "AsyncClient",
    "AsyncGate",
    "AsyncToolbox",
    "Call",
    "CallAlreadySettled",
    "CallIdReused",
    "CallOptions",
    "CallRefused",
    "CallgateError",
    "CallgateUnavailable",
    "Client",
    "Decision",
    "FailedPrecondition",
    "Gate",
    "GateOptions",
    "InvalidArgument",
    "NotFound",
    "NotStarted",
    "Outcome",
    "PermissionDenied",
    "Replayed",
    "ResourceExhausted",
    "Result",
    "SessionState",
    "ToolFailed",
    "ToolOptions",
    "Toolbox",
    "Unauthenticated",
    "Unsent",
    "Usage",
    "gated",
    "permit",
    "priced",
    "usage_of",
]
