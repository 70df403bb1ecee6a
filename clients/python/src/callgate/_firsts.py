"""The values of executions, for repetitions of them in the same process."""

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
    """What `unwrap` and functions of `gated` return for a repetition whose first value is not in this process.

    The first value is returned itself where the process has it: its last 256 executions, unless the value was changed
    since. Else nothing tells which type it had.

    Attributes:
        value: The previous result, as its JSON says it: a dataclass is a mapping here.
        text: Its JSON text.
    """

    value: Any
    text: str


class _Kept(NamedTuple):
    """A value, and the text by which it was recorded; a text itself, and plain data, by that alone."""

    text: str
    value: Any
    is_text: bool
    is_plain: bool


class FirstValues:
    """The last values, by the fingerprints of their calls; for any number of threads."""

    def __init__(self) -> None:
        """Has none."""
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def keep(self, fingerprint: str, text: str, value: Any) -> None:
        """Keeps it; of too many, the oldest is dropped."""
        if not fingerprint:
            return
        is_text, is_plain = type(value) is str, _is_plain(value)
        with self._lock:
            self._drop(fingerprint)
            self._kept[fingerprint] = _Kept(text, None if is_text or is_plain else value, is_text, is_plain)
            self._size += len(text)
            while len(self._kept) > _VALUES_MAX or self._size > _CHARACTERS_MAX:
                self._drop(next(iter(self._kept)))

    def of(self, fingerprint: str, previous: Any) -> tuple[Any] | None:
        """The value of which the previous result is told; None where it is of another execution, or not here."""
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
    """Whether JSON says all of it, types included."""
    kind = type(value)
    if kind in (bool, int, float, str, type(None)):
        return True
    if depth == 0 or kind not in (dict, list):
        return False
    members = value.items() if kind is dict else ((None, member) for member in value)
    return all((kind is list or type(key) is str) and _is_plain(member, depth - 1) for key, member in members)


def _read(text: str) -> Any:
    """JSON as it says, other text as it is: so does the plane."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
