"""The deployment as it is shipped, as processes: three replicas with the settings of deploy/kubernetes, on a database
with the settings and roles of deploy/compose, watched by Prometheus, Alertmanager and the exporters. Containers are not
needed. Only addresses, paths and passwords differ, and what `Watched` and `Deployment` name."""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import scene as stage
import yaml
from balancer import Balancer
from receivers import Notified, Receiver

KUBERNETES = stage.ROOT / "deploy/kubernetes"
COMPOSE = stage.ROOT / "deploy/compose"
RULES = stage.ROOT / "deploy/prometheus/rules"
# `for` in the rules is divided by this, since no drill waits for twelve hours, down to some scrapes. Expressions are as
# they are shipped.
FACTOR, FOR_MIN_MS = 600, 4000
# An alert of one event clears when its window is over, which is shortened: alert, window as shipped, and here.
WINDOWS = {"CallgateDoubleEffect": ("1h", "5m")}
PARTS = ("alertmanager", "postgres-exporter", "node-exporter")
UNITS = {"s": 1, "m": 60, "h": 3600}
PASSWORD = "drill"
# What an exporter from 0.13 on exports by itself. Debian's is older.
WAL = """\
pg_wal:
  query: select sum(size) as size_bytes from pg_ls_waldir()
  metrics:
    - size_bytes: {usage: GAUGE, description: size}
"""


def database_url(port):
    return f"postgres://callgate:{PASSWORD}@127.0.0.1:{port}/callgate?sslmode=disable"


