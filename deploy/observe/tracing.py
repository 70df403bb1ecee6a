"""A trace that begins in a program's own span and ends in the commit, as the collector tells it."""

import json
import os
import subprocess
import sys

from scene import ROOT, until

PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from callgate import Client, Gate

trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("agent").start_as_current_span("invoke_agent traveller") as span:
    gate = Gate("traced", client=Client(sys.argv[1], token=sys.argv[2]), agent_id="traveller")
    outcome = gate.run("get_order", {"order_id": "o-77"}, lambda order_id: {"id": order_id, "state": "open"}, call_id="t-1")
    assert not outcome.is_error, outcome.text
print(format(span.get_span_context().trace_id, "032x"), format(span.get_span_context().span_id, "016x"))
"""


def show(scene, replica, sink, _collector):
    """Runs the program, prints the trace as a tree, and gives what is wrong with it."""
    client = ROOT / "target/observe/client"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    done = subprocess.run([*pip, "--target", client, ROOT / "clients/python"], capture_output=True, text=True)
    if done.returncode:
        return [f"the Python client cannot be installed: {done.stderr[-1500:]}"]
    path = os.pathsep.join([str(client), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, replica.url, scene.token],
        capture_output=True,
        text=True,
        env={**scene.env, "PYTHONPATH": path, "OTEL_SDK_DISABLED": "false"},
        timeout=60,
    )
    if done.returncode:
        return [f"the program with the Python client failed: {done.stderr[-1500:]}"]
    trace, root = done.stdout.split()

    def spans():
        its = [span for span in sink.spans if span["trace"] == trace]
        names = {span["name"] for span in its}
        return its if {"callgate.evaluate", "callgate.record"} <= names else None

    its = until("the program's trace", spans, 20)
    its.sort(key=lambda span: span["start"])
    print(f"observe: trace {trace}\n  invoke_agent traveller (the program's own)")
    tree(its, root, 2)
    wrong = []
    heads = [span["name"] for span in its if span["parent"] == root]
    if sorted(heads) != ["callgate.v1.GateService/Evaluate", "callgate.v1.GateService/Record"]:
        wrong.append(f"below the program's span hang {heads}")
    return wrong


def tree(spans, parent, depth):
    for span in (span for span in spans if span["parent"] == parent):
        took = (span["end"] - span["start"]) / 1e6
        its = {name: it for name, it in span["attributes"].items() if name in SHOWN}
        links = f" links {len(span['links'])}" if span["links"] else ""
        print(f"{'  ' * depth}{span['name']} {took:.1f} ms {json.dumps(its)}{links}")
        tree(spans, span["id"], depth + 1)


SHOWN = (
    "rpc.response.status_code",
    "callgate.decision",
    "callgate.outcome",
    "gen_ai.tool.name",
    "db.operation.name",
    "db.query.summary",
    "db.namespace",
)
