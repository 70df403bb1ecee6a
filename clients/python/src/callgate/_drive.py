"""Runs flows in threads."""

from __future__ import annotations

import inspect
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import _permit
from ._effects import Evaluate, Execute, Ran, Record, Settle, Sleep, T

if TYPE_CHECKING:
    from ._effects import Effect, Steps
    from ._plane import Local

SETTLE_S = 1.0
"""How long an exception that ends the program is held back for its report."""


def drive(local: Local, flow: Steps[T]) -> T:
    """Runs it to its end, and ends it where this is interrupted."""
    try:
        effect = next(flow)
        while True:
            try:
                answer = _perform(local, effect)
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        flow.close()


def _perform(local: Local, effect: Effect) -> Any:
    timeout_s = local.settings.timeout_s
    match effect:
        case Evaluate(request, wait_s):
            stubs = local.waiting if wait_s else local.stubs
            return stubs.calls.Evaluate(request, timeout=timeout_s + wait_s).verdict
        case Record(request):
            return local.stubs.calls.Record(request, timeout=timeout_s)
        case Sleep(seconds):
            time.sleep(seconds)
        case Settle(report):
            with suppress(FutureTimeoutError):
                report.done.result(SETTLE_S)
        case Execute():
            return _execute(effect)
    return None


def _execute(effect: Execute) -> Ran:
    token = _permit.current.set(effect.granted)
    try:
        value = effect.call.execute(**effect.args)
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("execute gave a coroutine, which needs an AsyncGate")
        return Ran(value)
    except BaseException as error:
        return Ran(error=error)
    finally:
        _permit.current.reset(token)
