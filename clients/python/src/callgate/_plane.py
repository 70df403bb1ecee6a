"""A connection to a plane in this process, with what goes on in its background."""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import grpc

from ._channel import connect
from ._heart import Heart
from ._reports import Key, Report, Reports
from .errors import CallgateError, CallIdReused
from .stubs import Stubs

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterator

    from ._drive_aio import Driver
    from ._settings import Settings
    from .v1.gate_service_pb2 import RecordRequest

CLOSE_S = 3.0
"""How long `close`, and the end of the process, wait for reports that are on their way."""


class Local:
    """What one process has of a plane; a fork begins with another one."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet."""
        self.settings = settings
        self.reports = Reports(self._send)
        self.heart = Heart(self._beat)
        self.drivers: WeakKeyDictionary[AbstractEventLoop, Driver] = WeakKeyDictionary()
        self._running: set[Key] = set()
        self._lock = threading.Lock()
        self._connections: dict[str, Stubs] = {}

    @property
    def stubs(self) -> Stubs:
        """For what is answered at once."""
        return self._connections.get("stubs") or self._connect("stubs")

    @property
    def waiting(self) -> Stubs:
        """For what waits long, on a connection of its own: a server answers so many requests of one at a time."""
        return self._connections.get("waiting") or self._connect("waiting")

    def _connect(self, name: str) -> Stubs:
        with self._lock:
            if name not in self._connections:
                self._connections[name] = Stubs(connect(self.settings))
            return self._connections[name]

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
        with self._lock:
            connections, self._connections = self._connections, {}
        for stubs in connections.values():
            stubs.channel.close()


class Plane:
    """What `Client` and `AsyncClient` have in common."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet."""
        self.settings = settings
        self.local = Local(settings)
        """This process's."""
        self._parent: Local | None = None
        _planes.add(self)

    def close(self) -> None:
        """Sends what waits, for a few seconds at most, and ends the connections; a later call connects anew."""
        self.local.close()

    def forked(self) -> None:
        """Begins anew in a child: it has none of the parent's threads, and its connections are the parent's."""
        # Kept, since ending a connection here would end it there.
        self._parent = self.local
        self.local = Local(self.settings)


_planes: WeakSet[Plane] = WeakSet()


def _forked() -> None:
    for plane in _planes:
        plane.forked()


@atexit.register
def _flush() -> None:
    for plane in list(_planes):
        plane.local.reports.flush(CLOSE_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
