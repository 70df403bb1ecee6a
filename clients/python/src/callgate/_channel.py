"""Channels of gRPC that show the credential and the trace with every request, and raise the package's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from .errors import CallgateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._settings import Settings

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _trace = None
else:
    _trace = TraceContextTextMapPropagator()

Metadata = tuple[tuple[str, str], ...]


def connect(settings: Settings) -> grpc.Channel:
    """A channel for threads; it connects with the first request."""
    if settings.has_tls:
        channel = grpc.secure_channel(settings.target, settings.credentials(), settings.options)
    else:
        channel = grpc.insecure_channel(settings.target, settings.options)
    return cast("grpc.Channel", _Channel(channel, settings))


def connect_aio(settings: Settings) -> grpc.aio.Channel:
    """A channel for the event loop that runs; it connects with the first request."""
    if settings.has_tls:
        channel = grpc.aio.secure_channel(settings.target, settings.credentials(), settings.options)
    else:
        channel = grpc.aio.insecure_channel(settings.target, settings.options)
    return cast("grpc.aio.Channel", _AioChannel(channel, settings))


class _Wrapped:
    """A channel whose methods are wrapped; generated stubs ask it for nothing else."""

    def __init__(self, channel: Any, settings: Settings) -> None:
        self._channel = channel
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        made: Callable[..., Any] = getattr(self._channel, name)
        kind = {"unary_unary": self._unary, "unary_stream": _Method, "stream_stream": _Method}.get(name)
        return made if kind is None else lambda *args, **kwargs: kind(made(*args, **kwargs), self._settings)

    _unary: Callable[..., Any]


class _Method:
    """A method of a stub."""

    def __init__(self, method: Any, settings: Settings) -> None:
        self._method = method
        self._shown = settings.metadata

    def _metadata(self, more: Metadata | None) -> Metadata:
        given = dict(more or ())
        shown = (*(pair for pair in self._shown if pair[0] not in given), *given.items()) if given else self._shown
        if _trace is None:
            return shown
        carrier: dict[str, str] = {}
        _trace.inject(carrier)
        return (*shown, *carrier.items())

    def __call__(self, request: Any, timeout: float | None = None, metadata: Metadata | None = None, **kw: Any) -> Any:
        return self._method(request, timeout=timeout, metadata=self._metadata(metadata), **kw)

    def future(self, request: Any, timeout: float | None = None, metadata: Metadata | None = None, **kw: Any) -> Any:
        return self._method.future(request, timeout=timeout, metadata=self._metadata(metadata), **kw)


class _Unary(_Method):
    def __call__(self, request: Any, timeout: float | None = None, metadata: Metadata | None = None, **kw: Any) -> Any:
        try:
            return self._method(request, timeout=timeout, metadata=self._metadata(metadata), **kw)
        except grpc.RpcError as error:
            raise CallgateError.of(error) from error


class _AioUnary(_Method):
    async def __call__(
        self, request: Any, timeout: float | None = None, metadata: Metadata | None = None, **kw: Any
    ) -> Any:
        try:
            return await self._method(request, timeout=timeout, metadata=self._metadata(metadata), **kw)
        except grpc.aio.AioRpcError as error:
            raise CallgateError.of(error) from error


class _Channel(_Wrapped):
    _unary = _Unary


class _AioChannel(_Wrapped):
    _unary = _AioUnary
