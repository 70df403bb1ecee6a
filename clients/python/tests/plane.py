"""A real server for tests, and what goes between it and a client."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

POLICY = Path(__file__).with_name("policy.yaml")
_START_S = 60


def binary() -> str:
    """`CALLGATE_BIN`, else what the repository's build made."""
    root = Path(__file__).parents[3]
    places = [Path(named)] if (named := os.environ.get("CALLGATE_BIN")) else []
    places += [root / "target" / kind / "callgate" for kind in ("release", "debug")]
    for place in places:
        if place.exists():
            return str(place)
    raise FileNotFoundError("no callgate: build it with `cargo build`, or name it by CALLGATE_BIN")


class Server:
    """`callgate serve` with a database of its own; ends with the `with` block."""

    def __init__(self, policy: Path | str = POLICY, *args: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="callgate-test-")
        home = Path(self._home.name)
        if isinstance(policy, str):
            text, policy = policy, home / "policy.yaml"
            policy.write_text(text)
        # A system user of its own reads the data directory, where the tests run as root.
        home.chmod(0o755)
        self.data = home / "data"
        self._command = [binary(), "serve", "--data-dir", str(self.data), "--policy", str(policy), *args]
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Starts it (again, at the same address)."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CALLGATE_")}
        log = Path(self._home.name) / "log"
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*self._command, "--listen", self._listen], stdout=subprocess.PIPE, stderr=errors, text=True, env=env
            )
        out = self._process.stdout
        assert out is not None
        end = time.monotonic() + _START_S
        while time.monotonic() < end and (line := out.readline()):
            if found := re.search(r"serves gRPC on (\S+)", line):
                self._listen = found[1]
                # What it prints from now on is nobody's.
                threading.Thread(target=out.read, daemon=True).start()
                return
        raise RuntimeError(f"no server: {log.read_text()}")

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self._listen

    def freeze(self) -> None:
        """It takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends it in order; `start` begins anew with the same data."""
        if self._process is not None:
            self.thaw()
            self._process.terminate()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._home.cleanup()


class Proxy:
    """A TCP proxy that forgets connections which were idle for so long: `cut` with a reset, `drop` without a word."""

    def __init__(self, server: str, *, idle_s: float, how: str) -> None:
        host, _, port = server.rpartition(":")
        self._upstream = (host, int(port))
        self._idle_s = idle_s
        self._how = how
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.forgotten = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        far = socket.create_connection(self._upstream)
        other = {near: far, far: near}
        with near, far, contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([near, far], [], [], self._idle_s)
                if not ready:
                    self.forgotten += 1
                    self._forget(near, far)
                    return
                for side in ready:
                    if not (data := side.recv(65536)):
                        return
                    other[side].sendall(data)

    def _forget(self, near: socket.socket, far: socket.socket) -> None:
        far.close()
        if self._how == "cut":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        else:
            # The client sends into nothing; the kernel's buffer takes it for a while.
            time.sleep(3600)

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def proxy(server: str, *, idle_s: float, how: str) -> Iterator[Proxy]:
    """Between a client and this server."""
    between = Proxy(server, idle_s=idle_s, how=how)
    try:
        yield between
    finally:
        between.close()


def free_address() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
