"""Drives a replica so that everything is told that it can tell: every decision, outcome, action of people, and error."""

import asyncio
import json
import time

import grpc

EVALUATE = "GateService/Evaluate"
RECORD = "GateService/Record"


class Agent:
    """One session."""

    def __init__(self, replica, session, agent="booker", **caller):
        self.replica, self.calls = replica, 0
        self.caller = {"session_id": session, "agent_id": agent, **caller}

    def evaluate(self, tool, arguments=None, call_id=None, **more):
        self.calls += call_id is None
        call_id = call_id or f"call-{self.calls}"
        call = {"call_id": call_id, "tool": tool, "arguments_json": json.dumps(arguments or {}), **more.pop("call", {})}
        answer = self.replica.must(EVALUATE, {"caller": self.caller, "call": call, **more})["verdict"]
        return answer | {"call_id": call_id}

    def record(self, call_id, status="SUCCESS", **more):
        body = {"caller": self.caller, "call_id": call_id, "status": f"OUTCOME_STATUS_{status}", **more}
        return self.replica.must(RECORD, body)

    def run(self, tool, arguments=None, result="done", error=None, **more):
        """Asks, and reports if it may run; gives the decision."""
        verdict = self.evaluate(tool, arguments, **more)
        if verdict["decision"] == "DECISION_ALLOW":
            usage = {"usage": {"input_tokens": 900, "output_tokens": 70, "cost_micros": 1500}, "duration": "0.2s"}
            if error:
                self.record(verdict["call_id"], "ERROR", error=error, **usage)
            else:
                self.record(verdict["call_id"], result=result, **usage)
        return verdict["decision"].removeprefix("DECISION_")


def agents(replica, round_, retries=2):
    """Every decision and outcome, by what agents do; so many agents retry what failed."""
    said = set()
    name = f"{replica.name}-{round_}"
    one = Agent(replica, f"{name}-reads", run_id="turn-1")
    said |= {one.run("get_order", {"order_id": "o-1"}, '{"state": "open"}') for _ in range(3)}
    said |= {one.run("search", {"q": f"blue {n}"}, '{"hits": []}') for n in range(6)}
    one.run("final_answer", {"text": "done"})
    watcher = Agent(replica, f"{name}-watches", "watcher")
    said |= {watcher.run("watch_job", {"job_id": "j"}, '{"state": "queued"}') for _ in range(8)}
    for n in range(14):
        said.add(watcher.run("get_order", {"order_id": "o-9"}, "same") if n > 1 else one.run("no_such_tool", {}))
    # Failures that are retried with the same arguments, as advised and against the advice; some work then.
    for n in range(retries):
        waiter = Agent(replica, f"{name}-retries-{n}", "patient")
        for error in (
            {"message": "Too many requests", "http_status": 429},
            {"message": "read timed out", "type": "TimeoutError"},
        ):
            arguments = {"query": f"{error['message']} {n}"}
            said.add(waiter.run("flaky", arguments, error=error))
            said.add(waiter.run("flaky", arguments))
            time.sleep(1.2)
            if n % 3 != 1:
                said.add(waiter.run("flaky", arguments))
            else:
                said.add(waiter.run("flaky", arguments, error=error | {"message": f"{error['message']}\nat line 3"}))
    # Told to wait, and asks again at once by the same call_id.
    hasty = Agent(replica, f"{name}-hasty")
    hasty.run("flaky", {"query": name}, error={"message": "Too many requests", "http_status": 429})
    waits = hasty.evaluate("flaky", {"query": name})
    for _ in range(10):
        hasty.evaluate("flaky", {"query": name}, call_id=waits["call_id"])
    booker = Agent(replica, f"{name}-writes")
    said.add(booker.run("reserve", {"table": f"{name}-1", "guests": "4"}))
    said.add(booker.run("reserve", {"table": f"{name}-2", "day": "tomorrow"}))
    said.add(booker.run("reserve", {"table": f"{name}-2", "day": "2026-05-04"}))
    said.add(booker.run("reserve", {"table": f"{name}-3", "password": "hunter2 4111111111111111"}))
    said.add(
        booker.run("reserve", {"table": f"{name}-4"}, error={"message": "connection reset", "type": "ConnectionError"})
    )
    # Nobody reports on this one.
    booker.evaluate("hang", {"id": name})
    slow = Agent(replica, f"{name}-slow")
    heart = slow.evaluate("reserve", {"table": f"{name}-5"})
    slow.record(heart["call_id"], "RUNNING", progress="half")
    slow.record(heart["call_id"], "CANCELLED", not_started=True)
    # Arguments that are none, and a batch.
    replica.must(
        EVALUATE, {"caller": booker.caller, "call": {"call_id": "broken", "tool": "reserve", "arguments_json": "{"}}
    )
    calls = [
        {"call_id": f"b{n}", "tool": "get_order", "arguments_json": json.dumps({"order_id": f"b{n}"})} for n in range(3)
    ]
    replica.must("GateService/BatchEvaluate", {"caller": booker.caller, "calls": calls})
    replica.must("GateService/DescribeTools", {"tools": ["reserve"]})
    said.add(booker.run("spam_friends", {"n": round_}))
    # A spent budget: steps of one run.
    spender = Agent(replica, f"{name}-spends", run_id="long")
    for n in range(64):
        said.add(spender.run("get_order", {"order_id": f"{name}-{n}"}, f"order {n}"))
    return said


