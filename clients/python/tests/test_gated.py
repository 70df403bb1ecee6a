"""Gated functions, for programs and as the tools of frameworks."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from callgate import AsyncClient, CallgateUnavailable, CallRefused, Client, gated

from .conftest import calls
from .plane import free_address
from .test_gate import Tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from callgate import Gate

    from .plane import Server


def tool_that_never_runs() -> None:
    raise AssertionError


def test_a_gated_function_is_called_as_ever(gate: Gate, session: str) -> None:
    runs = []

    @gated(gate, tool="pay")
    def pay(to: str, cents: int = 5, **more: str) -> dict[str, Any]:
        """Pays."""
        runs.append((to, cents, more))
        return {"id": len(runs)}

    assert pay(session) == {"id": 1}
    assert pay(to=session, cents=5) == {"id": 1}
    assert pay(session, 6, note="x") == {"id": 2}
    assert runs == [(session, 5, {}), (session, 6, {"note": "x"})]
    assert pay.__doc__ == "Pays."

    @gated(lambda: gate)
    def drop_all() -> None:
        raise AssertionError

    with pytest.raises(CallRefused, match="drop_all was not run: the policy does not allow it"):
        drop_all()

    @gated(gate)
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        fail()


def test_a_gated_coroutine_function(server: Server, session: str) -> None:
    async def run() -> None:
        async with AsyncClient(server.address) as client:

            @gated(client.gate(session))
            async def add(a: int, b: int) -> int:
                return a + b

            assert await add(1, b=2) == 3

    asyncio.run(run())


def test_a_gated_function_while_the_plane_is_away(session: str) -> None:
    tool = Tool()

    @gated(Client(free_address()).gate(session))
    def pay() -> None:
        tool()

    with pytest.raises(CallgateUnavailable):
        pay()
    assert tool.seen == []


def test_what_cannot_be_gated_is_told_at_once(gate: Gate) -> None:
    with pytest.raises(TypeError, match="without names"):
        gated(gate)(lambda *args: args)

    @gated(lambda: AsyncClient().gate("any"))
    def wrong() -> None: ...

    with pytest.raises(TypeError, match="wrong is no coroutine function, and needs a Gate"):
        wrong()

    def pages() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="yields"):
        gated(gate)(pages)
    with pytest.raises(TypeError, match=r"context: .*wrong.* has no parameter ctx"):
        gated(gate, context="ctx")(wrong)
    with pytest.raises(TypeError, match="call_id: a function is called with `context`"):
        gated(gate, call_id=str)


def test_a_gated_tool_gives_the_text_for_the_model(gate: Gate, session: str) -> None:
    @gated(gate, for_model=True)
    def pay(to: str, note: str | None = None) -> dict[str, str]:
        """Pays."""
        return {"to": to}

    @gated(gate, for_model=True)
    def drop_all() -> None:
        raise AssertionError

    @gated(gate, for_model=True)
    async def fail(why: str) -> int:
        raise RuntimeError(why)

    texts = [pay(session), pay(session), drop_all(), asyncio.run(fail("it is shut"))]
    told = [json.loads(text) for text in texts]
    assert [one["status"] for one in told] == ["success", "duplicate_call_blocked", "tool_denied", "error"]
    assert told[0]["results"] == told[1]["previous_result"] == {"to": session}
    assert "it is shut" in told[3]["error_message"]
    away = gated(Client(free_address()).gate(session), for_model=True)(tool_that_never_runs)
    assert json.loads(away())["status"] == "callgate_unavailable"


def test_frameworks_read_a_gated_tool_as_its_function(gate: Gate) -> None:
    """Annotations are evaluated, as pydantic models of frameworks want them, or stay the text that they are."""

    @gated(gate, for_model=True)
    async def pay(to: str, cents: int = 5) -> dict[str, Any]:
        """Pays."""
        return {}

    @gated(gate, for_model=True)
    def hidden(iterator: Iterator[int]) -> None: ...

    assert inspect.iscoroutinefunction(pay)
    assert (pay.__name__, pay.__doc__) == ("pay", "Pays.")
    assert str(inspect.signature(pay)) == "(to: str, cents: int = 5) -> str"
    assert get_type_hints(pay) == {"to": str, "cents": int, "return": str}
    assert "def pay" in inspect.getsource(pay)
    assert hidden.__annotations__ == {"iterator": "Iterator[int]", "return": str}


def test_a_framework_gives_a_gated_tool_its_own_object(client: Client, session: str) -> None:
    class Context:
        session, id = "", ""

    heard: list[Any] = []

    @gated(lambda ctx: client.gate(ctx.session), context="ctx", call_id=lambda ctx: ctx.id, tool="pay", for_model=True)
    def pay(ctx: Context, to: str) -> str:
        heard.append((ctx, to))
        return "paid"

    given = Context()
    given.session, given.id = session, "call-7"
    assert json.loads(pay(given, session))["query_summary"] == {"to": session}
    assert json.loads(pay(to=session, ctx=given))["previous_result"] == "paid"
    assert heard == [(given, session)]
    assert {call.call_id for call in calls(client, session)} == {"call-7"}
