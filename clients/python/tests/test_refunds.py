"""Refunds through every client, by each kind of failure: what is executed, what takes effect, what the model reads."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from callgate import Client, ToolFailed, permit
from callgate.v1 import types_pb2 as t
from callgate.v1.gate_service_pb2 import RecordRequest
from callgate.v1.session_service_pb2 import SettleOutcomeRequest

from .conftest import calls
from .plane import Server
from .players import ALIKE, PLAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLICY = """
policy_engine:
  unknown_tools: allow
  retry: {probe_share: 0, per_minute: 10000, burst: 10000}
  rules: {tool_circuit_breaker: {mode: "off"}}  # a tool that fails in one case is none the less called in the others
  tool_schemas:
    refund_once: {effect: write, once: true}
    refund_keyed: {effect: write, once: true, key_honored: true}
    refund_deaf: {effect: write, once: true, key_honored: true}
"""
INJECTED = "  idempotency: {inject_as: argument, argument: request_key}\n"
OPEN: dict[str, Callable[[], Exception]] = {
    "timeout": lambda: TimeoutError("no answer within 5 s"),
    "network": lambda: ConnectionResetError(104, "Connection reset by peer"),
    "unavailable": lambda: ToolFailed("Service Unavailable", http_status=503),
    "internal": lambda: ToolFailed("Internal Server Error", http_status=500),
}
CLEAR: dict[str, Callable[[], Exception]] = {
    "rate limited": lambda: ToolFailed("Too Many Requests", http_status=429),
    "refused": lambda: ConnectionRefusedError(111, "Connection refused"),
}
TURNS = 4
FAILURES = OPEN | CLEAR

TEXTS = {
    "may have happened: once more": r"It may have taken effect\. If it only reads, .* after [\d.]+ s, once more; "
    r"if it changes something, check first",
    "may have happened: check": r"It may have taken effect: .* check whether it happened .*An earlier \w+ with these",
    "may have happened: ask": r'"outcome_unknown".* may have taken effect\..*Do not repeat it: check whether',
    "DENY": r'"status":"outcome_unknown".*"reason":"same_call".*Check whether it happened, or ask the user',
    "REUSE": r'"status":"duplicate_call_blocked".*"previous_result":\{"id": ?"re_1"',
    "success": r'"status": ?"success".*"re_1"',
    "raised": r'"status": ?"raised"',
}
"""What the model reads, by a short name: the first that is found."""


class Case(NamedTuple):
    tool: str
    failure: str
    took_effect: bool


class Row(NamedTuple):
    executions: int
    effects: int
    read: list[str]


CASES = [
    Case(f"refund{declared}", failure, took_effect)
    for declared in ("", "_once", "_keyed", "_deaf")
    for failure, took_effect in [*((f, e) for f in OPEN for e in (True, False)), *((f, False) for f in CLEAR)]
]


def expected(case: Case) -> Row:
    """The norm for every client (docs/semantics.md, Permission to repeat)."""
    if case.failure in CLEAR:
        # Nothing was done: the client repeats it. Of an undeclared refund nobody knows that its repetition harms.
        return Row(2, 1, ["success"] if case.tool == "refund" else ["success", *["REUSE"] * (TURNS - 1)])
    if case.tool == "refund_keyed":
        return Row(2, 1, ["success", *["REUSE"] * (TURNS - 1)])
    # The last turn comes after somebody has settled it.
    settled = "REUSE" if case.took_effect else "success"
    if case.tool == "refund":
        read = ["may have happened: once more", "may have happened: check", "DENY", settled]
        return Row(2, 2, read) if case.took_effect else Row(3, 1, read)
    return Row(1 if case.took_effect else 2, 1, ["may have happened: ask", "DENY", "DENY", settled])


class Provider:
    """Pays refunds. Until it is mended it fails after the effect or before it, and it honours a key."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._keys: set[str] = set()
        # Where the client repeats by itself, the repetition finds it mended.
        self.failures = 1 if case.failure in CLEAR or case.tool == "refund_keyed" else 99
        self.executions = self.effects = 0

    def pay(self, key: str) -> dict[str, str]:
        self.executions += 1
        fails = self.executions <= self.failures
        if (not fails or self._case.took_effect) and (not key or key not in self._keys):
            self.effects += 1
            self._keys.add(key)
        if fails:
            raise FAILURES[self._case.failure]()  # noqa: RSE102 (a function that makes it)
        return {"id": "re_1", "status": "succeeded"}

    def tool(self, key: str) -> Callable[..., Any]:
        """A keyed one gets its key by `permit`, or as the argument `request_key`."""

        def refund(order: str, amount: str, note: str) -> dict[str, str]:
            """Pays back what an order cost."""
            granted = permit() if self._case.tool == "refund_keyed" else None
            return self.pay(granted.idempotency_key if granted else "")

        def refund_keyed(order: str, amount: str, note: str, request_key: str = "") -> dict[str, str]:
            """Pays back what an order cost."""
            return self.pay(request_key)

        tool = refund_keyed if (key, self._case.tool) == ("argument", "refund_keyed") else refund
        tool.__name__ = self._case.tool
        return tool


