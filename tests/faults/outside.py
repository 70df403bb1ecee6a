"""Agents that are programs: the hooks of a coding agent, an MCP client behind the proxy, the TypeScript client."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agents import WINDOW_S, belongs_to_others
from plane import environment, scene

if TYPE_CHECKING:
    from history import History
    from plane import Plane

HERE = Path(__file__).parent
CALLS_OF_SESSION = 9
HOOK_S = 30


class _Outside(threading.Thread):
    """Stops when told; `tenant` says whose token it shows."""

    def __init__(self, plane: Plane, history: History, tenant: str, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True, name=f"{type(self).__name__}-{tenant}")
        self.tenant, self.stop = tenant, stop
        self._plane, self._history, self._seed = plane, history, seed
        self._random = random.Random(f"{seed} {self.name}")

    def _shown(self) -> dict[str, str]:
        number = self._random.randrange(len(self._plane.replicas))
        return {"CALLGATE_SERVER": self._plane.url(number), "CALLGATE_TOKEN_FILE": self._plane.token_file(self.tenant)}

    def _drawn(self) -> dict[str, object]:
        return {"invoice": f"inv-{int(time.time() / WINDOW_S)}-{self._random.randrange(2)}"}

    def _env(self) -> dict[str, str]:
        state = str(self._plane.state)
        return environment(self._plane.run, XDG_STATE_HOME=state, XDG_CONFIG_HOME=state, **self._shown())


class HookAgent(_Outside):
    """A coding agent that runs a tool unless its hook says no, and tells the hook what came of it."""

    def run(self) -> None:
        turn = 0
        while not self.stop.wait(0.2):
            turn += 1
            session, args, shown = f"hook-{turn // CALLS_OF_SESSION}", self._drawn(), self._shown()
            call = {"session_id": session, "cwd": "/", "tool_name": "mcp__bank__pay", "tool_input": args}
            call["tool_use_id"] = f"h{turn}"
            asked = self._hook({"hook_event_name": "PreToolUse", **call}, shown)
            belongs_to_others(self._history, self.tenant, f"hook {call}", asked.stdout)
            may_run = asked.returncode == 0 and '"deny"' not in asked.stdout and '"ask"' not in asked.stdout
            self._history.count(f"hook {'runs' if may_run else 'blocked'}")
            if not may_run:
                continue
            self._history.execute(self.tenant, "mcp__bank__pay", args, f"hook {session} {call['tool_use_id']}")
            gave = {"hook_event_name": "PostToolUse", **call, "tool_response": f"done for mark-{self.tenant}"}
            if self._hook(gave, shown).returncode == 0:
                self._history.count("hook recorded")
                with self._history.lock:
                    self._history.outcomes.setdefault((self.tenant, session, call["tool_use_id"]), "success")

    def _hook(self, event: dict[str, object], shown: dict[str, str]) -> subprocess.CompletedProcess[str]:
        words = ("hook", "claude-code", "--timeout", "10")
        return self._plane.tried(*words, seconds=HOOK_S, given=json.dumps(event), **shown)


class McpAgent(_Outside):
    """A client of an MCP server behind `callgate mcp-proxy`; one proxy a session."""

    def run(self) -> None:
        part = 0
        while not self.stop.is_set():
            part += 1
            command = [self._plane.program, "mcp-proxy", "--server-name", "bank", "--session", f"mcp-{part}", "--"]
            command += [sys.executable, str(HERE / "tool.py"), str(self._history.executions), self.tenant]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            with subprocess.Popen(command, env=self._env(), **pipes) as proxy:
                killer = threading.Timer(90, proxy.kill)
                killer.start()
                with contextlib.suppress(OSError, ValueError):
                    self._session(proxy)
                with contextlib.suppress(OSError):
                    proxy.stdin.close()
                proxy.wait()
                killer.cancel()

    def _session(self, proxy: subprocess.Popen[str]) -> None:
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "faults", "version": "1"}}
        self._request(proxy, 0, "initialize", client)
        for number in range(1, CALLS_OF_SESSION):
            if self.stop.wait(0.2):
                return
            said = self._request(proxy, number, "tools/call", {"name": "pay", "arguments": self._drawn()})
            belongs_to_others(self._history, self.tenant, "mcp", said)
            self._history.count("mcp runs" if '"isError"' not in said else "mcp refused")

    def _request(self, proxy: subprocess.Popen[str], number: int, method: str, params: dict[str, object]) -> str:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        proxy.stdin.write(f"{json.dumps(request)}\n")
        proxy.stdin.flush()
        while line := proxy.stdout.readline():
            if json.loads(line).get("id") == number:
                return line
        raise OSError("the proxy has ended")


class TypeScriptAgent(_Outside):
    """Runs in Node, where the client was built for it (`tests/faults/run`)."""

    def run(self) -> None:
        folder = Path(__file__).parents[2] / "target/faults/typescript/agent"
        if not (folder / "node_modules/@callgate/client").exists():
            scene.say("not tried: the TypeScript client, since it was not built")
            return
        script = folder / "agent.mjs"
        script.write_text((HERE / "agent.mjs").read_text())
        command = ["node", str(script), str(self._history.executions), self.tenant, str(self._seed)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, env=self._env(), **pipes) as node:
            threading.Thread(target=self._end, args=(node,), daemon=True).start()
            for line in node.stdout:
                said = json.loads(line)
                belongs_to_others(self._history, self.tenant, "typescript", said.get("text", ""))
                self._history.count(f"typescript {said.get('decision') or said.get('error')}")
                if said.get("ran") and said.get("recorded"):
                    with self._history.lock:
                        self._history.outcomes[self.tenant, said["session"], said["callId"]] = "success"

    def _end(self, node: subprocess.Popen[str]) -> None:
        self.stop.wait()
        with contextlib.suppress(OSError):
            node.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(60)
        node.kill()
