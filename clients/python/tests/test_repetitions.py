"""A repetition has the type of the first execution, and arguments that a person chose run in place of the model's."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from callgate import AsyncClient, Client, Gate, Replayed, gated
from callgate._firsts import FirstValues
from callgate.v1.approval_service_pb2 import ResolveApprovalRequest

from .test_gate import Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from .plane import Server


@dataclass
class Order:
    id: str
    total: int


_VALUES: list[Any] = ["paid", '{"a": 1}', "7", {"id": "p-7"}, [1, "2"], 3, 2.5, True, None, Order("o-1", 5), (1, 2)]


@pytest.mark.parametrize("value", _VALUES, ids=repr)
def test_a_repetition_has_the_value_of_the_first_execution(gate: Gate, session: str, value: Any) -> None:
    tool = Tool(value)
    first, again = (gate.run("pay", {"for": session, "how": repr(value)}, tool) for _ in range(2))
    assert (again.decision, len(tool.seen)) == ("REUSE", 1)
    assert again.unwrap() == first.unwrap() == value
    assert type(again.unwrap()) is type(value)
    assert json.loads(again.text)["status"] == "duplicate_call_blocked"


def test_another_process_gets_what_the_result_says(server: Server, client: Client, session: str) -> None:
    """A client that is new knows no values, as a process that begins does."""
    args = {"for": session}
    client.gate(session).run("pay", args, Tool(Order("o-1", 5)))
    client.plane.local.firsts = FirstValues()

    @gated(client.gate(session))
    def pay(**args: str) -> Order:
        raise AssertionError(args)

    replayed: Any = pay(**args)
    assert replayed == Replayed({"id": "o-1", "total": 5}, '{"id": "o-1", "total": 5}')


def test_a_value_that_was_changed_since_is_not_given_as_the_first(gate: Gate, session: str) -> None:
    order = Order("o-1", 5)
    gate.run("pay", {"for": session}, Tool(order))
    order.total = 6
    again: Any = gate.run("pay", {"for": session}, Tool()).unwrap()
    assert again.value == {"id": "o-1", "total": 5}
    plain = gate.run("pay", {"for": session, "n": 2}, Tool({"items": [1]})).unwrap()
    plain["items"].append(2)
    assert gate.run("pay", {"for": session, "n": 2}, Tool()).unwrap() == {"items": [1]}


def test_few_values_are_kept() -> None:
    firsts = FirstValues()
    for n in range(300):
        firsts.keep(str(n), f'"{n}"', str(n))
    assert (firsts.of("0", "0"), firsts.of("43", "43")) == (None, None)
    firsts.keep("large", "x" * 17_000_000, "x")
    assert firsts.of("299", "299") is None


def approve_with(client: Client, approval_id: str, args: dict[str, Any]) -> None:
    request = ResolveApprovalRequest(approval_id=approval_id, approve=True, edited_arguments_json=json.dumps(args))
    client.services.approvals.ResolveApproval(request, metadata=(("callgate-by", "ada"),))


def _sync(server: Server, gate: Gate, args: dict[str, Any], tool: Tool, **more: Any) -> Any:
    return gate.run("ask_payment", args, tool, **more)


def _async(server: Server, gate: Gate, args: dict[str, Any], tool: Tool, **more: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(server.address) as client:
            return await client.gate(gate.session_id).run("ask_payment", args, tool, **more)

    return asyncio.run(run())


@pytest.mark.parametrize("run", [_sync, _async])
def test_arguments_that_a_person_chose_are_executed(
    server: Server, client: Client, gate: Gate, session: str, run: Callable[..., Any]
) -> None:
    tool = Tool("refunded")
    asked = run(server, gate, {"cents": 900, "for": session}, tool, call_id="c", approval_wait_s=0)
    approve_with(client, asked.approval_id, {"cents": 90, "for": session})
    outcome = run(server, gate, {"cents": 900, "for": session}, tool, call_id="c")
    assert tool.seen == [{"cents": 90, "for": session}]
    assert (outcome.unwrap(), outcome.call_id) == ("refunded", "c/edited")
    told = json.loads(outcome.text)
    assert told["results"] == "refunded"
    assert "An approver replaced the arguments of this call" in told["warning"]
    assert '"cents": 90' in told["warning"].replace('"cents":90', '"cents": 90')
    # It is one call: asked again, it is not made again.
    again = run(server, gate, {"cents": 900, "for": session}, tool, call_id="c")
    assert (len(tool.seen), again.unwrap()) == (1, "refunded")
