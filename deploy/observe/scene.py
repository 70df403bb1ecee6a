"""What the scripts beside it share: packages, a PostgreSQL, a collector, a Prometheus, and replicas that are told of all."""

import glob
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
POLICY = HERE / "policy.yaml"


def skip(why):
    print(f"observe: skipped, since {why}")
    sys.exit(0)


def packages():
    """An environment with requirements.txt, from the registry; runs this script in it. It stays for the next time."""
    home, wanted = ROOT / "target/observe/python", (HERE / "requirements.txt").read_text()
    if sys.prefix == str(home):
        return
    made = home / "made"
    if not made.exists() or made.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        for step in (
            [sys.executable, "-m", "venv", home],
            [
                home / "bin/python",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--pre",
                "--only-binary",
                "rotel",
                "-r",
                HERE / "requirements.txt",
            ],
        ):
            done = subprocess.run(list(map(str, step)), capture_output=True, text=True)
            if done.returncode:
                why = (done.stderr or done.stdout).strip().splitlines()[-1:]
                skip(f"`{step[2]}` failed: {' '.join(why)}")
        made.write_text(wanted)
    os.execv(home / "bin/python", [str(home / "bin/python"), *sys.argv])


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def fetch(url, data=None, headers=None, context=None, timeout=20):
    """The status of an answer, and its text."""
    request = urllib.request.Request(url, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def until(what, found, seconds=60):
    """What `found` gives, once it gives anything."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.2)
    raise SystemExit(f"observe: {what}: not within {seconds} s")


class Postgres:
    """A server of its own, which can be stopped and started again."""

    def __init__(self, folder, options=("max_connections=200",)):
        places = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda place: float(place.split("/")[4]))
        config = shutil.which("pg_config")
        places += [subprocess.check_output([config, "--bindir"], text=True).strip()] if config else []
        places = [place for place in places if os.path.exists(f"{place}/initdb")]
        if not places:
            skip("PostgreSQL's programs are missing (deploy/install-postgres.sh)")
        self.bin, self.data, self.port = places[-1], folder / "pg", free_port()
        self.options = "".join(f" -c {option}" for option in options)
        # As root it refuses to run.
        self.user = "postgres" if os.getuid() == 0 else None
        self.data.mkdir()
        if self.user:
            found = pwd.getpwnam(self.user)
            os.chown(self.data, found.pw_uid, found.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "owner", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
        self.start()
        self.sql("create database callgate", "postgres")

    def run(self, program, *words):
        command = [f"{self.bin}/{program}", *map(str, words)]
        done = subprocess.run(
            command,
            user=self.user,
            group=self.user,
            extra_groups=[] if self.user else None,
            capture_output=True,
            text=True,
            cwd="/",
        )
        if done.returncode:
            raise SystemExit(f"observe: {program}: {done.stderr[-2000:]}")
        return done.stdout

    def start(self):
        options = f"-p {self.port} -h 127.0.0.1 -k ''{self.options}"
        self.run("pg_ctl", "-D", self.data, "-o", options, "-l", self.data / "log", "-w", "start")

    def stop(self):
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def url(self, user="owner"):
        return f"postgresql://{user}@127.0.0.1:{self.port}/callgate?sslmode=disable"

    def sql(self, text, database="callgate", user="owner"):
        """Rows, each a list of columns."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", user, "-d", database]
        done = subprocess.run(
            [f"{self.bin}/psql", *where, "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", text],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise LookupError(done.stderr.strip())
        return [line.split("\t") for line in done.stdout.splitlines() if line]


class Replica:
    """A server, and one who calls it."""

    def __init__(self, scene, name, *words, tls=False, env=None):
        self.scene, self.port, self.name = scene, free_port(), name
        self.words, self.more = list(words), dict(env or {})
        self.context = None
        if tls:
            self.words += ["--tls-cert", scene.folder / "server.pem", "--tls-key", scene.folder / "server.key"]
            self.context = ssl.create_default_context(cafile=scene.folder / "server.pem")
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.address}"
        self.start()

    def start(self):
        command = [
            self.scene.callgate,
            "serve",
            "--listen",
            self.address,
            "--database-url",
            self.scene.postgres.url(),
            "--log-format",
            "json",
            *self.words,
        ]
        self.process = self.scene.start(self.name, command, {**self.scene.env, **self.more})
        until(f"{self.name} answers", self.is_ready)

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"observe: {self.name} ended: {self.scene.log(self.name)[-3000:]}")
        try:
            return fetch(f"{self.url}/readyz", context=self.context)[0] == 200
        except OSError:
            return False

    def ask(self, method, body=None, token=None, headers=None, raw=None):
        """Status and answer of a method, in JSON."""
        token = self.scene.token if token is None else token
        head = {
            "content-type": "application/json",
            **({"authorization": f"Bearer {token}"} if token else {"callgate-by": "observe"}),
        }
        data = raw if raw is not None else json.dumps(body or {}).encode()
        status, text = fetch(f"{self.url}/callgate.v1.{method}", data, {**head, **(headers or {})}, self.context)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, {"text": text}

    def must(self, method, body=None, **more):
        status, answer = self.ask(method, body, **more)
        if status != 200:
            raise SystemExit(f"observe: {method} {body} answered {status}: {answer}")
        return answer

    def metrics(self):
        status, text = fetch(
            f"{self.url}/metrics", headers={"authorization": f"Bearer {self.scene.token}"}, context=self.context
        )
        if status != 200:
            raise SystemExit(f"observe: /metrics of {self.name} answered {status}: {text}")
        return text


