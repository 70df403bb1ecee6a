"""A connection to a plane in this process, with what goes on in its background."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

import grpc

from ._channel import connect
from ._heart import Heart
from ._reports import Key, Report, Reports
from .errors import CallgateError, CallIdReused
from .stubs import Stubs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._settings import Settings
    from .v1.gate_service_pb2 import RecordRequest

CLOSE_S = 3.0
"""How long `close`, and the end of the process, wait for reports that are on their way."""


class Local:
    """What one process has of a plane; a fork begins with another one."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet."""
        self.pid = os.getpid()
        self.settings = settings
        self.reports = Reports(self._send)
        self.heart = Heart(self._beat)
        self._running: set[Key] = set()
        self._lock = threading.Lock()

    @cached_property
    def stubs(self) -> Stubs:
        """For what is answered at once."""
        return Stubs(connect(self.settings))

    @cached_property
    def waiting(self) -> Stubs:
        """For what waits long, on a connection of its own: a server answers so many requests of one at a time."""
        return Stubs(connect(self.settings))

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """For plain functions that an event loop must not wait for."""
        return ThreadPoolExecutor(max_workers=64, thread_name_prefix="callgate-tool")

    @contextmanager
    def running(self, key: Key) -> Iterator[None]:
        """While this is open, this process runs the call: the plane would permit the same id to another thread too."""
        with self._lock:
            if key in self._running:
                raise CallIdReused(
                    f"call_id: {key[1]} of session {key[0]} is running in this process",
                    code=grpc.StatusCode.FAILED_PRECONDITION,
                    field="call_id",
                )
            self._running.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(key)

    def _beat(self, request: RecordRequest) -> None:
        self.stubs.calls.Record.future(request, timeout=self.settings.timeout_s)

    def _send(self, report: Report) -> None:
        if report.withdrawal is not None:
            # Who asked may take it back, by the name of the session where nobody has a credential.
            by = (("callgate-by", report.request.caller.session_id),)
            with suppress(CallgateError):
                self.stubs.approvals.WithdrawApproval(report.withdrawal, timeout=self.settings.timeout_s, metadata=by)
        self.stubs.calls.Record(report.request, timeout=self.settings.timeout_s)

    def close(self) -> None:
        """Sends what waits, for a few seconds at most, and ends the connections."""
        self.reports.flush(CLOSE_S)
        for name in ("stubs", "waiting"):
            if (stubs := self.__dict__.pop(name, None)) is not None:
                stubs.channel.close()


class Plane:
    """What `Client` and `AsyncClient` have in common."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet."""
        self.settings = settings
        self._local = Local(settings)
        atexit.register(_close, weakref.ref(self))

    @property
    def local(self) -> Local:
        """This process's."""
        if self._local.pid != os.getpid():
            self._local = Local(self.settings)
        return self._local

    def close(self) -> None:
        """Sends what waits, for a few seconds at most, and ends the connections; a later call connects anew."""
        self.local.close()


def _close(plane: weakref.ref[Plane]) -> None:
    if (open_plane := plane()) is not None and open_plane.local.pid == os.getpid():
        open_plane.local.reports.flush(CLOSE_S)
