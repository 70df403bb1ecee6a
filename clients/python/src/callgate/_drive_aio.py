"""Runs flows in event loops."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _permit
from ._drive import SETTLE_S
from ._effects import Evaluate, Execute, Ran, Record, Settle, Sleep, T

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._effects import Effect, Steps
    from ._plane import Local
    from .stubs import AsyncStubs


class Driver:
    """What flows need of one event loop."""

    def __init__(self, local: Local, stubs: AsyncStubs, waiting: AsyncStubs) -> None:
        """The connections are the loop's own; `waiting` is for what waits long."""
        self.local = local
        self.stubs = stubs
        self.waiting = waiting

    async def drive(self, flow: Steps[T]) -> T:
        """Runs it to its end."""
        try:
            effect = next(flow)
            while True:
                try:
                    answer = await self._perform(effect)
                except BaseException as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def close(self) -> None:
        """Ends the connections."""
        await self.stubs.channel.close()
        await self.waiting.channel.close()

    async def _perform(self, effect: Effect) -> Any:
        timeout_s = self.local.settings.timeout_s
        match effect:
            case Evaluate(request, wait_s):
                stubs = self.waiting if wait_s else self.stubs
                return (await stubs.calls.Evaluate(request, timeout=timeout_s + wait_s)).verdict
            case Record(request):
                return await self.stubs.calls.Record(request, timeout=timeout_s)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Settle(report):
                # The thread that reports is not the loop's, so that a loop that ends takes no report with it.
                await asyncio.wait({asyncio.wrap_future(report.done)}, timeout=SETTLE_S)
            case Execute():
                return await self._execute(effect)
        return None

    async def _execute(self, effect: Execute) -> Ran:
        ran = Ran(started=False)
        token = _permit.current.set(effect.granted)
        try:
            running = self._begin(partial(effect.call.execute, **effect.args), ran)
            limit_s = effect.call.timeout_s
            ran.value = await (running if limit_s is None else _limited(running, limit_s, effect.call.tool))
        except BaseException as error:
            ran.error = error
        finally:
            _permit.current.reset(token)
        return ran

    async def _begin(self, execute: Callable[[], Any], ran: Ran) -> Any:
        ran.started = True
        if _is_async(execute):
            return await execute()
        # A plain function would hold up every other call of the loop.
        thread = self.local.threads.submit(copy_context().run, execute)
        try:
            value = await asyncio.wrap_future(thread)
        except asyncio.CancelledError:
            ran.started = not thread.cancelled()
            ran.goes_on = ran.started and not thread.done()
            raise
        return await value if inspect.isawaitable(value) else value


def _is_async(execute: Callable[[], Any]) -> bool:
    function = execute.func if isinstance(execute, partial) else execute
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def _limited(running: Awaitable[Any], limit_s: float, tool: str) -> Any:
    task = asyncio.ensure_future(running)
    try:
        await asyncio.wait({task}, timeout=limit_s)
    finally:
        if not task.done():
            task.cancel()
            # What it does on being cancelled belongs to it, if it takes no longer than this.
            await asyncio.wait({task}, timeout=SETTLE_S)
    if task.done() and not task.cancelled():
        return task.result()
    raise TimeoutError(f"{tool} gave no answer within {limit_s:g} s")
