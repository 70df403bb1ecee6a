"""Fixtures for pytest: a server in memory for a test run, and a gate with a session of its own for each test.

In conftest.py:

    pytest_plugins = ["callgate.testing.fixtures"]

    @pytest.fixture(scope="session")
    def callgate_policy():
        return "callgate.yaml"

In a test:

    def test_an_order_is_refunded_once(callgate_gate):
        assert callgate_gate.run("refund", {"order_id": 42}, refund).ran
        assert not callgate_gate.run("refund", {"order_id": 42}, refund).ran
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from . import MemoryServer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from ..client import Client
    from ..gate import Gate


@pytest.fixture(scope="session")
def callgate_policy() -> str | os.PathLike[str] | None:
    """The policy of `callgate_server`, as text or as a path: override it in your conftest.py."""
    return None


@pytest.fixture(scope="session")
def callgate_server(callgate_policy: str | os.PathLike[str] | None) -> Iterator[MemoryServer]:
    """One server for the whole test run."""
    with MemoryServer(callgate_policy) as server:
        yield server


@pytest.fixture
def callgate_client(callgate_server: MemoryServer) -> Client:
    """A client of the server, named `pytest` where it approves, halts or grants."""
    return callgate_server.client(by="pytest")


@pytest.fixture
def callgate_gate(callgate_client: Client) -> Gate:
    """A gate with a session that no other test has."""
    return callgate_client.gate(f"test-{uuid.uuid4().hex}")
