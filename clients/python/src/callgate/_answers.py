"""Outcomes from verdicts and reports, with the text for the model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from . import _texts
from ._firsts import Replayed
from ._values import as_json
from .outcome import Outcome
from .v1 import types_pb2 as t

if TYPE_CHECKING:
    from ._effects import Ran
    from ._plane import Local
    from ._values import Told
    from .outcome import Decision
    from .v1.gate_service_pb2 import RecordResponse


class CallFacts(TypedDict):
    """Members of every outcome of a call."""

    call_id: str
    attempts: int
    notice: str


def refused(local: Local, verdict: t.Verdict, of_call: CallFacts) -> Outcome:
    """Outcome of a call that was not executed."""
    return Outcome(
        _texts.with_hints(verdict.tool_result_json, of_call["notice"]),
        verdict.is_error,
        _decision(verdict),
        reason=verdict.reason,
        tools_disabled=verdict.tools_disabled,
        approval_id=verdict.approval_id,
        recorded=True,
        previous=_previous(local, verdict),
        verdict=verdict,
        **of_call,
    )


def reported(
    verdict: t.Verdict | None, ran: Ran, told: Told, answer: RecordResponse | None, of_call: CallFacts
) -> Outcome:
    """Outcome of an executed call."""
    said = [one for one in (verdict, answer) if one is not None]
    hints = [of_call["notice"], *(one.next_context_hint for one in said)]
    is_error = ran.error is not None if answer is None else answer.is_error
    if answer is not None and told.is_stored:
        text = _texts.with_hints(answer.tool_result_json, *hints)
    elif ran.error is not None:
        text = _texts.with_hints(_texts.failed(told.text), *hints)
    else:
        text = _texts.with_hints(told.text, *hints, is_json=False)
    return Outcome(
        text,
        is_error,
        None if verdict is None else _decision(verdict),
        ran=True,
        value=ran.value,
        error=ran.error,
        reason="" if verdict is None else verdict.reason,
        tools_disabled=any(one.tools_disabled for one in said),
        recorded=answer is not None,
        verdict=verdict,
        record=answer,
        **of_call,
    )


def ended(outcome: Outcome, verdict: t.Verdict) -> Outcome:
    """The last attempt's outcome, after the retry was refused."""
    return replace(outcome, tools_disabled=outcome.tools_disabled or verdict.tools_disabled)


def _previous(local: Local, verdict: t.Verdict) -> tuple[Any] | None:
    """The first value or `Replayed`, for a REUSE; None where the previous result is not whole."""
    told = json.loads(verdict.tool_result_json) if verdict.decision == t.DECISION_REUSE else {}
    if "previous_result" not in told or told.get("previous_result_truncated"):
        return None
    previous = told["previous_result"]
    first = local.first(verdict.fingerprint, previous)
    return (Replayed(previous, as_json(previous)),) if first is None else first


def _decision(verdict: t.Verdict) -> Decision:
    name: Any = t.Decision.Name(verdict.decision).removeprefix("DECISION_")
    return name  # type: ignore[no-any-return]
