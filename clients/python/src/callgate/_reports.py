"""Reports that could not be made at once: sent again in the background, by one thread a process."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import CallgateError, CallgateUnavailable, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from .v1.approval_service_pb2 import WithdrawApprovalRequest
    from .v1.gate_service_pb2 import RecordRequest

log = logging.getLogger("callgate")
_BYTES_MAX = 64 * 1024 * 1024
_REPORTS_MAX = 10_000
_LATER_S = (0.2, 1.0)
"""Pauses before a report is sent again whose call the plane does not know yet."""
_IDLE_S = 30.0
"""After so long without a report the thread ends; the next report starts another."""

Key = tuple[str, str]
"""Session and call_id."""


@dataclass
class Report:
    """What came of a call, on its way."""

    request: RecordRequest
    expires: float
    """On the monotonic clock; what has not been taken by then is dropped."""
    withdrawal: WithdrawApprovalRequest | None = None
    """Sent before it: nobody shall answer a question that nobody asks any more."""
    due: float = 0.0
    tries: int = 0
    is_sent: bool = False
    """Right now."""
    done: Future[None] = field(default_factory=Future)
    """Ends when the report was taken, refused or dropped; never by an error."""

    @property
    def key(self) -> Key:
        """Whose outcome it is."""
        return self.request.caller.session_id, self.request.call_id

    def end(self, why: str) -> None:
        """It is not sent again, since it was taken or, if there is a reason, dropped."""
        # What never ran may well be unknown to the plane: it was said for the case that it is not.
        if why and not self.request.not_started:
            log.warning("callgate: the outcome of call %s of session %s is not stored: %s", *reversed(self.key), why)
        self.done.set_result(None)


class Reports:
    """A queue with bounds in number and bytes, one report a call: the last one holds."""

    def __init__(self, send: Callable[[Report], None]) -> None:
        """`send` blocks until the plane has answered, and raises CallgateError."""
        self._send = send
        self._change = threading.Condition()
        self._waiting: dict[Key, Report] = {}
        self._bytes = 0
        self._sending: Report | None = None
        self._thread: threading.Thread | None = None
        self._pause_s = 0.0
        self._resume = 0.0

    def put(
        self, request: RecordRequest, *, keep_s: float = 3600, withdrawal: WithdrawApprovalRequest | None = None
    ) -> Report:
        """Has a report sent as soon as the plane takes it, for so many seconds at most."""
        report = Report(request, time.monotonic() + keep_s, withdrawal)
        with self._change:
            if earlier := self._remove(report.key):
                earlier.done.set_result(None)
            self._add(report)
            while len(self._waiting) > _REPORTS_MAX or self._bytes > _BYTES_MAX:
                oldest = self._remove(next(iter(self._waiting)))
                if oldest is not None:
                    oldest.end("too many reports wait for the plane")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="callgate-reports", daemon=True)
                self._thread.start()
            self._change.notify_all()
        return report

    def take(self, key: Key) -> Report | None:
        """The report of this call that is not made yet.

        If it `is_sent` at this moment, wait for it and ask again; else it is the taker's to make from now on.
        """
        with self._change:
            if self._sending is not None and self._sending.key == key:
                return self._sending
            report = self._remove(key)
        if report is not None:
            report.done.set_result(None)
        return report

    def has(self, key: Key) -> bool:
        """Whether the plane has yet to hear what came of this call."""
        with self._change:
            return key in self._waiting or (self._sending is not None and self._sending.key == key)

    def flush(self, timeout_s: float) -> bool:
        """Waits until all is sent; False when the time was over before."""
        end = time.monotonic() + timeout_s
        with self._change:
            self._resume = 0.0
            self._change.notify_all()
            while self._waiting or self._sending:
                if not self._change.wait(max(0.0, end - time.monotonic())) and time.monotonic() >= end:
                    return False
        return True

    def _add(self, report: Report) -> None:
        self._waiting[report.key] = report
        self._bytes += report.request.ByteSize()

    def _remove(self, key: Key) -> Report | None:
        if report := self._waiting.pop(key, None):
            self._bytes -= report.request.ByteSize()
        return report

    def _next(self) -> Report | None:
        """The one to be sent now, as soon as there is one; None after a long time without any."""
        with self._change:
            while True:
                now = time.monotonic()
                ready = (report for report in self._waiting.values() if report.due <= now)
                if now >= self._resume and (found := next(ready, None)) is not None:
                    self._sending = self._remove(found.key)
                    found.is_sent = True
                    return found
                if not self._waiting and not self._change.wait_for(lambda: self._waiting, _IDLE_S):
                    self._thread = None
                    return None
                first = min((report.due for report in self._waiting.values()), default=now)
                self._change.wait(max(first, self._resume) - now)

    def _run(self) -> None:
        while (report := self._next()) is not None:
            again, unavailable, why = False, False, ""
            try:
                self._send(report)
                self._pause_s = 0.0
            except CallgateUnavailable as error:
                again, unavailable, why = time.monotonic() < report.expires, True, str(error)
                self._pause_s = min(self._pause_s * 2 or 0.2, 5.0)
                self._resume = time.monotonic() + self._pause_s
            except CallgateError as error:
                why = str(error)
                # The question that was called off may still be on its way.
                again = isinstance(error, NotFound) and report.request.not_started and report.tries < len(_LATER_S)
            except Exception as error:  # a thread that ends would leave all other reports unsent
                why = repr(error)
            with self._change:
                self._sending, report.is_sent = None, False
                again = again and report.key not in self._waiting
                if again:
                    if not unavailable:
                        report.due = time.monotonic() + _LATER_S[report.tries]
                        report.tries += 1
                    self._add(report)
                self._change.notify_all()
            if not again:
                report.end(why)
