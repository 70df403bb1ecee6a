"""A callgate server for the tests of an agent: in memory, without PostgreSQL, started and stopped by the tests.

    from callgate.testing import MemoryServer

    with MemoryServer(policy="policy_engine: {budgets: {run: {max_steps: 3}}}") as server:
        outcome = server.client().gate("session-1").run("get_order", {"order_id": 42}, get_order)

It is `callgate serve --memory`: the decisions of a server with a database, lost when it ends. For pytest,
`callgate.testing.fixtures` has fixtures.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..client import AsyncClient, Client

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["MemoryServer", "ServerNotStarted", "find_binary"]

START_S = 30.0
"""How long a server may take to be ready, in seconds."""
_STOP_S = 15.0
_READY = re.compile(r"serves gRPC on (\S+)")


class ServerNotStarted(RuntimeError):
    """The program ended before it was ready, or took too long. The message has what it printed."""


def find_binary() -> str:
    """The program: `CALLGATE_BIN`, else that of this environment (`callgate-server`), else `callgate` on PATH.

    Raises:
        FileNotFoundError: There is none.
    """
    if named := os.environ.get("CALLGATE_BIN"):
        if found := shutil.which(named):
            return found
        raise FileNotFoundError(f"CALLGATE_BIN names {named!r}, which is no program")
    # A test runner may be started by its path, without the environment's programs on PATH.
    if found := shutil.which("callgate", path=sysconfig.get_path("scripts")) or shutil.which("callgate"):
        return found
    raise FileNotFoundError(
        "there is no callgate in this environment or on PATH: install it, or name the program by CALLGATE_BIN"
    )


class MemoryServer:
    """A server in memory on a free port of this machine, ready when the constructor returns.

    It ends with its `with` block, with `stop`, or with the process. Settings in the environment (`CALLGATE_…`,
    `OTEL_…`) do not reach it: it is the same in every test run.
    """

    def __init__(
        self,
        policy: str | os.PathLike[str] | None = None,
        *args: str,
        binary: str | os.PathLike[str] | None = None,
        start_timeout_s: float = START_S,
    ) -> None:
        """Starts it.

        Args:
            policy: The text of a policy, or the path of its file: a str with a colon is a text. None is the built-in
                policy, which declares no tool.
            args: Further arguments of `callgate serve`.
            binary: The program; by default that of `find_binary`.
            start_timeout_s: How long it may take to be ready.

        Raises:
            FileNotFoundError: There is no such program.
            ServerNotStarted: It is not ready, as for a mistake in the policy.
        """
        program = os.fspath(binary) if binary is not None else find_binary()
        self._home = tempfile.TemporaryDirectory(prefix="callgate-")
        self._clients: list[Client] = []
        command = [program, "serve", "--memory", "--listen", "127.0.0.1:0", *args]
        if isinstance(policy, str) and ":" in policy:
            file = Path(self._home.name) / "policy.yaml"
            file.write_text(policy, encoding="utf-8")
            command += ["--policy", str(file)]
        elif policy is not None:
            command += ["--policy", os.fspath(policy)]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("CALLGATE_", "OTEL_"))}
        self._log = Path(self._home.name) / "log"
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603 (the program that its user names)
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=env
                )
        except OSError:
            self._home.cleanup()
            raise
        atexit.register(self.stop)
        self.address = self._wait(start_timeout_s)
        """HOST:PORT."""

    @property
    def url(self) -> str:
        """`http://HOST:PORT`."""
        return f"http://{self.address}"

    @property
    def log(self) -> str:
        """What it has logged: warnings and errors."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def client(self, *, by: str | None = None) -> Client:
        """A client of it, which is closed before it ends. `by` names who approves, halts or grants."""
        client = Client(self.url, token="", by=by)
        self._clients.append(client)
        return client

    def async_client(self, *, by: str | None = None) -> AsyncClient:
        """The same for event loops. Close it in the loop that used it."""
        return AsyncClient(self.url, token="", by=by)

    def stop(self) -> None:
        """Ends it, and all that it knows. A second time does nothing."""
        atexit.unregister(self.stop)
        for client in self._clients:
            client.close(timeout_s=1.0)
        self._clients.clear()
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._home.cleanup()

    def _wait(self, timeout_s: float) -> str:
        """Its address, once it is ready."""
        out = self._process.stdout
        assert out is not None  # noqa: S101 (it is a pipe)
        # A read of a pipe has no timeout: the program's end is its end.
        late = threading.Timer(timeout_s, self._process.kill)
        late.start()
        printed = ""
        try:
            for line in out:
                printed += line
                if found := _READY.search(line):
                    # What it prints from now on is nobody's, and must not fill the pipe.
                    threading.Thread(target=_drain, args=(out,), daemon=True).start()
                    return found[1]
        finally:
            late.cancel()
        code = self._process.wait()
        said = (printed + self.log).strip()
        self.stop()
        raise ServerNotStarted(f"callgate ended with {code} before it was ready: {said or 'it printed nothing'}")

    def __enter__(self) -> Self:
        """The server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()


def _drain(out: IO[str]) -> None:
    for _ in out:
        pass
