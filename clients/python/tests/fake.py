"""A plane that answers as a test says."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from callgate.v1 import gate_service_pb2 as messages
from callgate.v1 import types_pb2 as t
from callgate.v1.gate_service_pb2_grpc import GateServiceServicer, add_GateServiceServicer_to_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Answer = t.Verdict | grpc.StatusCode
ALLOW = t.Verdict(decision=t.DECISION_ALLOW, permit=t.Permit(attempt=1))
# Long enough that no heartbeat is due in a test.
ALLOW.permit.lease_expire_time.FromSeconds(int(time.time()) + 3600)
WAIT = t.Verdict(decision=t.DECISION_WAIT)
LOST = grpc.StatusCode.INTERNAL
"""Counts as no answer, and gRPC itself does not send the request again."""


class FakePlane(GateServiceServicer):
    """Allows all and takes every report, unless told otherwise; the last answer given holds for all that follow."""

    def __init__(self) -> None:
        self.verdicts: list[Answer] = [ALLOW]
        self.records: list[grpc.StatusCode] = [grpc.StatusCode.OK]
        self.response = messages.RecordResponse()
        self.asked: list[str] = []
        self.recorded: list[messages.RecordRequest] = []
        """What was taken."""
        self.open = threading.Event()
        """Reports are held back until it is set."""
        self.open.set()
        self.holds = threading.Event()
        """Set when a report is held back."""
        self.address = ""

    def Evaluate(self, request: messages.EvaluateRequest, context: Any) -> messages.EvaluateResponse:  # noqa: N802
        self.asked.append(request.call.call_id)
        return messages.EvaluateResponse(verdict=self._verdict(context))

    def BatchEvaluate(self, request: messages.BatchEvaluateRequest, context: Any) -> messages.BatchEvaluateResponse:  # noqa: N802
        return messages.BatchEvaluateResponse(verdicts=[self._verdict(context) for _ in request.calls])

    def Record(self, request: messages.RecordRequest, context: Any) -> messages.RecordResponse:  # noqa: N802
        if not self.open.is_set():
            self.holds.set()
            self.open.wait(20)
        if (code := _next(self.records)) is not grpc.StatusCode.OK:
            context.abort(code, "not now")
        self.recorded.append(request)
        return self.response

    def _verdict(self, context: Any) -> t.Verdict:
        answer: Answer = _next(self.verdicts)
        if isinstance(answer, t.Verdict):
            return answer
        return context.abort(answer, "lost")  # type: ignore[no-any-return]

    @property
    def came(self) -> list[tuple[str, str]]:
        """Of which call what was reported: `not started`, or the status."""
        status: Callable[[Any], str] = t.OutcomeStatus.Name
        return [
            (one.call_id, "not started" if one.not_started else status(one.status).removeprefix("OUTCOME_STATUS_"))
            for one in self.recorded
        ]


def _next(answers: list[Any]) -> Any:
    return answers.pop(0) if len(answers) > 1 else answers[0]


@contextlib.contextmanager
def fake_plane() -> Iterator[FakePlane]:
    """On a socket of its own: a port may be given again, and a client of an earlier test still report to it."""
    plane = FakePlane()  # type: ignore[abstract]
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    add_GateServiceServicer_to_server(plane, server)
    with tempfile.TemporaryDirectory() as folder:
        plane.address = f"unix:{folder}/plane.sock"
        server.add_insecure_port(plane.address)
        server.start()
        try:
            yield plane
        finally:
            plane.open.set()
            server.stop(None).wait()
