"""Which plane is asked, and what is shown to it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import grpc

DEFAULT_SERVER = "http://127.0.0.1:7600"
_SERVICE_CONFIG = Path(__file__).parent / "v1" / "callgate_grpc_service_config.json"

Pem = str | os.PathLike[str] | bytes
"""The name of a PEM file, or what is in one."""


@dataclass(frozen=True)
class Settings:
    """As `Client` takes them; what is None comes from the environment, by the names that the command line has."""

    server: str
    token: str | None = field(repr=False)
    by: str | None
    ca: bytes | None = field(repr=False)
    cert: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    timeout_s: float

    @staticmethod
    def read(
        server: str | None,
        token: str | None,
        by: str | None,
        ca: Pem | None,
        cert: Pem | None,
        key: Pem | None,
        timeout_s: float,
    ) -> Settings:
        """Raises TypeError or ValueError where an argument, or the variable in its place, makes no sense."""
        made = Settings(
            server=server or os.environ.get("CALLGATE_SERVER") or DEFAULT_SERVER,
            token=(token if token is not None else _token()) or None,
            by=by or os.environ.get("CALLGATE_BY") or None,
            ca=_pem("ca", ca or os.environ.get("CALLGATE_CA") or None),
            cert=_pem("cert", cert or os.environ.get("CALLGATE_CERT") or None),
            key=_pem("key", key or os.environ.get("CALLGATE_KEY") or None),
            timeout_s=timeout_s,
        )
        made._check()
        return made

    def _check(self) -> None:
        for name, given in (("server", self.server), ("token", self.token), ("by", self.by)):
            if given is not None and not isinstance(given, str):
                raise TypeError(f"{name}: {type(given).__name__} is no text")
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float):
            raise TypeError(f"timeout_s: {self.timeout_s!r} is no number of seconds")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s: {self.timeout_s} is no time to wait")
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: a certificate is shown with its key")
        for name, shown in (("token", self.token), ("by", self.by)):
            if shown is not None and not (shown.isascii() and shown.isprintable()):
                raise ValueError(f"{name}: it has other characters than those of printable ASCII")
        if self.token and self.is_overheard:
            raise ValueError(f"server: a token would travel to {self.server} for everybody to read; use https://")
        _ = self.target

    @cached_property
    def _url(self) -> tuple[str, str]:
        """Scheme, and what gRPC is told."""
        if self.server.startswith("unix:"):
            return "unix", self.server
        url = urlsplit(self.server if "://" in self.server else f"//{self.server}")
        scheme = url.scheme or ("http" if _is_here(url.hostname) else "https")
        if scheme not in {"http", "https"} or not url.hostname or url.path.strip("/") or url.username:
            raise ValueError(f"server: {self.server!r} is not http://HOST:PORT, https://HOST:PORT or unix:PATH")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        return scheme, f"{host}:{url.port or (443 if scheme == 'https' else 80)}"

    @property
    def target(self) -> str:
        """The address in gRPC's words."""
        return self._url[1]

    @property
    def identity(self) -> tuple[object, ...]:
        """Which plane is asked, and who asks: where these are the same, one session and call_id are one call."""
        return self.server, self.token, self.cert

    @property
    def has_tls(self) -> bool:
        """Whether the way there is encrypted."""
        return self._url[0] == "https"

    @property
    def is_overheard(self) -> bool:
        """True for a way that others may listen on: neither TLS, nor this machine."""
        if self._url[0] != "http":
            return False
        return not _is_here(self.target.rpartition(":")[0].strip("[]"))

    def credentials(self) -> grpc.ChannelCredentials:
        """For a way with TLS."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)

    @cached_property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every request."""
        shown = [("authorization", f"Bearer {self.token}")] if self.token else []
        return (*shown, *([("callgate-by", self.by)] if self.by else []))

    @cached_property
    def options(self) -> list[tuple[str, str | int]]:
        """How channels of gRPC behave."""
        return [
            ("grpc.service_config", _SERVICE_CONFIG.read_text()),
            # What lies between sees a connection in use; one that it has cut without a word is replaced in 15 seconds.
            # Which of the two times an answer is waited for by depends on the version of gRPC.
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.ping_timeout_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            # By default, who was away for long is not looked for again for up to two minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1_000),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            # A connection of its own: never one that a process before a fork has.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        ]


def _is_here(host: str | None) -> bool:
    """True for a name of this machine. Without a scheme such a server is http://, and any other https://."""
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def _token() -> str:
    file = os.environ.get("CALLGATE_TOKEN_FILE")
    if not file:
        return os.environ.get("CALLGATE_TOKEN", "").strip()
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"CALLGATE_TOKEN_FILE: cannot read {file}: {why}") from error


def _pem(name: str, given: Pem | None) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    try:
        return Path(given).read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {os.fspath(given)}: {error.strerror}") from error
