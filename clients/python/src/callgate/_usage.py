"""Usage of models: read from objects of providers and frameworks, and priced."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from .v1.types_pb2 import Usage

log = logging.getLogger("callgate")
OnUsage = Callable[[Usage], Usage | None]
"""Takes the usage of one response of a model, and returns the usage to book; None: nothing."""

_MODEL_BYTES_MAX = 200
_KINDS = ("input", "output", "cache_read", "cache_write")
_FIELDS = {"model", "valid_from", *_KINDS}


def usage_of(response: Any, model: str = "") -> Usage | None:
    """The usage in a model's response; None without one.

    It reads responses of `openai` (Chat Completions and Responses) and `anthropic`, messages of LangChain, responses of
    Pydantic AI and of the OpenAI Agents SDK, and mappings of the same members. Tokens of a prompt cache are counted
    apart, whether the provider includes them in its input tokens or not.

    Args:
        response: The response, or the usage in it.
        model: The model's name where the response does not have it.
    """
    used = _get(response, "usage_metadata") or _get(response, "usage") or response
    details = next(
        (
            found
            for name in ("input_tokens_details", "prompt_tokens_details", "input_token_details")
            if (found := _get(used, name))
        ),
        None,
    )
    beside = [_get(used, name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    # Anthropic counts the tokens of its cache beside the input tokens; all others count them in.
    is_beside = any(isinstance(count, int) for count in beside)
    read = _first(
        beside[0], _get(used, "cache_read_tokens"), _get(details, "cached_tokens"), _get(details, "cache_read")
    )
    written = _first(
        beside[1],
        _get(used, "cache_write_tokens"),
        _get(details, "cache_write_tokens"),
        _get(details, "cache_creation"),
    )
    # LangChain moves those of Anthropic's cache here, by their time to live.
    written += sum(_first(_get(details, f"ephemeral_{ttl}_input_tokens")) for ttl in ("5m", "1h"))
    total = _first(_get(used, "input_tokens"), _get(used, "prompt_tokens"))
    made = Usage(
        input_tokens=total if is_beside else max(total - read - written, 0),
        output_tokens=_first(_get(used, "output_tokens"), _get(used, "completion_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    if made == Usage():
        return None
    made.model = _model(response) or _cut(model)
    return made


def priced(prices: Iterable[Mapping[str, Any]]) -> OnUsage:
    """Function that adds the cost of the tokens: `client.gate("session-1", usage=priced(rows))`.

    A model without a price is logged once, and its tokens are booked without a cost. A cost that the usage has already
    is kept.

    Args:
        prices: Rows as `prices` in the server's `prices.yaml` has them: `model`, `valid_from` (a date or its ISO text;
            absent: always), and US dollars per million tokens: `input`, `output`, and `cache_read` and `cache_write`,
            which are as `input` unless given. Of the rows of a model, the latest that is valid today (UTC) counts.

    Raises:
        TypeError, ValueError: A row makes no sense; the message names its field.
    """
    table: dict[str, list[tuple[date, dict[str, Decimal]]]] = {}
    for at, row in enumerate(prices):
        model, day, price = _row(f"prices[{at}]", row)
        table.setdefault(model, []).append((day, price))
    unknown: set[str] = set()

    def add_cost(usage: Usage) -> Usage:
        if usage.cost_micros:
            return usage
        today = datetime.now(timezone.utc).date()
        valid = [row for row in table.get(usage.model, []) if row[0] <= today]
        if valid:
            price = max(valid, key=lambda row: row[0])[1]
            # US dollars per million tokens are millionths of a US dollar per token.
            usage.cost_micros = math.ceil(sum(price[kind] * getattr(usage, f"{kind}_tokens") for kind in _KINDS))
        elif usage.model not in unknown:
            unknown.add(usage.model)
            log.warning(
                "callgate: there is no price for the model %r: its tokens are booked without a cost", usage.model
            )
        return usage

    return add_cost


def total(used: Usage | Sequence[Usage] | None, on_usage: OnUsage | None) -> Usage | None:
    """Sum of these usages, each after `on_usage`. Without a model where there are several.

    An exception of `on_usage` is logged, and the tokens are booked.
    """
    if used is None:
        return None
    given = [used] if isinstance(used, Usage) else used
    booked = [one for one in (_after(one, on_usage) for one in given) if one is not None and one.ByteSize()]
    whole = Usage()
    for one in booked:
        for name in (*(f"{kind}_tokens" for kind in _KINDS), "cost_micros"):
            setattr(whole, name, getattr(whole, name) + getattr(one, name))
    models = {one.model for one in booked}
    whole.model = models.pop() if len(models) == 1 else ""
    return whole if booked else None


def _after(used: Usage, on_usage: OnUsage | None) -> Usage | None:
    if on_usage is None:
        return used
    given = Usage()
    given.CopyFrom(used)
    try:
        booked = on_usage(given)
        if booked is None or isinstance(booked, Usage):
            return booked
        raise TypeError(f"it returned {type(booked).__name__}, which is neither a Usage nor None")
    except Exception:
        log.exception("callgate: the function `usage` of the gate failed, and tokens are booked without a cost")
        return used


def _row(place: str, row: Mapping[str, Any]) -> tuple[str, date, dict[str, Decimal]]:
    if not isinstance(row, Mapping):
        raise TypeError(f"{place}: {type(row).__name__} is no mapping with model, input and output")
    if unknown := sorted(set(row) - _FIELDS):
        raise ValueError(
            f"{place}: there is no field {', '.join(unknown)}; the fields are {', '.join(sorted(_FIELDS))}"
        )
    if not isinstance(model := row.get("model"), str) or not model:
        raise ValueError(f"{place}.model: {model!r} is no name of a model")
    price = {}
    for kind in _KINDS:
        usd = row.get(kind, row.get("input") if kind.startswith("cache") else None)
        if isinstance(usd, bool) or not isinstance(usd, int | float | Decimal) or not 0 <= usd < math.inf:
            raise ValueError(f"{place}.{kind}: {usd!r} is no number of US dollars per million tokens")
        price[kind] = Decimal(str(usd))
    day = row.get("valid_from", date.min)
    if not isinstance(day, date):
        try:
            day = date.fromisoformat(day)
        except (TypeError, ValueError):
            raise ValueError(f"{place}.valid_from: {day!r} is no day such as 2026-01-31") from None
    return model, day.date() if isinstance(day, datetime) else day, price


def _model(response: Any) -> str:
    told = _get(response, "response_metadata")
    found = (_get(told, "model_name"), _get(told, "model"), _get(response, "model_name"), _get(response, "model"))
    return next((_cut(name) for name in found if isinstance(name, str) and name), "")


def _cut(name: str) -> str:
    return name.encode(errors="replace")[:_MODEL_BYTES_MAX].decode(errors="ignore")


def _first(*counts: Any) -> int:
    """The first count above 0; some objects have an old and a new name."""
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