def settle(client: Client, session: str, case: Case) -> None:
    """Somebody looks whether the call that ran last took effect; of an undeclared one that is the model."""
    call_id = next(call.call_id for call in calls(client, session) if call.state != t.CALL_STATE_REFUSED)
    paid = '{"id":"re_1"}'
    if case.tool == "refund" and not case.took_effect:
        client.gate(session).run("find_refunds", {"session": session}, lambda session: "none")
        return
    if case.tool == "refund":
        late = RecordRequest(call_id=call_id, status=t.OUTCOME_STATUS_SUCCESS, result=paid)
        late.caller.session_id = session
        client.services.calls.Record(late)
        return
    found = SettleOutcomeRequest(session_id=session, call_id=call_id, reason="looked it up")
    found.status = t.OUTCOME_STATUS_SUCCESS if case.took_effect else t.OUTCOME_STATUS_CANCELLED
    if case.took_effect:
        found.result = paid
    client.services.sessions.SettleOutcome(found, metadata=(("callgate-by", "ada"),))


def played(player: str, client: Client, case: Case, key: str) -> Row:
    provider = Provider(case)
    session = re.sub(r"\W+", "-", f"{player} {' '.join(map(str, case))}")

    def script() -> Iterator[dict[str, str]]:
        for turn in range(len(expected(case).read)):
            if turn == TURNS - 1 and provider.failures > 1:
                settle(client, session, case)
                provider.failures = 0
            yield {"order": f"A-{session}", "amount": "12.50", "note": "late parcel"}

    read = PLAYERS[player](client, session, provider.tool(key), script())
    return Row(provider.executions, provider.effects, [named(text) for text in read])


def named(text: str) -> str:
    return next((name for name, found in TEXTS.items() if re.search(found, text, re.DOTALL)), text)


@pytest.mark.parametrize(
    "player", [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in PLAYERS]
)
def test_a_refund_that_fails_is_paid_twice_by_no_client(player: str) -> None:
    # On a plane of its own, which learns how long to wait.
    with Server(POLICY) as server, Client(server.address) as client:
        check(player, client, CASES, "permit")


@pytest.fixture(scope="module")
def injecting() -> Iterator[Client]:
    """A plane that gives the key as an argument."""
    with Server(POLICY + INJECTED) as server, Client(server.address) as client:
        yield client


@pytest.mark.parametrize("player", PLAYERS)
def test_a_tool_that_does_not_take_the_argument_has_not_received_the_key(player: str, injecting: Client) -> None:
    cases = [Case(tool, "timeout", took_effect=True) for tool in ("refund_keyed", "refund_deaf")]
    check(player, injecting, cases, "argument")


def check(player: str, client: Client, cases: list[Case], key: str) -> None:
    # At once, since most of the time goes by in waits.
    with ThreadPoolExecutor(len(cases)) as threads:
        rows = dict(zip(cases, threads.map(lambda case: played(player, client, case, key), cases), strict=True))
    wanted = {case: expected(case) for case in cases}
    if player == "@gated":
        # What it raises is the tool's own, and what it returns a value: there is no text of callgate's.
        wanted = {case: row._replace(read=[_plain(read) for read in row.read]) for case, row in wanted.items()}
    assert rows == wanted


def _plain(read: str) -> str:
    return "raised" if read.startswith("may") else "success" if read == "REUSE" else read


DECLARED = {
    "refund": "undeclared",
    "refund_once": "`once`",
    "refund_keyed": "`once`, `key_honored`, the tool receives the key",
    "refund_deaf": "the same, the tool does not receive the key",
}


def table() -> str:
    """The norm as the documentation has it: failures of which the same comes are one row."""
    grouped: dict[tuple[str, bool, str], list[str]] = {}
    for case in CASES:
        executions, effects, read = expected(case)
        told = ", ".join(read).replace(", REUSE, REUSE, REUSE", ", REUSE")
        same = (case.tool, case.took_effect, f"{executions} | {effects} | {told}")
        grouped.setdefault(same, []).append(case.failure)
    head = [
        "declared",
        "failure",
        "the first took effect",
        "executions",
        "refunds paid",
        "the model reads, call by call",
    ]
    rows = [
        f"{DECLARED[tool]} | {', '.join(failures)} | {'yes' if took_effect else 'no'} | {came}"
        for (tool, took_effect, came), failures in grouped.items()
    ]
    return "".join(f"|{row}|\n" for row in [f" {' | '.join(head)} ", "---|" * 5 + "---", *(f" {row} " for row in rows)])


def test_the_documentation_has_this_table() -> None:
    """Written where `CALLGATE_TABLES=write`."""
    page = Path(__file__).parents[3] / "docs" / "clients.md"
    text = page.read_text()
    before, begin, rest = text.partition("<!-- refunds -->\n\n")
    _, end, after = rest.partition("\n<!-- /refunds -->")
    written = before + begin + table() + end + after
    assert begin
    assert end
    if os.environ.get("CALLGATE_TABLES") == "write":
        page.write_text(written)
    else:
        assert text == written
