"""What the scripts beside it share: the packages, a gate with a database of its own, servers and proxies."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# The conformance suite's own server is in the source of the Python SDK, and in no package.
PYTHON_SDK = "2.3.0"


def skip(why):
    print(f"mcp: skipped, since {why}")
    sys.exit(0)


def packages():
    """A folder with all that is needed, from the registries; it stays for the next time."""
    for program in ["npm", "tar"]:
        if not shutil.which(program):
            skip(f"{program} is missing")
    folder = HERE.parents[1] / "target/mcp"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ["package.json", "client.mjs", "oauth.mjs"]:
        shutil.copy(HERE / name, folder / name)
    python, source = folder / "python/bin/python", f"mcp-{PYTHON_SDK}"
    server = "examples/servers/everything-server/mcp_everything_server"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    steps = [
        ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder],
        [sys.executable, "-m", "venv", folder / "python"],
        [*pip, "install", f"mcp=={PYTHON_SDK}"],
        [*pip, "download", "--no-deps", "--no-binary", "mcp", "-d", folder, f"mcp=={PYTHON_SDK}"],
        ["tar", "xzf", folder / f"{source}.tar.gz", "-C", folder, "--strip-components=4", f"{source}/{server}"],
    ]
    if not (folder / "mcp_everything_server").exists():
        for step in steps:
            words = list(map(str, step))
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                why = (done.stderr or done.stdout).strip().splitlines()[-1:]
                skip(f"`{' '.join(words)}` failed: {' '.join(why)}")
    return folder


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def answers(url):
    try:
        urllib.request.urlopen(url, timeout=1).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


class Scene:
    """Packages, a folder of its own, and a gate that runs."""

    def __init__(self, callgate):
        self.callgate, self.packages = os.path.abspath(callgate), packages()
        self.folder, self.started = pathlib.Path(tempfile.mkdtemp(prefix="callgate-mcp-")), []
        self.node, self.python = self.packages / "node_modules/.bin/node", self.packages / "python/bin/python"
        # Where it is root that runs this, the database is another user's.
        self.folder.chmod(0o755)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("CALLGATE", "CLAUDE"))}
        self.env = {**clean, "XDG_STATE_HOME": str(self.folder / "state")}
        self.gate = f"http://127.0.0.1:{free_port()}"
        self.start([self.callgate, "serve", "--listen", self.gate.removeprefix("http://"),
                    "--data-dir", self.folder / "data", "--policy", HERE / "policy.yaml"], f"{self.gate}/readyz")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command, url, env=None):
        """Starts what answers at `url`."""
        log = open(self.folder / f"{len(self.started)}.log", "wb")
        process = subprocess.Popen(list(map(str, command)), env=env or self.env, stdout=log, stderr=log)
        self.started.append(process)
        for _ in range(600):
            if answers(url):
                return
            if process.poll() is not None:
                break
            time.sleep(0.1)
        log.close()
        text = pathlib.Path(log.name).read_text(errors="replace")
        raise SystemExit(f"mcp: nobody answers at {url}: {text[-2000:]}")

    def script(self, server):
        return self.packages / f"node_modules/@modelcontextprotocol/server-{server}/dist/index.js"

    def everything(self):
        """The server-everything package over HTTP; gives its URL."""
        port = free_port()
        url, env = f"http://127.0.0.1:{port}/mcp", {**self.env, "PORT": str(port)}
        self.start([self.node, self.script("everything"), "streamableHttp"], url, env)
        return url

    def modern(self):
        """The conformance suite's own server, of the Python SDK, which speaks both generations; gives its URL."""
        port = free_port()
        url, env = f"http://127.0.0.1:{port}/mcp", {**self.env, "PYTHONPATH": str(self.packages)}
        self.start([self.python, "-m", "mcp_everything_server", "--port", port], url, env)
        return url

    def through(self, name, url):
        """A proxy before `url`; gives its own URL."""
        listen = f"127.0.0.1:{free_port()}"
        self.start([*self.proxied(name), "--listen", listen, "--url", url], f"http://{listen}/")
        return f"http://{listen}/mcp"

    def proxied(self, name):
        """The command of a proxy."""
        return [self.callgate, "mcp-proxy", "--server", self.gate, "--server-name", name]
