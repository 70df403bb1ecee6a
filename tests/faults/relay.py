"""TCP relays on loopback that cut, hold up, delay, or lose what passes through them."""

from __future__ import annotations

import asyncio
import threading

MODES = ("open", "cut", "hold", "slow", "lose-answers")
_POLL_S = 0.05
_SLOW_S = 0.3


class Relays:
    """One event loop, in a thread of its own, for all relays of a run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._relays: list[Relay] = []

    def to(self, port: int) -> Relay:
        """A new relay to a port of this machine."""
        relay = Relay(self.loop, port)
        asyncio.run_coroutine_threadsafe(relay.listen(), self.loop).result(10)
        self._relays.append(relay)
        return relay

    def close(self) -> None:
        for relay in self._relays:
            asyncio.run_coroutine_threadsafe(relay.close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)


class Relay:
    """A port that passes on to another one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.port = 0
        self.mode = "open"
        self._loop, self._target = loop, target
        self._lines: set[_Line] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for line in list(self._lines):
            line.abort()

    def set(self, mode: str) -> None:
        """Changes what happens to what passes from now on; from any thread."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._set, mode, done)
        done.wait(10)

    def _set(self, mode: str, done: threading.Event) -> None:
        self.mode = mode
        for line in list(self._lines):
            # After a loss the rest of a stream means nothing.
            if mode == "cut" or line.has_lost:
                line.abort()
        done.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "cut":
            writer.transport.abort()
            return
        try:
            far = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(self, (reader, writer), far)
        self._lines.add(line)
        try:
            await line.run()
        finally:
            self._lines.discard(line)
            line.abort()


_End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Line:
    """One connection through a relay."""

    def __init__(self, relay: Relay, near: _End, far: _End) -> None:
        self._relay, self._near, self._far = relay, near, far
        self.has_lost = False

    async def run(self) -> None:
        up = asyncio.ensure_future(self._pass(self._near[0], self._far[1], is_answer=False))
        down = asyncio.ensure_future(self._pass(self._far[0], self._near[1], is_answer=True))
        _, pending = await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for other in pending:
            other.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        try:
            while data := await reader.read(65536):
                if self._relay.mode == "slow":
                    await asyncio.sleep(_SLOW_S)
                while self._relay.mode == "hold":
                    await asyncio.sleep(_POLL_S)
                if is_answer and (self.has_lost or self._relay.mode == "lose-answers"):
                    self.has_lost = True
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            pass

    def abort(self) -> None:
        self._near[1].transport.abort()
        self._far[1].transport.abort()
