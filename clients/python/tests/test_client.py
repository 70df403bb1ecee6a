"""Settings, credentials and the services as such."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from callgate import (
    AsyncClient,
    Call,
    CallgateError,
    Client,
    Gate,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    __version__,
)
from callgate.v1.approval_service_pb2 import GetApprovalRequest, WatchApprovalsRequest
from callgate.v1.gate_service_pb2 import EvaluateRequest, EvaluateResponse, GetSessionStateRequest
from callgate.v1.gate_service_pb2_grpc import GateServiceServicer, add_GateServiceServicer_to_server
from callgate.v1.server_service_pb2 import GetServerInfoRequest
from callgate.v1.token_service_pb2 import ListTokensRequest
from callgate.v1.types_pb2 import DECISION_DENY, Verdict

from .plane import Server, binary
from .test_async import eventually
from .test_gate import Tool, answer_when_asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without settings of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("CALLGATE_"):
            monkeypatch.delenv(name)
    return monkeypatch


def test_a_gate_alone_takes_its_settings_from_the_environment(
    server: Server, environment: pytest.MonkeyPatch, session: str
) -> None:
    from callgate.client import default_client

    environment.setenv("CALLGATE_SERVER", f"http://{server.address}")
    default_client.cache_clear()
    assert Gate(session).run("look", {"n": 1}, lambda n: n).unwrap() == 1
    assert Gate(session).client is Gate(session).client


def test_making_a_client_connects_to_nothing(environment: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    Client("http://127.0.0.1:1").gate("s")
    AsyncClient().gate("s")
    assert threading.active_count() == before
    assert Client().plane.settings.target == "127.0.0.1:7600"


@pytest.mark.parametrize(
    ("server", "target", "has_tls"),
    [
        ("127.0.0.1:7600", "127.0.0.1:7600", False),
        ("localhost:7600", "localhost:7600", False),
        ("[::1]:7600", "[::1]:7600", False),
        ("LOCALHOST", "localhost:80", False),
        ("callgate.example.com", "callgate.example.com:443", True),
        ("plane:7600", "plane:7600", True),
        ("localhost.example:1", "localhost.example:1", True),
        ("unix:/run/s", "unix:/run/s", False),
        ("http://plane:7600", "plane:7600", False),
    ],
)
@pytest.mark.usefixtures("environment")
def test_a_server_without_a_scheme_is_encrypted_unless_it_is_this_machine(
    server: str, target: str, has_tls: bool
) -> None:
    settings = Client(server).plane.settings
    assert (settings.target, settings.has_tls) == (target, has_tls)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server": "ftp://x"}, "server: 'ftp://x' is not http"),
        ({"server": "http://x/path"}, "server"),
        ({"server": "x/path"}, "server: 'x/path' is not http"),
        ({"server": "http://plane.example:7600", "token": "t"}, "for everybody to read"),
        ({"token": "naïve"}, "token: it has other characters"),
        ({"token": "a\nb"}, "token: it has other characters"),
        ({"by": "Jörg"}, "by: it has other characters"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"cert": b"x"}, "cert and key"),
        ({"ca": "/nowhere/ca.pem"}, "ca: cannot read /nowhere/ca.pem"),
    ],
)
@pytest.mark.usefixtures("environment")
def test_settings_that_make_no_sense_are_named(settings: dict[str, Any], message: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match=message) as wrong:
            kind(**settings)
        assert "naïve" not in str(wrong.value)


def test_a_token_is_not_in_a_repr() -> None:
    assert "secret" not in repr(Client("https://plane.example", token="secret").plane.settings)  # noqa: S106


def test_services_are_typed_and_raise_readable_errors(server: Server, client: Client, session: str) -> None:
    assert client.services.server.GetServerInfo(GetServerInfoRequest()).server.version == __version__
    with pytest.raises(NotFound, match="APPROVAL_UNKNOWN") as unknown:
        client.services.approvals.GetApproval(GetApprovalRequest(approval_id="none"))
    assert unknown.value.reason == "APPROVAL_UNKNOWN"
    stream = client.services.approvals.WatchApprovals(WatchApprovalsRequest(session_id=session))
    tool = Tool()
    asking = threading.Thread(target=client.gate(session).run, args=("ask_ann", {}, tool))
    asking.start()
    assert next(stream).approval.tool == "ask_ann"
    answer_when_asked(client, session, approve=True).join()
    stream.cancel()
    asking.join()

    async def run() -> None:
        async with AsyncClient(server.address) as other:
            info = await other.services.server.GetServerInfo(GetServerInfoRequest())
            assert info.server.version == __version__
            with pytest.raises(NotFound, match="APPROVAL_UNKNOWN"):
                await other.services.approvals.GetApproval(GetApprovalRequest(approval_id="none"))

    asyncio.run(run())


def test_a_closed_client_connects_anew(client: Client, session: str) -> None:
    for n in range(2):
        assert client.gate(session).run("look", {"n": n}, lambda n: n).unwrap() == n
        client.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, str]]:
    """A server with TLS that wants credentials, its authority, and the token of an agent."""
    home = tmp_path_factory.mktemp("tls")
    home.chmod(0o755)
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(
        [*made, *names, "-keyout", home / "key.pem", "-out", home / "cert.pem"], check=True, capture_output=True
    )
    (home / "key.pem").chmod(0o644)
    with Server("policy_engine: {}", "--tls-cert", f"{home}/cert.pem", "--tls-key", f"{home}/key.pem") as running:
        token = ""
        # The first token has to be an admin's.
        for role in ("admin", "agent"):
            command = [binary(), "tokens", "create", f"the-{role}", "--role", role, "--data-dir", str(running.data)]
            token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        with Client(f"https://{running.address}", ca=home / "cert.pem") as nobody:
            # It hears of the first token within seconds.
            eventually(lambda: not _is_let_in(nobody))
        yield running, home / "cert.pem", token


def _is_let_in(client: Client) -> bool:
    try:
        client.services.calls.GetSessionState(GetSessionStateRequest(session_id="none"))
    except NotFound:
        return True
    except Unauthenticated:
        return False
    raise AssertionError


def test_tls_and_a_token(guarded: tuple[Server, Path, str], session: str) -> None:
    server, ca, token = guarded
    with Client(f"https://{server.address}", token=token, ca=ca) as client:
        assert client.gate(session).run("look", {"n": 1}, lambda n: n).unwrap() == 1
    with Client(f"https://{server.address}", token=token, ca=ca.read_bytes()) as client:
        assert client.gate(session).run("look", {"n": 2}, lambda n: n).unwrap() == 2


def test_a_credential_that_does_not_hold_raises_and_nothing_runs(
    guarded: tuple[Server, Path, str], session: str
) -> None:
    server, ca, token = guarded
    tool = Tool()
    for wrong in ("", token[:-1] + ("y" if token.endswith("x") else "x")):
        with Client(f"https://{server.address}", token=wrong, ca=ca) as client:
            # Not even a tool that fails open: nobody is away.
            gate = client.gate(session, fail_open=True)
            with pytest.raises(Unauthenticated):
                gate.run("look", {}, tool)
            with pytest.raises(Unauthenticated):
                gate.batch([Call("look", {}, tool)])
            with pytest.raises(Unauthenticated):
                gate.wrap([]).schemas([{"name": "look", "input_schema": {}}])
    with Client(f"https://{server.address}", token=token, ca=ca) as client, pytest.raises(PermissionDenied):
        client.services.tokens.ListTokens(ListTokensRequest())
    assert tool.seen == []


def test_a_server_that_nobody_vouches_for_is_not_asked(guarded: tuple[Server, Path, str], session: str) -> None:
    server, _, token = guarded
    tool = Tool()
    with Client(f"https://{server.address}", token=token) as client:
        outcome = client.gate(session).run("look", {}, tool)
    assert (outcome.ran, outcome.reason, tool.seen) == (False, "callgate_unavailable", [])


class _Seen(GateServiceServicer):
    """Keeps what it is shown; lets nothing run."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []

    def Evaluate(self, request: EvaluateRequest, context: Any) -> EvaluateResponse:  # noqa: N802
        self.metadata.append(dict(context.invocation_metadata()))
        return EvaluateResponse(verdict=Verdict(decision=DECISION_DENY, tool_result_json='{"message": "no"}'))


