"""Incidents of load and of the database, which concern all calls: in order, in a deployment of their own."""

import asyncio
import json
import os
import subprocess
import threading
import time

import load
from deployment import Client
from incidents import Meanwhile, incident, steady
from runbooks import Walk

LOAD = {"group": "alone", "part": "load"}
CROWD, RETRY_S = 400, 0.5


async def crowded(scene, agent, count, is_over):
    """So many callers with a connection each to one replica. They call again as soon as they are answered, wait as they
    are told when they are shed, and end when they are stopped."""
    replica = scene.replicas[0]

    async def caller(number):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", replica.port, ssl=replica.context)
            while not is_over():
                calls = [
                    {"call_id": f"{n}", "tool": "get_order", "arguments_json": f'{{"order_id": "{number}-{n}"}}'}
                    for n in range(10)
                ]
                caller = {"session_id": f"{agent}-{time.monotonic_ns()}", "agent_id": agent}
                body = json.dumps({"caller": caller, "calls": calls})
                writer.write(load.request(replica, "GateService/BatchEvaluate", body))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                answer = await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
                if b"DECISION_STOP" in answer:
                    break
                if b" 200 " not in head.splitlines()[0]:
                    await asyncio.sleep(RETRY_S)
            writer.close()
            return True
        except (OSError, IndexError, ValueError, EOFError, TimeoutError, asyncio.IncompleteReadError):
            await asyncio.sleep(1)
            return False

    async def goes_on(number):
        while not is_over() and not await caller(number):
            pass

    await asyncio.gather(*[goes_on(number) for number in range(count)])


class Crowd:
    """Such callers in a thread."""

    def __init__(self, scene, agent, count):
        self.is_over = False
        work = crowded(scene, agent, count, lambda: self.is_over)
        self.thread = threading.Thread(target=lambda: asyncio.run(work), daemon=True)
        self.thread.start()

    def end(self):
        self.is_over = True
        self.thread.join()


class Blocker:
    """A session of another user, `report`, which locks a table again and again."""

    def __init__(self, scene, table, hold_s, pause_s):
        if not scene.postgres.sql("select 1 from pg_roles where rolname = 'report'"):
            scene.postgres.sql(
                "create role report login; grant connect on database callgate to report;"
                " grant usage on schema callgate to report"
            )
        scene.postgres.sql(f"grant all on callgate.{table} to report")
        text = (
            f"do $$ begin loop lock table callgate.{table}; perform pg_sleep({hold_s}); commit; "
            f"perform pg_sleep({pause_s}); end loop; end $$"
        )
        psql = [f"{scene.postgres.bin}/psql", "-X", "-q", scene.postgres.url("report"), "-c", text]
        env = os.environ | {"PGAPPNAME": "monthly report"}
        self.process = subprocess.Popen(psql, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def blocker_is_ended(scene, walk, rows):
    """As the runbook of slow commits says: its number comes from the query, and its end needs a grant."""
    pid = next(row[4] for row in rows if row[5:6] == ["report"])
    walk.statement("grant pg_signal_backend to callgate", user="postgres")
    walk.statement("select pg_terminate_backend(PID)", PID=pid)


def blocked(walk):
    """The query's rows with a blocker; it is asked until it meets one."""
    for _ in range(40):
        rows = walk.query("the blocker, by `pg_blocking_pids`")
        if any(row[5:7] == ["report", "monthly report"] for row in rows):
            return rows
        time.sleep(0.2)
    raise LookupError(f"no blocker is shown: {rows}")


@incident("CallgateConflicts", **LOAD)
def replicas_conflict(scene):
    """four agents of one session at a time call two replicas each"""
    rounds, pinned = [0], [False]

    def calling(number):
        clients = [Client(scene.replicas[0]), Client(scene.replicas[1])]

        def work():
            rounds[0] += 1
            client = clients[0 if pinned[0] else number % 2]
            call = {"call_id": f"{number}-{rounds[0]}", "tool": "get_order"}
            call["arguments_json"] = json.dumps({"order_id": f"{number}-{rounds[0]}"})
            caller = {"session_id": f"raced-{rounds[0] // 200}-{pinned[0]}", "agent_id": "racer"}
            client.ask("GateService/Evaluate", {"caller": caller, "call": call})

        return work

    race = Meanwhile(*[calling(number) for number in range(8)])
    yield
    walk = Walk(scene, "CallgateConflicts")
    text = 'curl -H "Authorization: Bearer $CALLGATE_TOKEN" https://HOST:7600/metrics'
    reason = 'callgate_conflict_reason="version"'
    walk.command(text, **scene.at(0), has=["callgate_commit_conflicts_total{", reason], shows="the reason `version`")
    yield
    walk.step("the session's calls go to one replica")
    pinned[0] = True
    yield
    race.end()


@incident("CallgateQueueFilling", "CallgateShedding", **LOAD)
def agents_fan_out(scene):
    """400 workers of one agent call one replica, ten calls at a time"""
    crowd = Crowd(scene, "fan-out", CROWD)
    yield
    walk = Walk(scene, "CallgateQueueFilling", "CallgateShedding")
    walk.query("the agent and its calls", has="fan-out", user="grafana")
    yield
    walk.command("callgate sessions halt agent NAME --reason WHY", NAME="fan-out", WHY="overload")
    scene.walked["CallgateShedding"] = scene.walked["CallgateQueueFilling"]
    crowd.end()


SLOW = ("CallgateCommitSlow", "CallgateEvaluateSlow")


@incident(*SLOW, **LOAD)
def database_is_slow(scene):
    """a report locks the table of calls for 2 s at a time"""
    crowd, blocker = Crowd(scene, "crowd", 20), Blocker(scene, "call", 2, 0.1)
    yield
    walk = Walk(scene, *SLOW)
    rows = blocked(walk)
    yield
    blocker_is_ended(scene, walk, rows)
    scene.walked[SLOW[1]] = scene.walked[SLOW[0]]
    blocker.process.wait(10)
    yield
    crowd.end()


@incident("CallgatePoolExhausted", **LOAD)
def lists_wait(scene):
    """a report locks the audit log for 2 s at a time, while eight operators read it"""
    blocker = Blocker(scene, "audit", 2, 0.1)

    def reading():
        client = Client(scene.replicas[0])
        return lambda: client.ask("AuditService/ListAuditEntries", {"page_size": 20})

    readers = Meanwhile(*[reading() for _ in range(8)])
    yield
    walk = Walk(scene, "CallgatePoolExhausted", "CallgateCommitSlow")
    rows = blocked(walk)
    yield
    blocker_is_ended(scene, walk, rows)
    readers.end()
    blocker.process.wait(10)
