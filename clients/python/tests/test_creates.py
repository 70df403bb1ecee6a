"""What makes something else each time, through every client: creates stop, what only looks like one does not."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from .players import PLAYERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from callgate import Client

TURNS = 8
WORDS = ["printer", "door", "lamp", "chair", "phone", "screen", "heater", "desk"]
ROLLS = [4, 1, 6, 2, 5, 3, 6, 1]
CREATES: dict[str, Callable[[int], Any]] = {
    "create_refund": lambda n: {
        "id": f"re_1NirD82eZvKYlo2C{n:04}",
        "object": "refund",
        "amount": 2000,
        "charge": "ch_1NirD82eZvKYlo2C",
        "created": int(time.time()),
        "status": "succeeded",
    },
    "open_ticket": lambda n: f"Your ticket number is {88120 + n}. We will come back to you soon.",
    "create_issue": lambda n: {"content": [{"type": "text", "text": f"Created issue ENG-{411 + n}"}]},
}
LOOK_ALIKES: dict[str, Callable[[int], Any]] = {
    "next_page": lambda n: {"items": [{"id": 70 + n, "name": WORDS[n]}], "next_cursor": f"c{n}Zq8vT1"},
    "roll_dice": lambda n: {"roll": ROLLS[n]},
    "next_ticket": lambda n: {"id": f"T-{n}", "subject": f"the {WORDS[n]} is broken"},
}


def played(player: str, client: Client, session: str, name: str, answer: Callable[[int], Any]) -> tuple[int, list[str]]:
    """How often the tool was executed, and what the model reads of each of its identical calls."""
    executions = 0

    def tool(text: str) -> Any:
        """Does it."""
        nonlocal executions
        executions += 1
        return answer(executions - 1)

    tool.__name__ = name
    texts = PLAYERS[player](client, session, tool, iter([{"text": "blue office shirts"}] * TURNS))
    return executions, texts


@pytest.mark.parametrize("name", CREATES)
@pytest.mark.parametrize("player", PLAYERS)
def test_a_create_is_refused_at_the_fifth_time(player: str, client: Client, session: str, name: str) -> None:
    executions, texts = played(player, client, session, name, CREATES[name])
    assert (executions, len(texts)) == (4, TURNS), texts
    for text in texts[4:]:
        assert json.loads(text)["status"] == "repeated_success", text


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("player", PLAYERS)
def test_what_looks_like_a_create_is_never_refused(player: str, client: Client, session: str, name: str) -> None:
    executions, texts = played(player, client, session, name, LOOK_ALIKES[name])
    assert executions == TURNS, texts
