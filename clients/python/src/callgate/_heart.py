"""Heartbeats of what runs: one thread a process, however many calls there are."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .v1.gate_service_pb2 import RecordRequest
from .v1.types_pb2 import OUTCOME_STATUS_RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .v1.types_pb2 import Caller, Permit

log = logging.getLogger("callgate")
# The lease is told by the plane's clock. Where this machine's is another one, it would look longer than it is.
_LONGEST_PAUSE_S = 60.0
_SHORTEST_PAUSE_S = 0.2
_IDLE_S = 30.0
"""After so long without a call the thread ends; the next call starts another."""


class Heart:
    """Tells the plane of each call that runs, at a third of its lease, so that the lease does not end."""

    def __init__(self, send: Callable[[RecordRequest], None]) -> None:
        """`send` must not block."""
        self._send = send
        self._change = threading.Condition()
        self._due: list[tuple[float, int]] = []
        self._beats: dict[int, tuple[float, RecordRequest]] = {}
        self._ids = itertools.count()
        self._thread: threading.Thread | None = None

    @contextmanager
    def beating(self, caller: Caller, call_id: str, permit: Permit) -> Iterator[None]:
        """While this is open, the call's lease is renewed."""
        left = permit.lease_expire_time.ToNanoseconds() / 1e9 - time.time()
        pause = min(max(left / 3, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        beat = RecordRequest(caller=caller, call_id=call_id, status=OUTCOME_STATUS_RUNNING)
        with self._change:
            number = next(self._ids)
            self._beats[number] = (pause, beat)
            self._push(time.monotonic() + pause, number)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="callgate-heart", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._change:
                del self._beats[number]

    def _push(self, due: float, number: int) -> None:
        heapq.heappush(self._due, (due, number))
        if self._due[0][1] == number:
            self._change.notify()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._change.wait(self._due[0][0] - time.monotonic() if self._due else _IDLE_S)
                    if not self._due:
                        self._thread = None
                        return
                _, number = heapq.heappop(self._due)
                if (beating := self._beats.get(number)) is None:
                    continue
                pause, beat = beating
                self._push(time.monotonic() + pause, number)
            try:
                self._send(beat)
            except Exception:  # a lease that is not renewed ends as unknown; other calls' must not end for it
                log.exception("callgate: no heartbeat for call %s", beat.call_id)
