"""What developers read of their mistakes, and what models do not."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Client, Gate, ToolFailed, gated

if TYPE_CHECKING:
    from pathlib import Path

    from .plane import Server


def order(order_id: int, shop: str) -> str:
    return f"{order_id} of {shop}"


def _client(**settings: Any) -> Client:
    return Client(**settings)


def _failed(**facts: Any) -> ToolFailed:
    return ToolFailed("x", **facts)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda gate: gate.client.gate(42), TypeError, "session_id: 42 is no text"),
        (lambda gate: gate.replace(run_id=7), TypeError, "run_id: 7 is no text"),
        (lambda gate: gate.replace(patience_s="60"), TypeError, "patience_s: '60' is no number of seconds"),
        (lambda gate: gate.replace(usage=3), TypeError, "usage: int is no function"),
        (lambda gate: gate.run("t", {}, dict, cost_estimate_micros="5"), TypeError, "cost_estimate_micros: '5'"),
        (lambda gate: gate.run("t", {}, dict, cost_estimate_micros=-5), ValueError, "cost_estimate_micros: -5"),
        (lambda gate: gate.run("t", {}, dict, usage={"input_tokens": 1}), TypeError, "usage: dict is no Usage"),
        (lambda gate: _client(timeout_s="3"), TypeError, "timeout_s: '3' is no number of seconds"),
        (lambda gate: _client(token=42), TypeError, "token: int is no text"),
        (lambda gate: _client(server=7600), TypeError, "server: int is no text"),
        (lambda gate: gate.wrap([lambda: 1]), TypeError, "tools: a function without a name"),
        (lambda gate: gate.wrap(["order"]), TypeError, "tools: 'order' is no function"),
        (lambda gate: ToolFailed("x", http_status="many"), TypeError, "http_status: 'many'"),
        (lambda gate: ToolFailed("x", http_status=42), ValueError, "http_status: 42"),
        (lambda gate: _failed(retry_after_s="2"), TypeError, "retry_after_s: '2'"),
    ],
)
def test_wrong_input_is_named(gate: Gate, make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        make(gate)
    assert str(raised.value).startswith(message)


def test_a_partial_has_its_functions_name(gate: Gate) -> None:
    box = gate.wrap([partial(order, shop="north")])
    assert box.run("order", {"order_id": 1}).unwrap() == "1 of north"
    assert gated(gate)(partial(order, shop="south"))(order_id=2) == "2 of south"


def test_a_token_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLGATE_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(ValueError, match=r"^CALLGATE_TOKEN_FILE: cannot read .*/token: No such file"):
        Client()
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"^CALLGATE_TOKEN_FILE: cannot read .*/token: it is no text"):
        Client()


def test_https_to_a_server_without_tls_is_told(server: Server, session: str, caplog: pytest.LogCaptureFixture) -> None:
    with Client(f"https://{server.address}", timeout_s=3) as client:
        outcome = client.gate(session).run("look", {}, dict)
    assert str(outcome.error).startswith("the server at this address has no TLS: use http://")
    assert "has no TLS" in caplog.text


@pytest.mark.parametrize("kind", ["told", "read"])
def test_a_status_may_be_a_text(gate: Gate, kind: str) -> None:
    class Limited(Exception):
        status_code = "429"

    def get() -> None:
        raise ToolFailed("slow down", http_status="429") if kind == "told" else Limited("slow down")

    assert json.loads(gate.run(f"get_{kind}", {}, get, patience_s=0).text)["error_type"] == "rate_limited"


def _attribute(n: Any) -> Any:
    return n.nothing


def _name(n: Any) -> Any:
    return nothing  # type: ignore[name-defined] # noqa: F821


def _type(n: Any) -> Any:
    return n + "1"


def _assertion(n: Any) -> Any:
    assert n == 2, "two"


def _module(n: Any) -> Any:
    import no_such_module_at_all  # type: ignore[import-not-found] # noqa: F401


@pytest.mark.parametrize("tool", [_attribute, _name, _type, _assertion, _module])
def test_a_bug_is_for_its_developers(gate: Gate, tool: Any, caplog: pytest.LogCaptureFixture) -> None:
    outcome = gate.run("count", {"n": 1, "how": tool.__name__}, lambda n, how: tool(n), call_id="call-1", patience_s=0)
    told = json.loads(outcome.text)
    assert told["error_message"] == "count failed because of a bug in the tool. Other arguments do not help"
    assert (outcome.is_error, told["retryable"]) == (True, False)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage() == "callgate: count has a bug (call call-1)"
    assert tool.__name__ in caplog.text
    with pytest.raises(type(outcome.error) if outcome.error else Exception):
        outcome.unwrap()


class NoSuchOrder(AttributeError):
    """A class of the developer's own."""


_CAUSED = AttributeError("of a provider's answer")
_CAUSED.__cause__ = ConnectionError("reset")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the amount is more than was paid"),
        KeyError("o-17"),
        NotImplementedError("refunds abroad"),
        RuntimeError("the shop is closed"),
        NoSuchOrder("o-17 is of another shop"),
        FileNotFoundError(2, "No such file", "o-17"),
        _CAUSED,
    ],
    ids=repr,
)
def test_what_a_model_can_use_is_told(gate: Gate, error: Exception) -> None:
    def find(how: str) -> None:
        raise error

    told = json.loads(gate.run("find", {"how": repr(error)}, find, patience_s=0).text)
    assert str(error.args[-1]) in told["error_message"]


def test_arguments_that_do_not_fit_are_the_models(gate: Gate) -> None:
    told = json.loads(gate.wrap([order]).run("order", {"town": 1}).text)
    assert told["error_type"] == "invalid_argument"
    assert "town" in told["error_message"]
