"""The same gate in event loops, and what only they can do: cancel, and many at once."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from callgate import AsyncClient, AsyncGate, Call, CallRefused, Client, ToolFailed, permit
from callgate.v1.approval_service_pb2 import APPROVAL_STATE_WITHDRAWN, GetApprovalRequest, ListApprovalsRequest

from .conftest import states
from .test_gate import Tool, answer_when_asked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .plane import Server


def in_loop(server: Server, session: str, test: Callable[[AsyncGate], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with AsyncClient(server.address) as client:
            return await test(client.gate(session))

    return asyncio.run(run())


def eventually(holds: Callable[[], bool]) -> None:
    """What happens in the background is seen within seconds."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_event_loops_of_many_threads_share_one_client() -> None:
    client, interval = AsyncClient("http://127.0.0.1:9"), sys.getswitchinterval()

    async def use() -> None:
        client.driver()

    def loops() -> int:
        for _ in range(60):
            asyncio.run(use())
        return 60

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(lambda _: loops(), range(8))) == 480
    finally:
        sys.setswitchinterval(interval)


def test_decisions_are_followed_as_in_threads(server: Server, client: Client, session: str) -> None:
    tool = Tool({"id": 7})

    async def execute(**args: Any) -> Any:
        await asyncio.sleep(0)
        return tool(**args)

    async def test(gate: AsyncGate) -> None:
        assert (await gate.run("pay", {"for": session}, execute)).unwrap() == {"id": 7}
        again = await gate.run("pay", {"for": session}, execute)
        assert (again.decision, again.unwrap(), len(tool.seen)) == ("REUSE", {"id": 7}, 1)
        with pytest.raises(CallRefused):
            (await gate.run("drop_table", {}, execute)).unwrap()
        person = answer_when_asked(client, session, approve=False, reason="never on a Sunday")
        denied = await gate.run("ask_ann", {}, execute)
        person.join()
        assert "never on a Sunday" in denied.text
        person = answer_when_asked(client, session, approve=True)
        assert (await gate.run("ask_bob", {}, execute)).unwrap() == {"id": 7}
        person.join()

    in_loop(server, session, test)


def test_a_retry_is_made_as_advised(server: Server, session: str) -> None:
    tool = Tool(ToolFailed("busy", http_status=503, retry_after_s=0.1), "fine")
    outcome = in_loop(server, session, lambda gate: gate.run("fetch", {}, tool))
    assert (outcome.unwrap(), outcome.attempts) == ("fine", 2)


def test_a_plain_function_runs_beside_the_loop_and_sees_the_permit(server: Server, session: str) -> None:
    seen: list[Any] = []

    def execute() -> str:
        seen.extend((threading.current_thread() is threading.main_thread(), permit() is not None))
        return "done"

    assert in_loop(server, session, lambda gate: gate.run("look", {}, execute)).unwrap() == "done"
    assert seen == [False, True]


def test_a_tool_that_takes_too_long_is_a_timeout(server: Server, session: str) -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    outcome = in_loop(server, session, lambda gate: gate.run("fetch", {}, hang, timeout_s=0.05, patience_s=0))
    assert isinstance(outcome.error, TimeoutError)
    assert json.loads(outcome.text)["error_type"] == "timeout"
    assert "fetch gave no answer within 0.05 s" in outcome.text


def test_a_call_cancelled_while_it_runs_is_recorded(server: Server, client: Client, session: str) -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    async def test(gate: AsyncGate) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gate.run("fetch", {}, hang), 0.5)
        assert states(client, session) == ["CANCELLED"]

    in_loop(server, session, test)


def test_a_thread_that_goes_on_after_its_cancellation_is_unknown(server: Server, client: Client, session: str) -> None:
    end = threading.Event()

    async def test(gate: AsyncGate) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gate.run("fetch", {}, lambda: end.wait(20)), 0.5)
        assert states(client, session) == ["UNKNOWN"]
        end.set()

    in_loop(server, session, test)


def test_a_call_cancelled_while_a_person_is_asked_withdraws_the_question(
    server: Server, client: Client, session: str
) -> None:
    tool = Tool()

    async def test(gate: AsyncGate) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gate.run("ask_ann", {}, tool), 1)

    in_loop(server, session, test)
    [asked] = client.services.approvals.ListApprovals(ListApprovalsRequest(session_id=session)).approvals
    one = GetApprovalRequest(approval_id=asked.approval_id)
    eventually(lambda: client.services.approvals.GetApproval(one).approval.state == APPROVAL_STATE_WITHDRAWN)
    assert tool.seen == []


