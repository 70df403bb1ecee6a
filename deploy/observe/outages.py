"""Incidents of replicas and of the database, which concern all calls: one after the other, after the rest was cured."""

import asyncio
import shutil
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


@incident("CallgateClockApart", group="alone")
def clock_is_wrong(scene):
    """a replica is started an hour ahead (libfaketime); cure: it is started without"""
    replica = scene.replicas[1]
    if not shutil.which("faketime"):
        stage.skip("faketime is missing (apt-get install faketime)")
    replica.kill()
    replica.wrapper = ["faketime", "-f", "+1h"]
    replica.start()
    yield
    replica.kill()
    replica.wrapper = []
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
    "CallgateTurningAway", "CallgateQueueFilling", "CallgateCommitSlow", "CallgateEvaluateSlow", group="alone"
)
def database_is_slow(scene):
    """commits wait for a lock while a crowd calls; cure: the lock is gone"""
    replica, crowd = scene.replicas[0], iter(range(10_000))
    hold = "begin; lock table callgate.call; select pg_sleep(3); commit"
    both = Meanwhile(
        lambda: scene.postgres.sql(hold),
        lambda: asyncio.run(load.flood(replica, 500, tag=f"crowd-{next(crowd)}", spread=2)),
    )
    yield
    both.end()
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
