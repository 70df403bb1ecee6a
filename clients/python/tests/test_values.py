"""What tools return and raise, as the plane and the model are told."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import urllib.error
from datetime import datetime, timezone
from email.message import Message
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from callgate import ToolFailed
from callgate._values import Told, as_json, failure

from .conftest import calls

if TYPE_CHECKING:
    from callgate import Client, Gate


@dataclasses.dataclass
class Order:
    id: int
    at: datetime


class Colour(Enum):
    RED = "red"


class Model:
    """As pydantic's."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain text", "plain text"),
        (b'{"a":  1}', '{"a":  1}'),
        (None, "null"),
        (1.5, "1.5"),
        (True, "true"),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        (Order(1, datetime(2026, 11, 22, tzinfo=timezone.utc)), '{"id": 1, "at": "2026-11-22T00:00:00+00:00"}'),
        ([Model()], '[{"mode": "json"}]'),
        ({"c": Colour.RED, "s": {7}, "p": Path("/x")}, '{"c": "red", "s": [7], "p": "/x"}'),
        (2**70, str(2**70)),
        ("\ud800", "?"),
    ],
)
def test_values_are_told_as_text_or_json(value: Any, text: str) -> None:
    told = Told.of(value)
    assert told.is_stored
    assert told.text == text


def test_what_json_cannot_say_is_told_by_its_text() -> None:
    ring: list[Any] = []
    ring.append(ring)
    for value in (ring, float("nan"), {(1, 2): 3}, {"n": float("inf")}):
        assert isinstance(json.loads(as_json(value)), str)


def test_what_a_tool_returns_is_seen_by_its_model(gate: Gate) -> None:
    for n, (value, seen) in enumerate(
        [("no {json", "no {json"), (b"\x00text", "␀text"), (None, None), ({"a": 1}, {"a": 1})]
    ):
        outcome = gate.run("look", {"n": n}, lambda n, value=value: value)
        assert outcome.value == value
        assert outcome.recorded
        assert json.loads(outcome.text)["results"] in (seen, "\x00text")


def test_bytes_that_are_no_text_are_recorded_by_their_digest(client: Client, gate: Gate, session: str) -> None:
    raw = b"\x89PNG\r\n\x1a\n\xff" * 100
    outcome = gate.run("draw", {}, lambda: raw)
    assert (outcome.value, outcome.recorded, outcome.is_error) == (raw, True, False)
    assert hashlib.sha256(raw).hexdigest() in outcome.text
    [call] = calls(client, session)
    assert call.result_bytes == len(raw)


def test_fifty_megabytes_stay_with_the_caller(client: Client, gate: Gate, session: str) -> None:
    big = "x" * 50 * 1024 * 1024
    outcome = gate.run("dump", {}, lambda: big)
    assert (outcome.value, outcome.recorded) == (big, True)
    assert outcome.text == big
    [call] = calls(client, session)
    assert call.result_bytes == len(big)


def test_a_result_of_just_the_limit_is_stored(gate: Gate) -> None:
    edge = "x" * 1024 * 1024
    assert json.loads(gate.run("dump", {}, lambda: edge).text)["results"] == edge
    over = gate.run("dump", {"more": True}, lambda more: edge + "x")
    assert over.text == edge + "x"


def test_a_huge_error_is_recorded(gate: Gate) -> None:
    def fail() -> None:
        raise ValueError("ü" * 1024 * 1024)

    outcome = gate.run("fetch", {}, fail)
    assert outcome.recorded
    assert isinstance(outcome.error, ValueError)


class _Status(Exception):
    def __init__(self, **said: Any) -> None:
        super().__init__("failed")
        self.__dict__.update(said)


class _Rpc(grpc.RpcError, Exception):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self) -> str:
        return "slow down"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_Status(status_code=429), {"http_status": 429}),
        (
            _Status(response=SimpleNamespace(status_code=503, headers={"Retry-After": "7"})),
            {"http_status": 503, "retry_after_header": "7"},
        ),
        (_Status(status=502, headers={"Retry-After": "1"}), {"http_status": 502, "retry_after_header": "1"}),
        (
            _Status(status_code=429, code="insufficient_quota", type="quota"),
            {"provider_code": "insufficient_quota", "type": "quota"},
        ),
        (
            _Status(
                response={
                    "Error": {"Code": "ThrottlingException"},
                    "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {"retry-after": "3"}},
                }
            ),
            {"http_status": 400, "provider_code": "ThrottlingException", "retry_after_header": "3"},
        ),
        (urllib.error.HTTPError("http://x", 404, "gone", Message(), None), {"http_status": 404, "type": "HTTPError"}),
        (_Rpc(), {"grpc_status": 8, "type": "_Rpc"}),
        (_Status(sqlstate="40001"), {"provider_code": "40001"}),
        (ConnectionResetError(104, "reset"), {"provider_code": "ECONNRESET", "type": "ConnectionResetError"}),
        (KeyError("name"), {"message": "KeyError: 'name'", "type": "KeyError"}),
        (ValueError(), {"message": "ValueError"}),
        (
            ToolFailed("x", type="t", http_status=500, provider_code="c"),
            {"type": "t", "http_status": 500, "provider_code": "c"},
        ),
    ],
)
def test_errors_are_told_as_far_as_they_tell(error: BaseException, told: dict[str, Any]) -> None:
    report, _ = failure(error)
    assert {name: getattr(report.error, name) for name in told} == told


def test_a_wait_that_is_asked_for_is_told_exactly() -> None:
    report, _ = failure(ToolFailed("busy", retry_after_s=1.5))
    assert report.error.retry_after.ToMilliseconds() == 1500