def test_a_call_cancelled_while_it_is_judged_is_not_left_in_flight(
    server: Server, client: Client, session: str
) -> None:
    tool = Tool()

    async def test(gate: AsyncGate) -> None:
        await gate.run("look", {}, tool)
        for n in range(20):
            task = asyncio.ensure_future(gate.run("fetch", {"n": n}, tool))
            await asyncio.sleep(n / 5000)
            task.cancel()
            await asyncio.wait({task})

    in_loop(server, session, test)
    # All that was to be said has been said by the end of `close`.
    assert "IN_FLIGHT" not in states(client, session)


def test_a_batch_that_is_cancelled_leaves_nothing_in_flight(server: Server, client: Client, session: str) -> None:
    async def hang(n: int) -> None:
        await asyncio.sleep(3600)

    async def test(gate: AsyncGate) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gate.batch([Call("fetch", {"n": n}, hang) for n in range(5)]), 1)

    in_loop(server, session, test)
    eventually(lambda: states(client, session) == ["CANCELLED"] * 5)


def test_a_batch_that_is_cancelled_before_it_begins_leaves_nothing_in_flight(
    server: Server, client: Client, session: str
) -> None:
    tool = Tool()

    async def test(gate: AsyncGate) -> None:
        stub: Any = gate.client.services.calls
        judge = stub.BatchEvaluate

        async def cancelled_meanwhile(*args: Any, **kwargs: Any) -> Any:
            answer = await judge(*args, **kwargs)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return answer

        stub.BatchEvaluate = cancelled_meanwhile
        with pytest.raises(asyncio.CancelledError):
            await gate.batch([Call("fetch", {"n": n}, tool) for n in range(3)])

    in_loop(server, session, test)
    assert tool.seen == []
    assert states(client, session) == ["CANCELLED"] * 3


def test_a_loop_that_ends_takes_no_report_with_it(server: Server, client: Client, session: str) -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def hang() -> None:
            begun.set()
            await asyncio.sleep(3600)

        running = AsyncClient(server.address)
        task = asyncio.ensure_future(running.gate(session).run("fetch", {}, hang))
        await begun.wait()
        # Nobody awaits it: asyncio.run cancels it at its end.
        del task

    asyncio.run(run())
    eventually(lambda: states(client, session) == ["CANCELLED"])


def test_two_loops_have_a_client_in_common(server: Server, session: str) -> None:
    shared = AsyncClient(server.address)
    together = threading.Barrier(2, timeout=30)
    values: list[Any] = []

    def loop(n: int) -> None:
        async def run() -> None:
            await asyncio.to_thread(together.wait)
            for turn in range(5):
                outcome = await shared.gate(f"{session}-{n}").run("look", {"n": n, "turn": turn}, Tool(n))
                values.append(outcome.unwrap())
            await shared.close()

        asyncio.run(run())

    threads = [threading.Thread(target=loop, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == [1] * 5 + [2] * 5
    # And one after the other.
    for n in (3, 4):
        assert asyncio.run(shared.gate(session).run("look", {"n": n}, Tool(n))).unwrap() == n


def test_loops_that_have_ended_leave_no_connections(server: Server, session: str) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    shared = AsyncClient(server.address)
    before = descriptors()
    for n in range(30):
        asyncio.run(shared.gate(session).run("look", {"n": n}, Tool(n)))
    eventually(lambda: descriptors() - before < 15)


def test_a_thousand_calls_at_once_need_no_thread_each(server: Server, session: str) -> None:
    running = 0
    most = 0
    threads = 0

    async def execute(n: int) -> int:
        nonlocal running, most, threads
        running += 1
        most, threads = max(most, running), max(threads, threading.active_count())
        await asyncio.sleep(5 if running < 1000 else 0)
        running -= 1
        return n

    async def run() -> list[Any]:
        async with AsyncClient(server.address, timeout_s=60) as shared:
            gates = [shared.gate(f"{session}-{n}") for n in range(1000)]
            outcomes = await asyncio.gather(*(g.run("look", {"n": n}, execute) for n, g in enumerate(gates)))
            return [outcome.unwrap() for outcome in outcomes]

    before = threading.active_count()
    assert asyncio.run(run()) == list(range(1000))
    assert most > 500
    assert threads - before < 20
