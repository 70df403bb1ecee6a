"""Incidents of agents: shares of all calls, so one after the other."""

import json
import re
import time

import scene as stage
from deployment import Client
from incidents import Meanwhile, batches, diluted, going_on, incident
from runbooks import Walk

AGENTS = {"group": "agents", "part": "agents"}


def reporting(scene, tool, error):
    """A worker that calls a tool, each time in a session of its own, with the error of the list, or with success."""
    client = Client(scene.balancer)

    def work():
        time.sleep(0.3)
        number = time.monotonic_ns()
        caller = {"session_id": f"reports-{tool}-{number}", "agent_id": "worker"}
        call = {"call_id": "1", "tool": tool, "arguments_json": json.dumps({"query": f"{number}"})}
        status, answer = client.ask("GateService/Evaluate", {"caller": caller, "call": call})
        if status == 200 and answer["verdict"]["decision"] == "DECISION_ALLOW":
            outcome = {"status": "OUTCOME_STATUS_SUCCESS", "result": f"{number}"}
            if error:
                outcome = {"status": "OUTCOME_STATUS_ERROR", "error": error[0]}
            client.ask("GateService/Record", {"caller": caller, "call_id": "1", **outcome})

    return work


@incident("CallgateLeasesExpiring", **AGENTS)
def nobody_reports(scene):
    """15 writes whose agents never report"""
    batches(Client(scene.balancer), "hang", "hang", 15, arguments=lambda n: {"id": f"{n}-{time.monotonic_ns()}"})
    yield
    walk = Walk(scene, "CallgateLeasesExpiring")
    query = (stage.ROOT / "deploy/sql" / walk.written("unknown_outcomes.sql")).read_text()
    rows = [row for row in scene.postgres.sql(query, user="grafana") if "hang" in row]
    walk.step("`unknown_outcomes.sql`", f"the {len(rows)} calls")
    session, call = rows[0][2:4]
    yield
    text = "callgate sessions settle SESSION CALL happened --reason WHY"
    for session, call in [row[2:4] for row in rows]:
        walk.command(text, SESSION=session, CALL=call, WHY="checked")
    walk.step("agents report again")
    diluted(scene)


@incident("CallgateToolFailing", **AGENTS)
def tool_fails(scene):
    """each call of one tool fails"""
    error = [{"message": "no such row", "http_status": 404}]
    agents = Meanwhile(*[reporting(scene, "flaky", error) for _ in range(3)])
    yield
    walk = Walk(scene, "CallgateToolFailing")
    walk.query("its last errors", has="no such row", user="grafana", NAME="flaky")
    walk.command("callgate sessions halt tool NAME --reason WHY", NAME="flaky", WHY="repair")
    yield
    error.clear()
    walk.step("the tool is repaired")
    walk.command("callgate sessions resume tool NAME", NAME="flaky")
    yield
    agents.end()


@incident("CallgateRefusalSpike", **AGENTS)
def calls_are_refused(scene):
    """agents call a tool that the policy does not name"""
    # Three calls each, since more would be a loop.
    agents = going_on(scene, "unknown", "new_tool", "worker", 3)
    yield
    walk = Walk(scene, "CallgateRefusalSpike")
    walk.query("the tool and the reason", has=["new_tool", "unknown_tool"], user="grafana")
    text = scene.policy.read_text()
    yield
    scene.policy.write_text(text.replace("tool_schemas:\n", "tool_schemas:\n    new_tool: {effect: read}\n"))
    walk.command("callgate policy check FILE", FILE=scene.policy)
    walk.command("callgate policy apply FILE", FILE=scene.policy)
    yield
    agents.end()


@incident("CallgateStopSpike", **AGENTS)
def calls_are_stopped(scene):
    """an agent is halted and goes on"""
    body = {"scope": "HALT_SCOPE_AGENT", "name": "runaway", "reason": "drill"}
    scene.replicas[0].must("SessionService/Halt", body)
    agents = going_on(scene, "runaway", "get_order", "runaway", 5)
    yield
    walk = Walk(scene, "CallgateStopSpike")
    walk.query("the rule and the reason", has="halted", user="grafana")
    yield
    walk.command("callgate sessions resume SCOPE NAME", SCOPE="agent", NAME="runaway")
    yield
    agents.end()


def looping(scene, same):
    """An agent that gets one result again and again, in one session after the other, while `same` has the arguments."""
    client = Client(scene.balancer)

    def work():
        caller = {"session_id": f"loop-{time.monotonic_ns()}", "agent_id": "looper"}
        for n in range(12):
            arguments = json.dumps({"job_id": same[0] or f"{time.monotonic_ns()}"})
            call = {"call_id": f"{n}", "tool": "watch_job", "arguments_json": arguments}
            status, answer = client.ask("GateService/Evaluate", {"caller": caller, "call": call})
            if status == 200 and answer["verdict"]["decision"] == "DECISION_ALLOW":
                outcome = {"status": "OUTCOME_STATUS_SUCCESS", "result": arguments}
                client.ask("GateService/Record", {"caller": caller, "call_id": f"{n}", **outcome})

    return work


@incident("CallgateLoopSpike", **AGENTS)
def agents_loop(scene):
    """agents poll a job that never ends, 12 times in each session"""
    same = ["same"]
    agents = Meanwhile(*[looping(scene, same) for _ in range(4)])
    yield
    walk = Walk(scene, "CallgateLoopSpike")
    session = scene.postgres.sql("select session_id from callgate.findings where rule = 'poll' limit 1")[0][0]
    walk.command("callgate sessions show SESSION", shows="the repeated call", SESSION=session, has="watch_job")
    yield
    walk.command("callgate sessions halt session NAME --reason WHY", NAME=session, WHY="loops")
    walk.step("the agents are corrected")
    same[0] = ""
    yield
    agents.end()


@incident("CallgateDoubleEffect", **AGENTS)
def call_succeeds_twice(scene):
    """a call that timed out is repeated with success, and then reported as a success, too"""
    client = Client(scene.balancer)
    session = f"twice-{time.monotonic_ns()}"
    caller = {"session_id": session, "agent_id": "worker"}

    def evaluate(call_id):
        call = {"call_id": call_id, "tool": "refund", "arguments_json": '{"note": "late parcel"}'}
        return client.ask("GateService/Evaluate", {"caller": caller, "call": call})[1]["verdict"]["decision"]

    def record(call_id, **outcome):
        client.ask("GateService/Record", {"caller": caller, "call_id": call_id, **outcome})

    evaluate("first")
    error = {"message": "read timed out", "type": "TimeoutError"}
    record("first", status="OUTCOME_STATUS_ERROR", error=error)
    stage.until("the repetition is allowed", lambda: time.sleep(2) or evaluate("second") == "DECISION_ALLOW", 120)
    for call_id in ("second", "first"):
        record(call_id, status="OUTCOME_STATUS_SUCCESS", result=json.dumps({"id": call_id}))
    yield
    walk = Walk(scene, "CallgateDoubleEffect")
    text = re.search(r"`(select tool, session_id, call_id[^`]*)`", walk.text)[1]
    rows = scene.postgres.sql(text, user="grafana")
    walk.held(str(rows), session, text)
    walk.step("the query", "the call")
    yield
    walk.step("the effect is undone at the provider")
