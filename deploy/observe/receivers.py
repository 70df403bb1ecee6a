"""Who is told: Alertmanager's receiver, and the receiver of callgate's notifications."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serving(post):
    """A server on this machine; `post` gets each body, and gives the status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(post(self.rfile.read(int(self.headers["content-length"]))))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


class Notified:
    """A destination of notifications, which can be down."""

    def __init__(self):
        self.is_down = False
        self.url = serving(lambda _: 503 if self.is_down else 200)

    def written(self, folder):
        """A file for --notifications with this destination, for halts."""
        secret, file = folder / "webhook-secret", folder / "notifications.yaml"
        secret.write_text("whsec_" + base64.b64encode(b"d" * 32).decode())
        webhook = {"url": self.url, "secret_file": str(secret)}
        destination = {"name": "pager", "events": ["halted"], "webhook": webhook}
        file.write_text(json.dumps({"console_url": "https://plane.example", "destinations": [destination]}))
        return file


class Receiver:
    """Alertmanager's receiver: when each alert fired, and when it was resolved."""

    def __init__(self):
        self.began, self.told = time.monotonic(), {}
        self.url = serving(self.post)

    def post(self, body):
        for alert in json.loads(body)["alerts"]:
            self.take(alert)
        return 200

    def take(self, alert):
        name, state = alert["labels"]["alertname"], alert["status"]
        key = tuple(sorted(alert["labels"].items()))
        now = time.monotonic()
        series = self.told.setdefault(name, {})
        if series.get(key, ("resolved", 0))[0] != state:
            series[key] = (state, now)
            summary = alert["annotations"]["summary"]
            print(f"drill: {now - self.began:6.1f} s  {name:32} {state:8} {summary}", flush=True)

    def is_firing(self, name):
        return any(state == "firing" for state, _ in self.told.get(name, {}).values())
