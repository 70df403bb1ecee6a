"""No outcome is lost, and no permit stays open, whatever the plane answers and however the program ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from callgate import (
    AsyncClient,
    Call,
    CallgateError,
    CallgateUnavailable,
    CallIdReused,
    Client,
    ResourceExhausted,
    ToolFailed,
    Unsent,
)
from callgate import _reports as reports
from callgate.v1 import types_pb2 as t
from callgate.v1.gate_service_pb2 import RecordResponse

from .fake import ALLOW, LOST, WAIT, FakePlane, fake_plane
from .test_async import eventually
from .test_gate import Tool
from .test_interrupts import interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def plane() -> Iterator[FakePlane]:
    with fake_plane() as running:
        yield running


@pytest.fixture
def client(plane: FakePlane) -> Iterator[Client]:
    with Client(plane.address) as connected:
        yield connected


def test_the_lost_answer_of_a_poll_is_called_off(plane: FakePlane, client: Client) -> None:
    plane.verdicts = [WAIT, LOST]
    outcome = client.gate("s", patience_s=0.2).run("pay", {}, Tool(), call_id="c")
    assert (outcome.decision, outcome.ran) == ("WAIT", False)
    assert client.close(20) == []
    assert plane.came == [("c", "not started")]


def test_the_answer_of_a_later_poll_makes_up_for_a_lost_one(plane: FakePlane, client: Client) -> None:
    plane.verdicts = [WAIT, LOST, WAIT]
    assert client.gate("s", patience_s=2.5).run("pay", {}, Tool(), call_id="c").decision == "WAIT"
    assert client.close(20) == []
    assert plane.came == []


def test_the_lost_answer_of_a_retry_is_called_off(plane: FakePlane, client: Client) -> None:
    plane.verdicts = [ALLOW, LOST]
    plane.response = RecordResponse(is_error=True, advice=t.Advice(repeat=t.REPEAT_BY_CLIENT))
    tool = Tool(ToolFailed("busy", http_status=503))
    outcome = client.gate("s").run("pay", {}, tool, call_id="c")
    assert (outcome.attempts, outcome.is_error, len(tool.seen)) == (1, True, 1)
    assert client.close(20) == []
    assert plane.came == [("c", "ERROR"), ("c", "not started")]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_lost_answer_of_a_bare_question_is_called_off(plane: FakePlane, is_async: bool) -> None:
    plane.verdicts = [LOST]
    call = Call("pay", {}, Tool(), call_id="c")
    if is_async:

        async def ask() -> list[Unsent]:
            client = AsyncClient(plane.address)
            with pytest.raises(CallgateUnavailable):
                await client.gate("s").evaluate(call)
            return await client.close(20)

        assert asyncio.run(ask()) == []
    else:
        client = Client(plane.address)
        with pytest.raises(CallgateUnavailable):
            client.gate("s").evaluate(call)
        assert client.close(20) == []
    assert plane.came == [("c", "not started")]


def test_a_bare_question_withdraws_the_cancellation_of_the_one_before(plane: FakePlane, client: Client) -> None:
    plane.verdicts = [LOST, ALLOW]
    plane.records = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    gate, call = client.gate("s"), Call("pay", {}, Tool(), call_id="c")
    with pytest.raises(CallgateUnavailable):
        gate.evaluate(call)
    assert gate.evaluate(call).decision == t.DECISION_ALLOW
    plane.records = [grpc.StatusCode.OK]
    assert client.close(20) == []
    assert plane.came == []
    assert gate.run_call(call).recorded
    assert plane.came == [("c", "SUCCESS")]


def test_another_client_withdraws_a_cancellation_and_sends_an_outcome_first(plane: FakePlane, client: Client) -> None:
    plane.verdicts = [LOST, ALLOW]
    plane.records = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert not client.gate("s").run("pay", {}, Tool(), call_id="cancelled").ran
    assert not client.gate("s").run("pay", {}, Tool("paid"), call_id="executed").recorded
    waiting = [("executed", True), ("cancelled", False)]
    assert sorted(client.close(0)) == sorted(Unsent("s", *one) for one in waiting)
    with Client(plane.address) as other:
        assert other.gate("s").run("pay", {}, Tool("paid"), call_id="cancelled").ran
        again = Tool()
        with pytest.raises(ResourceExhausted):
            other.gate("s").run("pay", {}, again, call_id="executed")
        assert again.seen == []
        plane.records = [grpc.StatusCode.OK]
        assert client.close(20) == other.close(20) == []
    assert sorted(plane.came) == [("cancelled", "SUCCESS"), ("executed", "SUCCESS")]


def test_a_call_that_runs_is_not_asked_about(client: Client) -> None:
    gate = client.gate("s")
    with pytest.raises(CallIdReused):
        gate.run("pay", {}, lambda: gate.evaluate(Call("pay", {}, Tool(), call_id="c")), call_id="c").unwrap()


def test_an_interrupt_at_any_line_loses_no_earlier_outcome(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    # What an interrupt leaves held is sent soon.
    monkeypatch.setattr("callgate._plane._HOLD_S", -0.7)
    places: list[str] = []
    for line in range(1, 400):
        with Client(plane.address, timeout_s=1) as client:
            gate = client.gate(f"s-{line}")
            plane.records = [grpc.StatusCode.RESOURCE_EXHAUSTED]
            assert not gate.run("pay", {}, Tool("paid"), call_id="c").recorded
            plane.records = [grpc.StatusCode.OK]
            places.append(interrupted(gate, Tool("again"), line))
            assert client.close(20) == [], places[-1]
        assert [one.caller.session_id for one in plane.recorded][:1] == [gate.session_id], places[-1]
        assert plane.came[0] == ("c", "SUCCESS"), places[-1]
        plane.recorded.clear()
        if len(plane.asked) > line + 5:
            break
    assert len(places) > 20


def test_a_batch_that_is_refused_as_a_whole_cancels_no_call(plane: FakePlane, client: Client) -> None:
    plane.verdicts = [grpc.StatusCode.FAILED_PRECONDITION]
    with pytest.raises(CallgateError):
        client.gate("s").batch([Call("pay", {}, Tool(), call_id="another's")])
    assert client.close(20) == []
    assert plane.came == []


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAUTHENTICATED"])
def test_an_outcome_that_cannot_be_stored_now_is_sent_later(plane: FakePlane, client: Client, code: str) -> None:
    plane.records = [grpc.StatusCode[code], grpc.StatusCode[code], grpc.StatusCode.OK]
    outcome = client.gate("s").run("pay", {}, Tool("paid"), call_id="c")
    assert (outcome.unwrap(), outcome.recorded) == ("paid", False)
    assert client.close(20) == []
    assert plane.came == [("c", "SUCCESS")]


def test_close_says_what_is_not_stored(plane: FakePlane, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    plane.records = [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED]
    gate = client.gate("s")
    assert not gate.run("pay", {}, Tool(), call_id="refused").recorded
    assert not gate.run("pay", {}, Tool(), call_id="waits").recorded
    refused, waits = Unsent("s", "refused", executed=True), Unsent("s", "waits", executed=True)
    assert client.close(0.1) == [refused, waits]
    assert "2 executed outcomes are not stored; the first is of call refused of session s" in caplog.text
    plane.records = [grpc.StatusCode.OK]
    eventually(lambda: plane.came == [("waits", "SUCCESS")])
    assert client.close() == []


def test_close_waits_for_what_other_threads_report(plane: FakePlane, client: Client) -> None:
    plane.open.clear()
    running = threading.Thread(target=client.gate("s").run, args=("pay", {}, Tool()), kwargs={"call_id": "c"})
    running.start()
    assert plane.holds.wait(20)
    threading.Timer(0.5, plane.open.set).start()
    assert client.close(20) == []
    assert plane.came == [("c", "SUCCESS")]
    running.join()


def test_what_other_threads_report_for_too_long_is_unsent(plane: FakePlane, client: Client) -> None:
    plane.open.clear()
    outcomes: list[Any] = []
    running = threading.Thread(target=lambda: outcomes.append(client.gate("s").run("pay", {}, Tool(), call_id="c")))
    running.start()
    assert plane.holds.wait(20)
    assert client.close(0.1) == [Unsent("s", "c", executed=True)]
    plane.open.set()
    running.join()
    # The connection has ended under it: the report is made by another one.
    assert client.close(20) == []
    assert ("c", "SUCCESS") in plane.came


def test_an_event_loop_closes_after_what_its_calls_report(plane: FakePlane) -> None:
    async def run() -> bool:
        client = AsyncClient(plane.address)
        plane.open.clear()
        running = asyncio.ensure_future(client.gate("s").run("pay", {}, Tool(), call_id="c"))
        await asyncio.to_thread(plane.holds.wait, 20)
        threading.Timer(0.5, plane.open.set).start()
        assert await client.close(20) == []
        return (await running).recorded

    assert asyncio.run(run())
    assert plane.came == [("c", "SUCCESS")]


def test_while_too_many_outcomes_wait_nothing_runs(
    plane: FakePlane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_REPORTS_MAX", 1)
    plane.records = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    gate, tool = client.gate("s", fail_open=True), Tool("paid")
    assert gate.run("pay", {}, tool, call_id="a").ran
    refused = gate.run("pay", {}, tool, call_id="b")
    assert (refused.ran, refused.reason, len(tool.seen)) == (False, "callgate_unavailable", 1)
    plane.records = [grpc.StatusCode.OK]
    assert client.close(20) == []
    assert gate.run("pay", {}, tool, call_id="b").recorded
    assert plane.came == [("a", "SUCCESS"), ("b", "SUCCESS")]


_PROGRAM = """
import multiprocessing, sys, time
from callgate import Client

