"""Agents that ask, execute and report by single requests, and note every answer; and agents of the Python client."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import TYPE_CHECKING

import grpc
from callgate import Client
from callgate.errors import CallgateError
from callgate.v1.gate_service_pb2 import EvaluateRequest, RecordRequest
from callgate.v1.gate_service_pb2_grpc import GateServiceStub
from callgate.v1.types_pb2 import Caller, Decision, OutcomeStatus, ToolCall, ToolError, Verdict

from history import Answer

if TYPE_CHECKING:
    from history import History, Key
    from plane import Plane

ANSWER_S = 3
TRIES = 6
CALLS_OF_SESSION = 9
WINDOW_S = 3
SUCCESS = OutcomeStatus.OUTCOME_STATUS_SUCCESS
FINAL = ("REUSE", "DENY", "STOP")
# After these the same request may be sent again (docs/contract.md).
AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
}
OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]


def answer(verdict: Verdict) -> Answer:
    permit = verdict.permit
    lease = permit.lease_expire_time
    return Answer(
        at=time.time(),
        decision=Decision.Name(verdict.decision).removeprefix("DECISION_"),
        reason=verdict.reason,
        key=permit.idempotency_key,
        attempt=permit.attempt,
        lease=lease.seconds + lease.nanos / 1e9,
    )


class Lines:
    """Connections of one caller to all replicas; no request is sent again by gRPC itself."""

    def __init__(self, urls: list[str], token: str) -> None:
        self._channels = [grpc.insecure_channel(url.removeprefix("http://"), OPTIONS) for url in urls]
        self.gates = [GateServiceStub(channel) for channel in self._channels]
        self.shown = [("authorization", f"Bearer {token}")]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class Agent(threading.Thread):
    """One agent of a tenant: whichever replica answers, it goes on, with sessions of at most so many calls."""

    def __init__(
        self, plane: Plane, history: History, tenant: str, number: int, seed: int, stop: threading.Event
    ) -> None:
        super().__init__(daemon=True, name=f"agent-{tenant}-{number}")
        self.tenant, self.number, self.stop = tenant, number, stop
        self._history, self._random = history, random.Random(f"{seed} agent {tenant} {number}")
        count = len(plane.replicas)
        self._lines = Lines([plane.url(n) for n in range(count)], plane.tokens[tenant, "agent"])
        self._turn = 0

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self._turn += 1
                self._call()
        finally:
            self._lines.close()

    def _call(self) -> None:
        """Tenants use the same names: only results tell whose they are."""
        kind = self._random.choices(("pay", "note", "step"), (5, 3, 4))[0]
        window = int(time.time() / WINDOW_S)
        session, call_id = f"s-{self.number}-{self._turn // CALLS_OF_SESSION}", f"c{self._turn}"
        args: dict[str, object] = {"n": self._turn, "agent": self.number}
        if kind == "pay":
            args = {"invoice": f"inv-{window}-{self._random.randrange(3)}"}
        if kind == "step":
            # All agents of the tenant share this call tree, and so its limit of calls.
            session, call_id = f"spend-{window}", f"c{self.number}-{self._turn}"
        key = (self.tenant, session, call_id)
        for _ in range(4):
            heard = self._ask(key, kind, args)
            if heard is None or heard.decision != "WAIT":
                break
            self.stop.wait(self._random.uniform(0.3, 1.0))
        if heard is None:
            return
        if heard.decision in FINAL and self._random.random() < 0.2:
            self._ask(key, kind, args)
        if heard.decision == "ALLOW":
            self._permitted(key, kind, args, heard)

    def _permitted(self, key: Key, tool: str, args: dict[str, object], heard: Answer) -> None:
        if self._random.random() < 0.3:
            # Nothing was reported yet: the answer has to be the same, whichever replica gives it.
            again = self._ask(key, tool, args)
            if again is not None and again.decision != "ALLOW":
                return
        fate = self._random.random()
        if fate < 0.04:
            return
        if fate < 0.10:
            self._record(key, RecordRequest(status=OutcomeStatus.OUTCOME_STATUS_CANCELLED, not_started=True))
            return
        if fate < 0.16:
            error = ToolError(message="declined: no such account", http_status=400)
            self._record(key, RecordRequest(status=OutcomeStatus.OUTCOME_STATUS_ERROR, error=error))
            return
        self._history.execute(self.tenant, tool, args, f"{self.name} {key[1]} {key[2]}")
        if fate < 0.20:
            # As if this process had ended.
            return
        report = RecordRequest(status=SUCCESS, result=f"done for mark-{self.tenant}")
        if self._record(key, report) and fate > 0.9:
            self._record(key, report)

    def _ask(self, key: Key, tool: str, args: dict[str, object]) -> Answer | None:
        """The answer; none where no replica gives one, which may have been a permit."""
        call = ToolCall(call_id=key[2], tool=tool, arguments_json=json.dumps(args))
        agent = Caller(session_id=key[1], agent_id=f"agent-{self.number}", user_id="somebody")
        said = self._send("Evaluate", EvaluateRequest(caller=agent, call=call))
        if said is None:
            return None
        heard = answer(said.verdict)
        self._history.answered(key, heard)
        return heard

    def _record(self, key: Key, report: RecordRequest) -> bool:
        report.caller.session_id, report.call_id = key[1], key[2]
        said = self._send("Record", report)
        if said is not None:
            self._history.recorded(key, OutcomeStatus.Name(said.status).removeprefix("OUTCOME_STATUS_").lower())
        return said is not None

    def _send(self, method: str, request: EvaluateRequest | RecordRequest):
        """Sent again, to any replica, where that is safe."""
        for _ in range(TRIES):
            gate = self._random.choice(self._lines.gates)
            try:
                said = getattr(gate, method)(request, timeout=ANSWER_S, metadata=self._lines.shown)
            except grpc.RpcError as error:
                self._history.count(f"error {error.code().name}")
                if error.code() in AGAIN:
                    if self.stop.wait(self._random.uniform(0.05, 0.4)):
                        return None
                    continue
                # A report on a call whose permit was never answered, or that was settled meanwhile.
                self._history.count(f"refused {CallgateError.of(error).reason}")
                return None
            belongs_to_others(self._history, self.tenant, f"{method} {request}", str(said))
            return said
        return None


def belongs_to_others(history: History, tenant: str, asked: str, said: str) -> None:
    """Notes an answer in which a result of the other tenant stands."""
    other = {"default": "mark-acme", "acme": "mark-default"}[tenant]
    if other in said:
        history.violated("leaked", f"{tenant} was answered with what is of another tenant: {asked} {said[:300]}")


class ClientAgent(threading.Thread):
    """An agent that uses the Python client as its documentation tells."""

    def __init__(self, plane: Plane, history: History, tenant: str, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True, name=f"python-{tenant}")
        self.tenant, self.stop = tenant, stop
        self._history, self._random = history, random.Random(f"{seed} python {tenant}")
        token = plane.tokens[tenant, "agent"]
        self._clients = [Client(plane.url(n), token=token, timeout_s=ANSWER_S) for n in range(len(plane.replicas))]

    def run(self) -> None:
        turn = 0
        while not self.stop.is_set():
            turn += 1
            # One client for a session: an outcome that could not be sent waits in the client that has it.
            part = turn // CALLS_OF_SESSION
            client = self._clients[part % len(self._clients)]
            tool, args = "note", {"python": turn}
            if self._random.random() < 0.6:
                tool, args = "pay", {"invoice": f"inv-{int(time.time() / WINDOW_S)}-{self._random.randrange(3)}"}
            self._call(client, f"python-{part}", tool, args, f"p{turn}")
        for client in self._clients:
            client.close(timeout_s=10)

    def _call(self, client: Client, session: str, tool: str, args: dict[str, object], call_id: str) -> None:
        def execute(**given: object) -> str:
            self._history.execute(self.tenant, tool, given, f"{self.name} {session} {call_id}")
            return f"done for mark-{self.tenant}"

        try:
            outcome = client.gate(session).run(tool, args, execute, call_id=call_id, patience_s=3)
        except CallgateError as error:
            self._history.count(f"python {error.reason}")
            return
        belongs_to_others(self._history, self.tenant, f"{session} {call_id}", outcome.text)
        self._history.count(f"python {outcome.decision}")
        key = (self.tenant, session, call_id)
        if outcome.verdict is not None and outcome.ran:
            self._history.answered(key, answer(outcome.verdict))
        if outcome.recorded and outcome.ran and outcome.record is not None:
            status = OutcomeStatus.Name(outcome.record.status).removeprefix("OUTCOME_STATUS_").lower()
            self._history.recorded(key, status)
