"""LiteLLM's proxy: a guardrail that judges the tool calls in a model's answer before an agent gets them.

Needs `pip install 'callgate[litellm]'` beside the proxy, and in its configuration:

    guardrails:
      - guardrail_name: callgate
        litellm_params:
          guardrail: callgate.litellm.CallgateGuardrail
          mode: [pre_call, post_call]
          default_on: true
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from . import _texts
from ._call import Call
from ._extras import missing
from ._loops import turn
from ._usage import usage_of
from .client import AsyncClient
from .errors import CallgateError, CallgateUnavailable, CallIdReused
from .v1.gate_service_pb2 import BatchEvaluateRequest, EvaluateRequest, RecordRequest
from .v1.types_pb2 import DECISION_ALLOW, DECISION_DENY, OUTCOME_STATUS_UNKNOWN, Caller, Usage, Verdict

try:
    from fastapi import HTTPException
    from litellm import stream_chunk_builder
    from litellm.integrations.custom_guardrail import CustomGuardrail, get_session_id_from_request_data
    from litellm.types.utils import Delta, ModelResponse
except ModuleNotFoundError as error:
    raise missing("litellm", error) from error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence

    _Guardrail = object
else:
    _Guardrail = CustomGuardrail

log = logging.getLogger("callgate")
_CHAT = {"completion", "acompletion"}
_MODES = ("pre_call", "post_call")
_BATCH_MAX = 64
_WAIT_MAX_S = 60.0


class CallgateGuardrail(_Guardrail):
    """Drops the calls that callgate does not let through from a model's answer, and puts the texts into its content.

    The agent executes the calls that are left. The model reads the texts with its next request, as its own message. An
    answer of which no call is left is the final one for most agents.

    It judges chat completions, streamed ones too: what follows the first part of a call waits for the end of the
    stream. A request with tools to another API is refused, as are `functions`, and a stream of several answers.

    A session is the request's (`x-litellm-session-id`, `litellm_session_id`, `metadata.session_id`). Without one, calls
    are judged by the policy alone and nothing is stored, so that neither repetitions nor budgets count.

    It runs no tools: that a result comes with the next request is all that it knows. Such a call is reported with an
    unknown outcome, since a result may be an error. A declared `once` is thus let through once, and no result is
    reused. A call whose result never comes is unknown when its lease ends.
    """

    def __init__(
        self,
        *,
        client: AsyncClient | None = None,
        wait_s: float = 0.0,
        fail_open: bool | Collection[str] = False,
        **options: Any,
    ) -> None:
        """Connects with the first answer.

        Args:
            client: The connection; else that of the environment's settings.
            wait_s: For how long an answer waits for an approval or the end of a WAIT, in seconds, 60 at most.
            fail_open: The tools whose calls pass while callgate is unavailable, or True for all.
            options: LiteLLM's own.

        Raises:
            TypeError, ValueError: An option or a setting makes no sense.
        """
        # Without the first, results are not reported, and requests that cannot be judged pass.
        modes = options.setdefault("event_hook", list(_MODES)) or list(_MODES)
        given = [modes] if isinstance(modes, str) else modes
        if isinstance(given, list) and (absent := set(_MODES) - {getattr(mode, "value", mode) for mode in given}):
            raise ValueError(f"mode: {absent.pop()} is absent; callgate needs mode: [pre_call, post_call]")
        super().__init__(**options)
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float):
            raise TypeError(f"wait_s: {wait_s!r} is no number of seconds")
        if not 0 <= wait_s <= _WAIT_MAX_S:
            raise ValueError(f"wait_s: {wait_s} is not from 0 to 60")
        if isinstance(fail_open, str):
            raise TypeError("fail_open: a collection of names, not one name")
        self._client = client or AsyncClient()
        self._wait_s = float(wait_s)
        self._fail_open = fail_open

    async def async_pre_call_hook(
        self,
        user_api_key_dict: Any,  # noqa: ARG002 (LiteLLM's interface)
        cache: Any,  # noqa: ARG002
        data: dict[str, Any],
        call_type: Any,
    ) -> None:
        """Refuses what could not be judged, and reports the calls whose results the request brings."""
        if data.get("tools") and call_type not in _CHAT:
            raise _refused(f"tools: calls of {call_type} are not judged; use chat completions")
        if data.get("functions"):
            raise _refused("functions: calls of them are not judged; use tools")
        if data.get("tools") and data.get("stream") and (data.get("n") or 1) > 1:
            raise _refused("n: a stream of several answers is not judged; leave out n or stream")
        await self._report(data)

    async def async_post_call_success_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,  # noqa: ARG002
        response: Any,
    ) -> Any:
        """Judges an answer."""
        if isinstance(response, ModelResponse):
            await self._judge(data, response)
        return response

    async def async_post_call_streaming_iterator_hook(
        self,
        user_api_key_dict: Any,  # noqa: ARG002
        response: AsyncIterator[Any],
        request_data: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        """Judges a streamed answer. Text passes at once until a call begins."""
        all_chunks: list[Any] = []
        held: list[Any] = []
        async for chunk in response:
            all_chunks.append(chunk)
            if held or any(choice.delta.tool_calls for choice in chunk.choices):
                held.append(chunk)
            else:
                yield chunk
        if not held:
            return
        whole: Any = stream_chunk_builder(all_chunks)
        said = whole.choices[0].message.content or ""
        if await self._judge(request_data, whole):
            held = _replaced(held, whole.choices[0], said)
        for chunk in held:
            yield chunk

    async def _judge(self, data: dict[str, Any], response: ModelResponse) -> bool:
        """Judges all calls in the answer, and changes it where they may not be made so; then True."""
        found = [
            (choice, call)
            for choice in response.choices
            for call in (getattr(choice, "message", None) or choice).tool_calls or []
        ]
        if not found:
            return False
        at = turn([*data.get("messages", []), {"role": "assistant"}])
        calls = [
            Call(
                call.function.name or "",
                call.function.arguments or "{}",
                _unrun,
                call_id=call.id,
                turn=_part(at, choice),
            )
            for choice, call in found
        ]
        verdicts = await self._verdicts(get_session_id_from_request_data(data), calls, _used(response))
        is_changed = False
        for (choice, call), verdict in zip(found, verdicts, strict=True):
            if verdict.decision != DECISION_ALLOW:
                _drop(choice, call, verdict.tool_result_json)
                is_changed = True
            elif verdict.permit.arguments_json:
                call.function.arguments = verdict.permit.arguments_json
                is_changed = True
        return is_changed

    async def _verdicts(self, session: str | None, calls: list[Call], usage: Usage | None) -> list[Verdict]:
        try:
            if session is None:
                return [await self._dry(call) for call in calls]
            try:
                return await self._stored(session, calls, usage)
            except CallIdReused:
                # An answer that is made anew has other calls under the ids of a model that begins them with each turn.
                again = [_renamed(call) for call in calls]
                return await self._stored(session, again, usage)
        except CallgateUnavailable as error:
            log.warning("callgate: no answer, and the calls of a model are judged without it: %s", error)
            return [self._without(call.tool, error.message) for call in calls]

    async def _dry(self, call: Call) -> Verdict:
        caller = Caller(session_id=f"litellm-{uuid.uuid4().hex}", host="litellm")
        request = EvaluateRequest(caller=caller, call=call.proposed(), dry_run=True)
        return (await self._client.services.calls.Evaluate(request, timeout=self._timeout_s)).verdict

    async def _stored(self, session: str, calls: Sequence[Call], usage: Usage | None) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for first in range(0, len(calls), _BATCH_MAX):
            request = BatchEvaluateRequest(
                caller=Caller(session_id=session, host="litellm"),
                calls=[call.proposed() for call in calls[first : first + _BATCH_MAX]],
                usage=usage if first == 0 else None,
            )
            request.max_wait.FromMilliseconds(int(self._wait_s * 1000))
            timeout_s = self._timeout_s + self._wait_s
            verdicts += (await self._client.services.calls.BatchEvaluate(request, timeout=timeout_s)).verdicts
        return verdicts

    def _without(self, tool: str, why: str) -> Verdict:
        passes = self._fail_open if isinstance(self._fail_open, bool) else tool in self._fail_open
        if passes:
            return Verdict(decision=DECISION_ALLOW)
        return Verdict(decision=DECISION_DENY, tool_result_json=_texts.unavailable(tool, why))

    async def _report(self, data: dict[str, Any]) -> None:
        """Ends the leases of the calls whose results came. Results of refused calls, and a second time, are none."""
        session, messages = get_session_id_from_request_data(data), data.get("messages") or []
        last = max((n for n, message in enumerate(messages) if message.get("role") == "assistant"), default=None)
        if session is None or last is None:
            return
        at = turn(messages)
        for message in messages[last + 1 :]:
            if message.get("role") != "tool":
                continue
            call = Call("", {}, _unrun, call_id=str(message.get("tool_call_id") or ""), turn=at)
            request = RecordRequest(
                caller=Caller(session_id=session), call_id=call.proposed().call_id, status=OUTCOME_STATUS_UNKNOWN
            )
            try:
                await self._client.services.calls.Record(request, timeout=self._timeout_s)
            except CallgateError as error:
                log.debug("callgate: the result of %s is not reported: %s", request.call_id, error)

    @property
    def _timeout_s(self) -> float:
        return self._client.plane.settings.timeout_s


def _refused(why: str) -> HTTPException:
    return HTTPException(status_code=400, detail=f"callgate: {why}")


def _part(at: str, choice: Any) -> str:
    """Answers beside the first have ids of their own."""
    return f"{at}/{choice.index}" if choice.index else at


def _renamed(call: Call) -> Call:
    return Call(call.tool, call.args, call.execute, call_id=uuid.uuid4().hex, turn=call.turn)


def _used(response: ModelResponse) -> Usage | None:
    """The tokens, and the cost by LiteLLM's own prices."""
    used = usage_of(response)
    cost = getattr(response, "_hidden_params", {}).get("response_cost")
    if used is not None and isinstance(cost, int | float) and cost > 0:
        used.cost_micros = round(cost * 1_000_000)
    return used


def _drop(choice: Any, call: Any, text: str) -> None:
    message = choice.message
    message.tool_calls = [one for one in message.tool_calls if one is not call] or None
    message.content = "\n\n".join(part for part in (message.content, text) if part)
    if message.tool_calls is None:
        choice.finish_reason = "stop"


def _replaced(held: list[Any], choice: Any, said: str) -> list[Any]:
    """The held chunks of a stream as the judged answer has them: text that passed already is not sent again."""
    ends = [chunk for chunk in held if not chunk.choices or getattr(chunk, "usage", None)]
    first, last = held[0].model_copy(deep=True), held[0].model_copy(deep=True)
    calls = [{**call.model_dump(), "index": n} for n, call in enumerate(choice.message.tool_calls or [])]
    content = (choice.message.content or "").removeprefix(said).lstrip("\n" if not said else "")
    first.choices[0].delta = Delta(content=content or None, tool_calls=calls or None)
    first.choices[0].finish_reason = None
    last.choices[0].delta = Delta()
    last.choices[0].finish_reason = choice.finish_reason
    return [first, last, *(chunk for chunk in ends if not chunk.choices)]


def _unrun(**_: Any) -> None:
    """Placeholder: the agent runs the call."""
