"""What provokes each alert, and what cures it: a generator an incident, which is cured from its `yield` on."""

import json
import os
import shutil
import subprocess
import threading
import time

import load
import scene as stage
from deployment import Client

INCIDENTS = {}
BATCH = 50


def incident(*alerts, group):
    """Groups run at the same time, the incidents of one after each other."""

    def added(work):
        INCIDENTS[work.__name__] = (alerts, group, work)
        return work

    return added


class Meanwhile:
    """Work that is repeated in threads of its own until it is stopped."""

    def __init__(self, *works):
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(work,), daemon=True) for work in works]
        for thread in self.threads:
            thread.start()

    def run(self, work):
        while not self.stop.is_set():
            try:
                work()
            except (OSError, LookupError, SystemExit):
                time.sleep(0.3)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)


def batches(client, name, tool, count, agent="drill", arguments=lambda n: {"order_id": f"{n}"}):
    """So many calls of a tool, each of other arguments, in sessions of fifty."""
    for first in range(0, count, BATCH):
        calls = [
            {"call_id": f"c{n}", "tool": tool.format(n), "arguments_json": json.dumps(arguments(n))}
            for n in range(first, min(first + BATCH, count))
        ]
        caller = {"session_id": f"{name}-{time.monotonic_ns()}", "agent_id": agent}
        client.ask("GateService/BatchEvaluate", {"caller": caller, "calls": calls}, 30)


def diluted(scene, count=1500):
    """Good calls, so that bad ones are few among them."""
    batches(Client(scene.replicas[0]), "good", "get_order", count)


def steady(scene, replica=0):
    """Single calls, each of its own connectionless session."""
    client = Client(scene.replicas[replica])

    def work():
        call = {"call_id": "1", "tool": "get_order", "arguments_json": '{"order_id": "1"}'}
        caller = {"session_id": f"steady-{time.monotonic_ns()}", "agent_id": "drill"}
        if client.ask("GateService/Evaluate", {"caller": caller, "call": call})[0] != 200:
            time.sleep(0.2)

    return work


# ---- people


@incident("CallgateApprovalOld", group="people")
def approval_waits(scene):
    """a request, dated 40 min back in the database; cure: it is denied"""
    held = load.Agent(scene.replicas[0], "aged", "asker").evaluate("delete_order", {"order_id": "1"})
    scene.postgres.sql(
        f"update callgate.call set at = at - interval '40 minutes' where approval_id = '{held['approvalId']}'"
    )
    yield
    body = {"approval_id": held["approvalId"], "approve": False, "reason": "drill"}
    # Who asks may not answer.
    approver = scene.replicas[0].must("TokenService/CreateToken", {"name": "approver", "roles": ["ROLE_APPROVER"]})
    scene.replicas[0].must("ApprovalService/ResolveApproval", body, token=approver["secret"])


@incident("CallgateHalted", group="people")
def halt_holds(scene):
    """a tool is halted; cure: it is resumed"""
    body = {"scope": "HALT_SCOPE_TOOL", "name": "drilled", "reason": "drill"}
    scene.replicas[0].must("SessionService/Halt", body)
    yield
    scene.replicas[0].must("SessionService/Resume", body)


# ---- credentials


@incident("CallgateTokenEnding", group="token")
def token_ends(scene):
    """a token in use that has 5 of 95 days left, dated back in the database; cure: it is revoked"""
    replica = scene.replicas[0]
    made = replica.must("TokenService/CreateToken", {"name": "ends", "roles": ["ROLE_AGENT"], "ttl": "432000s"})
    client = Client(replica, made["secret"])
    use = Meanwhile(lambda: (client.ask("ServerService/GetServerInfo", {}), time.sleep(1)))
    dated = "update callgate.token set created_at = created_at - interval '90 days'"
    scene.postgres.sql(f"{dated} where token_id = '{made['token']['tokenId']}'")
    yield
    use.end()
    replica.must("TokenService/RevokeToken", {"token_id": made["token"]["tokenId"]})


