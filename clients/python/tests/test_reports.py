"""The queue of reports that could not be made at once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import grpc

from callgate import CallgateError, CallgateUnavailable, Client, NotFound
from callgate import _reports as reports
from callgate.v1.gate_service_pb2 import RecordRequest
from callgate.v1.types_pb2 import OUTCOME_STATUS_CANCELLED, OUTCOME_STATUS_SUCCESS, Caller

from .conftest import states
from .plane import Server

if TYPE_CHECKING:
    import pytest

    from callgate._reports import Report


class Plane:
    """Takes reports, or fails in these ways first."""

    def __init__(self, *failures: CallgateError) -> None:
        self.failures = list(failures)
        self.taken: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def send(self, report: Report) -> None:
        self.open.wait(20)
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(report.request.call_id)


def outcome(call_id: str, *, not_started: bool = False, result: str = "") -> RecordRequest:
    status = OUTCOME_STATUS_CANCELLED if not_started else OUTCOME_STATUS_SUCCESS
    return RecordRequest(
        caller=Caller(session_id="s"), call_id=call_id, status=status, not_started=not_started, result=result
    )


def away() -> CallgateUnavailable:
    return CallgateUnavailable("away", code=grpc.StatusCode.UNAVAILABLE)


def test_what_the_plane_could_not_take_is_sent_again() -> None:
    plane = Plane(away(), away())
    queue = reports.Reports(plane.send)
    first = queue.put(outcome("a"))
    queue.put(outcome("b"))
    assert first.done.result(20) is None
    assert queue.flush(20)
    assert sorted(plane.taken) == ["a", "b"]


def test_flushing_does_not_wait_for_the_next_try() -> None:
    plane = Plane(away())
    queue = reports.Reports(plane.send)
    queue._pause_s = 1800.0
    queue.put(outcome("a"))
    while plane.failures:
        time.sleep(0.01)
    assert queue.flush(20)
    assert plane.taken == ["a"]


def test_what_is_refused_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    queue = reports.Reports(Plane(CallgateError("malformed", reason="INVALID_FIELD")).send)
    with caplog.at_level(logging.WARNING, "callgate"):
        queue.put(outcome("a")).done.result(20)
    assert "the outcome of call a of session s is not stored: malformed (INVALID_FIELD)" in caplog.text


def test_a_call_that_the_plane_does_not_know_yet_is_called_off_again(caplog: pytest.LogCaptureFixture) -> None:
    plane = Plane(NotFound("no such call", reason="CALL_UNKNOWN"))
    queue = reports.Reports(plane.send)
    queue.put(outcome("a", not_started=True)).done.result(20)
    assert plane.taken == ["a"]
    plane.failures = [NotFound("no such call", reason="CALL_UNKNOWN") for _ in range(5)]
    queue.put(outcome("b", not_started=True)).done.result(20)
    assert plane.taken == ["a"]
    assert not caplog.records


def test_the_queue_has_bounds(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_REPORTS_MAX", 3)
    plane = Plane()
    plane.open.clear()
    queue = reports.Reports(plane.send)
    queue.put(outcome("sent"))
    while (sent := queue.take(("s", "sent"))) is None or not sent.is_sent:
        if sent is not None:
            queue.put(sent.request)
    for n in range(4):
        queue.put(outcome(f"c{n}"))
    assert "call c0 of session s is not stored: too many reports wait" in caplog.text
    queue.put(outcome("c1", result="x" * 70 * 1024 * 1024))
    plane.open.set()
    assert queue.flush(20)
    assert "c0" not in plane.taken
    assert "c1" not in plane.taken


def test_of_one_call_the_last_report_holds_and_can_be_taken_back() -> None:
    plane = Plane(away())
    queue = reports.Reports(plane.send)
    queue._pause_s = 1800.0
    queue.put(outcome("a"))
    while plane.failures:
        time.sleep(0.01)
    queue.put(outcome("a", result="2"))
    assert queue.has(("s", "a"))
    taken = queue.take(("s", "a"))
    assert taken is not None
    assert taken.request.result == "2"
    assert not queue.has(("s", "a"))
    assert queue.flush(5)
    assert plane.taken == []


_PROGRAM = """
import sys, time
from callgate import Client
client = Client(sys.argv[1])
assert client.gate(sys.argv[2], fail_open=True).run("look", {}, lambda: "seen").ran
# As after a long time without a plane: the next try is far away.
client.plane.local.reports._resume = time.monotonic() + 3600
print("ran", flush=True)
sys.stdin.readline()
"""


def test_a_program_that_ends_sends_what_waits(session: str) -> None:
    with Server() as server:
        server.stop()
        command = [sys.executable, "-c", _PROGRAM, server.address, session]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ran\n"
            server.start()
            program.communicate("\n", timeout=30)
        with Client(server.address) as client:
            assert states(client, session) == ["SUCCEEDED"]
