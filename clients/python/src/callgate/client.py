"""Connections to a plane: all its services, and gates for agents' calls."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, overload

from ._channel import connect_aio
from ._drive_aio import Driver
from ._plane import CLOSE_S, Plane
from ._settings import Pem, Settings
from .gate import AsyncGate, Gate, GateOptions
from .stubs import AsyncStubs, Stubs

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from ._reports import Unsent


class _Base:
    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        ca: Pem | None = None,
        cert: Pem | None = None,
        key: Pem | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Reads the settings; connects with the first request.

        Args:
            server: `https://HOST:PORT`, `http://HOST:PORT` or `unix:PATH`. Without a scheme: `http://` for this machine
                (`localhost`, `127.0.0.1`, `[::1]`), `https://` for any other. Else `CALLGATE_SERVER`, else
                `http://127.0.0.1:7600`.
            token: The credential; else what the file `CALLGATE_TOKEN_FILE` holds, else `CALLGATE_TOKEN`. It is not sent
                to other machines in the clear.
            by: Who does what people do (answers, halts, grants), where nobody has a credential; else `CALLGATE_BY`.
            ca: The authority of the server's certificate, as PEM or the name of a file; else `CALLGATE_CA`, else the
                public authorities.
            cert: The certificate to show, with `key`; else `CALLGATE_CERT`.
            key: Its key; else `CALLGATE_KEY`.
            timeout_s: How long one request may take with its retries, in seconds; what the server is asked to wait for
                comes on top.

        Raises:
            TypeError, ValueError: A setting makes no sense; the message names it.
        """
        self.plane = Plane(Settings.read(server, token, by, ca, cert, key, timeout_s))


class Client(_Base):
    """One connection to a plane, for any number of threads; a forked process gets its own."""

    def gate(self, session_id: str, **options: Unpack[GateOptions]) -> Gate:
        """A gate for the calls of this session."""
        return Gate(session_id, client=self, **options)

    @property
    def services(self) -> Stubs:
        """The services of the contract: `services.approvals.ListApprovals(…)`."""
        return self.plane.local.stubs

    def close(self, timeout_s: float = CLOSE_S) -> list[Unsent]:
        """Sends the reports that wait, executed outcomes first, and ends the connection; a later call connects anew.

        Args:
            timeout_s: How long it waits for that, and for reports that other threads are making, in seconds.

        Returns:
            The reports that the plane has not stored: those that still wait, which are sent in the background as long
            as the process lives; and those that were refused or dropped since the last `close`. Empty where all is
            stored.
        """
        return self.plane.local.close(timeout_s)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()


class AsyncClient(_Base):
    """The same for event loops, of which each gets a connection of its own."""

    def gate(self, session_id: str, **options: Unpack[GateOptions]) -> AsyncGate:
        """A gate for the calls of this session."""
        return AsyncGate(session_id, client=self, **options)

    @property
    def services(self) -> AsyncStubs:
        """The services of the contract, in the event loop that runs: `await services.approvals.ListApprovals(…)`."""
        return self.driver().stubs

    def driver(self) -> Driver:
        """What gates run calls by, in the event loop that runs."""
        loop, local = asyncio.get_running_loop(), self.plane.local
        if (driver := local.drivers.get(loop)) is None:
            quick, waiting = (AsyncStubs(connect_aio(self.plane.settings)) for _ in range(2))
            driver = Driver(local, quick, waiting)
            # Event loops of other threads come and go at the same time.
            with local.drivers_lock:
                # A connection holds its loop, so an ended loop is not collected by itself.
                for ended in [one for one in local.drivers if one.is_closed()]:
                    del local.drivers[ended]
                local.drivers[loop] = driver
        return driver

    async def close(self, timeout_s: float = CLOSE_S) -> list[Unsent]:
        """As `Client.close`; ends the connections of this loop."""
        local = self.plane.local
        try:
            return await asyncio.to_thread(local.close, timeout_s)
        finally:
            # After the reports that this loop's calls are making by these connections.
            with local.drivers_lock:
                driver = local.drivers.pop(asyncio.get_running_loop(), None)
            if driver is not None:
                await driver.close()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        await self.close()


@overload
def twin(client: Client) -> AsyncClient: ...


@overload
def twin(client: AsyncClient) -> Client: ...


def twin(client: Client | AsyncClient) -> Client | AsyncClient:
    """A client of the other kind on the same plane: a call that runs in one is known to run in the other."""
    kind: type[Client | AsyncClient] = AsyncClient if isinstance(client, Client) else Client
    other = kind.__new__(kind)
    other.plane = client.plane
    return other


@cache
def default_client() -> Client:
    """The client of gates that are given none: all its settings are the environment's."""
    return Client()


@cache
def default_async_client() -> AsyncClient:
    """The same for event loops."""
    return AsyncClient()