@incident("CallgateCredentialsRefused", group="refused")
def revoked_token_is_used(scene):
    """40 calls with a token that was revoked; cure: no more of them"""
    replica = scene.replicas[1]
    made = replica.must("TokenService/CreateToken", {"name": "gone", "roles": ["ROLE_AGENT"]})
    client = Client(replica, made["secret"])
    client.ask("ServerService/GetServerInfo", {})
    replica.must("TokenService/RevokeToken", {"token_id": made["token"]["tokenId"]})
    time.sleep(2)
    for _ in range(40):
        client.ask("ServerService/GetServerInfo", {})
    yield


@incident("CallgateKeyMissing", group="keys")
def keys_are_gone(scene):
    """the keys of a tenant are taken from one replica's file; cure: they are put back"""
    scene.replicas[0].must("TenantService/CreateTenant", {"name": "sealed"})
    time.sleep(5)
    scene.write_keys(scene.replicas[1], False)
    yield
    scene.write_keys(scene.replicas[1])


# ---- certificates


def certificate(scene, replica, before_days, after_hours):
    """A certificate that began so long ago and ends so soon."""
    folder = scene.folder / "ca"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01")
    config = (
        "[ca]\ndefault_ca=own\n[own]\ndatabase=%s/index.txt\nserial=%s/serial\nnew_certs_dir=%s\n"
        "default_md=sha256\npolicy=any\nx509_extensions=ext\n[any]\ncommonName=supplied\n"
        "[ext]\nsubjectAltName=IP:127.0.0.1\n[req]\ndistinguished_name=dn\n[dn]\n"
    )
    (folder / "openssl.cnf").write_text(config % (folder, folder, folder))
    key, now = scene.folder / "server.key", time.time()
    made = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=127.0.0.1", "-config", folder / "openssl.cnf"]
    subprocess.run([*map(str, made), "-out", folder / "csr"], check=True, capture_output=True)
    ends = (now - before_days * 86400, now + after_hours * 3600)
    when = [time.strftime("%y%m%d%H%M%SZ", time.gmtime(end)) for end in ends]
    signed = ["openssl", "ca", "-batch", "-selfsign", "-config", folder / "openssl.cnf", "-keyfile", key]
    signed += ["-in", folder / "csr", "-out", folder / "pem", "-notext", "-startdate", when[0], "-enddate", when[1]]
    subprocess.run([*map(str, signed)], check=True, capture_output=True)
    os.replace(folder / "pem", replica.certificate)


@incident("CallgateCertificateEnding", group="certificates")
def certificate_ends(scene):
    """a certificate of 86 days with 6 left; cure: the former one is put back"""
    certificate(scene, scene.replicas[1], 80, 144)
    yield
    shutil.copy(scene.folder / "server.pem", scene.replicas[1].certificate)


@incident("CallgateCertificateEnded", group="certificates")
def certificate_ended(scene):
    """a certificate that has expired; cure: the former one is put back"""
    certificate(scene, scene.replicas[1], 90, -1)
    yield
    shutil.copy(scene.folder / "server.pem", scene.replicas[1].certificate)


# ---- policy file and budgets


def spend(scene, agent, micros):
    one = load.Agent(scene.replicas[0], f"spends-{agent}", agent)
    verdict = one.evaluate("get_order", {"order_id": agent})
    one.record(verdict["call_id"], result="done", usage={"cost_micros": micros})


@incident("CallgateBudgetNear", "CallgateBudgetUsedUp", group="policy")
def budgets_are_used(scene):
    """one agent uses 85 %, another 110 % of its day's budget; cure: the policy file has a higher one"""
    spend(scene, "near", 85_000_000)
    spend(scene, "over", 110_000_000)
    yield
    text = scene.policy.read_text()
    scene.policy.write_text(text.replace("agent: {max_total_cost_usd: 100}", "agent: {max_total_cost_usd: 900}"))


