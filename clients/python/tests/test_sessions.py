"""The state of a session, its compactions and its runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from callgate import AsyncClient, Gate, SessionState

from .test_gate import Tool

if TYPE_CHECKING:
    from .plane import Server


def test_a_session_without_a_call_has_an_empty_state(gate: Gate, session: str) -> None:
    assert gate.state() == gate.compacted() == SessionState(session_id=session)


def test_after_a_compaction_the_model_gets_back_what_was_done(server: Server, gate: Gate, session: str) -> None:
    gate.run("pay", {"for": session}, Tool("paid"))
    assert "pay" in gate.state(last_calls=1).summary_for_model
    told = gate.compacted(summary_tokens=300)
    assert (told.session_id, len(told.calls)) == (session, 1)
    assert "pay" in told.summary_for_model

    async def run() -> None:
        async with AsyncClient(server.address) as client:
            agate = client.gate(session)
            assert (await agate.compacted()).summary_for_model
            assert (await agate.state()).session_id == session
            assert (await client.gate(f"{session}-new").state()).calls == []
            assert agate.new_run("next")._rules.caller.run_id == "next"

    asyncio.run(run())


def test_a_new_run_clears_what_a_loop_has_stopped(gate: Gate) -> None:
    first, second, named = gate.new_run(), gate.new_run(), gate.new_run("turn-2")
    ids = [one._rules.caller.run_id for one in (first, second, named)]
    assert ids[0] != ids[1]
    assert ids[2] == "turn-2"
    assert named.session_id == gate.session_id
    named.run("look", {"n": 1}, Tool())
    assert named.state().run_id == "turn-2"
