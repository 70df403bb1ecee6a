"""Servers in memory for users' tests, and the fixtures for pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import CallgateUnavailable, FailedPrecondition
from callgate.testing import MemoryServer, ServerNotStarted, find_binary
from callgate.v1.approval_service_pb2 import ListApprovalsRequest, ResolveApprovalRequest
from callgate.v1.gate_service_pb2 import GetSessionStateRequest
from callgate.v1.session_service_pb2 import ListCallsRequest

from .conftest import states
from .plane import binary

POLICY = """
policy_engine:
  authorization: {tiers: [{name: people, pattern: "delete_*", action: hitl}]}
"""


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_BIN", binary())


def test_a_server_in_memory_decides_and_is_gone_afterwards() -> None:
    with MemoryServer("policy_engine: {budgets: {run: {max_steps: 2}}}") as server:
        client = server.client()
        gate = client.gate("s")
        assert gate.run("get_order", {"order_id": 1}, lambda order_id: order_id).value == 1
        assert gate.run("get_order", {"order_id": 2}, lambda order_id: order_id).ran
        stopped = gate.run("get_order", {"order_id": 3}, lambda order_id: order_id)
        assert (stopped.ran, stopped.reason) == (False, "step_budget_exceeded")
        assert states(client, "s")[:2] == ["SUCCEEDED", "SUCCEEDED"]
        with pytest.raises(FailedPrecondition, match="without --memory") as lacks:
            client.services.sessions.ListCalls(ListCallsRequest())
        assert lacks.value.reason == "NEEDS_DATABASE"
        home = Path(server._home.name)
    assert not home.exists()
    with pytest.raises(CallgateUnavailable):
        server.client().services.calls.GetSessionState(GetSessionStateRequest(session_id="s"))


def test_two_servers_know_nothing_of_each_other() -> None:
    with MemoryServer() as one, MemoryServer() as other:
        assert one.address != other.address
        one.client().gate("s").run("get_order", {}, lambda: 1)
        with pytest.raises(Exception, match="no session has this id"):
            other.client().services.calls.GetSessionState(GetSessionStateRequest(session_id="s"))


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerNotStarted, match="budgts"):
        MemoryServer("policy_engine: {budgts: {}}")
    with pytest.raises(ServerNotStarted, match=r"no-such\.yaml"):
        MemoryServer("no-such.yaml")
    with pytest.raises(FileNotFoundError):
        MemoryServer(binary="/no/such/callgate")


def test_the_program_is_found_by_variable_environment_and_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = binary()
    assert find_binary() == built
    monkeypatch.setenv("CALLGATE_BIN", str(tmp_path / "callgate"))
    with pytest.raises(FileNotFoundError, match="CALLGATE_BIN names"):
        find_binary()
    monkeypatch.delenv("CALLGATE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    scripts = tmp_path / "environment"
    monkeypatch.setattr("sysconfig.get_path", {"scripts": str(scripts)}.get)
    with pytest.raises(FileNotFoundError, match="on PATH"):
        find_binary()
    (tmp_path / "callgate").symlink_to(built)
    assert find_binary() == str(tmp_path / "callgate")
    scripts.mkdir()
    (scripts / "callgate").symlink_to(built)
    assert find_binary() == str(scripts / "callgate")


def test_settings_of_the_environment_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("CALLGATE_TOKEN", "cg_agent_x_y")
    with MemoryServer() as server:
        assert server.client().gate("s").run("get_order", {}, lambda: 1).ran


def test_the_fixtures_give_a_test_its_server_and_its_session(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        'pytest_plugins = ["callgate.testing.fixtures"]\n'
        '@pytest.fixture(scope="session")\n'
        "def callgate_policy():\n"
        '    return "policy_engine: {budgets: {run: {max_steps: 1}}}"\n'
    )
    (tmp_path / "test_agent.py").write_text(
        "import pytest\n"
        '@pytest.mark.parametrize("turn", [1, 2])\n'
        "def test_budget(callgate_gate, turn):\n"
        '    assert callgate_gate.run("get_order", {"id": 1}, lambda id: id).ran\n'
        '    assert not callgate_gate.run("get_order", {"id": 2}, lambda id: id).ran\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


def test_an_approver_answers_in_memory() -> None:
    with MemoryServer(POLICY) as server:
        people = server.client(by="ann").services.approvals
        gate = server.client().gate("s", approval_wait_s=0)
        asked = gate.run("delete_order", {"order_id": 1}, lambda order_id: order_id, call_id="c1")
        assert (asked.ran, asked.decision) == (False, "ASK")
        (request,) = people.ListApprovals(ListApprovalsRequest()).approvals
        people.ResolveApproval(ResolveApprovalRequest(approval_id=request.approval_id, approve=True))
        assert gate.run("delete_order", {"order_id": 1}, lambda order_id: order_id, call_id="c1").value == 1