@incident("CallgatePolicyFileRejected", group="policy")
def policy_file_is_rejected(scene):
    """the policy file has a mistake; cure: it is corrected"""
    text = scene.policy.read_text()
    scene.policy.write_text(text + "  budgest: {}\n")
    yield
    scene.policy.write_text(text)


@incident("CallgatePolicyBehind", group="policy")
def policy_cannot_be_read(scene):
    """a policy that no build can read is activated in the database; cure: `policy rollback`"""
    values = "values (1, repeat('0', 64), 'policy_engine: {of_next_year: 1}', 'drill', '')"
    scene.postgres.sql(f"insert into callgate.policy (tenant_id, hash, text, applied_by, note) {values}")
    scene.postgres.sql(
        "insert into callgate.policy_activation (tenant_id, revision, hash, activated_by, note)"
        " select 1, max(revision) + 1, repeat('0', 64), 'drill', '' from callgate.policy_activation where tenant_id = 1"
    )
    yield
    scene.replicas[0].must("PolicyService/RollbackPolicy", {"note": "drill"})


# ---- records


@incident("CallgateBackupOld", group="records")
def backup_is_missing(scene):
    """the newest backup is removed; cure: there is one of now"""
    shutil.rmtree(scene.backups)
    scene.backups.mkdir()
    yield
    scene.make_backup()


@incident("CallgateAuditBroken", group="records")
def audit_log_is_changed(scene):
    """an entry is changed by SQL, and `audit verify` is run; cure: it is changed back, and verified"""
    where = "where tenant_id = 1 and number = (select min(number) from callgate.audit where tenant_id = 1)"
    scene.postgres.sql(f"create table public.kept as select * from callgate.audit {where}", user="owner")
    scene.postgres.sql(f"update callgate.audit set words[5] = 'nothing' {where}")
    scene.replicas[0].must("AuditService/VerifyAudit")
    yield
    same = "a.tenant_id = k.tenant_id and a.number = k.number"
    scene.postgres.sql(f"update callgate.audit a set words = k.words from public.kept k where {same}")
    scene.replicas[0].must("AuditService/VerifyAudit")


@incident("CallgateToolChanged", group="records")
def tool_changes(scene):
    """a proxy reports another description of a tool; cure: an operator accepts it"""

    def reports(digit):
        tool = {"tool": "mcp__files__read", "digest": digit * 64, "description": f"Reads a file. {digit}"}
        scene.replicas[0].must("GateService/ReportTools", {"server": "files", "tools": [tool]})

    reports("a")
    reports("b")
    yield
    named = {"server": "files", "tool": "mcp__files__read", "digest": "b" * 64}
    scene.replicas[0].must("FleetService/ResolveToolDescription", {**named, "accept": True})


@incident("CallgateRetentionDelayed", group="records")
def clock_has_jumped(scene):
    """the database's clock passed over two days unseen, by its record; cure: the gap is confirmed"""
    scene.postgres.sql("update callgate.tenant set clock_gap_ms = 172800000 where tenant_id = 1")
    yield
    scene.postgres.sql("update callgate.tenant set clock_gap_ms = 0 where tenant_id = 1")


# ---- the database's machine


@incident("CallgateDatabaseWal", group="wal")
def slot_holds_log(scene):
    """a replication slot that nobody reads, and 200 MB of changes; cure: the slot is dropped"""
    scene.postgres.sql("select pg_create_physical_replication_slot('gone', true)")
    fill = "create table public.junk as select g, repeat(md5(g::text), 20) from generate_series(1, 280000) g"
    scene.postgres.sql(fill, "postgres")
    yield
    scene.postgres.sql("select pg_drop_replication_slot('gone')")
    scene.postgres.sql("drop table public.junk", "postgres")
    for _ in range(3):
        scene.postgres.sql("select pg_switch_wal()")
        scene.postgres.sql("checkpoint")


