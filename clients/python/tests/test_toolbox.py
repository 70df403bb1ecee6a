"""Toolboxes, and schemas as models see them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Added, AsyncClient, Client
from callgate.schemas import adapted, offered
from callgate.v1.approval_service_pb2 import ListApprovalsRequest
from callgate.v1.gate_service_pb2 import ToolDescription

from .conftest import calls
from .plane import free_address
from .test_gate import Tool, answer_when_asked

if TYPE_CHECKING:
    from callgate import Gate

    from .plane import Server

PARAMETERS = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
SHAPES: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "wire_money", "description": "d", "parameters": PARAMETERS}},
    {"type": "function", "name": "wire_money", "description": "d", "parameters": PARAMETERS},
    {"name": "wire_money", "description": "d", "input_schema": PARAMETERS},
    {"name": "wire_money", "description": "d", "inputSchema": PARAMETERS},
]


def schema_of(tool: dict[str, Any]) -> Any:
    place = tool.get("function", tool)
    return next(place[key] for key in ("parameters", "input_schema", "inputSchema") if key in place)


@pytest.mark.parametrize("shape", SHAPES)
def test_where_the_policy_wants_a_reason_the_model_can_give_it(
    client: Client, gate: Gate, session: str, shape: dict[str, Any]
) -> None:
    tool = Tool("sent")
    box = gate.wrap({"wire_money": tool}, repeat_parameter="repeat_intended")
    before = json.dumps(shape)
    [shown] = box.schemas([shape])
    assert json.dumps(shape) == before
    schema = schema_of(shown)
    assert schema["required"] == ["cents", "justification"]
    assert schema["properties"].keys() == {"cents", "justification", "repeat_intended"}
    without = box.run("wire_money", '{"cents": 5}')
    assert "`justification`" in without.text or "justification" in without.text
    assert without.decision == "DENY"
    person = answer_when_asked(client, session, approve=True)
    sent = box.run("wire_money", '{"cents": 5, "justification": "rent", "repeat_intended": false}', "c1")
    person.join()
    assert (sent.unwrap(), tool.seen) == ("sent", [{"cents": 5}])
    [asked] = client.services.approvals.ListApprovals(ListApprovalsRequest(session_id=session)).approvals
    assert (asked.justification, json.loads(asked.arguments_json)) == ("rent", {"cents": 5})


def test_a_meant_repetition_is_let_through(gate: Gate) -> None:
    tool = Tool("found")
    box = gate.wrap({"lookup": tool}, repeat_parameter="again")
    box.schemas([{"name": "lookup", "input_schema": {}}])
    box.run("lookup", "{}")
    refused = box.run("lookup", "{}")
    assert refused.decision == "REUSE"
    assert box.run("lookup", '{"again": true}').ran
    assert len(tool.seen) == 2


def test_strict_schemas_stay_strict() -> None:
    strict = {
        "type": "function",
        "name": "t",
        "strict": True,
        "parameters": {**PARAMETERS, "additionalProperties": False},
    }
    shown, added = adapted(strict, ToolDescription(needs_justification=True), repeat_parameter="again")
    schema = shown["parameters"]
    assert set(schema["required"]) == set(schema["properties"]) == {"cents", "justification", "again"}
    assert schema["properties"]["again"]["type"] == ["boolean", "null"]
    assert schema["additionalProperties"] is False
    assert added == Added("justification", "again")
    assert added.taken({"cents": 1, "again": None, "justification": None}) == (
        {"cents": 1},
        {"justification_parameter": "justification", "repeat_parameter": "again", "repeat_intended": False},
    )


def test_what_a_tool_has_itself_is_left_alone() -> None:
    own = {"properties": {"justification": {"type": "string"}, "again": {"type": "integer"}}}
    schema, added = offered(own, ToolDescription(needs_justification=True), repeat_parameter="again")
    assert schema["properties"] == own["properties"]
    assert added == Added()
    args = '{"justification": "mine", "again": 3}'
    assert added.taken(args)[0] is args


def test_the_argument_for_the_key_is_hidden() -> None:
    schema = {"properties": {"key": {}, "n": {}}, "required": ["key", "n"]}
    shown, _ = offered(schema, ToolDescription(idempotency_argument="key"))
    assert (shown["properties"].keys(), shown["required"]) == ({"n"}, ["n"])


@pytest.mark.parametrize(
    "args", ['{"again": true', '{"again": true, "n": 1, "n": 2}', "[1]", '{"again": true, "n": 1e999}']
)
def test_arguments_that_would_change_are_left_to_the_plane(args: str) -> None:
    assert Added(repeat="again").taken(args)[0] == args


def test_a_long_justification_is_cut_and_numbers_stay() -> None:
    args = json.dumps({"justification": "ü" * 2000, "n": 2**70, "f": 1.0})
    left, said = Added("justification").taken(args)
    assert left == f'{{"n": {2**70}, "f": 1.0}}'
    assert len(said["justification"].encode()) == 2000


def test_a_provider_tool_stays_as_it_is(gate: Gate) -> None:
    assert gate.wrap([]).schemas([{"type": "web_search"}]) == [{"type": "web_search"}]


def test_a_name_that_is_no_tool_is_judged_and_told(client: Client, gate: Gate, session: str) -> None:
    def find() -> None: ...

    outcome = gate.wrap([find]).run("fnid", "{}")
    assert outcome.is_error
    assert "There is no tool fnid. The tools are: find." in outcome.text
    assert [call.tool for call in calls(client, session)] == ["fnid"]


def test_while_the_plane_is_away_schemas_stay_as_they_are(session: str) -> None:
    with Client(free_address()) as client:
        shape = {"name": "t", "input_schema": {"type": "object", "properties": {}}}
        assert client.gate(session).wrap([]).schemas([shape]) == [shape]


def test_an_async_toolbox_does_the_same(server: Server, session: str) -> None:
    async def lookup(q: str) -> str:
        return q

    async def run() -> None:
        async with AsyncClient(server.address) as client:
            box = client.gate(session).wrap([lookup], repeat_parameter="again")
            [shown] = await box.schemas([{"name": "lookup", "input_schema": PARAMETERS}])
            assert "again" in schema_of(shown)["properties"]
            assert (await box.run("lookup", '{"q": "x", "again": null}', "c1")).unwrap() == "x"
            first, second = await box.gate.batch([box.call("lookup", {"q": str(n)}) for n in range(2)])
            assert (first.unwrap(), second.unwrap()) == ("0", "1")

    asyncio.run(run())
