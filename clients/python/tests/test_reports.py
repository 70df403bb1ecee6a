"""The queue of reports that could not be made at once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import grpc
import pytest

from callgate import CallgateError, CallgateUnavailable, Client, NotFound, Unsent
from callgate import _reports as reports
from callgate.v1.gate_service_pb2 import RecordRequest
from callgate.v1.types_pb2 import OUTCOME_STATUS_CANCELLED, OUTCOME_STATUS_SUCCESS, Caller

from .conftest import states
from .plane import Server

if TYPE_CHECKING:
    from callgate._reports import Report


class Plane:
    """Takes reports, or fails in these ways first."""

    def __init__(self, *failures: Exception) -> None:
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


def busy() -> CallgateError:
    return CallgateError("busy", code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="TOO_MANY_OPEN_CALLS")


def unknown() -> NotFound:
    return NotFound("no such call", code=grpc.StatusCode.NOT_FOUND, reason="CALL_UNKNOWN")


def refused() -> CallgateError:
    return CallgateError("malformed", code=grpc.StatusCode.INVALID_ARGUMENT, reason="INVALID_FIELD")


def blocked(plane: Plane, queue: reports.Reports) -> None:
    """Has one report on its way for as long as the plane is not open."""
    plane.open.clear()
    queue.put(outcome("sent"))
    while queue._sending is None:
        time.sleep(0.001)


def test_what_the_plane_could_not_take_is_sent_again() -> None:
    plane = Plane(away(), away())
    queue = reports.Reports(plane.send)
    first = queue.put(outcome("a"))
    queue.put(outcome("b"))
    assert first.done.result(20) is None
    assert queue.flush(20) == []
    assert sorted(plane.taken) == ["a", "b"]


def test_flushing_does_not_wait_for_the_next_try() -> None:
    plane = Plane(away())
    queue = reports.Reports(plane.send)
    queue._pause_s = 1800.0
    queue.put(outcome("a"))
    while plane.failures:
        time.sleep(0.01)
    assert queue.flush(20) == []
    assert plane.taken == ["a"]


def test_executed_outcomes_are_sent_before_cancellations() -> None:
    plane = Plane()
    queue = reports.Reports(plane.send)
    blocked(plane, queue)
    for n in range(3):
        queue.put(outcome(f"cancelled {n}", not_started=True))
    queue.put(outcome("executed"))
    plane.open.set()
    assert queue.flush(20) == []
    assert plane.taken == ["sent", "executed", "cancelled 0", "cancelled 1", "cancelled 2"]


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "ABORTED", "INTERNAL", "UNKNOWN"])
def test_an_error_that_may_pass_drops_no_outcome(code: str) -> None:
    plane = Plane(*(CallgateError("not now", code=grpc.StatusCode[code]) for _ in range(2)))
    queue = reports.Reports(plane.send)
    queue.put(outcome("a")).done.result(20)
    assert plane.taken == ["a"]


def test_what_operators_mend_drops_no_outcome() -> None:
    code = grpc.StatusCode.FAILED_PRECONDITION
    plane = Plane(CallgateError("its key is not here", code=code, reason="KEY_MISSING"), ValueError("closed"))
    queue = reports.Reports(plane.send)
    queue.put(outcome("a")).done.result(20)
    assert plane.taken == ["a"]


def test_an_outcome_that_is_refused_for_good_is_logged_and_returned(caplog: pytest.LogCaptureFixture) -> None:
    queue = reports.Reports(Plane(refused()).send)
    queue.put(outcome("a")).done.result(20)
    assert "the outcome of call a of session s is not stored: malformed (INVALID_FIELD)" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR
    assert queue.flush(20) == [Unsent("s", "a", executed=True)]
    assert queue.flush(20) == []


def test_a_call_that_the_plane_does_not_know_yet_is_called_off_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reports._UNKNOWN_S == (0.2, 1.0, 5.0, 20.0)
    monkeypatch.setattr(reports, "_UNKNOWN_S", (0.02, 0.03, 0.04, 0.05))
    plane = Plane(*(unknown() for _ in range(4)))
    queue = reports.Reports(plane.send)
    queue.put(outcome("a", not_started=True)).done.result(20)
    assert plane.taken == ["a"]
    plane.failures = [unknown() for _ in range(5)]
    queue.put(outcome("b", not_started=True)).done.result(20)
    assert plane.taken == ["a"]
    assert not caplog.records


def test_closing_does_not_wait_long_for_a_call_that_the_plane_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_UNKNOWN_S", (0.02, 0.02, 3600.0))
    queue = reports.Reports(Plane(*(unknown() for _ in range(9))).send)
    queue.put(outcome("a", not_started=True))
    began = time.monotonic()
    assert queue.flush(20) == []
    assert time.monotonic() - began < 5


def test_a_cancellation_is_kept_as_long_as_a_lease_and_an_outcome_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reports._KEEP_S == 3600
    monkeypatch.setattr(reports, "_KEEP_S", 0.0)
    plane = Plane()
    queue = reports.Reports(plane.send)
    queue.put(outcome("cancelled", not_started=True))
    queue.put(outcome("executed"))
    assert queue.flush(20) == []
    assert plane.taken == ["executed"]


def test_a_full_queue_drops_cancellations_and_no_outcome(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_REPORTS_MAX", 3)
    plane = Plane()
    queue = reports.Reports(plane.send)
    blocked(plane, queue)
    queue.put(outcome("old"))
    queue.put(outcome("c0", not_started=True))
    queue.put(outcome("c1", not_started=True))
    assert not queue.is_full
    queue.put(outcome("new"))
    assert "the cancellation of call c0 of session s is not stored: too many reports wait" in caplog.text
    queue.put(outcome("newer"))
    assert queue.is_full
    queue.put(outcome("newest"))
    lost = [Unsent("s", call_id, executed=False) for call_id in ("c0", "c1")]
    waiting = [Unsent("s", call_id, executed=True) for call_id in ("sent", "old", "new", "newer", "newest")]
    assert queue.flush(0) == [*lost, *waiting]
    plane.open.set()
    assert queue.flush(20) == []
    assert plane.taken == ["sent", "old", "new", "newer", "newest"]


def test_large_outcomes_fill_the_queue() -> None:
    plane = Plane()
    queue = reports.Reports(plane.send)
    blocked(plane, queue)
    queue.put(outcome("cancelled", not_started=True))
    queue.put(outcome("large", result="x" * 70 * 1024 * 1024))
    assert queue.is_full
    plane.open.set()
    assert queue.flush(20) == [Unsent("s", "cancelled", executed=False)]
    assert plane.taken == ["sent", "large"]
    assert not queue.is_full


def test_a_cancellation_replaces_no_outcome() -> None:
    plane = Plane(busy())
    queue = reports.Reports(plane.send)
    blocked(plane, queue)
    queue.put(outcome("sent", not_started=True))
    queue.put(outcome("a"))
    queue.put(outcome("a", not_started=True))
    plane.open.set()
    assert queue.flush(20) == []
    assert sorted(plane.taken) == ["a", "sent"]


def test_a_report_that_fails_again_and_again_holds_up_no_other() -> None:
    taken: list[str] = []

    def send(report: Report) -> None:
        if report.request.call_id == "bad":
            raise busy()
        taken.append(report.request.call_id)

    queue = reports.Reports(send)
    queue.put(outcome("bad"))
    good = [queue.put(outcome("executed")), queue.put(outcome("cancelled", not_started=True))]
    for report in good:
        report.done.result(1)
    assert taken == ["executed", "cancelled"]
    assert queue.flush(0.1) == [Unsent("s", "bad", executed=True)]


def test_a_report_that_a_caller_makes_is_waited_for() -> None:
    queue = reports.Reports(Plane().send)
    with queue.direct(outcome("a")):
        assert queue.flush(0.01) == [Unsent("s", "a", executed=True)]
    assert queue.flush(0) == []


def test_of_one_call_the_last_report_holds_and_can_be_held() -> None:
    plane = Plane(away())
    queue = reports.Reports(plane.send)
    queue._pause_s = 1800.0
    queue.put(outcome("a"))
    while plane.failures:
        time.sleep(0.01)
    queue.put(outcome("a", result="2"))
    assert queue.has(("s", "a"))
    held = queue.hold(("s", "a"), 20)
    assert held is not None
    assert held.request.result == "2"
    # Nobody else sends it meanwhile.
    assert queue.flush(0.1) == [Unsent("s", "a", executed=True)]
    assert plane.taken == []
    assert not queue.release(held, None)
    assert not queue.has(("s", "a"))
    assert queue.flush(5) == []
    assert plane.taken == []


def test_what_a_caller_could_not_make_after_all_is_sent() -> None:
    plane = Plane()
    queue = reports.Reports(plane.send)
    blocked(plane, queue)
    for call_id in ("released", "forgotten", "refused"):
        queue.put(outcome(call_id))
    held = [queue.hold(("s", call_id), 0.3) for call_id in ("released", "forgotten", "refused")]
    assert held[0] is not None
    assert held[2] is not None
    assert queue.release(held[0], busy())
    assert not queue.release(held[2], refused())
    plane.open.set()
    assert queue.flush(20) == [Unsent("s", "refused", executed=True)]
    assert plane.taken == ["sent", "released", "forgotten"]


def test_a_cancellation_is_withdrawn() -> None:
    plane = Plane()
    queue = reports.Reports(plane.send)
    blocked(plane, queue)
    queue.put(outcome("cancelled", not_started=True))
    assert queue.hold(("s", "cancelled"), 20) is None
    plane.open.set()
    assert queue.flush(20) == []
    assert plane.taken == ["sent"]


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
