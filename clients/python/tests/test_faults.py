"""What a gate does when the plane, the network or the tool fails: nothing runs twice, and no report is lost."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callgate import AsyncClient, Call, CallgateUnavailable, Client, Gate

from .conftest import calls, states
from .plane import Server, free_address, proxy
from .test_async import eventually
from .test_gate import Tool, answer_when_asked

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that the test may stop."""
    with Server() as running:
        yield running


def test_while_the_plane_is_away_nothing_runs(session: str, caplog: pytest.LogCaptureFixture) -> None:
    tool = Tool()
    address = free_address()
    with Client(address) as client:
        outcome = client.gate(session).run("pay", {"n": 1}, tool)
    assert tool.seen == []
    assert (outcome.ran, outcome.is_error, outcome.decision, outcome.reason) == (
        False,
        True,
        None,
        "callgate_unavailable",
    )
    told = json.loads(outcome.text)
    assert told["message"].startswith("pay was not run, and nothing was done")
    with pytest.raises(CallgateUnavailable, match="UNAVAILABLE"):
        outcome.unwrap()
    assert re.search(rf"callgate: \S*{address} gives no answer, and pay was not run: .*UNAVAILABLE", caplog.text)


def test_the_same_in_an_event_loop(session: str) -> None:
    tool = Tool()

    async def run() -> Any:
        async with AsyncClient(free_address()) as client:
            gate = client.gate(session, fail_open={"look"})
            return await gate.run("pay", {}, tool), await gate.run("look", {}, tool)

    closed, opened = asyncio.run(run())
    assert (closed.ran, closed.reason) == (False, "callgate_unavailable")
    assert (opened.unwrap(), opened.recorded, len(tool.seen)) == ("done", False, 1)


def test_what_fails_open_runs_and_is_reported_later(own: Server, session: str) -> None:
    own.stop()
    tool = Tool("sunny")
    with Client(own.address) as client:
        gate = client.gate(session, fail_open=lambda name: name == "weather")
        outcome = gate.run("weather", {"city": "Bonn"}, tool, call_id="w")
        assert (outcome.text, outcome.ran, outcome.recorded, outcome.decision) == ("sunny", True, False, None)
        # Not under the same id once more: the plane does not know yet that it ran.
        again = gate.run("weather", {"city": "Bonn"}, tool, call_id="w")
        assert (again.ran, len(tool.seen)) == (False, 1)
        assert "weather was not run again" in again.text
        assert not gate.run("pay", {}, tool).ran
        # Nor are arguments executed that nobody can read.
        assert not gate.run("weather", '{"city": ', tool).ran
        own.start()
        eventually(lambda: bool(client.services.channel) and _known(client, session) == ["weather"])
        assert states(client, session) == ["SUCCEEDED"]


def _known(client: Client, session: str) -> list[str]:
    try:
        return [call.tool for call in calls(client, session)]
    except Exception:
        return []


def test_a_value_is_never_lost_while_the_plane_is_away(own: Server, session: str) -> None:
    with Client(own.address) as client:
        gate = client.gate(session)
        seen = []

        def execute() -> str:
            seen.append(1)
            own.stop()
            return "paid"

        outcome = gate.run("pay", {}, execute, call_id="p")
        assert (outcome.unwrap(), outcome.recorded, outcome.text) == ("paid", False, "paid")
        # Asked for again before the plane has heard of it: it must not be executed a second time.
        again = gate.run("pay", {}, execute, call_id="p")
        assert (again.ran, len(seen)) == (False, 1)
        own.start()
        later = gate.run("pay", {}, execute, call_id="p")
        assert (later.decision, later.unwrap(), len(seen)) == ("REUSE", "paid", 1)
        assert states(client, session) == ["SUCCEEDED", "REFUSED"]


def test_a_restart_while_a_call_runs_is_not_noticed(own: Server, session: str) -> None:
    with Client(own.address) as client:

        def execute() -> str:
            own.stop()
            own.start()
            return "done"

        outcome = client.gate(session).run("look", {}, execute)
        assert outcome.recorded
        assert states(client, session) == ["SUCCEEDED"]


@pytest.mark.slow
def test_who_waits_for_a_person_waits_through_a_restart(own: Server, session: str) -> None:
    with Client(own.address) as client:

        def restart() -> None:
            time.sleep(1)
            own.stop()
            # For longer than gRPC itself tries.
            time.sleep(6)
            own.start()
            answer_when_asked(client, session, approve=True).join()

        operator = threading.Thread(target=restart)
        operator.start()
        tool = Tool()
        outcome = client.gate(session).run("ask_ann", {}, tool)
        operator.join()
    assert (outcome.decision, len(tool.seen)) == ("ALLOW", 1)


def test_a_plane_that_does_not_answer_is_away(own: Server, session: str) -> None:
    tool = Tool()
    with Client(own.address, timeout_s=1) as client:
        gate = client.gate(session)
        assert gate.run("look", {"n": 0}, tool).ran
        own.freeze()
        try:
            outcome = gate.run("look", {"n": 1}, tool)
        finally:
            own.thaw()
        assert (outcome.ran, len(tool.seen)) == (False, 1)
        assert isinstance(outcome.error, CallgateUnavailable)
        assert outcome.error.code.name == "DEADLINE_EXCEEDED"
        assert gate.run("look", {"n": 2}, tool).ran
    with Client(own.address) as client:
        assert "IN_FLIGHT" not in states(client, session)


def test_a_heartbeat_keeps_the_lease(client: Client, gate: Gate, session: str) -> None:
    def slow() -> str:
        time.sleep(5)
        assert states(client, session) == ["IN_FLIGHT"]
        return "slow"

    # Its lease is two seconds.
    outcome = gate.run("brief", {}, slow)
    assert (outcome.unwrap(), outcome.recorded) == ("slow", True)


