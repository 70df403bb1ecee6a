"""What people and administrators do meanwhile: they forget sessions and persons, seal anew, and look at sessions."""

from __future__ import annotations

import json
import random
import secrets
import threading
from typing import TYPE_CHECKING

import grpc
from callgate.v1.gate_service_pb2 import EvaluateRequest, GetSessionStateRequest, RecordRequest
from callgate.v1.session_service_pb2 import ListCallsRequest, ListSessionsRequest
from callgate.v1.session_service_pb2_grpc import SessionServiceStub
from callgate.v1.types_pb2 import Caller, ToolCall

from agents import ANSWER_S, OPTIONS, SUCCESS, Lines, belongs_to_others
from plane import TENANTS

if TYPE_CHECKING:
    from history import History
    from plane import Plane

# As long as a server takes to read a changed file of keys, and a little more.
KEYS_READ_S = 7
COMMAND_S = 45


class Forgetter(threading.Thread):
    """Makes sessions of nobody else, and has them forgotten by name or by their person.

    Where an answer was lost, a request may still be under way: such a session is forgotten again after all faults.
    """

    def __init__(self, plane: Plane, history: History, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True, name="forgetter")
        self._plane, self._history, self.stop = plane, history, stop
        self._random = random.Random(f"{seed} forgetter")
        self._lines = {
            t: Lines([plane.url(n) for n in range(len(plane.replicas))], plane.tokens[t, "agent"]) for t in TENANTS
        }
        self._left: list[tuple[str, str, str]] = []
        self.said = ""

    def run(self) -> None:
        turn = 0
        while not self.stop.wait(0.5):
            turn += 1
            tenant = self._random.choice(TENANTS)
            name = f"forget-{secrets.token_hex(6)}"
            kind = self._random.choice(("session", "user"))
            if not self._work(tenant, name) or not self._forget(tenant, kind, name):
                self._left.append((tenant, kind, name))

    def finish(self) -> None:
        """After all faults, once nothing is under way any more."""
        for tenant, kind, name in self._left:
            if not self._forget(tenant, kind, name):
                raise RuntimeError(f"{kind} {name} could not be forgotten after all faults: {self.said}")
        for lines in self._lines.values():
            lines.close()

    def _work(self, tenant: str, name: str) -> bool:
        """True when every request was answered."""
        lines = self._lines[tenant]
        caller = Caller(session_id=name, agent_id="forgotten", user_id=name)
        for number in range(3):
            gate = self._random.choice(lines.gates)
            call = ToolCall(call_id=f"f{number}", tool="note", arguments_json=json.dumps({"for": name, "n": number}))
            try:
                gate.Evaluate(EvaluateRequest(caller=caller, call=call), timeout=ANSWER_S, metadata=lines.shown)
                if number < 2:
                    report = RecordRequest(
                        caller=caller, call_id=call.call_id, status=SUCCESS, result=f"done for {name}"
                    )
                    gate.Record(report, timeout=ANSWER_S, metadata=lines.shown)
            except grpc.RpcError:
                return False
        return True

    def _forget(self, tenant: str, kind: str, name: str) -> bool:
        number = self._random.randrange(len(self._plane.replicas))
        shown = {"CALLGATE_TOKEN_FILE": self._plane.token_file(tenant, "admin")}
        words = ("forget", kind, name, "--yes", "--server", self._plane.url(number))
        done = self._plane.tried(*words, seconds=COMMAND_S, **shown)
        self.said = done.stderr
        # Unknown is who was never stored, or was forgotten by a request whose answer was lost.
        is_gone = done.returncode == 0 or "SUBJECT_UNKNOWN" in done.stderr
        self._history.count("forgotten" if is_gone else "forget failed")
        if is_gone:
            with self._history.lock:
                self._history.forgotten[name] = kind
        return is_gone


class Resealer(threading.Thread):
    """Changes the key of the encrypted tenant to and fro, and seals all rows anew each time."""

    def __init__(self, plane: Plane, history: History, stop: threading.Event) -> None:
        super().__init__(daemon=True, name="resealer")
        self._plane, self._history, self.stop = plane, history, stop

    def run(self) -> None:
        first = "old"
        while not self.stop.wait(KEYS_READ_S):
            first = {"old": "new", "new": "old"}[first]
            self._plane.keys(first)
            if self.stop.wait(KEYS_READ_S):
                return
            shown = {"CALLGATE_TOKEN_FILE": self._plane.token_file("acme", "admin")}
            done = self._plane.tried("keys", "reencrypt", "--server", self._plane.url(0), seconds=COMMAND_S, **shown)
            why = (done.stderr.splitlines() or [""])[-1]
            self._history.count("resealed" if done.returncode == 0 else f"reseal failed ({why[:100]})")


class Prober(threading.Thread):
    """Looks at what each tenant's token can read, by the names that both tenants use."""

    def __init__(self, plane: Plane, history: History, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True, name="prober")
        self._plane, self._history, self.stop = plane, history, stop
        self._random = random.Random(f"{seed} prober")

    def run(self) -> None:
        turn = 0
        while not self.stop.wait(0.3):
            turn += 1
            tenant = TENANTS[turn % 2]
            with self._history.lock:
                known = list(self._history.answers)[-200:]
            if known:
                self.probe(tenant, self._random.choice(known)[1])

    def probe(self, tenant: str, session: str) -> None:
        lines = Lines(
            [self._plane.url(self._random.randrange(len(self._plane.replicas)))], self._plane.tokens[tenant, "agent"]
        )
        with grpc.insecure_channel(self._plane.url(0).removeprefix("http://"), OPTIONS) as channel:
            sessions = SessionServiceStub(channel)
            admin = [("authorization", f"Bearer {self._plane.tokens[tenant, 'admin']}")]
            asked = [
                (
                    lines.gates[0].GetSessionState,
                    GetSessionStateRequest(session_id=session, last_calls=64),
                    lines.shown,
                ),
                (sessions.ListCalls, ListCallsRequest(session_id=session, page_size=50), admin),
                (sessions.ListSessions, ListSessionsRequest(page_size=50), admin),
            ]
            for method, request, shown in asked:
                try:
                    said = method(request, timeout=ANSWER_S, metadata=shown)
                except grpc.RpcError as error:
                    self._history.count(f"probe {error.code().name}")
                    continue
                self._history.count("probe answered")
                belongs_to_others(self._history, tenant, str(request), str(said))
        lines.close()
