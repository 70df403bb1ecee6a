"""What tests share: one plane, and sessions of their own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Client, Gate
from callgate.v1.gate_service_pb2 import GetSessionStateRequest
from callgate.v1.types_pb2 import BUDGET_SCOPE_CALL_TREE, CallState, CallSummary

from .plane import Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Shared: nobody stops it."""
    with Server() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


@pytest.fixture
def session() -> str:
    """A session, and so a call tree, that no other test has."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def gate(client: Client, session: str) -> Gate:
    return client.gate(session)


def calls(client: Client, session: str) -> list[CallSummary]:
    """What the plane knows of the session's calls, the newest first."""
    answer = client.services.calls.GetSessionState(GetSessionStateRequest(session_id=session, last_calls=64))
    return list(answer.state.calls)


def states(client: Client, session: str) -> list[str]:
    """Where they stand, the oldest first: `SUCCEEDED`."""
    return [CallState.Name(call.state).removeprefix("CALL_STATE_") for call in reversed(calls(client, session))]


def used(client: Client, session: str, dimension: Any, scope: Any = BUDGET_SCOPE_CALL_TREE) -> int:
    """How much of a budget is used up."""
    state = client.services.calls.GetSessionState(GetSessionStateRequest(session_id=session)).state
    return next(one.used for one in state.budgets if (one.scope, one.dimension) == (scope, dimension))