def test_what_waits_for_a_thread_keeps_its_lease(client: Client, gate: Gate, session: str) -> None:
    is_full, has_looked = threading.Barrier(17, timeout=20), threading.Event()

    def slow(n: int) -> int:
        if n < 16:
            is_full.wait()
            assert has_looked.wait(timeout=30)
        return n

    def look() -> None:
        is_full.wait()
        # The leases of those that wait for their turn are two seconds.
        time.sleep(4)
        seen.extend(states(client, session))
        has_looked.set()

    seen: list[str] = []
    looking = threading.Thread(target=look)
    looking.start()
    outcomes = gate.batch([Call("brief", {"n": n}, slow) for n in range(20)])
    looking.join()
    assert seen == ["IN_FLIGHT"] * 20
    assert [outcome.unwrap() for outcome in outcomes] == list(range(20))


def test_a_client_that_another_thread_closes_waits_on(client: Client, server: Server, session: str) -> None:
    with Client(server.address) as closed:
        threading.Timer(1, closed.close).start()
        threading.Timer(2, lambda: answer_when_asked(client, session, approve=True)).start()
        assert closed.gate(session).run("ask_ann", {}, Tool("asked")).unwrap() == "asked"


@pytest.mark.parametrize("ends", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_ends_a_program_is_recorded_and_raised(
    client: Client, gate: Gate, session: str, ends: BaseException
) -> None:
    with pytest.raises(type(ends)):
        gate.run("fetch", {}, Tool(ends))
    assert states(client, session) == ["CANCELLED"]


_PROGRAM = """
import os, signal, sys, time
from callgate import Client
client = Client(sys.argv[1])
client.gate(sys.argv[2]).run("brief", {}, lambda: {how})
"""


@pytest.mark.parametrize(
    ("how", "state"),
    [("sys.exit(3)", "CANCELLED"), ("os._exit(3)", "UNKNOWN"), ("os.kill(os.getpid(), signal.SIGKILL)", "UNKNOWN")],
)
def test_a_tool_that_ends_the_process(server: Server, client: Client, session: str, how: str, state: str) -> None:
    program = _PROGRAM.replace("{how}", how)
    ended = subprocess.run([sys.executable, "-c", program, server.address, session], timeout=60)
    assert ended.returncode in {3, -signal.SIGKILL}
    eventually(lambda: states(client, session) == [state])


def test_an_interrupted_program_reports_before_it_ends(server: Server, client: Client, session: str) -> None:
    program = _PROGRAM.replace("{how}", "(print('begun', flush=True), time.sleep(60))")
    # Where the tests run in a shell's background, interrupts are ignored from the start.
    program = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{program}"
    command = [sys.executable, "-c", program, server.address, session]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert states(client, session) == ["CANCELLED"]


def test_a_client_is_used_by_threads(client: Client, session: str) -> None:
    values: list[Any] = []

    def work(n: int) -> None:
        values.append(client.gate(f"{session}-{n}").run("look", {"n": n}, lambda n: n).unwrap())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == list(range(50))


def _in_child(client: Client, session: str, results: Any) -> None:
    # Threads are not there after a fork: connection and heartbeats are made anew.
    signal.alarm(30)

    def slow() -> str:
        time.sleep(4)
        return states(client, session)[0]

    results.put(client.gate(session).run("brief", {}, slow).unwrap())


def test_a_client_is_used_before_and_after_a_fork(server: Server, session: str) -> None:
    program = f"""
import multiprocessing
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from callgate import Client
from tests.test_faults import _in_child
client = Client({server.address!r})
assert client.gate({session!r}).run("look", {{"pid": "parent"}}, lambda pid: pid).unwrap() == "parent"
fork = multiprocessing.get_context("fork")
results = fork.Queue()
children = [fork.Process(target=_in_child, args=(client, {session!r} + str(n), results)) for n in range(3)]
for child in children:
    child.start()
assert [results.get(timeout=40) for _ in children] == ["IN_FLIGHT"] * 3
for child in children:
    child.join()
    assert child.exitcode == 0, child.exitcode
assert client.gate({session!r}).run("look", {{"pid": "again"}}, lambda pid: pid).unwrap() == "again"
print("forked")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert ended.stdout.endswith("forked\n"), ended.stderr


@pytest.mark.parametrize("how", ["cut", pytest.param("drop", marks=pytest.mark.slow)])
def test_a_proxy_that_forgets_idle_connections_is_not_noticed(
    server: Server, client: Client, session: str, how: str
) -> None:
    times = {"cut": 4, "drop": 2}[how]
    tool = Tool(*range(times))
    with proxy(server.address, idle_s=1, how=how) as between, Client(between.address, timeout_s=40) as through:
        gate = through.gate(session)
        for n in range(times):
            outcome = gate.run("look", {"n": n}, tool)
            assert (outcome.unwrap(), outcome.recorded) == (n, True)
            time.sleep(1.5)
        assert between.forgotten >= times - 1
    assert len(tool.seen) == times
    assert states(client, session) == ["SUCCEEDED"] * times


def test_a_question_outlives_a_proxy_that_cuts_it_off(server: Server, client: Client, session: str) -> None:
    tool = Tool()
    with proxy(server.address, idle_s=1, how="cut") as between, Client(between.address) as through:
        timer = threading.Timer(3, lambda: answer_when_asked(client, session, approve=True))
        timer.start()
        outcome = through.gate(session).run("ask_ann", {}, tool)
        assert between.forgotten
    assert (outcome.decision, len(tool.seen)) == ("ALLOW", 1)
    assert states(client, session)[-1] == "SUCCEEDED"
