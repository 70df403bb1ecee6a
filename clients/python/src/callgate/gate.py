"""Gates: they ask before a call, wait, execute, report, and say what the model is to see."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypedDict

from ._call import Args, Call, CallOptions, FailOpen, Rules
from ._drive import drive
from ._flow import Run
from .errors import CallgateError, CallgateUnavailable, NotFound
from .toolbox import AsyncToolbox, Toolbox
from .v1.gate_service_pb2 import BatchEvaluateRequest, EvaluateRequest, GetSessionStateRequest
from .v1.session_service_pb2 import MarkCompactedRequest
from .v1.types_pb2 import DECISION_ASK, Caller, SessionState, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from ._drive_aio import Driver
    from ._plane import Local
    from ._usage import OnUsage
    from .client import AsyncClient, Client
    from .outcome import Outcome
    from .toolbox import ToolboxOptions

_BATCH_MAX = 64
_THREADS_MAX = 16


class GateOptions(TypedDict, total=False):
    """What a gate takes beside the session.

    Attributes:
        run_id: A part of the session, such as one user turn; a new one clears what a loop had stopped.
        agent_id: The agent's name, for its daily budget.
        parent_session_id: The session that started this one.
        user_id: The person whom the agent works for, by a name that means nothing to others.
        host: The program that the agent runs in, as people who are asked are told it.
        phase: The phase that the session is in, when its caller keeps it.
        patience_s: How long a call waits in all for WAITs and for retries that were advised; 60 seconds.
        approval_wait_s: How long it waits for a person; 300 seconds; 0: not at all.
        fail_open: Which tools run while the plane is away, as a collection of names, a function, or True; none.
        usage: Function of the usage of each response of a model. It returns the usage to book, such as with a cost
            (`priced` makes it from a table of prices), or None for nothing. Default: tokens and model are booked. A
            budget in US dollars counts only a cost that is reported here.
    """

    run_id: str
    agent_id: str
    parent_session_id: str
    user_id: str
    host: str
    phase: str
    patience_s: float
    approval_wait_s: float
    fail_open: bool | Iterable[str] | Callable[[str], bool]
    usage: OnUsage | None


class _How(TypedDict):
    timeout: float
    metadata: tuple[tuple[str, str], ...]


class _Base:
    def __init__(self, session_id: str, options: GateOptions) -> None:
        self.session_id = session_id
        self.options = options
        ids = {name: value for name, value in options.items() if name in Caller.DESCRIPTOR.fields_by_name}
        for name, value in {"session_id": session_id, **ids}.items():
            if not isinstance(value, str):
                raise TypeError(f"{name}: {value!r} is no text")
        rest = {name: value for name, value in options.items() if name in {"patience_s", "approval_wait_s", "usage"}}
        if unknown := options.keys() - ids.keys() - rest.keys() - {"fail_open"}:
            raise TypeError(f"a gate has no option {', '.join(sorted(unknown))}")
        caller = Caller(session_id=session_id, **ids)  # type: ignore[arg-type]
        self._rules = Rules(caller, fail_open=_fail_open(options.get("fail_open", False)), **rest)  # type: ignore[arg-type]

    @staticmethod
    def _how(client: Client | AsyncClient) -> _How:
        settings = client.plane.settings
        # Without credentials, an act needs an author.
        return {"timeout": settings.timeout_s, "metadata": (("callgate-by", settings.by or "agent"),)}

    def _with(self, options: GateOptions) -> GateOptions:
        return {**self.options, **options}

    def _request(self, runs: list[Run]) -> BatchEvaluateRequest:
        usage = next((run.usage for run in runs if run.usage is not None), None)
        return BatchEvaluateRequest(caller=self._rules.caller, calls=[run.asked() for run in runs], usage=usage)


class Gate(_Base):
    """The gate of one session, for any number of threads. Cheap to make."""

    def __init__(self, session_id: str, *, client: Client | None = None, **options: Unpack[GateOptions]) -> None:
        """Without a client, the one of the environment's settings.

        Raises:
            TypeError: There is no such option.
            ValueError: An option or, without a client, a setting makes no sense.
        """
        super().__init__(session_id, options)
        if client is None:
            from .client import default_client

            client = default_client()
        self.client = client

    def replace(self, **options: Unpack[GateOptions]) -> Gate:
        """The same gate with other options, such as the next `run_id`."""
        return Gate(self.session_id, client=self.client, **self._with(options))

    def new_run(self, run_id: str | None = None) -> Gate:
        """The gate of the session's next run, such as one message of the user. It clears a loop's stop.

        Without a `run_id`, the run gets a random one.
        """
        return self.replace(run_id=_new_run(run_id))

    def state(self, *, last_calls: int = 0, summary_tokens: int = 0) -> SessionState:
        """The session's calls, loops and budgets. A session without a call has an empty state.

        Args:
            last_calls: Number of last calls, 1 to 64; 0: 20. Open and held calls are added.
            summary_tokens: Approximate limit of `summary_for_model` in tokens, 300 to 8000; 0: 1500.

        Raises:
            CallgateError: The request is at fault, or the plane gives no answer.
        """
        request = GetSessionStateRequest(
            session_id=self.session_id, last_calls=last_calls, summary_tokens=summary_tokens
        )
        try:
            return self.client.services.calls.GetSessionState(request, **self._how(self.client)).state
        except NotFound:
            return SessionState(session_id=self.session_id)

    def compacted(self, *, summary_tokens: int = 0) -> SessionState:
        """Reports a compaction of the model's context.

        Put `summary_for_model` of the returned state back into the context: it has the calls so far, and those not to
        repeat. A repeated act is then answered once with its result. A session without a call has an empty state.

        Args:
            summary_tokens: As of `state`.

        Raises:
            CallgateError: As of `state`.
        """
        request = MarkCompactedRequest(session_id=self.session_id, summary_tokens=summary_tokens)
        try:
            return self.client.services.sessions.MarkCompacted(request, **self._how(self.client)).state
        except NotFound:
            return SessionState(session_id=self.session_id)

    def run(self, tool: str, args: Args, execute: Callable[..., Any], **options: Unpack[CallOptions]) -> Outcome:
        """Asks, waits, executes, retries as advised, reports, and says what the model is to see.

        `execute` is called with the arguments by keyword, once for each permit; what it raises is in the outcome.

        Raises:
            CallgateError: The request itself is at fault: credentials, ids, quotas. Nothing was executed.
            TypeError, ValueError: An argument makes no sense; the message names it.
        """
        return self.run_call(Call(tool, args, execute, **options))

    def run_call(self, call: Call) -> Outcome:
        """The same for a call that is made already."""
        local = self.client.plane.local
        return drive(local, Run(local, self._rules, _sync(call)).alone())

    def evaluate(self, call: Call, max_wait_s: float = 0.0) -> Verdict:
        """Asks, and executes nothing; a permit that it gives is given again to `run_call`.

        Where the answer is lost, a permit that it may have given is cancelled in the background.

        Args:
            call: What is asked about; give it a `call_id`.
            max_wait_s: How long the server may wait for a better answer, in seconds, 60 at most.

        Raises:
            CallgateError: As of `run`, and where the plane gives no answer.
        """
        local = self.client.plane.local
        return drive(local, Run(local, self._rules, call).judged(max_wait_s))

    def would_ask(self, call: Call) -> bool:
        """True where the call would need an approval now. The dry run stores nothing.

        Raises:
            CallgateError: As of `evaluate`.
        """
        local = self.client.plane.local
        request = EvaluateRequest(caller=self._rules.caller, call=Run(local, self._rules, call).asked(), dry_run=True)
        verdict = local.stubs.calls.Evaluate(request, timeout=local.settings.timeout_s).verdict
        return verdict.decision == DECISION_ASK

    def batch(self, calls: Sequence[Call]) -> list[Outcome]:
        """Runs the calls of one model turn: judged together, in order; executed at once, up to 16 at a time.

        Raises:
            CallgateError: As of `run`.
        """
        local = self.client.plane.local
        runs = [Run(local, self._rules, _sync(call)) for call in calls]
        with ExitStack() as stack:
            for run in runs:
                stack.enter_context(local.running(run.key))
            firsts: dict[Run, Verdict | CallgateUnavailable] = {}
            for part in _parts(local, runs):
                try:
                    answer = local.stubs.calls.BatchEvaluate(self._request(part), timeout=local.settings.timeout_s)
                    firsts.update(zip(part, answer.verdicts, strict=True))
                except CallgateUnavailable as error:
                    firsts.update(dict.fromkeys(part, error))
                except BaseException as error:
                    # What the plane has refused as a whole has no permits, and an id in it may be of another call.
                    _call_off(list(firsts) if isinstance(error, CallgateError) else part + list(firsts))
                    raise
            return self._execute(local, runs, firsts) if runs else []

    @staticmethod
    def _execute(local: Local, runs: list[Run], firsts: Mapping[Run, Verdict | CallgateUnavailable]) -> list[Outcome]:
        for run in runs:
            run.queue(firsts.get(run))
        with ThreadPoolExecutor(min(len(runs), _THREADS_MAX), thread_name_prefix="callgate-batch") as threads:
            begun = [threads.submit(copy_context().run, drive, local, run.flow(firsts.get(run))) for run in runs]
            try:
                return [future.result() for future in begun]
            except BaseException:
                _call_off([run for run, future in zip(runs, begun, strict=True) if future.cancel()])
                raise

    def wrap(
        self, tools: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]], **options: Unpack[ToolboxOptions]
    ) -> Toolbox:
        """The tools behind this gate, by name, for loops that one writes oneself."""
        return Toolbox(self, tools, **options)


class AsyncGate(_Base):
    """The gate of one session, for event loops. Cheap to make."""

    def __init__(self, session_id: str, *, client: AsyncClient | None = None, **options: Unpack[GateOptions]) -> None:
        """Without a client, the one of the environment's settings.

        Raises:
            TypeError: There is no such option.
            ValueError: An option or, without a client, a setting makes no sense.
        """
        super().__init__(session_id, options)
        if client is None:
            from .client import default_async_client

            client = default_async_client()
        self.client = client

    def replace(self, **options: Unpack[GateOptions]) -> AsyncGate:
        """The same gate with other options, such as the next `run_id`."""
        return AsyncGate(self.session_id, client=self.client, **self._with(options))

    def new_run(self, run_id: str | None = None) -> AsyncGate:
        """As `Gate.new_run`."""
        return self.replace(run_id=_new_run(run_id))

    async def state(self, *, last_calls: int = 0, summary_tokens: int = 0) -> SessionState:
        """As `Gate.state`."""
        request = GetSessionStateRequest(
            session_id=self.session_id, last_calls=last_calls, summary_tokens=summary_tokens
        )
        try:
            return (await self.client.services.calls.GetSessionState(request, **self._how(self.client))).state
        except NotFound:
            return SessionState(session_id=self.session_id)

    async def compacted(self, *, summary_tokens: int = 0) -> SessionState:
        """As `Gate.compacted`."""
        request = MarkCompactedRequest(session_id=self.session_id, summary_tokens=summary_tokens)
        sessions = self.client.services.sessions
        try:
            return (await sessions.MarkCompacted(request, **self._how(self.client))).state
        except NotFound:
            return SessionState(session_id=self.session_id)

    async def run(self, tool: str, args: Args, execute: Callable[..., Any], **options: Unpack[CallOptions]) -> Outcome:
        """As `Gate.run`. `execute` may be a plain function, which then runs in a thread.

        A call that is cancelled is reported as cancelled; a question that it waited for is withdrawn.
        """
        return await self.run_call(Call(tool, args, execute, **options))

    async def run_call(self, call: Call) -> Outcome:
        """The same for a call that is made already."""
        driver = self.client.driver()
        return await driver.drive(Run(driver.local, self._rules, call).alone())

    async def evaluate(self, call: Call, max_wait_s: float = 0.0) -> Verdict:
        """As `Gate.evaluate`."""
        driver = self.client.driver()
        return await driver.drive(Run(driver.local, self._rules, call).judged(max_wait_s))

    async def batch(self, calls: Sequence[Call]) -> list[Outcome]:
        """As `Gate.batch`; all are executed at once."""
        driver = self.client.driver()
        local = driver.local
        runs = [Run(local, self._rules, call) for call in calls]
        with ExitStack() as stack:
            for run in runs:
                stack.enter_context(local.running(run.key))
            firsts: dict[Run, Verdict | CallgateUnavailable] = {}
            for part in _parts(local, runs):
                try:
                    request = self._request(part)
                    answer = await driver.stubs.calls.BatchEvaluate(request, timeout=local.settings.timeout_s)
                    firsts.update(zip(part, answer.verdicts, strict=True))
                except CallgateUnavailable as error:
                    firsts.update(dict.fromkeys(part, error))
                except BaseException as error:
                    # What the plane has refused as a whole has no permits, and an id in it may be of another call.
                    _call_off(list(firsts) if isinstance(error, CallgateError) else part + list(firsts))
                    raise
            return await self._execute(driver, runs, firsts)

    @staticmethod
    async def _execute(
        driver: Driver, runs: list[Run], firsts: Mapping[Run, Verdict | CallgateUnavailable]
    ) -> list[Outcome]:
        begun = [asyncio.ensure_future(driver.drive(run.flow(firsts.get(run)))) for run in runs]
        try:
            return await asyncio.gather(*begun)
        except BaseException:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            # A task that is cancelled before it begins says nothing of its permit.
            _call_off([run for run in runs if not run.is_begun])
            raise

    def wrap(
        self, tools: Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]], **options: Unpack[ToolboxOptions]
    ) -> AsyncToolbox:
        """The tools behind this gate, by name, for loops that one writes oneself."""
        return AsyncToolbox(self, tools, **options)


def _new_run(run_id: str | None) -> str:
    return uuid.uuid4().hex if run_id is None else run_id


def _fail_open(given: bool | Iterable[str] | Callable[[str], bool]) -> FailOpen:
    if isinstance(given, str):
        raise TypeError("fail_open: a collection of names, not one name")
    return given if isinstance(given, bool) or callable(given) else frozenset(given)


def _sync(call: Call) -> Call:
    if inspect.iscoroutinefunction(call.execute):
        raise TypeError("execute: a coroutine function needs an AsyncGate")
    if call.timeout_s is not None:
        raise TypeError("timeout_s: a thread cannot be stopped; use an AsyncGate, or let the tool keep the time")
    return call


def _parts(local: Local, runs: list[Run]) -> list[list[Run]]:
    """As many as the server judges at a time, without those whose earlier outcome it has to hear first."""
    new = [run for run in runs if not local.has(run.key)]
    return [new[at : at + _BATCH_MAX] for at in range(0, len(new), _BATCH_MAX)]


def _call_off(runs: list[Run]) -> None:
    for run in runs:
        run.call_off()