def people(replica, round_):
    """What people do: answers, halts, grants, phases, policies, settling, tokens."""
    name = f"{replica.name}-{round_}"
    # Who asks may not answer.
    approver = replica.must("TokenService/CreateToken", {"name": f"approver-{name}", "roles": ["ROLE_APPROVER"]})[
        "secret"
    ]
    asker = Agent(replica, f"{name}-asks", "asker")
    held = [
        asker.evaluate("delete_order", {"order_id": f"{name}-{n}"}, call={"justification": "it is old"})
        for n in range(4)
    ]
    for verdict, approve in zip(held, (True, False)):
        body = {"approval_id": verdict["approvalId"], "approve": approve, "reason": "looked at it"}
        replica.must("ApprovalService/ResolveApproval", body, token=approver)
        asker.evaluate("delete_order", {"order_id": f"{name}-{approve:d}"}, call_id=f"again-{approve}")
    asker.run(
        "delete_order", {"order_id": f"{name}-0"}, call_id=held[0]["call_id"], call={"justification": "it is old"}
    )
    replica.must("ApprovalService/WithdrawApproval", {"approval_id": held[2]["approvalId"], "reason": "not needed"})
    # A grant, which is used up.
    session = f"{name}-granted"
    granted = Agent(replica, session)
    granted.run("grant_access", {"n": 0})
    made = replica.must(
        "GrantService/CreateGrant",
        {"session_id": session, "tool_pattern": "grant_*", "ceiling": 1, "ttl": "600s", "reason": "once"},
    )
    for n in range(4):
        granted.run("grant_access", {"n": n + 1})
    replica.must(
        "GrantService/RevokeGrant", {"session_id": session, "grant_id": made["grant"]["grantId"], "reason": "over"}
    )
    replica.must("SessionService/SetPhase", {"session_id": session, "phase": "PLAN", "reason": "think"})
    replica.must("SessionService/MarkCompacted", {"session_id": session})
    replica.must("GateService/GetSessionState", {"session_id": session})
    halted = Agent(replica, f"{name}-halted", "runaway")
    halted.run("get_order", {"order_id": "h"})
    for scope, named in (("SESSION", f"{name}-halted"), ("AGENT", "nobody"), ("TOOL", f"tool-{name}")):
        replica.must("SessionService/Halt", {"scope": f"HALT_SCOPE_{scope}", "name": named, "reason": "to see it"})
    time.sleep(2)
    stopped = halted.run("get_order", {"order_id": "h2"})
    replica.must("SessionService/Resume", {"scope": "HALT_SCOPE_AGENT", "name": "nobody", "reason": "seen"})
    token = replica.must("TokenService/CreateToken", {"name": f"short-{name}", "roles": ["ROLE_ANALYST"]})
    replica.must("TokenService/RevokeToken", {"token_id": token["token"]["tokenId"]})
    for method in (
        "SessionService/ListSessions",
        "SessionService/ListHalts",
        "ApprovalService/ListApprovals",
        "ProfileService/ListRetryProfiles",
        "AuditService/VerifyAudit",
        "TenantService/ListTenants",
    ):
        replica.must(method)
    return stopped


def policies(replica, text):
    """Another policy, and back."""
    other = text.replace("max_steps: 60", "max_steps: 61")
    replica.must("PolicyService/ApplyPolicy", {"text": other, "note": "one step more"})
    time.sleep(2)
    replica.must("PolicyService/RollbackPolicy", {"note": "enough"})
    time.sleep(2)


def unused(replica):
    """What waits for later: approvals that stay open."""
    asker = Agent(replica, f"{replica.name}-open", "asker")
    for n in range(3):
        asker.evaluate("delete_order", {"order_id": f"open-{n}"})


