"""A connection to a plane in this process, with what goes on in its background."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from multiprocessing import process, util
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import grpc

from ._channel import connect
from ._firsts import FirstValues
from ._heart import Heart
from ._reports import Key, Report, Reports
from .errors import CallgateError, CallIdReused
from .stubs import Stubs

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterator

    from ._drive_aio import Driver
    from ._reports import Unsent
    from ._settings import Settings
    from .v1.gate_service_pb2 import RecordRequest

log = logging.getLogger("callgate")
CLOSE_S = 3.0
"""How long `close`, unless told otherwise, and the end of the process wait for reports that are on their way."""


_HOLD_S = 1.0
"""How much longer a caller keeps an outcome than the request takes by which it is made."""


class Local:
    """What one process has of a plane; a fork begins with another one."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet."""
        self.settings = settings
        self.reports = Reports(self._send)
        self.heart = Heart(self._beat)
        self.firsts = FirstValues()
        self.drivers: WeakKeyDictionary[AbstractEventLoop, Driver] = WeakKeyDictionary()
        self.drivers_lock = threading.Lock()
        self._is_ended = False
        self._running: set[Key] = set()
        self._lock = threading.Lock()
        self._connections: dict[str, Stubs] = {}
        with _registry:
            _locals.add(self)

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

    def hold(self, key: Key) -> tuple[Reports, Report] | None:
        """As `Reports.hold`, of all clients of this process that ask the same plane as the same caller; and whose."""
        for local in self._alike():
            if (report := local.reports.hold(key, self.settings.timeout_s + _HOLD_S)) is not None:
                return local.reports, report
        return None

    def has(self, key: Key) -> bool:
        """As `Reports.has`, of the same clients."""
        return any(local.reports.has(key) for local in self._alike())

    def first(self, fingerprint: str, previous: Any) -> tuple[Any] | None:
        """As `FirstValues.of`, of the same clients."""
        found = (local.firsts.of(fingerprint, previous) for local in self._alike())
        return next((one for one in found if one is not None), None)

    def _alike(self) -> list[Local]:
        identity = self.settings.identity
        return [self, *(one for one in _living() if one is not self and one.settings.identity == identity)]

    def _beat(self, request: RecordRequest) -> None:
        self.stubs.calls.Record.future(request, timeout=self.settings.timeout_s)

    def _send(self, report: Report) -> None:
        if report.withdrawal is not None:
            # Who asked may take it back, by the name of the session where nobody has a credential.
            by = (("callgate-by", report.request.caller.session_id),)
            with suppress(CallgateError):
                self.stubs.approvals.WithdrawApproval(report.withdrawal, timeout=self.settings.timeout_s, metadata=by)
        self.stubs.calls.Record(report.request, timeout=self.settings.timeout_s)

    def flush(self, timeout_s: float) -> list[Unsent]:
        """Sends what waits, for so long at most; what is not sent is returned, and logged where it was executed."""
        unsent = self.reports.flush(timeout_s)
        if outcomes := [one for one in unsent if one.executed]:
            told = "callgate: %d executed outcomes are not stored; the first is of call %s of session %s"
            log.error(told, len(outcomes), outcomes[0].call_id, outcomes[0].session_id)
        return unsent

    def end(self, at: float) -> None:
        """Sends what waits, until this time on the monotonic clock at most, once: the process ends."""
        if not self._is_ended:
            self._is_ended = True
            self.flush(max(0.0, at - time.monotonic()))

    def close(self, timeout_s: float) -> list[Unsent]:
        """The same, and ends the connections."""
        try:
            return self.flush(timeout_s)
        finally:
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

    def forked(self) -> None:
        """Begins anew in a child: it has none of the parent's threads, and its connections are the parent's."""
        # Kept, since ending a connection here would end it there.
        self._parent = self.local
        self.local = Local(self.settings)


_planes: WeakSet[Plane] = WeakSet()
_locals: WeakSet[Local] = WeakSet()
"""Of this process. A client may be gone whose reports still wait: their thread keeps this part of it."""
_registry = threading.Lock()


def _living() -> list[Local]:
    with _registry:
        return list(_locals)


def _forked() -> None:
    # Another thread of the parent may have held it.
    global _registry
    _registry = threading.Lock()
    # What waits in the parent is the parent's to send.
    _locals.clear()
    for plane in _planes:
        plane.forked()


def _flush() -> None:
    """At the end of the process: once, where several of its ends call it."""
    end = time.monotonic() + CLOSE_S
    for local in _living():
        local.end(end)


def _flush_at_end_of_child(_: object = None) -> None:
    util.Finalize(None, _flush, exitpriority=0)


atexit.register(_flush)
# Children of multiprocessing end by its finalizers and, in most versions, without those of atexit.
if process.parent_process() is not None:
    _flush_at_end_of_child()
util.register_after_fork(_planes, _flush_at_end_of_child)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
