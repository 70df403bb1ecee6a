"""The processes of a run: PostgreSQL, replicas of callgate, relays between them, tenants with tokens."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy/drills"))
import scene

from relay import Relays

TENANTS = ("default", "acme")
DISK_MB = 400
CALLS_MAX = 12
LEASE_S = 4
# Every replica judges by a policy within two seconds after it was applied at one of them.
POLICY_KNOWN_S = 3
RUN = "FAULTS_RUN"
POLICY = f"""\
policy_engine:
  retry: {{probe_share: 0}}
  unknown_tools: allow
  budgets:
    call_tree: {{max_tool_calls: {CALLS_MAX}, max_total_cost_usd: 0}}
    agent: {{max_total_cost_usd: 0}}
    tenant: {{max_total_cost_usd: 0}}
  tool_schemas:
    pay: {{once: true, lease_ms: {LEASE_S}s}}
    mcp__bank__pay: {{once: true, lease_ms: {LEASE_S}s}}
    note: {{effect: write, repeatable: true, lease_ms: {LEASE_S}s}}
    step: {{effect: write, repeatable: true, lease_ms: {LEASE_S}s}}
"""


def environment(run: str, **more: str) -> dict[str, str]:
    """Nothing of the caller's settings; the run's name, by which left processes are found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CALLGATE_", "OTEL_"))}
    return {**kept, RUN: run, **more}


class Clock:
    """The wall clock of processes that are started with `env`, where the library for it was built."""

    library = ROOT / "target/faults/clock.so"

    def __init__(self, file: Path) -> None:
        self._file = file
        self.step(0)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "FAULTS_CLOCK": str(self._file)} if self.library.exists() else {}

    def step(self, seconds: int) -> None:
        """That many seconds past the machine's clock, from now on."""
        # In its place: the processes have it mapped.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))


