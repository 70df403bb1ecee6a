"""Questions to people that a framework puts to its own user, and what that user answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._values import arguments
from .errors import CallgateError
from .v1.approval_service_pb2 import (
    APPROVAL_STATE_PENDING,
    Approval,
    ListApprovalsRequest,
    ResolveApprovalRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .client import Client
    from .outcome import Outcome

_SHOWN_MAX = 200
_ANSWERED_BEFORE = {"APPROVAL_ANSWERED", "APPROVAL_EXPIRED", "APPROVAL_WITHDRAWN", "APPROVAL_UNKNOWN"}


SHAPES = (
    'True, False, {"approve": bool, "reason": str, "by": str}, or {"decisions": [one for each request]}, each '
    '{"type": "approve"}, {"type": "reject", "message": str} or '
    '{"type": "edit", "edited_action": {"name": str, "args": {…}}}'
)
"""Values that decide approval requests, for error messages."""


@dataclass(frozen=True)
class Answer:
    """What a person said.

    Attributes:
        approve: Whether the call may run.
        reason: Why; of a denial, the model is told.
        by: Who; empty: whom the client names (`by`, `CALLGATE_BY`), else `user`. A credential goes before it.
        arguments: With an approval, the arguments that are approved instead, as JSON; empty: those of the call.
    """

    approve: bool
    reason: str = ""
    by: str = ""
    arguments: str = ""

    @staticmethod
    def read(value: object, tools: Sequence[str]) -> list[Answer]:
        """Decisions in a framework's value, one for each of these requests, in their order.

        Several requests need `decisions`, since True could be meant for the first request alone.

        Raises:
            ValueError: It has another shape.
        """
        match value:
            case {"decisions": list() as decisions} if len(decisions) == len(tools):
                return [_decision(decision, tool, value) for decision, tool in zip(decisions, tools, strict=True)]
            case bool() if len(tools) == 1:
                return [Answer(value)]
            case {"approve": bool() as approve, **more} if len(tools) == 1 and more.keys() <= {"reason", "by"}:
                return [Answer(approve, str(more.get("reason") or ""), str(more.get("by") or ""))]
        raise _wrong(value, tools)


def _decision(decision: object, tool: str, value: object) -> Answer:
    match decision:
        case {"type": "approve"}:
            return Answer(approve=True)
        case {"type": "reject", **more}:
            return Answer(approve=False, reason=str(more.get("message") or ""))
        case {"type": "edit", "edited_action": {"args": Mapping() as args, **more}} if more.get("name", tool) == tool:
            return Answer(approve=True, arguments=arguments(args))
        case {"type": "edit", "edited_action": {"name": str() as other}}:
            raise ValueError(f"an edit may change the arguments of {tool}, and not the tool to {other}")
    raise _wrong(value, [tool])


def _wrong(value: object, tools: Sequence[str]) -> ValueError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"
    asked = f"the approval request of {tools[0]}" if len(tools) == 1 else f"the {len(tools)} approval requests"
    return ValueError(f"{shown} does not decide {asked}. Allowed are {SHAPES}")


class Person:
    """Whoever sits before the framework's own prompt."""

    def __init__(self, client: Client) -> None:
        """Where the plane knows credentials, the client needs that of somebody who may approve."""
        self._client = client

    def answer(self, approval_id: str, answer: Answer) -> None:
        """Answers the question. Where somebody did before, that holds, and the plane tells whoever asks again."""
        # A policy may want a reason with a denial.
        reason = answer.reason or ("" if answer.approve else "no reason was given")
        request = ResolveApprovalRequest(
            approval_id=approval_id, approve=answer.approve, reason=reason, edited_arguments_json=answer.arguments
        )
        settings = self._client.plane.settings
        by = (("callgate-by", answer.by or settings.by or "user"),)
        try:
            self._client.services.approvals.ResolveApproval(request, timeout=settings.timeout_s, metadata=by)
        except CallgateError as error:
            if error.reason not in _ANSWERED_BEFORE:
                raise

    def answer_all(self, session_id: str, call_id: str, answer: Answer) -> None:
        """Answers what was asked about this call before, and nothing that is asked from now on."""
        for question in self.questions(session_id, call_id):
            if question.state == APPROVAL_STATE_PENDING:
                self.answer(question.approval_id, answer)

    def of_calls(self, session_id: str, call_ids: Sequence[str]) -> list[Approval]:
        """The newest approval request of each of these calls, in their order and in any state."""
        found = {one.call_id: one for call_id in call_ids for one in self.questions(session_id, call_id)}
        return [found[call_id] for call_id in call_ids if call_id in found]

    def questions(self, session_id: str, call_id: str) -> list[Approval]:
        """All that were asked about this call, the oldest first, whatever came of them."""
        request = ListApprovalsRequest(session_id=session_id, page_size=500)
        timeout_s = self._client.plane.settings.timeout_s
        found = self._client.services.approvals.ListApprovals(request, timeout=timeout_s).approvals
        return [one for one in reversed(found) if one.call_id == call_id]


def put(outcome: Outcome, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The question of a call that waits for a person, as a host's user is shown it: plain JSON values."""
    message = outcome.message
    expires = outcome.verdict.approval_expire_time.ToJsonString() if outcome.verdict else ""
    return _shown(outcome.approval_id, outcome.call_id, tool, args, message, expires)


def put_before(approval: Approval, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The same, of a question that was put before."""
    message = " ".join(approval.reasons) or f"{tool} needs a person's approval."
    return _shown(approval.approval_id, approval.call_id, tool, args, message, approval.expire_time.ToJsonString())


def together(questions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several approval requests as the value of one interrupt."""
    return {
        "type": "callgate_approval",
        "requests": [
            {name: value for name, value in one.items() if name not in {"action_requests", "review_configs"}}
            for one in questions
        ],
        "message": " ".join(str(one["message"]) for one in questions),
        "action_requests": [action for one in questions for action in one["action_requests"]],
        "review_configs": [config for one in questions for config in one["review_configs"]],
    }


def _shown(
    approval_id: str, call_id: str, tool: str, args: Mapping[str, Any], message: str, expire_time: str
) -> dict[str, Any]:
    return {
        "type": "callgate_approval",
        "approval_id": approval_id,
        "call_id": call_id,
        "tool": tool,
        "args": dict(args),
        "message": message,
        "expire_time": expire_time,
        # As LangChain's HumanInTheLoopMiddleware says it, for user interfaces that know that.
        "action_requests": [{"name": tool, "args": dict(args), "description": message}],
        "review_configs": [{"action_name": tool, "allowed_decisions": ["approve", "edit", "reject"]}],
    }
