"""One story for all frameworks: a scripted model is refused, waits, asks a person, retries on advice and finishes."""

from __future__ import annotations

import json
import uuid
from typing import Any

Turn = list[tuple[str, dict[str, Any]]] | str
"""The calls that the model makes at once, or its last words."""


class Busy(Exception):
    """A provider that asks to be left alone, as HTTP clients raise it."""

    status_code = 503


class World:
    """What the tools did, in order; with orders of its own, since a refund is made once whoever asks."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.paid, self.unpaid = (f"o-{uuid.uuid4().hex}" for _ in range(2))
        self.answers: dict[str, str | None] = {self.paid: None, self.unpaid: "it was never paid"}
        """What the person answers about an order: None is yes, a text a no with that reason."""

    @property
    def story(self) -> list[Turn]:
        """What the model does."""
        return [
            [("search_orders", {"query": "late"})],
            [("search_orders", {"query": "late"})],  # done before: its result is handed back
            [("drop_table", {"name": "orders"})],  # forbidden
            [("send_mail", {"to": "ada"}), ("send_mail", {"to": "bob"})],  # one a second: the other one waits
            [("get_weather", {"city": "Bern"})],  # fails, and is worth a retry
            [("refund_order", {"order_id": self.paid})],  # a person says yes
            [("refund_order", {"order_id": self.unpaid})],  # a person says no
            "All done.",
        ]

    def search_orders(self, query: str) -> dict[str, Any]:
        """Finds orders."""
        self.done.append(f"search {query}")
        return {"orders": ["o-1", "o-2"]}

    def drop_table(self, name: str) -> str:
        """Drops a table."""
        self.done.append(f"drop {name}")
        return "dropped"

    def send_mail(self, to: str) -> str:
        """Sends a mail."""
        self.done.append(f"mail {to}")
        return "sent"

    def get_weather(self, city: str) -> str:
        """Tells the weather."""
        self.done.append(f"weather {city}")
        if self.done.count(f"weather {city}") == 1:
            raise Busy("503 the station is busy")
        return "sunny"

    def refund_order(self, order_id: str) -> str:
        """Pays an order back."""
        self.done.append(f"refund {order_id}")
        return "refunded"

    def close_account(self, account: str) -> str:
        """Closes an account."""
        self.done.append(f"close {account}")
        return "closed"

    @property
    def tools(self) -> list[Any]:
        """All of them, as functions."""
        return [
            self.search_orders,
            self.drop_table,
            self.send_mail,
            self.get_weather,
            self.refund_order,
            self.close_account,
        ]


def check(world: World, seen: list[list[str]]) -> None:
    """What was executed, and what the model was told after each of its turns: the texts of its calls, in order."""
    assert world.done[:1] + sorted(world.done[1:3]) + world.done[3:] == [
        "search late",
        "mail ada",
        "mail bob",
        "weather Bern",
        "weather Bern",
        f"refund {world.paid}",
    ]
    told = [[json.loads(text) for text in turn] for turn in seen]
    assert [[answer["status"] for answer in turn] for turn in told] == [
        ["success"],
        ["duplicate_call_blocked"],
        ["tool_denied"],
        ["success", "success"],
        ["success"],
        ["success"],
        ["approval_denied"],
    ]
    assert told[0][0]["results"] == told[1][0]["previous_result"] == {"orders": ["o-1", "o-2"]}
    assert told[3][0]["query_summary"] == {"to": "ada"}
    assert told[4][0]["results"] == "sunny"
    assert "it was never paid" in told[6][0]["message"]
