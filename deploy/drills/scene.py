"""What the drills share: a PostgreSQL of their own, servers of callgate, and a load that retries as the docs tell it."""

import filecmp
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Answers after which the same request may be sent again (docs/contract.md), by the names that JSON has for them.
AGAIN = {"unavailable", "aborted", "deadline_exceeded", "resource_exhausted"}
ANSWERED_WITHIN_S = 30
POLICY = """\
policy_engine:
  tool_schemas:
    pay: {once: true}
    look: {effect: read}
"""


def say(*words):
    print(f"[{time.monotonic() - BEGAN:6.1f}s]", *words, flush=True)


BEGAN = time.monotonic()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(what, holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.05)


def expect(holds, words):
    if not holds:
        raise SystemExit(f"FAILED: {words}")
    say("ok:", words)


KEPT = pathlib.Path(__file__).resolve().parents[2] / "target/drills"


def kept_before(after, kind=""):
    """The file of this kind that passed last, unless it is this one; else the one before it."""
    for file in (KEPT / f"{kind}last", KEPT / f"{kind}before"):
        if file.exists() and not filecmp.cmp(file, after, shallow=False):
            return file
    say(f"no other {kind}build has passed here yet: this one takes both parts")
    return after


def keep(after, kind=""):
    last = KEPT / f"{kind}last"
    if last.exists() and filecmp.cmp(last, after, shallow=False):
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    if last.exists():
        last.replace(KEPT / f"{kind}before")
    shutil.copy2(after, last)