class Relay:
    """A way to the database that can be cut."""

    def __init__(self, port):
        self.to, self.is_cut, self.ends = port, False, []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.server.accept()
            if self.is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to), 5)
            except OSError:
                near.close()
                continue
            self.ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    @staticmethod
    def copy(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.is_cut = True
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.ends.clear()

    def mend(self):
        self.is_cut = False


class Member(stage.Replica):
    """A replica with the environment of the manifests."""

    def __init__(self, scene, name, database_port):
        self.scene, self.name, self.port, self.ops = scene, name, stage.free_port(), stage.free_port()
        self.address, self.url = f"127.0.0.1:{self.port}", f"https://127.0.0.1:{self.port}"
        self.certificate, self.keys = scene.folder / f"{name}.pem", scene.folder / f"{name}.keys.yaml"
        shutil.copy(scene.folder / "server.pem", self.certificate)
        self.context = stage.ssl.create_default_context(cafile=self.certificate)
        texts = [(KUBERNETES / file).read_text() for file in ("base/deployment.yaml", "example/policy.yaml")]
        specs = [next(yaml.safe_load_all(text))["spec"]["template"]["spec"] for text in texts]
        shipped = [one for spec in specs for one in spec["containers"][0]["env"]]
        self.env = {one["name"]: one["value"] for one in shipped if "value" in one}
        self.env |= {
            "CALLGATE_DATABASE_URL": database_url(database_port),
            "CALLGATE_LISTEN": f"{self.address},unix:{scene.folder / name}.sock",
            "CALLGATE_OPS_LISTEN": f"127.0.0.1:{self.ops}",
            "CALLGATE_TLS_CERT": str(self.certificate),
            "CALLGATE_TLS_KEY": str(scene.folder / "server.key"),
            "CALLGATE_POLICY": str(scene.policy),
            "CALLGATE_KEYS": str(self.keys),
            "CALLGATE_BACKUPS": str(scene.backups),
            "CALLGATE_NOTIFICATIONS": str(scene.notifications),
            "OTEL_RESOURCE_ATTRIBUTES": f"k8s.pod.name={name}",
        }

    def start(self):
        command = [self.scene.callgate, "serve"]
        self.process = self.scene.start(self.name, command, {**self.scene.env, **self.env})
        stage.until(f"{self.name} answers", self.is_ready, 120)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Client:
    """Calls of one thread, on one connection at a time."""

    def __init__(self, replica, token=None):
        self.replica, self.token, self.connection = replica, token or replica.scene.token, None

    def ask(self, method, body, timeout=10):
        if self.connection is None:
            self.connection = http.client.HTTPSConnection(
                "127.0.0.1", self.replica.port, context=self.replica.context, timeout=timeout
            )
        head = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        try:
            self.connection.request("POST", f"/callgate.v1.{method}", json.dumps(body), head)
            answer = self.connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if answer.status == 200 else {}
        except (OSError, http.client.HTTPException, ValueError):
            self.connection.close()
            self.connection = None
            return 0, {}


class Deployment(stage.Scene):
    """Three replicas on one database. The folder has their files."""

    def begin(self):
        self.policy, self.backups = self.folder / "policy.yaml", self.folder / "backups"
        self.notified = Notified()
        self.notifications = self.notified.written(self.folder)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/callgate").symlink_to(self.callgate)
        self.backups.mkdir()
        self.make_backup()
        self.policy.write_text(stage.POLICY.read_text().replace("get_order: {", "get_order: {lease_ms: 1h, "))
        self.certificate()
        service = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]["postgres"]
        # The target of the write-ahead log is smaller, so that twice of it is soon there.
        options = [word for word in service["command"] if "=" in word and not word.startswith("max_wal_size")]
        self.postgres = stage.Postgres(self.folder, [*options, "max_wal_size=64MB"])
        self.roles()
        self.relay = Relay(self.postgres.port)
        ports = [self.postgres.port, self.postgres.port, self.relay.port]
        manifest = next(yaml.safe_load_all((KUBERNETES / "base/deployment.yaml").read_text()))
        names = [f"callgate-{n}" for n in range(manifest["spec"]["replicas"])]
        self.replicas = [Member(self, name, port) for name, port in zip(names, ports)]
        for replica in self.replicas:
            self.write_keys(replica)
        self.admin_token()
        for replica in self.replicas:
            replica.start()
        reader = "insert into callgate.analyst (name, tenant_id) select 'grafana', tenant_id from callgate.tenant"
        self.postgres.sql(reader)
        self.balancer = Balancer(self)

    def shell(self, token=None):
        """The environment of an operator who has a context for the deployment, and psql."""
        return self.env | {
            "PATH": f"{self.folder / 'bin'}:{self.postgres.bin}:{self.env['PATH']}",
            "CALLGATE_SERVER": self.replicas[0].url,
            "CALLGATE_CA": str(self.folder / "server.pem"),
            "CALLGATE_TOKEN": token or self.token,
            "CALLGATE_DATABASE_URL": database_url(self.postgres.port),
            "CURL_CA_BUNDLE": str(self.folder / "server.pem"),
        }

    def at(self, number):
        """The placeholder of an address in the runbooks, as this replica's."""
        return {"HOST:7600": self.replicas[number].address}

    def make_backup(self, hours=0):
        """What `callgate backup --in` left so many hours ago, as far as its age needs it."""
        folder = self.backups / time.strftime("callgate-%Y%m%dT%H%M%SZ", time.gmtime(time.time() - hours * 3600))
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")

    def roles(self):
        self.postgres.sql("drop database callgate", "postgres")
        self.postgres.sql("create role postgres superuser login", "postgres")
        env = {
            **os.environ,
            "PATH": f"{self.postgres.bin}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.postgres.port),
            "CALLGATE_DB_PASSWORD": PASSWORD,
            "GRAFANA_DB_PASSWORD": PASSWORD,
        }
        subprocess.run(["sh", COMPOSE / "roles.sh"], env=env, check=True, capture_output=True)

    def admin_token(self):
        """As the compose file's service `admin-token` makes it."""
        service = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]["admin-token"]
        words = [str(self.folder / "admin") if word.startswith("/tokens/") else word for word in service["command"]]
        env = {**self.env, "CALLGATE_ADMIN_DATABASE_URL": database_url(self.postgres.port)}
        subprocess.run([self.callgate, *words], env=env, check=True, capture_output=True)
        self.token = (self.folder / "admin").read_text().strip()

    def write_keys(self, replica, is_there=True):
        key = "tenants:\n  sealed:\n    keys:\n    - {id: one, file: %s}\n    fingerprint: {file: %s}\n"
        for name, digit in (("key", "1"), ("mark", "2")):
            (self.folder / name).write_text(digit * 64)
            (self.folder / name).chmod(0o600)
        text = key % (self.folder / "key", self.folder / "mark") if is_there else "tenants: {}\n"
        replica.keys.write_text(text)


