"""What the frameworks' tests share: a plane with the story's policy, and the person who answers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callgate.v1.approval_service_pb2 import (
    APPROVAL_STATE_PENDING,
    Approval,
    ListApprovalsRequest,
    ResolveApprovalRequest,
)

from ..plane import Server
from ..test_async import eventually
from ..test_repetitions import approve_with
from .story import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from callgate import Client

POLICY = Path(__file__).with_name("policy.yaml")
FRAMEWORKS = {
    "test_loops.py": "anthropic",
    "test_langchain.py": "langchain",
    "test_openai_agents.py": "agents",
    "test_pydantic_ai.py": "pydantic_ai",
    # They need all of them.
    "test_usage.py": "langchain",
    "test_compaction.py": "langchain",
    "test_streams.py": "langchain",
    "test_subagents.py": "langchain",
}
collect_ignore = [test for test, package in FRAMEWORKS.items() if find_spec(package) is None]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server(POLICY) as running:
        yield running


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def plane(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, for clients that are made of the environment's settings."""
    monkeypatch.setenv("CALLGATE_SERVER", server.address)
    monkeypatch.setattr("callgate.client._defaults", {})
    return server


def questions(client: Client, session: str) -> list[Approval]:
    """All that were asked in the session, the newest first."""
    return list(client.services.approvals.ListApprovals(ListApprovalsRequest(session_id=session)).approvals)


def approve(client: Client, approval_id: str, *, reason: str | None = None) -> None:
    """Answers in callgate: yes without a reason, no with one."""
    request = ResolveApprovalRequest(approval_id=approval_id, approve=reason is None, reason=reason or "")
    client.services.approvals.ResolveApproval(request, metadata=(("callgate-by", "ada"),))


@contextmanager
def person(client: Client, session: str, world: World) -> Iterator[None]:
    """Somebody who answers the session's questions in callgate, as the story has it."""
    done = threading.Event()

    def answer() -> None:
        while not done.wait(0.05):
            for asked in questions(client, session):
                if asked.state == APPROVAL_STATE_PENDING:
                    reason = world.answers[json.loads(asked.arguments_json)["order_id"]]
                    approve(client, asked.approval_id, reason=reason)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def edited(client: Client, session: str, args: dict[str, Any]) -> Iterator[None]:
    """Somebody who approves the session's request in callgate with these arguments."""

    def approve() -> None:
        eventually(lambda: bool(questions(client, session)))
        approve_with(client, questions(client, session)[0].approval_id, args)

    thread = threading.Thread(target=approve)
    thread.start()
    yield
    thread.join()