class Scene:
    """A folder, and all that runs in it until the `with` block ends."""

    def __init__(self, callgate):
        self.callgate = os.path.abspath(callgate)
        self.folder, self.started, self.token = pathlib.Path(tempfile.mkdtemp(prefix="callgate-observe-")), [], ""
        # Where it is root that runs this, the database is another user's.
        self.folder.chmod(0o755)
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("CALLGATE", "OTEL"))}
        self.env = {**keep, "XDG_STATE_HOME": str(self.folder / "state")}
        self.postgres = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        if self.postgres:
            subprocess.run(
                [f"{self.postgres.bin}/pg_ctl", "-D", self.postgres.data, "-m", "immediate", "stop"],
                user=self.postgres.user,
                group=self.postgres.user,
                cwd="/",
                capture_output=True,
                extra_groups=[] if self.postgres.user else None,
            )
        if kind and os.environ.get("OBSERVE_KEEP"):
            print(f"observe: left in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name, command, env=None):
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(list(map(str, command)), env=env or self.env, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def certificate(self):
        """One for this machine, which holds for a day."""
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "20",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            self.folder / "server.key",
            "-out",
            self.folder / "server.pem",
        ]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)

    def collector(self, sink_url):
        """rotel, which takes OTLP by gRPC and HTTP and hands it on; gives both ports."""
        program = glob.glob(f"{sys.prefix}/lib/python*/site-packages/rotel/rotel-agent")
        if not program:
            skip("there is no rotel for this machine")
        grpc, http = free_port(), free_port()
        command = [
            program[0],
            "start",
            "--otlp-grpc-endpoint",
            f"127.0.0.1:{grpc}",
            "--otlp-http-endpoint",
            f"127.0.0.1:{http}",
            "--exporter",
            "otlp",
            "--otlp-exporter-endpoint",
            sink_url,
            "--otlp-exporter-protocol",
            "http",
            "--otlp-exporter-compression",
            "none",
            "--batch-timeout",
            "200ms",
        ]
        self.start("rotel", command)
        until("rotel listens", lambda: all(listens(port) for port in (grpc, http)))
        return grpc, http

    def prometheus(self, replicas, rules=(), interval="1s"):
        """Debian's, or another; scrapes the replicas. Gives its URL."""
        program = shutil.which("prometheus")
        if not program:
            skip("Prometheus is missing (apt-get install prometheus)")
        scrapes = []
        for replica in replicas:
            scrapes.append(
                {
                    "job_name": replica.name,
                    "scheme": replica.url.split(":")[0],
                    **({"authorization": {"credentials": self.token}} if self.token else {}),
                    "tls_config": {"insecure_skip_verify": True},
                    "static_configs": [{"targets": [replica.address]}],
                }
            )
        config = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(rule) for rule in rules],
            "scrape_configs": scrapes,
        }
        (self.folder / "prometheus.json").write_text(json.dumps(config))
        url = f"http://127.0.0.1:{free_port()}"
        self.start(
            "prometheus",
            [
                program,
                "--config.file",
                self.folder / "prometheus.json",
                "--web.listen-address",
                url.removeprefix("http://"),
                "--storage.tsdb.path",
                self.folder / "tsdb",
            ],
        )
        until("Prometheus is ready", lambda: answers(f"{url}/-/ready"))
        return url


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def answers(url):
    try:
        return fetch(url)[0] == 200
    except OSError:
        return False


def names(kind=None):
    """The names of deploy/TELEMETRY.md, by the title of their table."""
    tables, title = {}, None
    for line in (ROOT / "deploy/TELEMETRY.md").read_text().splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif found := re.match(r"\| `([^`]+)` \| (.*) \|$", line):
            tables.setdefault(title, {})[found[1]] = found[2]
    return tables[kind] if kind else tables