class Watched:
    """Prometheus with the shipped rules, Alertmanager, and the exporters of the database's machine."""

    def __init__(self, scene):
        self.scene, self.receiver = scene, Receiver()
        for program in ("prometheus", *(f"prometheus-{part}" for part in PARTS)):
            if not shutil.which(program):
                stage.skip(f"{program} is missing (apt-get install {program})")
        self.rules = [self.scaled(file) for file in sorted(RULES.glob("*.yml"))]
        self.manager, self.exporter, self.node = (f"127.0.0.1:{stage.free_port()}" for _ in range(3))
        self.url = f"http://127.0.0.1:{stage.free_port()}"
        self.alertmanager()
        (scene.folder / "queries.yaml").write_text(WAL)
        exporter = ["prometheus-postgres-exporter", "--web.listen-address", self.exporter]
        exporter += ["--extend.query-path", scene.folder / "queries.yaml"]
        scene.start("postgres-exporter", exporter, {**scene.env, "DATA_SOURCE_NAME": scene.postgres.url()})
        scene.start("node-exporter", ["prometheus-node-exporter", "--web.listen-address", self.node])
        self.configure(scene.replicas)
        command = ["prometheus", "--config.file", scene.folder / "prometheus.json"]
        command += ["--web.listen-address", self.url.removeprefix("http://")]
        command += ["--storage.tsdb.path", scene.folder / "tsdb"]
        self.process = scene.start("prometheus", command)
        stage.until("Prometheus is ready", lambda: stage.answers(f"{self.url}/-/ready"))

    def scaled(self, file):
        def short(found):
            return f"for: {max(FOR_MIN_MS, int(found[1]) * UNITS[found[2]] * 1000 // FACTOR)}ms"

        copy, text = self.scene.folder / file.name, file.read_text()
        for alert, (shipped, here) in WINDOWS.items():
            text = re.sub(rf"(alert: {alert}\n\s+expr: .*)\[{shipped}\]", rf"\1[{here}]", text)
        copy.write_text(re.sub(r"\bfor: (\d+)([smh])", short, text))
        return copy

    def alertmanager(self):
        hook = [{"url": self.receiver.url, "send_resolved": True}]
        route = {"receiver": "drill", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        config = {"route": route, "receivers": [{"name": "drill", "webhook_configs": hook}]}
        (self.scene.folder / "alertmanager.json").write_text(json.dumps(config))
        command = ["prometheus-alertmanager", "--config.file", self.scene.folder / "alertmanager.json"]
        command += ["--web.listen-address", self.manager, "--cluster.listen-address", ""]
        command += ["--storage.path", self.scene.folder / "alertmanager"]
        self.scene.start("alertmanager", command)

    def configure(self, replicas):
        """As deploy/compose/prometheus.yml, by addresses in the place of names, and each two seconds."""
        shipped = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
        job = {"job_name": shipped["scrape_configs"][0]["job_name"]}
        job["static_configs"] = [{"targets": [f"127.0.0.1:{one.ops}" for one in replicas]}]
        database = {"callgate": "database"}
        # The disks of the machine that drills are not the database's.
        own = [{"source_labels": ["mountpoint"], "regex": f"{self.scene.folder}.*", "action": "keep"}]
        node = {"job_name": "node", "metric_relabel_configs": own}
        config = {
            "global": {"scrape_interval": "2s", "evaluation_interval": "1s"},
            "rule_files": [str(rule) for rule in self.rules],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [self.manager]}]}]},
            "scrape_configs": [
                *([job] if replicas else []),
                {"job_name": "postgres", "static_configs": [{"targets": [self.exporter], "labels": database}]},
                node | {"static_configs": [{"targets": [self.node], "labels": database}]},
            ],
        }
        (self.scene.folder / "prometheus.json").write_text(json.dumps(config))

    def reload(self, replicas):
        self.configure(replicas)
        self.process.send_signal(1)
