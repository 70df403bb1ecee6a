"""What came of a call, and what its model is to see."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .errors import CallRefused

if TYPE_CHECKING:
    from .v1.gate_service_pb2 import RecordResponse
    from .v1.types_pb2 import Verdict

Decision = Literal["ALLOW", "ASK", "WAIT", "REUSE", "DENY", "STOP"]


@dataclass(frozen=True)
class Result:
    """What a tool may return to say more of its value than the value does.

    Attributes:
        value: The value itself.
        is_complete: Whether it holds everything there is; None: unsaid.
        total_matches: How many matches there are in all; None: unsaid.
        cost_micros: What the call cost, in millionths of a US dollar.
        text: What is recorded and shown to the model instead of the value as JSON; None: the value.
    """

    value: Any
    is_complete: bool | None = None
    total_matches: int | None = None
    cost_micros: int = 0
    text: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of one call.

    Attributes:
        text: What the model is to see as the tool's result.
        is_error: Whether the text reports an error (Anthropic `is_error`, MCP `isError`).
        decision: What the plane decided last; None where it gave no answer.
        ran: Whether `execute` was begun.
        value: What `execute` returned; None where it did not.
        error: What it raised, or why nobody could be asked; None where neither.
        reason: The plane's stable reason, as `duplicate_call_blocked`; `callgate_unavailable` where it gave no answer;
            empty where there is nothing to explain.
        tools_disabled: No further call is let through in this scope: let the model give its final answer.
        attempts: How often `execute` was begun.
        approval_id: The question that a person has not answered yet; empty where there is none.
        recorded: Whether the plane has taken the report. False after an execution: it is sent again in the background.
        call_id: As the plane knows the call.
        previous: For REUSE, the value of `unwrap`, as the one member of a tuple; None where the result is not stored.
        notice: A text of the client for the model: an approver replaced the arguments. It is part of `text`.
        verdict: The plane's last verdict, as it came.
        record: Its last answer to a report, as it came.
    """

    text: str
    is_error: bool
    decision: Decision | None
    ran: bool = False
    value: Any = field(default=None, repr=False)
    error: BaseException | None = None
    reason: str = ""
    tools_disabled: bool = False
    attempts: int = 0
    approval_id: str = ""
    recorded: bool = False
    call_id: str = ""
    previous: tuple[Any] | None = field(default=None, repr=False)
    notice: str = ""
    verdict: Verdict | None = field(default=None, repr=False)
    record: RecordResponse | None = field(default=None, repr=False)

    @property
    def message(self) -> str:
        """What of the text says to people what happened; all of it where it has no such sentence."""
        try:
            told = json.loads(self.text)
        except ValueError:
            return self.text
        found = (told.get("message") or told.get("error_message")) if isinstance(told, dict) else None
        return found if isinstance(found, str) else self.text

    @property
    def hints(self) -> list[str]:
        """What the plane wants the model to see beside a result, for who shows it the value and not the text."""
        told = [said.next_context_hint for said in (self.verdict, self.record) if said is not None]
        return [hint for hint in dict.fromkeys([self.notice, *told]) if hint]

    def unwrap(self) -> Any:
        """The value; for REUSE the value of the first execution, where this process has it, else `Replayed`.

        Raises:
            CallRefused: The call was not let through, or its previous result is not stored whole.
            CallgateUnavailable: Nobody could be asked, and nothing was executed.
            BaseException: What `execute` raised.
        """
        if self.error is not None:
            raise self.error
        if self.ran:
            return self.value
        if self.previous is None:
            raise CallRefused(self)
        return self.previous[0]
