"""What happens to a call from the question to the report, without a word of how to wait: `_drive` and `_drive_aio` do.

A flow yields effects, is sent what came of each, and returns the outcome. Both clients run this one.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Any

import grpc

from . import _texts, _usage, _values
from ._answers import CallFacts, ended, refused, reported
from ._bugs import failure
from ._effects import Evaluate, Execute, Ran, Record, Settle, Sleep
from ._permit import Granted
from .errors import CallgateError, CallgateUnavailable, NotStarted
from .outcome import Outcome
from .v1 import types_pb2 as t
from .v1.approval_service_pb2 import WithdrawApprovalRequest
from .v1.gate_service_pb2 import EvaluateRequest, RecordRequest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ._call import Call, Rules
    from ._effects import Flow, Steps
    from ._plane import Local
    from .v1.gate_service_pb2 import RecordResponse

log = logging.getLogger("callgate")
_POLL_S = 60.0
"""How long the server waits at most."""
_PAUSE_S = 1.0
"""Between two questions of a call that waits, where the server did not wait itself."""


class Run:
    """One call, from the question to the report."""

    def __init__(self, local: Local, rules: Rules, call: Call) -> None:
        """Raises TypeError where the arguments are none."""
        self._local = local
        self._rules = rules
        self.call = call
        self.proposed = call.proposed()
        self.usage = _usage.total(call.usage, rules.usage)
        self.key = (rules.caller.session_id, self.proposed.call_id)
        self._patience = rules.patience_s if call.patience_s is None else call.patience_s
        self._approval = rules.approval_wait_s if call.approval_wait_s is None else call.approval_wait_s
        self._attempts = 0
        self._owed: RecordRequest | None = None
        """What the plane is to hear when this ends now: of a question without an answer, that the call does not run."""
        self._granted = Granted(None)
        self._queued = ExitStack()
        self._notice = ""
        """A text for the model, added to the result."""
        self.is_begun = False

    def asked(self) -> t.ToolCall:
        """As the plane is asked now."""
        self.proposed.witness = self.call.state()
        return self.proposed

    def queue(self, first: t.Verdict | CallgateUnavailable | None) -> None:
        """It begins later: what is permitted already keeps its lease until then."""
        if isinstance(first, t.Verdict) and first.decision == t.DECISION_ALLOW:
            self._queued.enter_context(self._beating(first.permit))

    def alone(self) -> Flow:
        """All of it, while nothing else of this process runs the same call."""
        with self._local.running(self.key):
            return (yield from self.flow())

    def judged(self, max_wait_s: float) -> Steps[t.Verdict]:
        """Asks once, and executes nothing; a permit is the asker's."""
        with self._local.running(self.key):
            try:
                if (outcome := (yield from self._report_earlier())) is not None and outcome.error is not None:
                    raise outcome.error
                verdict = yield from self._evaluate(self._question(max_wait_s), max_wait_s)
                self._owed = None
                return verdict
            finally:
                self._report_owed()

    def flow(self, first: t.Verdict | CallgateUnavailable | None = None) -> Flow:
        """All of it; `first` is the answer to a question that was put for many calls."""
        self.is_begun = True
        if isinstance(first, CallgateUnavailable) or (first is not None and first.decision == t.DECISION_ALLOW):
            self._owed = self._not_run()
        try:
            if (outcome := (yield from self._report_earlier())) is not None:
                return outcome
            try:
                if self._local.reports.is_full:
                    raise CallgateUnavailable(_texts.FULL, code=grpc.StatusCode.RESOURCE_EXHAUSTED)
                if isinstance(first, CallgateUnavailable):
                    raise first
                return (yield from self._judge_and_run(first))
            except CallgateUnavailable as error:
                return (yield from self._without_plane(error))
        finally:
            # Wherever it ends, a Ctrl-C among the rest: what is permitted is not left without an outcome.
            self._report_owed()
            self._queued.close()

    def _report_owed(self) -> None:
        if self._owed is not None:
            self._owed.key_sent = self._granted.key_sent
            self._local.reports.put(self._owed)
            self._owed = None

    def _report_earlier(self) -> Steps[Outcome | None]:
        """What an earlier run of this id had to say comes first: else the plane would permit it anew."""
        while (held := self._local.hold(self.key)) is not None and held[1].is_sent:
            yield Settle(held[1])
        if held is None:
            return None
        reports, earlier = held
        try:
            yield Record(earlier.request)
        except CallgateError as error:
            if not reports.release(earlier, error):
                return None
            if not isinstance(error, CallgateUnavailable):
                raise
            told = _texts.unreported(self.call.tool)
            return Outcome(told, True, None, error=error, reason=_texts.UNAVAILABLE, **self._of_call)
        reports.release(earlier, None)
        return None

    def _judge_and_run(self, verdict: t.Verdict | None) -> Flow:
        outcome: Outcome | None = None
        while True:
            try:
                verdict = yield from self._judge(verdict)
            except CallgateUnavailable:
                if outcome is None:
                    raise
                return outcome
            if verdict.approved_arguments_json:
                return (yield from self._run_approved(verdict))
            if verdict.decision != t.DECISION_ALLOW:
                if outcome is not None:
                    return ended(outcome, verdict)
                return refused(self._local, verdict, self._of_call)
            outcome = yield from self._execute(verdict)
            verdict = None
            if (pause := self._advised(outcome)) is None:
                return outcome
            yield from self._pause(pause)

    def _run_approved(self, verdict: t.Verdict) -> Flow:
        """Runs the arguments that an approver chose, as a call with an id of its own."""
        args = verdict.approved_arguments_json
        call_id = f"{self.proposed.call_id}/edited"
        call = replace(self.call, args=args, call_id=call_id, turn="", usage=None, repeat_intended=False)
        run = Run(self._local, self._rules, call)
        run._notice = _texts.approved(args)
        run._patience, run._approval = self._patience, self._approval
        return (yield from run.alone())

    def _judge(self, verdict: t.Verdict | None) -> Steps[t.Verdict]:
        """Asks until the call may run, is refused, or has waited as long as it may."""
        try:
            if verdict is None:
                verdict = yield from self._ask(0.0)
            while (left := self._left(verdict)) > 0:
                began = time.monotonic()
                try:
                    verdict = yield from self._ask(min(left, _POLL_S))
                except CallgateUnavailable:
                    # What waits goes on waiting while the server is replaced.
                    yield Sleep(min(_PAUSE_S, left))
                elapsed = time.monotonic() - began
                if elapsed < _PAUSE_S and (left := self._left(verdict) - elapsed) > 0:
                    yield Sleep(min(max(_seconds(verdict.retry_after), _PAUSE_S), left))
                self._spend(verdict, time.monotonic() - began)
            return verdict
        except Exception:
            raise
        except BaseException:
            self.call_off(verdict)
            raise

    def _ask(self, wait_s: float) -> Steps[t.Verdict]:
        request = self._question(wait_s)
        while True:
            try:
                return (yield from self._evaluate(request, wait_s))
            except CallgateUnavailable as error:
                pause = (error.retry_after_s or 0.0) * (1 + random())  # noqa: S311 (callers shall not come at once)
                if error.reason != "OVERLOADED" or pause > self._patience:
                    raise
                yield from self._pause(pause or _PAUSE_S)

    def _question(self, wait_s: float) -> EvaluateRequest:
        request = EvaluateRequest(caller=self._rules.caller, call=self.asked(), usage=self.usage)
        if wait_s:
            request.max_wait.FromMilliseconds(int(wait_s * 1000))
        return request

    def _evaluate(self, request: EvaluateRequest, wait_s: float) -> Steps[t.Verdict]:
        """The answer; where that is lost, it may have been a permit, and its cancellation is owed."""
        before, self._owed = self._owed, self._not_run()
        try:
            verdict: t.Verdict = yield Evaluate(request, wait_s)
        except CallgateUnavailable:
            raise
        except CallgateError:
            self._owed = before
            raise
        if verdict.decision != t.DECISION_ALLOW:
            self._owed = None
        return verdict

    def _left(self, verdict: t.Verdict) -> float:
        """How long this verdict may be waited for."""
        if verdict.decision == t.DECISION_ASK:
            return self._approval
        if verdict.decision == t.DECISION_WAIT and _seconds(verdict.retry_after) <= self._patience:
            return self._patience
        return 0.0

    def _spend(self, verdict: t.Verdict, seconds: float) -> None:
        if verdict.decision == t.DECISION_ASK:
            self._approval -= seconds
        else:
            self._patience -= seconds

    def _pause(self, seconds: float) -> Steps[None]:
        self._patience -= seconds
        yield Sleep(seconds)

    def call_off(self, verdict: t.Verdict | None = None) -> None:
        """The question may have been put, or even answered: nobody waits for the answer any more."""
        self._queued.close()
        withdrawal = None
        if verdict is not None and verdict.decision == t.DECISION_ASK:
            withdrawal = WithdrawApprovalRequest(approval_id=verdict.approval_id, reason="the call was cancelled")
        self._local.reports.put(self._not_run(), withdrawal=withdrawal)
        self._owed = None

    def _beating(self, permit: t.Permit) -> AbstractContextManager[None]:
        return self._local.heart.beating(self._rules.caller, self.proposed.call_id, permit)

    def _not_run(self) -> RecordRequest:
        return self._addressed(RecordRequest(status=t.OUTCOME_STATUS_CANCELLED, not_started=True))

    def _execute(self, verdict: t.Verdict) -> Flow:
        self._granted = Granted(None)
        self._owed = self._not_run()
        permit = verdict.permit
        args = json.loads(permit.arguments_json) if permit.arguments_json else self._arguments()
        key_sent = bool(permit.idempotency_argument) and _takes(self.call, permit.idempotency_argument)
        if key_sent:
            args[permit.idempotency_argument] = permit.idempotency_key
        with self._beating(permit):
            self._queued.close()
            ran, report, told = yield from self._run(args, Granted(permit, key_sent))
            answer = yield from self._record(report)
        self._owed = None
        if ran.error is None and told.is_stored:
            self._local.firsts.keep(verdict.fingerprint, told.text, ran.value)
        return reported(verdict, ran, told, answer, self._of_call)

    def _run(self, args: dict[str, Any], granted: Granted) -> Steps[tuple[Ran, RecordRequest, _values.Told]]:
        observed = self.proposed if granted.permit is None else None
        self._granted = granted
        began = time.monotonic()
        self._attempts += 1
        self._owed = self._addressed(RecordRequest(status=t.OUTCOME_STATUS_CANCELLED, observed_call=observed))
        ran: Ran = yield Execute(self.call, args, granted)
        if ran.error is None:
            report, told, ran.value = _values.success(ran.value)
        else:
            report, told = failure(self.call, args, ran.error)
        report.duration.FromMilliseconds(int((time.monotonic() - began) * 1000))
        report.witness_after = self.call.state()
        if observed is not None:
            report.observed_call.CopyFrom(observed)
        if isinstance(ran.error, Exception) or ran.error is None:
            self._owed = self._addressed(report)
            return ran, report, told
        report.ClearField("error")
        report.status = t.OUTCOME_STATUS_UNKNOWN if ran.goes_on else t.OUTCOME_STATUS_CANCELLED
        report.not_started = not ran.started or isinstance(ran.error, NotStarted)
        sending, self._owed = self._local.reports.put(self._addressed(report)), None
        yield Settle(sending)
        raise ran.error

    def _record(self, report: RecordRequest) -> Steps[RecordResponse | None]:
        """The answer, or none where the value is all that there is."""
        with self._local.reports.direct(report):
            try:
                answer: RecordResponse = yield Record(report)
                return answer
            except CallgateError as error:
                self._local.reports.failed(report, error)
                return None

    def _without_plane(self, error: CallgateUnavailable) -> Flow:
        tool = self.call.tool
        may_run = self._rules.runs_without_plane(tool) and not self._local.reports.is_full
        args = self._readable() if may_run else None
        done = "was not run" if args is None else "runs all the same (fail_open)"
        # The outcome tells the model; whoever keeps the program learns here where nobody answers.
        log.warning("callgate: %s gives no answer, and %s %s: %s", self._local.settings.server, tool, done, error)
        if args is None:
            text = _texts.unavailable(tool, error.reason or error.code.name)
            return Outcome(text, True, None, error=error, reason=_texts.UNAVAILABLE, **self._of_call)
        ran, report, told = yield from self._run(args, Granted(None))
        self._local.reports.put(report)
        self._owed = None
        return reported(None, ran, told, None, self._of_call)

    def _advised(self, outcome: Outcome) -> float | None:
        """How long to wait before a retry; None where that is not for a client, or patience is over before."""
        if outcome.record is None or outcome.record.advice.repeat != t.REPEAT_BY_CLIENT:
            return None
        pause = _seconds(outcome.record.advice.retry_after)
        return pause if pause <= self._patience else None

    def _arguments(self) -> dict[str, Any]:
        args = self.call.args
        return json.loads(args or "{}") if isinstance(args, str) else dict(args)

    def _readable(self) -> dict[str, Any] | None:
        """The arguments, where nobody has looked whether they can be read."""
        try:
            args = self._arguments()
        except ValueError:
            return None
        return args if isinstance(args, dict) else None

    @property
    def _of_call(self) -> CallFacts:
        return {"call_id": self.proposed.call_id, "attempts": self._attempts, "notice": self._notice}

    def _addressed(self, report: RecordRequest) -> RecordRequest:
        report.caller.CopyFrom(self._rules.caller)
        report.call_id = self.proposed.call_id
        report.read_only = self.call.read_only
        report.key_sent = self._granted.key_sent
        return report


def _takes(call: Call, name: str) -> bool:
    """Whether a tool has this parameter. A policy names one for all tools; to others `permit` gives the key."""
    if call.takes is not None:
        return call.takes(name)
    try:
        parameters = inspect.signature(call.execute).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _seconds(duration: Any) -> float:
    return float(duration.ToNanoseconds()) / 1e9