@incident("CallgateDatabaseConnections", group="connections")
def connections_are_taken(scene):
    """connections of others, until nine of ten are taken; cure: they end"""
    taken = int(scene.postgres.sql("select count(*) from pg_stat_activity where datid is not null")[0][0])
    psql = [f"{scene.postgres.bin}/psql", "-X", "-q", scene.postgres.url(), "-c", "select pg_sleep(600)"]
    others = [subprocess.Popen(psql, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(88 - taken)]
    yield
    for other in others:
        other.kill()
    scene.postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where query = 'select pg_sleep(600)'")


@incident("CallgateDatabaseTransactionOld", group="transaction")
def transaction_stays_open(scene):
    """a transaction is open for a quarter of an hour; cure: it is terminated"""
    psql = [f"{scene.postgres.bin}/psql", "-X", "-q", scene.postgres.url(), "-c", "begin; select pg_sleep(1800)"]
    subprocess.Popen(psql, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield
    where = "where query like '%pg_sleep(1800)' and pid <> pg_backend_pid()"
    scene.postgres.sql(f"select pg_terminate_backend(pid) from pg_stat_activity {where}")


@incident("CallgateDatabaseDisk", group="disk")
def disk_is_full(scene):
    """a disk of 20 MB is mounted and filled; cure: the file is removed"""
    image, place = scene.folder / "disk", scene.folder / "mount"
    place.mkdir()
    image.write_bytes(b"\0" * (20 << 20))
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True).returncode:
        stage.skip("a disk cannot be mounted here")
    scene.mounts.append(place)
    (place / "file").write_bytes(b"\0" * (15 << 20))
    yield
    (place / "file").unlink()


# ---- agents: shares of all calls, so one after the other


def reported(scene, tool, count, error=None):
    for n in range(count):
        one = load.Agent(scene.replicas[0], f"reports-{tool}-{time.monotonic_ns()}", "worker")
        verdict = one.evaluate(tool, {"query": f"{error} {n}"})
        if verdict["decision"] != "DECISION_ALLOW":
            continue
        if error:
            one.record(verdict["call_id"], "ERROR", error=error)
        else:
            one.record(verdict["call_id"], result="done")


@incident("CallgateLeasesExpiring", group="agents")
def nobody_reports(scene):
    """the leases of 15 calls expire; cure: agents report again"""
    batches(Client(scene.replicas[0]), "hang", "hang", 15, arguments=lambda n: {"id": f"{n}-{time.monotonic_ns()}"})
    yield
    diluted(scene)


@incident("CallgateToolFailing", group="agents")
def tool_fails(scene):
    """30 failures of one tool; cure: 60 successes"""
    reported(scene, "flaky", 30, {"message": "no such row", "http_status": 404})
    yield
    reported(scene, "flaky", 60)


@incident("CallgateRefusalSpike", group="agents")
def calls_are_refused(scene):
    """agents call a tool that the policy does not know; cure: they stop, and others call"""
    batches(Client(scene.replicas[0]), "unknown", "no_such_tool_{}", 3000)
    yield
    diluted(scene, 4500)


@incident("CallgateStopSpike", group="agents")
def calls_are_stopped(scene):
    """an agent is halted and goes on; cure: it is resumed, and others call"""
    body = {"scope": "HALT_SCOPE_AGENT", "name": "runaway", "reason": "drill"}
    scene.replicas[0].must("SessionService/Halt", body)
    time.sleep(2)
    batches(Client(scene.replicas[0]), "runaway", "get_order", 4000, "runaway")
    yield
    scene.replicas[0].must("SessionService/Resume", body)
    diluted(scene, 16000)


@incident("CallgateLoopSpike", group="agents")
def agents_loop(scene):
    """agents repeat one call each; cure: they stop (the window of loops is a quarter of an hour)"""
    client = Client(scene.replicas[0])
    for n in range(60):
        batches(client, f"loop-{n}", "get_order", BATCH, arguments=lambda _: {"order_id": "same"})
    yield
