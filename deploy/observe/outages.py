"""Incidents of replicas and of the database, which concern all calls: in order, in a deployment of their own."""

import glob
import time

import scene as stage
from incidents import Meanwhile, incident, steady
from runbooks import Walk

OUTAGES = {"group": "alone", "part": "outages"}
CUT_OFF = ("CallgateReplicaCutOff", "CallgatePolicyUnconfirmed", "CallgateProfilesOld")


@incident(*CUT_OFF, group="cut off", part="agents")
def replica_is_cut_off(scene):
    """one replica's path to the database is cut for a quarter of an hour"""
    scene.relay.cut()
    yield
    replica = scene.replicas[2]
    texts = ("this replica has not read for … s", "retry profiles could not be brought up to date")
    for name, text in zip(CUT_OFF[1:], texts):
        Walk(scene, name, "CallgateReplicaCutOff").log(replica, text)
    walk = Walk(scene, "CallgateReplicaCutOff")
    walk.command("curl https://HOST:7600/readyz", shows="503 at this replica", has="not", **scene.at(2))
    yield
    scene.relay.mend()
    for name in CUT_OFF:
        Walk(scene, name).step("the path is restored")


@incident("CallgateRestarting", **OUTAGES, is_long=True)
def replica_restarts(scene):
    """one replica is killed (-9) and started three times"""
    for _ in range(3):
        time.sleep(10)
        scene.replicas[2].kill()
        scene.replicas[2].start()
    yield
    walk = Walk(scene, "CallgateRestarting")
    starts = scene.log(scene.replicas[2].name).count("callgate serves")
    walk.step("its log", f"{starts} starts, and no last line before them: a kill")
    yield
    walk.step("nobody kills it any more")


@incident("CallgateClockDifference", **OUTAGES)
def clock_is_wrong(scene):
    """a replica is started an hour ahead (libfaketime)"""
    replica = scene.replicas[1]
    library = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not library:
        stage.skip("libfaketime is missing (apt-get install faketime)")
    replica.kill()
    wrong = {"LD_PRELOAD": library[0], "FAKETIME": "+1h"}
    replica.env |= wrong
    replica.start()
    yield
    walk = Walk(scene, "CallgateClockDifference")
    walk.command("callgate database clock", shows="the difference", env=wrong)
    yield
    replica.kill()
    for name in wrong:
        del replica.env[name]
    replica.start()
    walk.step("the clock is set")


DOWN = ("CallgateDatabaseDown", "CallgateErrorBudgetBurn", "CallgateErrorBudgetBurnSlow")


@incident(*DOWN, **OUTAGES, is_long=True)
def database_stops(scene):
    """PostgreSQL is stopped while agents call"""
    scene.postgres.stop()
    calls = Meanwhile(*[steady(scene, replica, 0.3) for replica in scene.replicas])
    yield
    walk = Walk(scene, *DOWN[:2])
    walk.command("curl https://HOST:7600/readyz", shows="503", has="not ready", **scene.at(0))
    walk.log(scene.replicas[0], "a request failed", shows="the cause")
    text = 'psql "$CALLGATE_DATABASE_URL" -c "select pg_is_in_recovery(), now()"'
    walk.command(text, shows="no connection", has="refused", fails=True)
    calls.end()
    yield
    scene.postgres.start()
    walk.step("PostgreSQL is started")
    for name in DOWN[1:]:
        scene.walked[name] = scene.walked[DOWN[0]]
    many = Meanwhile(*[steady(scene, pause=0) for _ in range(4)])
    yield
    many.end()


@incident("CallgateReplicaDown", **OUTAGES)
def replica_is_killed(scene):
    """one replica is killed"""
    scene.replicas[1].kill()
    yield
    walk = Walk(scene, "CallgateReplicaDown")
    walk.command("curl https://HOST:7600/healthz", shows="no answer", fails=True, **scene.at(1))
    yield
    scene.replicas[1].start()
    walk.step("the replica is started")


@incident("CallgateDown", **OUTAGES)
def replicas_are_killed(scene):
    """all replicas are killed"""
    for replica in scene.replicas:
        replica.kill()
    yield
    walk = Walk(scene, "CallgateDown")
    walk.command("curl https://HOST:7600/healthz", shows="no answer", fails=True, **scene.at(0))
    yield
    for replica in scene.replicas:
        replica.start()
    walk.step("the replicas are started")


@incident("CallgateUnseen", **OUTAGES)
def targets_are_gone(scene):
    """the job is taken from Prometheus' configuration"""
    scene.watched.reload([])
    yield
    walk = Walk(scene, "CallgateUnseen")
    status, text = stage.fetch(f"{scene.watched.url}/api/v1/targets")
    if '"job":"callgate"' in text:
        raise LookupError(text)
    walk.step("the page of targets", "no job for callgate")
    yield
    scene.watched.reload(scene.replicas)
    walk.step("the job's targets are corrected")
