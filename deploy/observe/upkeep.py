"""Incidents of what is kept in order: backups, the audit log, notifications, and the machine of the database."""

import os
import shutil
import subprocess
import time

import scene as stage
from incidents import PREPARED, incident
from runbooks import Walk


@incident("CallgateBackupOld", group="records")
def backup_is_old(scene):
    """the newest backup is two days old; the server is one with a private database"""
    # The deployment's own database is no private one.
    data = scene.folder / "private"
    env = scene.env | {"CALLGATE_DATA_DIR": str(data), "CALLGATE_LISTEN": f"127.0.0.1:{stage.free_port()}"}
    private = scene.start("private", [scene.callgate, "serve"], env)
    subprocess.run([scene.callgate, "health", "--wait", "120"], env=env, check=True, capture_output=True)
    yield PREPARED
    shutil.rmtree(scene.backups)
    scene.backups.mkdir()
    scene.make_backup(48)
    yield
    walk = Walk(scene, "CallgateBackupOld")
    yield
    command = "callgate backup --in DIR --keep 14 --verify"
    walk.command(command, DIR=scene.backups, has="Verified", env={"CALLGATE_DATA_DIR": str(data)})
    private.terminate()


@incident("CallgateAuditBroken", group="records")
def audit_log_is_changed(scene):
    """an entry of the audit log is changed by SQL, and verified"""
    where = "where tenant_id = 1 and number = (select min(number) from callgate.audit where tenant_id = 1)"
    scene.postgres.sql(f"create table public.kept as select * from callgate.audit {where}", user="owner")
    scene.postgres.sql(f"update callgate.audit set words[5] = 'nothing' {where}")
    scene.replicas[0].must("AuditService/VerifyAudit")
    yield
    walk = Walk(scene, "CallgateAuditBroken")
    at = {"CALLGATE_SERVER": scene.replicas[0].url}
    walk.command("callgate audit verify", shows="the entry", has="1", env=at, fails=True)
    yield
    same = "a.tenant_id = k.tenant_id and a.number = k.number"
    scene.postgres.sql(f"update callgate.audit a set words = k.words from public.kept k where {same}")
    walk.step("the entry is restored")
    walk.command("callgate audit verify", env=at)


@incident("CallgateToolChanged", group="records")
def tool_changes(scene):
    """a proxy of an MCP server reports another description of a tool"""

    def reports(digit):
        tool = {"tool": "mcp__files__read", "digest": digit * 64, "description": f"Reads a file. {digit}"}
        scene.replicas[0].must("GateService/ReportTools", {"server": "files", "tools": [tool]})

    reports("a")
    reports("b")
    yield
    walk = Walk(scene, "CallgateToolChanged")
    at = {"CALLGATE_SERVER": scene.replicas[0].url}
    walk.command("callgate tools changes", shows="the description", has="b", env=at)
    yield
    named = {"SERVER": "files", "TOOL": "mcp__files__read", "DIGEST": "b" * 64, "WHY": "announced"}
    walk.command("callgate tools accept SERVER TOOL DIGEST --reason WHY", env=at, **named)


@incident("CallgateRetentionDelayed", group="records")
def clock_has_jumped(scene):
    """the database's clock passed over two days without a server, by its record"""
    scene.postgres.sql("update callgate.tenant set clock_gap_ms = 172800000 where tenant_id = 1")
    yield
    walk = Walk(scene, "CallgateRetentionDelayed")
    walk.command("callgate database clock", shows="the delay")
    yield
    walk.command("callgate database clock --confirm")


