"""What provokes each alert, and what cures it. An incident is a generator: up to its first `yield` it provokes, up to
the second an operator finds the cause by the alert's runbook, and then comes the runbook's cure. What follows a third
`yield` is done once all is clear."""

import json
import os
import re
import shutil
import subprocess
import threading
import time

import load
import scene as stage
from deployment import Client
from runbooks import Walk

INCIDENTS, PREPARED = {}, "prepared"
# Those that clear when a rule's window is over: the next one does not wait for it.
LONG = set()
# More calls than these, none of them reported, count as a loop.
BATCH = 10


def incident(*alerts, group, part="upkeep", is_long=False):
    """Parts have a deployment each. Groups of a part run at the same time, the incidents of a group in order."""

    def added(work):
        INCIDENTS[work.__name__] = (alerts, (part, group), work)
        LONG.update([work] if is_long else [])
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
    """So many calls of a tool, each of other arguments, in sessions of ten."""
    for first in range(0, count, BATCH):
        calls = [
            {"call_id": f"c{n}", "tool": tool, "arguments_json": json.dumps(arguments(n))}
            for n in range(first, min(first + BATCH, count))
        ]
        caller = {"session_id": f"{name}-{time.monotonic_ns()}", "agent_id": agent}
        client.ask("GateService/BatchEvaluate", {"caller": caller, "calls": calls}, 30)


def going_on(scene, name, tool, agent, size, threads=3, **more):
    """Agents that call the tool in one session after the other, of so many calls, until they are ended."""
    clients = [Client(scene.balancer) for _ in range(threads)]
    return Meanwhile(*[lambda client=client: batches(client, name, tool, size, agent, **more) for client in clients])


def diluted(scene, count=1500):
    """Good calls, so that bad ones are few among them."""
    batches(Client(scene.balancer), "good", "get_order", count)


def steady(scene, to=None, pause=0.1):
    """Single calls, each of a session of its own, through the balancer unless a replica is given."""
    client = Client(to or scene.balancer)

    def work():
        time.sleep(pause)
        call = {"call_id": "1", "tool": "get_order", "arguments_json": '{"order_id": "1"}'}
        caller = {"session_id": f"steady-{time.monotonic_ns()}", "agent_id": "drill"}
        if client.ask("GateService/Evaluate", {"caller": caller, "call": call})[0] != 200:
            time.sleep(0.2)

    return work


# ---- people


@incident("CallgateApprovalOld", group="people")
def approval_waits(scene):
    """a request for approval, dated back by 40 min in the database"""
    held = load.Agent(scene.replicas[0], "aged", "asker").evaluate("delete_order", {"order_id": "1"})
    id_ = held["approvalId"]
    scene.postgres.sql(f"update callgate.call set at = at - interval '40 minutes' where approval_id = '{id_}'")
    yield
    walk = Walk(scene, "CallgateApprovalOld")
    walk.command("callgate approvals list", shows="the request", has="delete_order")
    walk.command("callgate approvals show ID", ID=id_, has="order_id")
    yield
    # Who asks may not answer.
    made = {"name": "approver", "roles": ["ROLE_APPROVER"]}
    approver = scene.replicas[0].must("TokenService/CreateToken", made)["secret"]
    walk.command("callgate approvals approve ID --reason WHY", ID=id_, WHY="drill", token=approver)


@incident("CallgateHalted", group="people")
def halt_holds(scene):
    """a tool is halted"""
    body = {"scope": "HALT_SCOPE_TOOL", "name": "drilled", "reason": "drill"}
    scene.replicas[0].must("SessionService/Halt", body)
    yield
    walk = Walk(scene, "CallgateHalted")
    walk.command("callgate sessions halts", shows="the scope, who halted it, and why", has=["drilled", "admin"])
    yield
    walk.command("callgate sessions resume SCOPE NAME --reason WHY", SCOPE="tool", NAME="drilled", WHY="over")


# ---- credentials


def token_in_use(replica, made):
    """Somebody who calls with a token each second."""
    client = Client(replica, made["secret"])
    return Meanwhile(lambda: (client.ask("ServerService/GetServerInfo", {}), time.sleep(1)))


@incident("CallgateTokenEnding", group="token")
def token_ends(scene):
    """a token in use, dated back in the database: 5 of its 95 days are left"""
    replica = scene.replicas[0]
    made = replica.must("TokenService/CreateToken", {"name": "ends", "roles": ["ROLE_AGENT"], "ttl": "432000s"})
    use, id_ = token_in_use(replica, made), made["token"]["tokenId"]
    scene.postgres.sql(
        f"update callgate.token set created_at = created_at - interval '90 days' where token_id = '{id_}'"
    )
    yield
    walk = Walk(scene, "CallgateTokenEnding")
    walk.command("callgate tokens list", shows="the token", has=id_)
    yield
    walk.command("callgate tokens rotate ID", ID=id_)
    use.end()
    walk.command("callgate tokens revoke ID", ID=id_)


