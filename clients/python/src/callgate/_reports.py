"""Reports that could not be made at once: sent again in the background, by one thread a process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import grpc

from .errors import CallgateError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .v1.approval_service_pb2 import WithdrawApprovalRequest
    from .v1.gate_service_pb2 import RecordRequest

log = logging.getLogger("callgate")
_BYTES_MAX = 64 * 1024 * 1024
_REPORTS_MAX = 10_000
_KEEP_S = 3600.0
"""How long a cancellation is worth sending: by then the lease of the permit that it gives back is over."""
_UNKNOWN_S = (0.2, 1.0, 5.0, 20.0)
"""Pauses before a cancellation is sent again whose call the plane does not know: the question may be on its way."""
_UNKNOWN_AT_CLOSE = 2
"""After so many of these pauses nobody who closes waits for it any more."""
_FIRST_PAUSE_S = 0.2
_AWAY_PAUSE_S = 5.0
"""The longest pause of the whole queue. Shorter than that of one report, so that none holds up the others."""
_REPORT_PAUSE_S = 10.0
_TOLD_PAUSE_S = 60.0
"""The longest that a plane which says when to come back is left alone."""
_IDLE_S = 30.0
"""After so long without a report the thread ends; the next report starts another."""
_PERMANENT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
_MENDED_BY_OPERATORS = {"POLICY_UNREADABLE", "KEY_MISSING", "TENANT_SUSPENDED"}
_AWAY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}

Key = tuple[str, str]
"""Session and call_id."""


class Unsent(NamedTuple):
    """A report that the plane has not stored.

    Attributes:
        session_id: The session of the call.
        call_id: The call, as the plane knows it.
        executed: True for the outcome of a call that was executed; False for a cancellation, which gives back the
            permit of a call that was not.
    """

    session_id: str
    call_id: str
    executed: bool


def is_permanent(error: CallgateError) -> bool:
    """Whether the plane would refuse the same report again. A credential may be on its way: it is not."""
    return error.code in _PERMANENT and error.reason not in _MENDED_BY_OPERATORS


def key_of(request: RecordRequest) -> Key:
    """Whose outcome it is."""
    return request.caller.session_id, request.call_id


def unsent(request: RecordRequest) -> Unsent:
    """As `close` returns it."""
    return Unsent(*key_of(request), executed=not request.not_started)


@dataclass
class Report:
    """What came of a call, on its way."""

    request: RecordRequest
    withdrawal: WithdrawApprovalRequest | None = None
    """Sent before it: nobody shall answer a question that nobody asks any more."""
    expires: float = 0.0
    """On the monotonic clock, for a cancellation; an executed outcome never expires."""
    due: float = 0.0
    held_until: float = 0.0
    """Until then a caller makes it by itself."""
    tries: int = 0
    unknown: int = 0
    """How often the plane has answered that it does not know the call."""
    is_sent: bool = False
    """Right now."""
    done: Future[None] = field(default_factory=Future)
    """Ends when the report was taken, refused or dropped; never by an error."""

    @property
    def key(self) -> Key:
        """Whose outcome it is."""
        return key_of(self.request)

    @property
    def is_executed(self) -> bool:
        """The call ran, or may have."""
        return not self.request.not_started


class Reports:
    """Executed outcomes, sent first and kept for good, and cancellations; one report a call: the last one holds."""

    def __init__(self, send: Callable[[Report], None]) -> None:
        """`send` blocks until the plane has answered, and raises CallgateError."""
        self._send = send
        self._change = threading.Condition()
        self._outcomes: dict[Key, Report] = {}
        self._cancellations: dict[Key, Report] = {}
        self._bytes = 0
        self._direct: dict[int, RecordRequest] = {}
        self._lost: deque[Unsent] = deque(maxlen=_REPORTS_MAX)
        self._sending: Report | None = None
        self._thread: threading.Thread | None = None
        self._flushing = 0
        self._pause_s = 0.0
        self._resume = 0.0

    @property
    def is_full(self) -> bool:
        """So many executed outcomes wait that no further call may be executed: its outcome could not be kept."""
        with self._change:
            sending = [self._sending] if self._sending is not None and self._sending.is_executed else []
            count, size = len(self._outcomes) + len(sending), sum(one.request.ByteSize() for one in sending)
            return count >= _REPORTS_MAX or self._bytes + size >= _BYTES_MAX

    def put(self, request: RecordRequest, *, withdrawal: WithdrawApprovalRequest | None = None) -> Report:
        """Has a report sent as soon as the plane takes it."""
        report = Report(request, withdrawal, time.monotonic() + _KEEP_S)
        with self._change:
            if not report.is_executed and self._owes_outcome(report.key):
                report.done.set_result(None)
                return report
            if earlier := self._remove(report.key):
                earlier.done.set_result(None)
            self._add(report)
            self._make_room()
            self._start()
            self._change.notify_all()
        return report

    def hold(self, key: Key, for_s: float) -> Report | None:
        """The executed outcome of this call that waits; a cancellation is withdrawn.

        If it `is_sent` at this moment, wait for it and ask again; else it is the caller's to make, and to `release`,
        within so many seconds.
        """
        with self._change:
            if self._sending is not None and self._sending.key == key:
                return self._sending
            if (report := self._outcomes.get(key)) is not None:
                report.held_until = time.monotonic() + for_s
            elif (cancellation := self._remove(key)) is not None:
                cancellation.done.set_result(None)
        return report

    def release(self, report: Report, error: CallgateError | None) -> bool:
        """The caller has made it, or it has failed: True if it waits on."""
        with self._change:
            report.held_until = 0.0
            self._change.notify_all()
            if error is not None and not is_permanent(error):
                return True
            if error is not None:
                self._lose(report.request, str(error))
            if self._outcomes.get(report.key) is report:
                self._remove(report.key)
                report.done.set_result(None)
        return False

    def has(self, key: Key) -> bool:
        """Whether the plane has yet to hear what came of this call."""
        with self._change:
            waits = key in self._outcomes or key in self._cancellations
            return waits or (self._sending is not None and self._sending.key == key)

    @contextmanager
    def direct(self, request: RecordRequest) -> Iterator[None]:
        """While this is open, a caller makes the report by itself: `flush` waits for it."""
        with self._change:
            self._direct[id(request)] = request
        try:
            yield
        finally:
            with self._change:
                del self._direct[id(request)]
                self._change.notify_all()

    def failed(self, request: RecordRequest, error: CallgateError) -> bool:
        """A report that a caller made by itself has failed: True if it waits now, False if it never can be stored."""
        if not is_permanent(error):
            self.put(request)
            return True
        with self._change:
            self._lose(request, str(error))
        return False

    def flush(self, timeout_s: float) -> list[Unsent]:
        """Waits until all is sent, for so long at most.

        Returns:
            What is not sent, and still will be if the plane takes it; and what was dropped since the last time.
        """
        with self._change:
            self._resume = 0.0
            for report in self._outcomes.values():
                report.due, report.tries = 0.0, 0
            self._flushing += 1
            self._start()
            self._change.notify_all()
            try:
                self._change.wait_for(lambda: next(self._open(), None) is None, max(0.0, timeout_s))
            finally:
                self._flushing -= 1
            lost = [*self._lost]
            self._lost.clear()
            return [*lost, *map(unsent, self._open())]

    def _open(self) -> Iterator[RecordRequest]:
        """What `flush` waits for."""
        yield from self._direct.values()
        if self._sending is not None:
            yield self._sending.request
        yield from (one.request for one in self._all() if one.unknown <= _UNKNOWN_AT_CLOSE)

    def _owes_outcome(self, key: Key) -> bool:
        return key in self._outcomes or (
            self._sending is not None and self._sending.key == key and self._sending.is_executed
        )

    def _add(self, report: Report) -> None:
        (self._outcomes if report.is_executed else self._cancellations)[report.key] = report
        self._bytes += report.request.ByteSize()

    def _remove(self, key: Key) -> Report | None:
        if report := self._outcomes.pop(key, None) or self._cancellations.pop(key, None):
            self._bytes -= report.request.ByteSize()
        return report

    def _make_room(self) -> None:
        """Executed outcomes are never dropped: while they alone fill the queue, no call is begun (`is_full`)."""
        while self._cancellations and (
            len(self._outcomes) + len(self._cancellations) > _REPORTS_MAX or self._bytes > _BYTES_MAX
        ):
            oldest = self._remove(next(iter(self._cancellations)))
            if oldest is not None:
                self._lose(oldest.request, "too many reports wait for the plane")
                oldest.done.set_result(None)

    def _lose(self, request: RecordRequest, why: str) -> None:
        lost = unsent(request)
        self._lost.append(lost)
        kind, level = ("outcome", logging.ERROR) if lost.executed else ("cancellation", logging.WARNING)
        told = "callgate: the %s of call %s of session %s is not stored: %s"
        log.log(level, told, kind, lost.call_id, lost.session_id, why)

    def _start(self) -> None:
        if self._thread is None and (self._outcomes or self._cancellations):
            self._thread = threading.Thread(target=self._run, name="callgate-reports", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                # The next report tries again; whoever has executed something is not to lose its value for this.
                self._thread = None
                log.error("callgate: no thread for reports: %s", error)  # noqa: TRY400 (the reason says it all)

    def _next(self) -> Report | None:
        """The one to be sent now, as soon as there is one; None after a long time without any."""
        with self._change:
            while True:
                now = time.monotonic()
                ready = (one for one in self._all() if max(one.due, one.held_until) <= now)
                if now >= self._resume and (found := next(ready, None)) is not None:
                    self._remove(found.key)
                    if found.is_executed or now < found.expires:
                        self._sending, found.is_sent = found, True
                        return found
                    found.done.set_result(None)
                elif (first := min((max(one.due, one.held_until) for one in self._all()), default=None)) is not None:
                    self._change.wait(max(first, self._resume) - now)
                elif not self._change.wait_for(lambda: self._outcomes or self._cancellations, _IDLE_S):
                    self._thread = None
                    return None

    def _all(self) -> Iterator[Report]:
        """What waits, in the order in which it is sent."""
        yield from self._outcomes.values()
        yield from self._cancellations.values()

    def _run(self) -> None:
        while (report := self._next()) is not None:
            error: Exception | None = None
            try:
                self._send(report)
            except Exception as raised:  # a thread that ends would leave all other reports unsent
                error = raised
            with self._change:
                self._sending, report.is_sent = None, False
                if error is None:
                    self._pause_s = 0.0
                is_replaced = report.key in self._outcomes or report.key in self._cancellations
                if error is not None and not is_replaced and self._waits_again(report, error):
                    self._add(report)
                else:
                    report.done.set_result(None)
                self._change.notify_all()

    def _waits_again(self, report: Report, error: Exception) -> bool:
        """Whether a report that has failed is sent again, after a pause."""
        if not report.is_executed and isinstance(error, NotFound):
            if report.unknown == len(_UNKNOWN_S):
                return False
            report.due = time.monotonic() + _UNKNOWN_S[report.unknown]
            report.unknown += 1
            return True
        if isinstance(error, CallgateError) and is_permanent(error):
            # What never ran may well be unknown to the plane, or refused: it was said for the case that it is not.
            if report.is_executed:
                self._lose(report.request, str(error))
            return False
        self._pause(report, error)
        return True

    def _pause(self, report: Report, error: Exception) -> None:
        """Of this report, and where the plane is away of the whole queue."""
        now = time.monotonic()
        told = min(getattr(error, "retry_after_s", None) or 0.0, _TOLD_PAUSE_S)
        report.due = now + max(told, min(_FIRST_PAUSE_S * 2**report.tries, self._longest(_REPORT_PAUSE_S)))
        report.tries = min(report.tries + 1, 10)
        if not isinstance(error, CallgateError):
            # Such as a connection that another thread has closed meanwhile.
            log.warning("callgate: the report of call %s of session %s is sent again: %r", *report.key[::-1], error)
        elif error.code in _AWAY or error.reason == "OVERLOADED":
            self._pause_s = min(self._pause_s * 2 or _FIRST_PAUSE_S, self._longest(_AWAY_PAUSE_S))
            self._resume = now + max(told, self._pause_s)

    def _longest(self, pause_s: float) -> float:
        return _FIRST_PAUSE_S if self._flushing else pause_s
