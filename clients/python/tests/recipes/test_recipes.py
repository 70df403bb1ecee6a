"""The programs in examples/python/recipes, as they stand, with the real frameworks and a fake model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callgate.testing import MemoryServer

from ..conftest import states
from ..frameworks.provider import Provider
from ..plane import binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..frameworks.story import Turn

ROOT = Path(__file__).parents[4]
RECIPES = ROOT / "examples" / "python" / "recipes"
NAMES = [name for name in os.environ["CALLGATE_RECIPES"].split() if (RECIPES / f"{name}.py").exists()]
POLICY = """
policy_engine:
  authorization:
    tiers:
      - {name: destructive, pattern: "delete_*", action: deny}
      - {name: rest, pattern: "*", action: allowlist}
  tool_schemas:
    find_orders: {effect: read, side_effect_resource: order}
    refund: {effect: write, once: true, side_effect_resource: "order/{order_id}"}
"""
FIND = ("find_orders", {"query": "late"})
TURNS: list[Turn] = [[FIND], [FIND, ("refund", {"order_id": "o-17"})], [("delete_order", {"order_id": "o-17"})]]
LAST: dict[str, Turn] = {"smolagents_agent": [("final_answer", {"answer": "All done."})]}
CHAT = "chat-1"
SESSIONS = {"ag2_agent": "7d5a3f0e-0000-4000-8000-000000000001", "crewai_agent": None, "smolagents_agent": None}
"""Ids of the conversations; None: the framework has none."""


def run(name: str, server: MemoryServer, provider: Provider) -> str:
    """What the program prints. No proxy leads out of this machine."""
    here = "127.0.0.1"
    env = {
        **os.environ,
        "CALLGATE_SERVER": server.url,
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": provider.url,
        "OPENAI_API_BASE": provider.url,
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": provider.url,
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
        **dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY"], f"http://{here}:9"),
        "NO_PROXY": here,
    }
    python = ROOT / "target" / "clients" / f"python-recipe-{name}" / "bin" / "python"
    command = [str(python), "-u", str(RECIPES / f"{name}.py")]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run(command, env=env, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def answers(value: Any) -> Iterator[dict[str, Any]]:
    """The texts of callgate in a request to a model, wherever the provider's API has them."""
    if isinstance(value, str):
        while (at := value.find('{"status":')) >= 0:
            answer, end = json.JSONDecoder().raw_decode(value[at:])
            yield answer
            value = value[at + end :]
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from answers(member)


def schemas(request: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    """Description and parameters of the tools that a model is shown."""
    if "functionDeclarations" in request["tools"][0]:
        tools = request["tools"][0]["functionDeclarations"]
        return {tool["name"]: (tool["description"], tool["parameters_json_schema"]) for tool in tools}
    tools = [tool["function"] for tool in request["tools"]]
    return {tool["name"]: (tool["description"], tool["parameters"]) for tool in tools}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_executes_refuses_and_answers_repetitions(name: str) -> None:
    turns = [*TURNS, LAST.get(name, "All done.")]
    with MemoryServer(POLICY, binary=binary()) as server:
        provider = Provider(turns)
        with provider:
            printed = run(name, server, provider)
        assert "All done." in printed
        done = [line for line in printed.splitlines() if line.startswith(("finding", "refunding", "deleting"))]
        assert done == ["finding late", "refunding o-17"]

        found, again, refunded, denied = answers(provider.requests[-1])
        assert (found["status"], found["results"]) == ("success", ["o-17"])
        assert (again["status"], again["previous_result"]) == ("duplicate_call_blocked", ["o-17"])
        assert (refunded["status"], refunded["results"]) == ("success", {"refunded": "o-17"})
        assert denied["status"] == "tool_denied"
        assert "the policy does not allow it" in denied["message"]

        if (session := SESSIONS.get(name, CHAT)) is not None:
            assert states(server.client(), session) == ["SUCCEEDED", "REFUSED", "SUCCEEDED", "REFUSED"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_shows_the_model_what_the_function_says(name: str) -> None:
    provider = Provider([LAST.get(name, "All done.")])
    with MemoryServer(POLICY, binary=binary()) as server, provider:
        run(name, server, provider)
    shown = schemas(provider.requests[0])
    description, parameters = shown["find_orders"]
    assert "Finds orders by a word." in description
    assert {name: one["type"] for name, one in parameters["properties"].items()} == {
        "query": "string",
        "limit": "integer",
    }
    assert "query" in parameters["required"]
    assert "Pays an order back." in shown["refund"][0]
    assert list(shown["refund"][1]["properties"]) == shown["refund"][1]["required"] == ["order_id"]