def work(client, call_id):
    outcome = client.gate("s", fail_open=True).run("look", {}, lambda: "seen", call_id=call_id)
    assert outcome.ran and not outcome.recorded
    # As after a long time without a plane: the next try is far away.
    client.plane.local.reports._resume = time.monotonic() + 3600

def work_anew(server, call_id):
    work(Client(server), call_id)

if __name__ == "__main__":
    how, server = sys.argv[1:]
    client = Client(server)
    given = client if how == "fork" else server
    if how == "fork":
        work(client, "parent's")
    children = multiprocessing.get_context(how)
    child = children.Process(target=work if how == "fork" else work_anew, args=(given, "child's"))
    child.start()
    child.join()
    print(child.exitcode, flush=True)
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_sends_what_waits_at_its_end(plane: FakePlane, how: str, tmp_path: Any) -> None:
    plane.verdicts = [LOST]
    # The first try of each fails, so that what waits is sent at the end of the process or never.
    plane.records = [grpc.StatusCode.RESOURCE_EXHAUSTED] * (2 if how == "fork" else 1) + [grpc.StatusCode.OK]
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(program), how, plane.address], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "0\n", ended.stderr
    sent = [call_id for call_id, _ in plane.came]
    # A child has a queue of its own: what its parent has to say it leaves to the parent.
    assert sent == (["child's", "parent's"] if how == "fork" else ["child's"]), ended.stderr
