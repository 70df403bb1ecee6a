"""What a tool returned or raised, as the contract says it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any

from .outcome import Result
from .v1.gate_service_pb2 import RecordRequest
from .v1.types_pb2 import OUTCOME_STATUS_ERROR, OUTCOME_STATUS_SUCCESS, ToolError, Usage

log = logging.getLogger("callgate")
JSON_BYTES_MAX = 1024 * 1024
"""Of arguments, and of a result that is stored; `limits.json_bytes` of GetServerInfo."""
_ERROR_BYTES_MAX = 64 * 1024


def as_json(value: Any) -> str:
    """Any value as JSON text; what JSON has no word for by its `str`, if it has one."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False)
    except Exception:
        # Keys that are no text, NaN, a value that holds itself, or one that cannot be shown.
        return json.dumps(_spoken(value), ensure_ascii=False)


def _spoken(value: Any) -> str:
    """By its `str`; its type where that fails, since the call has run."""
    try:
        return str(value)
    except Exception:
        return type(value).__name__


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


@dataclasses.dataclass(frozen=True)
class Told:
    """A value as it is told to the plane and, where the plane cannot hand it to the model, to the model."""

    text: str
    is_stored: bool
    digest: str = ""
    size: int = 0

    @staticmethod
    def of(value: Any) -> Told:
        """Text as it is, bytes by what they say or by their digest, anything else as JSON."""
        if isinstance(value, bytes | bytearray | memoryview):
            raw = bytes(value)
            try:
                return Told._text(raw.decode(), raw)
            except UnicodeDecodeError:
                digest = hashlib.sha256(raw).hexdigest()
                return Told(f"{len(raw)} bytes that are no text, with the SHA-256 {digest}", False, digest, len(raw))
        text = value if isinstance(value, str) else as_json(value)
        # A lone surrogate is no text of UTF-8: it is told as a question mark, since the call has run.
        raw = text.encode(errors="replace")
        return Told._text(raw.decode(), raw)

    @staticmethod
    def _text(text: str, raw: bytes) -> Told:
        if len(raw) <= JSON_BYTES_MAX:
            return Told(text, True)
        return Told(text, False, hashlib.sha256(raw).hexdigest(), len(raw))


def success(value: Any) -> tuple[RecordRequest, Told, Any]:
    """The report of a value, how it is told, and the value without what a `Result` says of it."""
    said = value if isinstance(value, Result) else Result(value)
    told = Told.of(said.value if said.text is None else said.text)
    try:
        report = RecordRequest(
            is_complete=said.is_complete,
            total_matches=said.total_matches,
            usage=Usage(cost_micros=said.cost_micros) if said.cost_micros else None,
        )
    except (TypeError, ValueError) as error:
        # The call has run: its value is recorded whatever else is said of it.
        log.warning("callgate: Result: what it says beside the value is not recorded: %s", error)
        report = RecordRequest()
    report.status = OUTCOME_STATUS_SUCCESS
    if told.is_stored:
        report.result = told.text
    else:
        report.result_digest, report.result_bytes = told.digest, told.size
    return report, told, said.value


def failure(error: BaseException) -> tuple[RecordRequest, Told]:
    """The report of an exception, as far as it tells."""
    try:
        tool_error = _tool_error(error)
    except Exception:  # what was raised may be anything, and is to be recorded all the same
        tool_error = ToolError(message=_message(error), type=type(error).__name__)
    return RecordRequest(status=OUTCOME_STATUS_ERROR, error=tool_error), Told(tool_error.message, True)


def _tool_error(error: BaseException) -> ToolError:
    told = ToolError(
        message=_message(error),
        type=_text(getattr(error, "type", None)) or type(error).__name__,
        provider_code=_provider_code(error),
    )
    if (status := _http_status(error)) is not None:
        told.http_status = status
    if (status := _grpc_status(error)) is not None:
        told.grpc_status = status
    seconds = getattr(error, "retry_after_s", None)
    if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
        told.retry_after.FromNanoseconds(int(seconds * 1e9))
    told.retry_after_header = _retry_after(error)
    return told


def _message(error: BaseException) -> str:
    message = _spoken(error) or type(error).__name__
    if isinstance(error, KeyError):
        # Of itself it says the key alone, by which no model knows what is wrong.
        message = f"{type(error).__name__}: {message}"
    return message.encode(errors="replace")[:_ERROR_BYTES_MAX].decode(errors="ignore")


def _text(value: Any) -> str:
    return value[:200].encode(errors="replace").decode() if isinstance(value, str) else ""


def _http_status(error: BaseException) -> int | None:
    """httpx, requests: `response.status_code`; openai, anthropic: `status_code`; aiohttp: `status`; urllib: `code`."""
    response = getattr(error, "response", None)
    botocore = _at(response, "ResponseMetadata", "HTTPStatusCode")
    places = ("http_status", "status_code", "status", "code")
    found = (botocore, getattr(response, "status_code", None), *(getattr(error, name, None) for name in places))
    # A bool is an int, and an exception's `code` may be a process's.
    read = (int(s) if isinstance(s, str) and len(s) == 3 and s.isascii() and s.isdigit() else s for s in found)
    return next((s for s in read if isinstance(s, int) and not isinstance(s, bool) and 100 <= s <= 599), None)


def _grpc_status(error: BaseException) -> int | None:
    code = getattr(error, "code", None)
    if not callable(code) or not hasattr(error, "details"):
        return None
    # grpc.StatusCode.UNAVAILABLE.value is (14, "unavailable").
    value = getattr(code(), "value", None)
    number = value[0] if isinstance(value, tuple) and value else None
    return number if isinstance(number, int) and 1 <= number <= 16 else None


def _provider_code(error: BaseException) -> str:
    """botocore: `response["Error"]["Code"]`; openai: `code`; psycopg: `sqlstate`; asyncpg, psycopg2: `pgcode`."""
    response = getattr(error, "response", None)
    found = (
        _at(response, "Error", "Code"),
        *(getattr(error, name, None) for name in ("provider_code", "code", "sqlstate", "pgcode")),
    )
    if text := next((_text(code) for code in found if _text(code)), ""):
        return text
    if isinstance(error, OSError) and error.errno is not None:
        import errno

        return errno.errorcode.get(error.errno, "")
    return ""


def _retry_after(error: BaseException) -> str:
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    if headers is None:
        headers = _at(response, "ResponseMetadata", "HTTPHeaders")
    get = getattr(headers, "get", None)
    found = (get("retry-after") or get("Retry-After")) if callable(get) else None
    return _text(found if not isinstance(found, int) else str(found))


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def arguments(args: Mapping[str, Any] | str) -> str:
    """The arguments as text: the model's own byte for byte, a mapping as JSON.

    Raises:
        TypeError: They are neither text nor a mapping of JSON values.
        ValueError: They hold NaN or infinity, which JSON has no word for.
    """
    if isinstance(args, str):
        return args
    if not isinstance(args, Mapping):
        raise TypeError(f"args: {type(args).__name__} is neither a mapping nor the model's JSON text")
    try:
        return json.dumps(dict(args), ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise type(error)(f"args: {error}") from error