@incident("CallgateNotificationsFailing", group="notifications")
def receiver_is_down(scene):
    """the receiver of a webhook answers 503 to three notifications and their retries"""
    scene.notified.is_down = True
    for name in ("one", "two", "three"):
        scene.replicas[0].must("SessionService/Halt", {"scope": "HALT_SCOPE_AGENT", "name": name, "reason": "drill"})
    yield
    walk = Walk(scene, "CallgateNotificationsFailing")
    logs = lambda: any("a notification was not sent" in scene.log(one.name) for one in scene.replicas)  # noqa: E731
    stage.until("a log has the failure", logs, 30)
    walk.step(f'the log line "{walk.written("a notification was not sent")}"', "the destination and its answer")
    test = "callgate notifications test --notifications FILE"
    walk.command(test, FILE=scene.notifications, has="503", shows="the same", fails=True)
    yield
    scene.notified.is_down = False
    walk.step("the receiver is repaired")
    walk.command(test, FILE=scene.notifications)
    for name in ("one", "two", "three"):
        scene.replicas[0].must("SessionService/Resume", {"scope": "HALT_SCOPE_AGENT", "name": name, "reason": "over"})


# ---- the database's machine


@incident("CallgateDatabaseWal", group="wal")
def slot_holds_log(scene):
    """a replication slot that nobody reads, and 200 MB of changes"""
    scene.postgres.sql("select pg_create_physical_replication_slot('gone', true)")
    fill = "create table public.junk as select g, repeat(md5(g::text), 20) from generate_series(1, 280000) g"
    scene.postgres.sql(fill, "postgres")
    yield
    walk = Walk(scene, "CallgateDatabaseWal")
    walk.query("the slot, and what it holds", has="gone", user="postgres")
    yield
    walk.statement("select pg_drop_replication_slot(NAME)", user="postgres", NAME="'gone'")
    scene.postgres.sql("drop table public.junk", "postgres")
    # The next checkpoints do it.
    for _ in range(3):
        scene.postgres.sql("select pg_switch_wal()")
        scene.postgres.sql("checkpoint")


@incident("CallgateDatabaseConnections", group="connections")
def connections_are_taken(scene):
    """connections of another application, until nine of ten are taken"""
    taken = int(scene.postgres.sql("select count(*) from pg_stat_activity where datid is not null")[0][0])
    psql = [f"{scene.postgres.bin}/psql", "-X", "-q", scene.postgres.url(), "-c", "select pg_sleep(600)"]
    env = os.environ | {"PGAPPNAME": "other"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    others = [subprocess.Popen(psql, env=env, **quiet) for _ in range(88 - taken)]
    yield
    walk = Walk(scene, "CallgateDatabaseConnections")
    walk.query("whose connections they are", has="other")
    yield
    walk.step("the other application is stopped")
    for other in others:
        other.kill()
    scene.postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_sleep(600)'")


@incident("CallgateDatabaseTransactionOld", group="transaction")
def transaction_stays_open(scene):
    """a transaction of an analyst stays open for a quarter of an hour"""
    psql = [f"{scene.postgres.bin}/psql", "-X", "-q", scene.postgres.url("grafana")]
    psql += ["-c", "begin; select pg_sleep(1800)"]
    env = os.environ | {"PGAPPNAME": "report"}
    subprocess.Popen(psql, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield
    walk = Walk(scene, "CallgateDatabaseTransactionOld")
    rows = walk.query("the transaction and its owner", has="report", user="postgres")
    yield
    pid = next(row[0] for row in rows if "report" in row)
    walk.statement("select pg_terminate_backend(PID)", user="postgres", PID=pid)


@incident("CallgateDatabaseDisk", group="disk")
def disk_is_full(scene):
    """a disk of 20 MB is mounted and filled"""
    image, place = scene.folder / "disk", scene.folder / "mount"
    place.mkdir()
    image.write_bytes(b"\0" * (20 << 20))
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True).returncode:
        stage.skip("a disk cannot be mounted here")
    scene.mounts.append(place)
    (place / "file").write_bytes(b"\0" * (15 << 20))
    yield
    walk = Walk(scene, "CallgateDatabaseDisk")
    walk.command("df", shows="the disk", has=str(place))
    walk.statement("select pg_size_pretty(pg_database_size(current_database()))")
    yield
    (place / "file").unlink()
    walk.step("a file is moved away")
