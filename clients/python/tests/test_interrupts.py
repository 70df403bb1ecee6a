"""Whatever ends a run, wherever: what was permitted has an outcome, and what has run does not run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import callgate
from callgate import NotFound, Result

from .conftest import states
from .test_gate import Tool

if TYPE_CHECKING:
    from types import FrameType

    from callgate import Client, Gate

_HOME = Path(callgate.__file__).parent
# An interrupt is not taken between a lock and its `with`, which tracing could do.
_NOT_TRACED = {"_reports.py", "_heart.py", "_plane.py", "_firsts.py"}


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that the package runs in this thread."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        file = Path(frame.f_code.co_filename)
        if file.parent != _HOME or file.name in _NOT_TRACED:
            return None
        self.left -= event == "line"
        if self.left == 0:
            sys.settrace(None)
            self.place = f"{file.name}:{frame.f_lineno}"
            raise KeyboardInterrupt
        return self


def interrupted(gate: Gate, tool: Tool, line: int) -> str:
    """Where it was; nothing where the call was over before that line."""
    sys.settrace(interrupt := Interrupt(line))
    try:
        gate.run("pay", {"by": gate.session_id}, tool, call_id="c")
    except KeyboardInterrupt:
        assert interrupt.place
    finally:
        sys.settrace(None)
    return interrupt.place


def test_an_interrupt_at_any_line_leaves_nothing_in_flight(client: Client, session: str) -> None:
    client.gate(session).run("look", {}, Tool())
    line, place = 0, "begun"
    while place:
        line += 1
        tool, gate = Tool("paid"), client.gate(f"{session}-{line}")
        place = interrupted(gate, tool, line)
        try:
            if "IN_FLIGHT" in (found := states(client, gate.session_id)):
                assert client.plane.local.reports.flush(20) == [], place
                found = states(client, gate.session_id)
        except NotFound:
            found = []
        assert found in ([], ["CANCELLED"], ["UNKNOWN"], ["SUCCEEDED"]), place
        assert bool(tool.seen) <= bool(found), place
        if found == ["SUCCEEDED"]:
            gate.run("pay", {"by": gate.session_id}, tool, call_id="c")
            assert len(tool.seen) == 1, place
    assert line > 200


class Unspeakable(Exception):
    """Nothing can be had of it."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__

    @property
    def status_code(self) -> int:
        raise RuntimeError("no")


def _nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


_FACTS: list[dict[str, Any]] = [
    {"total_matches": -1},
    {"total_matches": "3"},
    {"cost_micros": 0.5},
    {"is_complete": ""},
]


_VALUES = [Unspeakable(), [Unspeakable()], _nested(), 10**5000, *(Result("v", **facts) for facts in _FACTS)]


@pytest.mark.parametrize("which", range(len(_VALUES)))
def test_a_value_of_any_kind_is_recorded(client: Client, gate: Gate, session: str, which: int) -> None:
    value = _VALUES[which]
    outcome = gate.run("look", {}, lambda: value)
    assert (outcome.recorded, outcome.is_error) == (True, False)
    assert outcome.value is (value.value if isinstance(value, Result) else value)
    assert states(client, session) == ["SUCCEEDED"]


@pytest.mark.parametrize("member", ["type", "code", "sqlstate"])
def test_an_exception_of_any_kind_is_recorded(client: Client, gate: Gate, session: str, member: str) -> None:
    error = Unspeakable()
    outcome = gate.run("look", {}, Tool(error), patience_s=0)
    assert (outcome.error, outcome.recorded) == (error, True)
    assert "Unspeakable" in outcome.text
    odd = ValueError("odd")
    setattr(odd, member, "\ud800")
    outcome = gate.run("look", {"n": 2}, Tool(odd), patience_s=0)
    assert (outcome.error, outcome.recorded) == (odd, True)
    assert '"error_message":"odd"' in outcome.text
    assert states(client, session) == ["FAILED", "FAILED"]


def test_arguments_that_python_cannot_read_leave_nothing_in_flight(client: Client, gate: Gate, session: str) -> None:
    tool = Tool()
    with pytest.raises(ValueError, match="5000 digits"):
        gate.run("look", '{"n": %s}' % ("9" * 5000), tool)
    assert client.plane.local.reports.flush(20) == []
    assert (states(client, session), tool.seen) == (["CANCELLED"], [])