class Postgres(scene.Postgres):
    """A cluster that can be killed and paused, and whose clock can be stepped."""

    def __init__(self, folder: Path, programs: Path, clock: Clock) -> None:
        super().__init__(folder, programs)
        self.clock = clock

    def tried(self, program: str, *words: object, **more: object) -> subprocess.CompletedProcess[str]:
        shifted = {"env": {**os.environ, **self.clock.env}} if program == "pg_ctl" else {}
        return super().tried(program, *words, **shifted, **more)

    def pids(self) -> list[int]:
        """The postmaster, if it runs, and then its children."""
        try:
            postmaster = int((self.folder / "postmaster.pid").read_text().splitlines()[0])
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
        except (OSError, ValueError, IndexError):
            return []
        return [postmaster, *map(int, children.split())]

    def signal(self, what: int) -> None:
        """The postmaster comes first, so that it starts no more children."""
        seen: set[int] = set()
        while left := [pid for pid in self.pids() if pid not in seen]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, what)
            seen.update(left)
            if what == signal.SIGKILL:
                break

    def thaw(self) -> None:
        for pid in reversed(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def up(self, seconds: float = 60) -> None:
        """Starts it where it does not run; after a crash it first recovers."""
        end = time.monotonic() + seconds
        while self.tried("pg_ctl", "-D", self.folder, "status").returncode or not self.answers():
            if time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL does not start: {Path(self.log).read_text()[-2000:]}")
            with contextlib.suppress(SystemExit):
                if self.tried("pg_ctl", "-D", self.folder, "status").returncode:
                    self.start()
            time.sleep(0.2)

    def answers(self) -> bool:
        return self.tried("psql", "-XAtqd", self.url("postgres", "postgres"), "-c", "select 1").returncode == 0

    def rows(self, sql: str) -> list[list[str]]:
        """What a query gives, asked past all relays, as soon as the server answers."""
        end = time.monotonic() + 60
        while True:
            asked = self.tried("psql", "-XAtqd", self.url("callgate", "postgres"), "-F", "\x1f", "-c", sql)
            if not asked.returncode:
                return [line.split("\x1f") for line in asked.stdout.splitlines()]
            if time.monotonic() > end:
                raise RuntimeError(f"{sql}: {asked.stderr}")
            time.sleep(0.5)


class Replica:
    """`callgate serve` on one port, started again and again."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.port = scene.free_port()
        self._command, self._log, self._env = [*command, "--listen", f"127.0.0.1:{self.port}"], log, env
        self.process: subprocess.Popen[str] | None = None

    def start(self, seconds: float = 30) -> bool:
        """True once it serves; one that does not is ended."""
        with self._log.open("a") as log:
            pipes = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
            self.process = subprocess.Popen(self._command, env=self._env, **pipes)
        serves, out = threading.Event(), self.process.stdout

        def read() -> None:
            for line in out:
                if re.search(r"serves gRPC on", line):
                    serves.set()

        threading.Thread(target=read, daemon=True).start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if serves.wait(0.1):
                return True
        self.kill()
        return False

    def up(self) -> None:
        """Starts it where it does not run, as a service manager would."""
        for _ in range(5):
            if self.process is not None and self.process.poll() is None or self.start():
                return
        raise RuntimeError(f"a replica does not start: {self._log.read_text()[-2000:]}")

    def signal(self, what: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(what)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Plane:
    """All of it. What it started is ended with the `with` block, by its process ids."""

    def __init__(self, program: str, replicas: int, broken: str = "") -> None:
        self.program, self.broken = program, broken
        self.run = f"faults-{secrets.token_hex(4)}"
        self.folder = Path(tempfile.mkdtemp(prefix="callgate-faults-"))
        self.tokens: dict[tuple[str, str], str] = {}
        self.relays = Relays()
        self.replicas: list[Replica] = []
        self._count = replicas
        self._is_mounted = False
        self.state = self.folder / "state"

    def __enter__(self) -> Plane:
        try:
            self._set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _set_up(self) -> None:
        self.folder.chmod(0o755)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0755", "callgate-faults", str(self.disk)]
        self._is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        if os.geteuid() == 0:
            # The programs of PostgreSQL run as this account, since they refuse root.
            shutil.chown(self.folder, "postgres", "postgres")
            shutil.chown(self.disk, "postgres", "postgres")
        self.clocks = [Clock(self.folder / f"clock-{n}") for n in range(self._count)]
        self.postgres = Postgres(self.disk / "pg", scene.programs(), Clock(self.folder / "clock-database"))
        self.postgres.make("max_wal_size = 64MB", "min_wal_size = 32MB", "log_min_messages = warning").start()
        self.postgres.sql("create role plane login createrole", "postgres")
        self.postgres.sql("create database callgate owner plane", "postgres")
        self._make_tenants()
        relays = [self.relays.to(self.postgres.port) for _ in range(self._count)]
        self.to_database = relays
        self.replicas = [self._replica(n, relay.port) for n, relay in enumerate(relays)]
        for replica in self.replicas:
            replica.up()
        # The file of --policy is that of the first tenant alone.
        apply = ("policy", "apply", str(self.folder / "policy.yaml"), "--server")
        shown = {"CALLGATE_TOKEN_FILE": self.token_file("acme", "admin")}
        self.callgate(*apply, f"http://127.0.0.1:{self.replicas[0].port}", **shown)
        time.sleep(POLICY_KNOWN_S)
        self.to_replicas = [self.relays.to(replica.port) for replica in self.replicas]

    @property
    def can_fill_disk(self) -> bool:
        return self._is_mounted

    def _replica(self, number: int, port: int) -> Replica:
        url = f"postgres://plane@127.0.0.1:{port}/callgate"
        command = [self.program, "serve", "--database-url", url, "--policy", str(self.folder / "policy.yaml")]
        command += ["--keys", str(self.folder / "keys.yaml"), "--no-console"]
        broken = {"CALLGATE_BREAK": self.broken} if self.broken else {}
        env = environment(self.run, **self.clocks[number].env, **broken)
        return Replica(command, self.folder / f"replica-{number}.log", env)

    def _make_tenants(self) -> None:
        """One is encrypted from its beginning; each has tokens of its own."""
        (self.folder / "policy.yaml").write_text(POLICY)
        for name in ("old", "new", "mark"):
            self.write(name, secrets.token_hex(32))
        (self.folder / "keys.yaml").write_text("tenants: {}\n")
        first = self._replica(0, self.postgres.port)
        try:
            first.up()
            self.callgate("tenants", "create", "acme", "--server", f"http://127.0.0.1:{first.port}")
        finally:
            first.kill()
        self.keys("old")
        database = self.postgres.url()
        for tenant in TENANTS:
            # The first token of all has to be an admin's.
            for role in ("admin", "agent"):
                made = ["tokens", "create", f"{role}-{tenant}", "--role", role, "--tenant", tenant, "--any-session"]
                said = self.callgate(*made, "--database-url", database)
                self.tokens[tenant, role] = said.strip()
                self.write(f"{role}-{tenant}.token", said.strip())

    def keys(self, first: str) -> None:
        """The file of keys, with this one sealing."""
        names = sorted(("old", "new"), key=first.__ne__)
        lines = "".join(f"    - {{id: {name}, file: {self.folder}/{name}}}\n" for name in names)
        text = f"tenants:\n  acme:\n    keys:\n{lines}    fingerprint: {{file: {self.folder}/mark}}\n"
        self.write("keys.yaml", text)

    def write(self, name: str, text: str) -> Path:
        """A file that is replaced at once, for its owner alone."""
        path = self.folder / f".{name}"
        path.write_text(text)
        path.chmod(0o600)
        return path.rename(self.folder / name)

    def callgate(self, *words: str, **more: str) -> str:
        done = self.tried(*words, **more)
        if done.returncode:
            raise RuntimeError(f"callgate {' '.join(words)}: {done.stderr}")
        return done.stdout

    def tried(self, *words: str, seconds: float = 60, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """A command of callgate; one that does not end in time is killed, with the exit code of `timeout`."""
        env = environment(self.run, XDG_STATE_HOME=str(self.state), XDG_CONFIG_HOME=str(self.state), **more)
        command = [self.program, *words]
        try:
            return subprocess.run(command, env=env, input=given, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "no end in time")

    def keep_logs(self, seed: int) -> None:
        """Of a run that has failed."""
        logs = ROOT / f"target/faults/logs-{seed}"
        logs.mkdir(parents=True, exist_ok=True)
        for log in (self.postgres.log, *self.folder.glob("*.log"), *self.folder.glob("executions")):
            shutil.copy(log, logs)
        scene.say(f"logs are in {logs}")

    def url(self, number: int) -> str:
        """Of a replica, through its relay."""
        return f"http://127.0.0.1:{self.to_replicas[number].port}"

    def token_file(self, tenant: str, role: str = "agent") -> str:
        return str(self.folder / f"{role}-{tenant}.token")

    def _left(self) -> list[int]:
        """Processes with the run's name in their environment, such as those that hooks leave behind."""
        found, mark = [], f"{RUN}={self.run}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.kill()
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if hasattr(self, "postgres"):
            self.postgres.thaw()
            self.postgres.stop("immediate")
        self.relays.close()
        if self._is_mounted:
            subprocess.run(["umount", str(self.disk)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
