"""Incidents of replicas and of the database, which concern all calls: one after the other, after the rest was cured."""

import asyncio
import glob
import json
import threading
import time

import load
import scene as stage
from incidents import Meanwhile, incident, steady


@incident("CallgateReplicaCutOff", "CallgatePolicyUnconfirmed", "CallgateProfilesOld", group="cut off")
def replica_is_cut_off(scene):
    """one replica's way to the database is cut for a quarter of an hour; cure: it is back"""
    scene.relay.cut()
    yield
    scene.relay.mend()


CROWD, CROWD_MAX_S = 400, 600


async def crowded(replica, is_over):
    """Callers with a connection each, who call again as soon as they are answered."""

    async def caller(number):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", replica.port, ssl=replica.context)
            while not is_over():
                calls = [
                    {"call_id": f"{n}", "tool": "get_order", "arguments_json": f'{{"order_id": "{number}-{n}"}}'}
                    for n in range(10)
                ]
                caller = {"session_id": f"crowd-{time.monotonic_ns()}", "agent_id": "crowd"}
                body = json.dumps({"caller": caller, "calls": calls})
                writer.write(load.request(replica, "GateService/BatchEvaluate", body))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
            writer.close()
        except (OSError, IndexError, ValueError, EOFError, TimeoutError, asyncio.IncompleteReadError):
            await asyncio.sleep(1)

    while not is_over():
        await asyncio.gather(*[caller(number) for number in range(CROWD)])


@incident("CallgateClockDifference", group="alone")
def clock_is_wrong(scene):
    """a replica is started an hour ahead (libfaketime); cure: it is started without"""
    replica = scene.replicas[1]
    library = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not library:
        stage.skip("libfaketime is missing (apt-get install faketime)")
    replica.kill()
    replica.env |= {"LD_PRELOAD": library[0], "FAKETIME": "+1h"}
    replica.start()
    yield
    replica.kill()
    del replica.env["LD_PRELOAD"], replica.env["FAKETIME"]
    replica.start()


@incident("CallgateDatabaseDown", "CallgateErrorBudgetBurn", "CallgateErrorBudgetBurnSlow", group="alone")
def database_stops(scene):
    """PostgreSQL is stopped while agents call; cure: it is started, and calls succeed"""
    scene.postgres.stop()
    calls = Meanwhile(steady(scene), steady(scene, 1))
    yield
    calls.end()
    scene.postgres.start()
    scene.cures.append(Meanwhile(*[steady(scene, n % 2) for n in range(6)]))


@incident(
    "CallgateShedding", "CallgateQueueFilling", "CallgateCommitSlow", "CallgateEvaluateSlow", group="alone"
)
def database_is_slow(scene):
    """commits wait for a lock while a crowd calls; cure: the lock is gone"""
    hold = "begin; lock table callgate.call; select pg_sleep(4); commit"
    ends = time.monotonic() + CROWD_MAX_S
    crowd = threading.Thread(target=lambda: asyncio.run(crowded(scene.replicas[0], lambda: time.monotonic() > ends)))
    crowd.start()
    both = Meanwhile(lambda: scene.postgres.sql(hold))
    yield
    ends = 0
    both.end()
    crowd.join()
    scene.cures.append(Meanwhile(*[steady(scene) for _ in range(4)]))


@incident("CallgateConflicts", group="alone")
def replicas_conflict(scene):
    """sub-agents of one session call two replicas; cure: they stop"""
    rounds = iter(range(10_000))
    race = Meanwhile(lambda: asyncio.run(load.race(scene.replicas[:2], 150, next(rounds))))
    yield
    race.end()


@incident("CallgateReplicaDown", group="alone")
def replica_is_killed(scene):
    """one replica is killed; cure: it is started"""
    scene.replicas[1].kill()
    yield
    scene.replicas[1].start()


@incident("CallgateDown", "CallgateRestarting", group="alone")
def replicas_are_killed(scene):
    """one replica is killed three times, then all are; cure: they are started"""
    for _ in range(3):
        time.sleep(3)
        scene.replicas[1].kill()
        scene.replicas[1].start()
    time.sleep(5)
    for replica in scene.replicas:
        replica.kill()
    yield
    for replica in scene.replicas:
        replica.start()


@incident("CallgateUnseen", group="alone")
def targets_are_gone(scene):
    """the job is taken from Prometheus' configuration; cure: it is put back"""
    scene.watched.reload([])
    yield
    scene.watched.reload(scene.replicas)