def wrong(replica, agent_token):
    """Each status that a caller's own doing brings; gives what was answered, by what was done."""
    caller = {"session_id": "wrong", "agent_id": "clumsy"}
    call = {"call_id": "w1", "tool": "get_order", "arguments_json": '{"order_id":"w"}'}
    replica.must(EVALUATE, {"caller": caller, "call": call})
    replica.ask("TenantService/CreateTenant", {"name": "taken"})
    asked = {
        "INVALID_ARGUMENT": (EVALUATE, {"call": call}, {}),
        "FAILED_PRECONDITION": (
            EVALUATE,
            {"caller": caller, "call": call | {"arguments_json": '{"order_id":"x"}'}},
            {},
        ),
        "NOT_FOUND": (RECORD, {"caller": caller, "call_id": "never", "status": "OUTCOME_STATUS_SUCCESS"}, {}),
        "UNAUTHENTICATED": (EVALUATE, {"caller": caller, "call": call}, {"token": "cg_nobody"}),
        "PERMISSION_DENIED": ("SessionService/Halt", {"scope": "HALT_SCOPE_ALL"}, {"token": agent_token}),
        "ALREADY_EXISTS": ("TenantService/CreateTenant", {"name": "taken"}, {}),
        "ABORTED": ("PolicyService/RollbackPolicy", {"note": "late", "expected_revision": "99999"}, {}),
    }
    return {code: replica.ask(method, body, **more) for code, (method, body, more) in asked.items()}


def wire(replica):
    """Each status that only gRPC's own wire can bring; gives the codes that came."""
    same = {"request_serializer": lambda it: it, "response_deserializer": lambda it: it}
    meta = [("authorization", f"Bearer {replica.scene.token}")]
    came = set()
    with grpc.insecure_channel(replica.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        for method, body in (
            ("GateService/Evaluate", b"\xff\xff\xff"),
            ("GateService/Evaluate", b"\x0a" + b"\x00" * (5 << 20)),
            ("GateService/NoSuchMethod", b""),
        ):
            try:
                channel.unary_unary(f"/callgate.v1.{method}", **same)(body, metadata=meta, timeout=20)
            except grpc.RpcError as error:
                came.add(error.code().name)
        # Called off amid a wait for a person.
        text = json.dumps(
            {"caller": {"session_id": "off"}, "call": {"call_id": "1", "tool": "delete_order"}, "max_wait": "20s"}
        )
        asyncio.run(hang_up(replica, text))
    return came


async def hang_up(replica, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", replica.port)
    writer.write(request(replica, EVALUATE, text))
    await writer.drain()
    await asyncio.sleep(1)
    writer.close()
    del reader


def request(replica, method, text, more=""):
    who = f"authorization: Bearer {replica.scene.token}" if replica.scene.token else "callgate-by: observe"
    head = (
        f"POST /callgate.v1.{method} HTTP/1.1\r\nhost: {replica.address}\r\ncontent-type: application/json\r\n"
        f"{who}\r\n{more}content-length: {len(text.encode())}\r\n\r\n"
    )
    return head.encode() + text.encode()


async def one(replica, body, more="", after=0):
    """One request on a connection of its own; gives its HTTP status."""
    try:
        await asyncio.sleep(after)
        reader, writer = await asyncio.open_connection("127.0.0.1", replica.port, ssl=replica.context)
        writer.write(request(replica, EVALUATE, json.dumps(body), more))
        line = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        return int(line.split()[1])
    except (OSError, IndexError, ValueError, TimeoutError):
        return 0


async def flood(replica, calls, more="", tag="flood", session=None, spread=0):
    """So many Evaluates at once, or spread over some seconds, each of a session of its own unless one is named; gives how
    many had which HTTP status."""
    bodies = [
        {
            "caller": {"session_id": session or f"{tag}-{n}", "agent_id": "crowd"},
            "call": {"call_id": f"{tag}-{n}", "tool": "get_order", "arguments_json": json.dumps({"order_id": f"{n}"})},
        }
        for n in range(calls)
    ]
    came = {}
    for status in await asyncio.gather(
        *[one(replica, body, more, spread * n / calls) for n, body in enumerate(bodies)]
    ):
        came[status] = came.get(status, 0) + 1
    return came


async def race(replicas, calls, round_):
    """The same call tree at several replicas at once."""
    floods = [
        flood(replica, calls, tag=f"race-{round_}-{number}", session="raced", spread=1)
        for number, replica in enumerate(replicas)
    ]
    return await asyncio.gather(*floods)
