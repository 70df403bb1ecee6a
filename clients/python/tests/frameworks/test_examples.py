"""The programs in examples/python, as they stand, with scripted models and the real plane."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import Client
from callgate.v1.approval_service_pb2 import APPROVAL_STATE_APPROVED, APPROVAL_STATE_DENIED

from ..plane import Server
from .conftest import person, questions
from .provider import Provider
from .story import World

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[4] / "examples" / "python"
POLICY = """
policy_engine:
  authorization:
    tiers: [{name: money, pattern: "refund*", action: hitl}]
  tool_schemas:
    refund: {effect: write, repeatable: true, side_effect_resource: "order/{order_id}"}
"""
ASKS_ITS_USER = {
    "gated_function": False,
    "anthropic_loop": False,
    "openai_loop": False,
    "pydantic_ai_agent": False,
    "langgraph_agent": True,
    "openai_agent": True,
}
"""Whether it asks whoever runs it; else somebody answers in callgate."""


@pytest.fixture(scope="module")
def plane() -> Iterator[Server]:
    with Server(POLICY) as running:
        yield running


def run(example: str, plane: Server, provider: Provider, answer: str) -> str:
    env = {
        **os.environ,
        "CALLGATE_SERVER": plane.address,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": provider.url,
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": provider.url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{example}.py")],
        env=env,
        input=answer,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_a_test_for_each() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(ASKS_ITS_USER)


@pytest.mark.parametrize("example", ASKS_ITS_USER)
def test_an_example_does_what_its_person_says(example: str, plane: Server) -> None:
    world = World()
    for reason, said in ((None, "o-17 was refunded"), ("not this one", "It was refused: not this one")):
        world.answers = {"o-17": reason}
        with ExitStack() as stack:
            client = stack.enter_context(Client(plane.address))
            provider = Provider([[("refund", {"order_id": "o-17"})], said])
            stack.enter_context(provider)
            if not ASKS_ITS_USER[example]:
                stack.enter_context(person(client, "", world))
            printed = run(example, plane, provider, "y\n" if reason is None else "n\n")
            assert said.removeprefix("It was refused: ") in printed
            states = [asked.state for asked in questions(client, "")]
        assert states[0] == (APPROVAL_STATE_APPROVED if reason is None else APPROVAL_STATE_DENIED)