@incident("CallgateCredentialsRefused", group="refused")
def revoked_token_is_used(scene):
    """an agent goes on with a token that was revoked: two calls a second"""
    replica = scene.replicas[1]
    made = replica.must("TokenService/CreateToken", {"name": "gone", "roles": ["ROLE_AGENT"]})
    use = token_in_use(replica, made)
    time.sleep(3)
    replica.must("TokenService/RevokeToken", {"token_id": made["token"]["tokenId"]})
    yield
    walk = Walk(scene, "CallgateCredentialsRefused")
    walk.log(replica, "a credential was rejected", shows="the address and the reason")
    walk.command("callgate tokens list --all", shows="the revoked token", has="gone")
    yield
    walk.command("callgate tokens create NAME --role agent", NAME="gone-2")
    use.end()


@incident("CallgateKeyMissing", group="keys")
def keys_are_gone(scene):
    """a tenant's keys are taken from the file of one replica"""
    scene.replicas[0].must("TenantService/CreateTenant", {"name": "sealed"})
    time.sleep(5)
    scene.write_keys(scene.replicas[1], False)
    yield
    walk = Walk(scene, "CallgateKeyMissing")
    walk.log(scene.replicas[1], "are sealed, and this server has no keys of it", shows="the tenant")
    yield
    scene.write_keys(scene.replicas[1])
    walk.step("the tenant's keys are in the file again")


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


def replaced(scene, has):
    walk, file = Walk(scene, "CallgateCertificateEnding"), scene.replicas[2].certificate
    walk.command("openssl x509 -in FILE -noout -enddate -subject", shows="the expiry", FILE=file, has=has)
    yield
    shutil.copy(scene.folder / "server.pem", file)
    walk.step("the new certificate in the same file")


@incident("CallgateCertificateEnding", group="certificates")
def certificate_ends(scene):
    """a certificate of 86 days with 6 left"""
    certificate(scene, scene.replicas[2], 80, 144)
    yield
    yield from replaced(scene, "notAfter")


@incident("CallgateCertificateEnded", group="certificates")
def certificate_ended(scene):
    """a certificate that has expired"""
    certificate(scene, scene.replicas[2], 90, -1)
    yield
    yield from replaced(scene, "notAfter")
    scene.walked["CallgateCertificateEnded"] = scene.walked["CallgateCertificateEnding"]


# ---- policy file and budgets


def spend(scene, agent, micros):
    one = load.Agent(scene.replicas[0], f"spends-{agent}", agent)
    verdict = one.evaluate("get_order", {"order_id": agent})
    one.record(verdict["call_id"], result="done", usage={"cost_micros": micros})


@incident("CallgateBudgetNear", "CallgateBudgetUsedUp", group="policy")
def budgets_are_used(scene):
    """one agent spends 85 %, another 110 % of a day's budget"""
    spend(scene, "near", 85_000_000)
    spend(scene, "over", 110_000_000)
    yield
    walk = Walk(scene, "CallgateBudgetNear", "CallgateBudgetUsedUp")
    walk.query("the agents and what they spent", has=["near", "over"], user="grafana")
    text = scene.policy.read_text()
    higher = scene.folder / "higher.yaml"
    higher.write_text(text.replace("agent: {max_total_cost_usd: 100}", "agent: {max_total_cost_usd: 900}"))
    yield
    walk.command("callgate policy apply FILE", FILE=higher)
    os.replace(higher, scene.policy)
    scene.walked["CallgateBudgetUsedUp"] = scene.walked["CallgateBudgetNear"]


@incident("CallgatePolicyFileRejected", group="policy")
def policy_file_is_rejected(scene):
    """a mistake in the policy file"""
    text = scene.policy.read_text()
    scene.policy.write_text(text + "  budgest: {}\n")
    yield
    walk = Walk(scene, "CallgatePolicyFileRejected")
    walk.command("callgate policy check FILE", FILE=scene.policy, shows="the line", has="budgest", fails=True)
    walk.log(scene.replicas[0], "the changed policy file cannot be used")
    yield
    scene.policy.write_text(text)
    walk.step("the file is corrected")


@incident("CallgatePolicyBehind", group="policy")
def policy_cannot_be_read(scene):
    """a policy that no build can read is activated in the database"""
    values = "values (1, repeat('0', 64), 'policy_engine: {of_next_year: 1}', 'drill', '')"
    scene.postgres.sql(f"insert into callgate.policy (tenant_id, hash, text, applied_by, note) {values}")
    scene.postgres.sql(
        "insert into callgate.policy_activation (tenant_id, revision, hash, activated_by, note)"
        " select 1, max(revision) + 1, repeat('0', 64), 'drill', '' from callgate.policy_activation where tenant_id = 1"
    )
    yield
    walk = Walk(scene, "CallgatePolicyBehind")
    walk.log(scene.replicas[0], "this build cannot read policy revision …")
    walk.command("callgate policy list", shows="the active one", has="drill")
    yield
    walk.command("callgate policy rollback")
