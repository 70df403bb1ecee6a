"""Values of executions, for repetitions in the same process."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._values import Told

_VALUES_MAX = 256
_CHARACTERS_MAX = 16 * 1024 * 1024
"""Of the texts of all."""


@dataclass(frozen=True)
class Replayed:
    """Result of `unwrap` and of `gated` functions for a repetition whose first value this process does not have.

    A process keeps the values of its last 256 executions, and returns the first value unless it was changed since.
    Otherwise its type is unknown.

    Attributes:
        value: The previous result as JSON: a dataclass is a mapping here.
        text: Its JSON text.
    """

    value: Any
    text: str


class _KeptValue(NamedTuple):
    """A value and its recorded text. Of a text and of plain JSON data, only the recorded text."""

    text: str
    value: Any
    is_text: bool
    is_plain: bool


class FirstValues:
    """The last values, by the fingerprints of their calls; for any number of threads."""

    def __init__(self) -> None:
        """Has none."""
        self._kept: OrderedDict[str, _KeptValue] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def keep(self, fingerprint: str, text: str, value: Any) -> None:
        """Keeps the value; evicts the oldest ones beyond the limits."""
        if not fingerprint:
            return
        is_text, is_plain = type(value) is str, _is_plain(value)
        with self._lock:
            self._drop(fingerprint)
            self._kept[fingerprint] = _KeptValue(text, None if is_text or is_plain else value, is_text, is_plain)
            self._size += len(text)
            while len(self._kept) > _VALUES_MAX or self._size > _CHARACTERS_MAX:
                self._drop(next(iter(self._kept)))

    def of(self, fingerprint: str, previous: Any) -> tuple[Any] | None:
        """The value whose recorded text is the previous result; None without one."""
        with self._lock:
            kept = self._kept.get(fingerprint)
        if kept is None or _read(kept.text) != previous:
            return None
        if kept.is_text:
            return (kept.text,)
        if kept.is_plain:
            # A new one each time, since callers may change what they get.
            return (json.loads(kept.text),)
        return (kept.value,) if Told.of(kept.value).text == kept.text else None

    def _drop(self, fingerprint: str) -> None:
        if (dropped := self._kept.pop(fingerprint, None)) is not None:
            self._size -= len(dropped.text)


def _is_plain(value: Any, depth: int = 64) -> bool:
    """True where JSON keeps all types in it."""
    kind = type(value)
    if kind in (bool, int, float, str, type(None)):
        return True
    if depth == 0 or kind not in (dict, list):
        return False
    members = value.items() if kind is dict else ((None, member) for member in value)
    return all((kind is list or type(key) is str) and _is_plain(member, depth - 1) for key, member in members)


def _read(text: str) -> Any:
    """JSON as a value, other text as it is, as the server does."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
