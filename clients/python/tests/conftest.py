"""What tests share: one plane, and sessions of their own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from callgate import Client, Gate
from callgate.v1.gate_service_pb2 import GetSessionStateRequest
from callgate.v1.types_pb2 import CallState, CallSummary

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