@pytest.fixture
def mirror() -> Iterator[tuple[str, _Seen]]:
    seen = _Seen()  # type: ignore[abstract]
    serving = grpc.server(futures.ThreadPoolExecutor(4))
    add_GateServiceServicer_to_server(seen, serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    yield f"127.0.0.1:{port}", seen
    serving.stop(None)


def test_trace_token_and_name_go_with_every_request(mirror: tuple[str, _Seen]) -> None:
    address, seen = mirror
    span = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    with Client(address, token="t0k3n", by="ann") as client:  # noqa: S106
        with use_span(NonRecordingSpan(span)):
            client.gate("s").run("look", {}, Tool())
        client.gate("s").run("look", {}, Tool())

    async def run() -> None:
        async with AsyncClient(address, token="t0k3n") as client:  # noqa: S106
            with use_span(NonRecordingSpan(span)):
                await client.gate("s").run("look", {}, Tool())

    asyncio.run(run())
    traced, plain, looped = seen.metadata
    traceparent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert (traced["authorization"], traced["callgate-by"], traced["traceparent"]) == (
        "Bearer t0k3n",
        "ann",
        traceparent,
    )
    assert "traceparent" not in plain
    assert looped["traceparent"] == traceparent


def test_an_error_reads_as_one_line() -> None:
    error = CallgateError("the id is taken", code=grpc.StatusCode.FAILED_PRECONDITION, reason="CALL_ID_REUSED")
    assert str(error) == "the id is taken (CALL_ID_REUSED)"
