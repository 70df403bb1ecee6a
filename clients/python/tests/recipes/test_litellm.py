"""LiteLLM's own proxy with the guardrail, a fake model behind it, and an agent that streams or does not."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from openai import BadRequestError, OpenAI

from callgate.testing import MemoryServer
from callgate.v1.types_pb2 import BUDGET_DIMENSION_COST_MICROS, BUDGET_DIMENSION_TOKENS

from ..conftest import calls, states, used
from ..frameworks.provider import Provider
from ..plane import binary, free_address
from .test_recipes import FIND, POLICY, RECIPES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from callgate import Client

    from ..frameworks.story import Turn

pytestmark = pytest.mark.skipif(
    "litellm_proxy" not in os.environ["CALLGATE_RECIPES"].split(), reason="LiteLLM is not named"
)
NAME = "litellm_proxy"
KEY = f"sk-{uuid.uuid4().hex}"
REFUND = ("refund", {"order_id": "o-17"})
DELETE = ("delete_order", {"order_id": "o-17"})
TOOLS: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name, _ in (FIND, REFUND, DELETE)]


class Proxy:
    """A proxy whose model says the turns that a test gives it."""

    def __init__(self, url: str, client: Client | None, turns: list[Turn], provider: Provider) -> None:
        self.openai = OpenAI(base_url=url, api_key=KEY, max_retries=0)
        self.turns, self.provider = turns, provider
        self._client = client

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def ask(self, messages: list[Any], session: str | None, *, stream: bool, **more: Any) -> Any:
        """The message of the model as an agent gets it."""
        headers = {} if session is None else {"x-litellm-session-id": session}
        options: Any = {"model": "gpt-5", "messages": messages, "tools": TOOLS, "extra_headers": headers, **more}
        if not stream:
            return self.openai.chat.completions.create(**options).choices[0]
        with self.openai.chat.completions.stream(**options) as parts:
            return parts.get_final_completion().choices[0]


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with MemoryServer(POLICY, binary=binary()) as server, running(server.url) as (url, turns, provider):
        yield Proxy(url, server.client(), turns, provider)


@contextmanager
def running(callgate: str) -> Iterator[tuple[str, list[Turn], Provider]]:
    turns: list[Turn] = []
    provider = Provider(turns)
    listen = free_address()
    host, _, port = listen.partition(":")
    with provider:
        env = {
            **os.environ,
            "CALLGATE_SERVER": callgate,
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": provider.url,
            "LITELLM_MASTER_KEY": KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY"], "http://127.0.0.1:9"),
            "NO_PROXY": "127.0.0.1",
        }
        program = ROOT / "target" / "clients" / f"python-recipe-{NAME}" / "bin" / "litellm"
        command = [str(program), "--config", str(RECIPES / f"{NAME}.yaml"), "--host", host, "--port", port]
        with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL) as process:
            try:
                wait(f"http://{listen}/health/liveliness", process)
                yield f"http://{listen}", turns, provider
            finally:
                process.terminate()


def wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 110
    while time.monotonic() < end:
        assert process.poll() is None, "the proxy has ended"
        try:
            urllib.request.urlopen(url, timeout=2)  # noqa: S310 (of this machine)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(url)


def result(call: Any, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


@pytest.mark.parametrize("stream", [False, True])
def test_calls_that_are_not_let_through_do_not_reach_the_agent(proxy: Proxy, session: str, *, stream: bool) -> None:
    refund: Any = ("refund", {"order_id": session})
    proxy.turns += [[FIND, DELETE], [refund], [refund], "All done."]
    messages: list[Any] = [{"role": "user", "content": "Refund it."}]

    first = proxy.ask(messages, session, stream=stream)
    (find,) = first.message.tool_calls
    assert (find.function.name, json.loads(find.function.arguments)) == FIND
    assert first.finish_reason == "tool_calls"
    assert json.loads(first.message.content)["status"] == "tool_denied"
    assert states(proxy.client, session) == ["IN_FLIGHT", "REFUSED"]

    messages += [first.message.model_dump(exclude_none=True), result(find, "o-17")]
    second = proxy.ask(messages, session, stream=stream)
    (paying,) = second.message.tool_calls
    # The model has read the refusal as its own message, and the result has ended the lease.
    assert "tool_denied" in json.dumps(proxy.provider.requests[-1]["messages"][1])
    assert states(proxy.client, session) == ["UNKNOWN", "REFUSED", "IN_FLIGHT"]

    messages += [second.message.model_dump(exclude_none=True), result(paying, "it may have failed")]
    third = proxy.ask(messages, session, stream=stream)
    # It is declared `once`, and nobody knows whether it was paid.
    assert third.message.tool_calls is None
    assert third.finish_reason == "stop"
    assert json.loads(third.message.content)["status"] == "outcome_unknown"
    messages += [third.message.model_dump(exclude_none=True), {"role": "user", "content": "Well?"}]
    assert proxy.ask(messages, session, stream=stream).message.content == "All done."
    assert used(proxy.client, session, BUDGET_DIMENSION_TOKENS) == 3 * 2
    assert used(proxy.client, session, BUDGET_DIMENSION_COST_MICROS) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_session_the_policy_alone_counts(proxy: Proxy, *, stream: bool) -> None:
    proxy.turns += [[FIND], [FIND], [DELETE]]
    ask: list[Any] = [{"role": "user", "content": "Find them."}]
    for _ in range(2):
        assert len(proxy.ask(ask, None, stream=stream).message.tool_calls) == 1
    denied = proxy.ask(ask, None, stream=stream).message
    assert denied.tool_calls is None
    assert "the policy does not allow it" in denied.content


def test_an_answer_that_is_made_anew_is_judged_by_itself(proxy: Proxy, session: str) -> None:
    """Its ids begin with each answer, and the same request gets other calls."""
    proxy.turns += [[FIND], [("find_orders", {"query": "lost"})]]
    for _ in range(2):
        message = proxy.ask([{"role": "user", "content": "Find them."}], session, stream=False).message
        assert len(message.tool_calls) == 1
    assert len(calls(proxy.client, session)) == 2


def test_what_cannot_be_judged_is_refused(proxy: Proxy, session: str) -> None:
    ask: list[Any] = [{"role": "user", "content": "Find them."}]
    with pytest.raises(BadRequestError, match="callgate: n: a stream of several answers is not judged"):
        proxy.openai.chat.completions.create(model="gpt-5", messages=ask, tools=TOOLS, n=2, stream=True)
    with pytest.raises(BadRequestError, match="callgate: functions: calls of them are not judged"):
        proxy.openai.chat.completions.create(model="gpt-5", messages=ask, functions=[{"name": "find_orders"}])
    tools: Any = [{"type": "function", "name": "find_orders", "parameters": {}, "strict": False}]
    with pytest.raises(BadRequestError, match=r"callgate: tools: calls of .* are not judged; use chat completions"):
        proxy.openai.responses.create(model="gpt-5", input="Find them.", tools=tools)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("event_hook='post_call'", "ValueError: mode: pre_call is absent; callgate needs mode: [pre_call, post_call]"),
        ("wait_s=90", "ValueError: wait_s: 90 is not from 0 to 60"),
        ("fail_open='find_orders'", "TypeError: fail_open: a collection of names, not one name"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_the_start(options: str, error: str) -> None:
    python = ROOT / "target" / "clients" / f"python-recipe-{NAME}" / "bin" / "python"
    program = f"from callgate.litellm import CallgateGuardrail; CallgateGuardrail({options})"
    ended = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert ended.stderr.strip().splitlines()[-1] == error


def test_while_callgate_is_unavailable_no_call_passes(session: str) -> None:
    with running(f"http://{free_address()}") as (url, turns, provider):
        turns += [[FIND], [FIND]]
        for name in (session, None):
            choice = Proxy(url, None, turns, provider).ask([{"role": "user", "content": "Go."}], name, stream=False)
            assert choice.message.tool_calls is None
            assert json.loads(choice.message.content)["status"] == "callgate_unavailable"