class Postgres:
    """A cluster in a folder. As root its programs run as the user postgres, since they refuse root."""

    def __init__(self, folder, programs):
        self.folder, self.programs = pathlib.Path(folder), pathlib.Path(programs)
        self.port, self.log = free_port(), f"{folder}.log"

    def run(self, program, *words, **more):
        done = self.tried(program, *words, **more)
        if done.returncode:
            log = pathlib.Path(self.log)
            raise SystemExit(f"{program} failed: {(done.stderr or log.exists() and log.read_text() or '')[-3000:]}")
        return done.stdout

    def tried(self, program, *words, **more):
        command = [str(self.programs / program), *map(str, words)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        more = {"capture_output": True, "text": True, "cwd": "/", **more}
        return subprocess.run(command, **more)

    def make(self, *settings):
        self.run("initdb", "-D", self.folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-k")
        self.set(*settings)
        return self

    def set(self, *settings):
        with open(self.folder / "postgresql.auto.conf", "a") as conf:
            conf.write("".join(f"{setting}\n" for setting in settings))

    def start(self):
        self.run("pg_ctl", "-D", self.folder, "-w", "-l", self.log, "-o",
                 f"-p {self.port} -h 127.0.0.1 -k '' -c max_connections=200", "start",
                 capture_output=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def stop(self, mode="fast"):
        self.tried("pg_ctl", "-D", self.folder, "-w", "-m", mode, "stop")

    def sql(self, text, database="callgate"):
        return self.run("psql", "-XAtqd", self.url(database, "postgres"), "-v", "ON_ERROR_STOP=1", "-c", text).strip()

    def url(self, database="callgate", user="plane"):
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}"


class Private(Postgres):
    """The private database of a data directory, which a server starts and stops. Its programs run as its owner."""

    def __init__(self, data_dir, programs, scene, program):
        super().__init__(data_dir / "pg", programs)
        self.data_dir, self.scene, self.program = data_dir, scene, program

    def tried(self, program, *words, **more):
        password = (self.data_dir / "password").read_text().strip()
        known = {"PGHOST": str(self.data_dir / "run"), "PGUSER": "callgate", "PGPASSWORD": password}
        more = {"capture_output": True, "text": True, "cwd": "/", "env": os.environ | known, **more}
        return subprocess.run([str(self.programs / program), *map(str, words)], **more)

    def make(self, *settings):
        server = self.scene.serve(self.program, "private, made", self.url()).up()
        # A server that has only announced itself does not obey SIGTERM in order yet.
        address = f"http://127.0.0.1:{server.port}"
        subprocess.run([self.program, "health", "--wait", "60", "--server", address], check=True, capture_output=True)
        server.stop()
        self.set(*settings)
        return self

    def start(self):
        return self

    def stop(self, mode="fast"):
        pass

    def sql(self, text, database="callgate"):
        return self.run("psql", "-XAtqd", database, "-v", "ON_ERROR_STOP=1", "-c", text).strip()

    def url(self, database="callgate", user="callgate"):
        return self.data_dir


class Server:
    """callgate serve on a database of one's own: a URL, or the data directory of a private one."""

    def __init__(self, program, name, where, policy, log):
        self.name, self.port, self.log = name, free_port(), open(log, "w")
        env = {key: value for key, value in os.environ.items() if not key.startswith(("CALLGATE_", "OTEL_"))}
        is_private = isinstance(where, pathlib.Path)
        database = ["--data-dir", where, "--pg-bin", programs()] if is_private else ["--database-url", where]
        command = [program, "serve", "--listen", f"127.0.0.1:{self.port}", *database, "--policy", policy]
        pipes = {"stdout": subprocess.PIPE, "stderr": self.log, "text": True}
        self.process = subprocess.Popen(list(map(str, command)), env=env, **pipes)
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if "stop " in line:
                break
        self.serves = "stop " in self.said
        if not self.serves:
            self.process.wait()
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def why(self):
        return pathlib.Path(self.log.name).read_text()[-2000:]

    def up(self):
        if not self.serves:
            raise SystemExit(f"{self.name} did not start: {self.why()}")
        say(f"{self.name} serves on {self.port}")
        return self

    def stop(self):
        """As a service manager does it: what is in progress is answered."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        if code:
            raise SystemExit(f"{self.name} ended with {code}: {self.why()}")
        say(f"{self.name} has stopped")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Refused(Exception):
    """An answer that no retry changes."""


class Caller:
    """One connection, to whichever server answers: what a client with a load balancer in front sees."""

    def __init__(self, ports):
        self.ports, self.at, self.line, self.again = ports, random.randrange(1 << 30), None, 0

    def ask(self, method, message):
        end, pause = time.monotonic() + ANSWERED_WITHIN_S, 0.02
        while True:
            try:
                return self.once(method, message)
            except (OSError, http.client.HTTPException) as error:
                why = repr(error)
                self.hang_up()
            self.again += 1
            if time.monotonic() > end:
                raise Refused(f"{method}: no answer within {ANSWERED_WITHIN_S} s: {why}")
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(1, pause * 2)

    def once(self, method, message):
        if self.line is None:
            ports = list(self.ports)
            if not ports:
                raise OSError("no server")
            self.at += 1
            self.line = http.client.HTTPConnection("127.0.0.1", ports[self.at % len(ports)], timeout=10)
        self.line.request("POST", f"/callgate.v1.GateService/{method}", json.dumps(message),
                          {"content-type": "application/json"})
        answer = self.line.getresponse()
        body = json.loads(answer.read() or b"{}")
        if answer.status == 200:
            return body
        if body.get("code") in AGAIN:
            raise OSError(f"{body}")
        raise Refused(f"{method}: {answer.status} {body}")

    def hang_up(self):
        if self.line is not None:
            self.line.close()
        self.line = None


class Load:
    """Agents that ask, do, and report, one call after the other; every tenth is a payment that two agents want."""

    def __init__(self, ports, agents=6):
        self.ports, self.lock, self.stopping = ports, threading.Lock(), threading.Event()
        self.permitted, self.recorded, self.payments, self.failed = set(), set(), {}, []
        self.again, self.longest_s = 0, 0.0
        self.name = os.urandom(3).hex()
        self.threads = [threading.Thread(target=self.agent, args=(n,), daemon=True) for n in range(agents)]
        for thread in self.threads:
            thread.start()

    def agent(self, n):
        caller, turn = Caller(self.ports), 0
        while not self.stopping.is_set():
            turn += 1
            # Sessions end: a policy's ceilings would end them otherwise.
            session = f"{self.name}-{n}-{turn // 20}"
            if turn % 10:
                tool, arguments = "look", {"n": turn}
            else:
                # Two agents want to pay the same.
                tool, arguments = "pay", {"invoice": f"{self.name}-{n // 2}-{turn // 10}"}
            try:
                self.call(caller, session, f"c{turn}", tool, arguments)
            except Refused as refused:
                with self.lock:
                    self.failed.append(f"{session} c{turn} {tool}: {refused}")
            time.sleep(0.01)
        with self.lock:
            self.again += caller.again

    def call(self, caller, session, call_id, tool, arguments):
        began = time.monotonic()
        who = {"sessionId": session, "agentId": "drill"}
        call = {"callId": call_id, "tool": tool, "argumentsJson": json.dumps(arguments)}
        decision = caller.ask("Evaluate", {"caller": who, "call": call})["verdict"]["decision"]
        if decision == "DECISION_ALLOW":
            with self.lock:
                self.permitted.add((session, call_id))
                if tool == "pay":
                    self.payments.setdefault(arguments["invoice"], set()).add((session, call_id))
            report = {"caller": who, "callId": call_id, "status": "OUTCOME_STATUS_SUCCESS", "result": "done"}
            caller.ask("Record", report)
            with self.lock:
                self.recorded.add((session, call_id))
        elif not (tool == "pay" and decision in ("DECISION_WAIT", "DECISION_REUSE", "DECISION_DENY")):
            raise Refused(f"{decision}")
        with self.lock:
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def count(self):
        with self.lock:
            return len(self.recorded)

    def goes_on(self, calls=100):
        """Waits until so many more calls have been permitted, done and recorded."""
        before = self.count()
        until("the load to go on", lambda: self.count() >= before + calls or self.failed)
        self.check()

    def check(self):
        with self.lock:
            if self.failed:
                raise SystemExit(f"FAILED: {len(self.failed)} calls failed, as {self.failed[0]}")
            twice = {invoice: whose for invoice, whose in self.payments.items() if len(whose) > 1}
            if twice:
                raise SystemExit(f"FAILED: permitted twice: {twice}")

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(ANSWERED_WITHIN_S + 15)
        self.check()


def stored(postgres, columns="session_id, call_id", table="call", where="true"):
    """Pairs as they are stored."""
    rows = postgres.sql(f"select {columns} from callgate.{table} where {where}").splitlines()
    return {tuple(row.split("|")) for row in rows}


def programs():
    """The folder of PostgreSQL's programs: PG_BIN, or the newest that Debian has."""
    given = os.environ.get("PG_BIN")
    known = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    beside = shutil.which("pg_basebackup")
    found = given or (known[-1] if known else beside and pathlib.Path(beside).parent)
    if not found or not (pathlib.Path(found) / "pg_basebackup").exists():
        print("skipped: PostgreSQL's programs are not here; name their folder in PG_BIN", file=sys.stderr)
        raise SystemExit(0)
    return pathlib.Path(found)


class Scene:
    """A folder that goes away, with everything in it stopped."""

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="callgate-drill-"))
        self.folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.policy = self.folder / "policy.yaml"
        self.policy.write_text(POLICY)
        self.servers, self.clusters = [], []
        return self

    def postgres(self, name):
        self.clusters.append(Postgres(self.folder / name, programs()))
        return self.clusters[-1]

    def private(self, name, program):
        return Private(self.folder / name, programs(), self, program)

    def serve(self, program, name, where):
        self.servers.append(Server(program, name, where, self.policy, self.folder / f"server-{name}.log"))
        return self.servers[-1]

    def __exit__(self, *_):
        for server in self.servers:
            if server.process.poll() is None:
                server.kill()
        for cluster in self.clusters:
            cluster.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
