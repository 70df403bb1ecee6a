"""Walks a section of docs/runbooks.md as an operator on call does: what is run stands there, with its placeholders
filled in."""

import re
import subprocess
import time

import scene as stage

PAGE = stage.ROOT / "docs/runbooks.md"
# Exit code of a command that asks for the same request again, as under overload.
RETRYABLE, RETRIES = 75, 10


def folded(text):
    return re.sub(r"\s+", " ", text)


def section(heading):
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.M | re.S)
    if not found:
        raise LookupError(f"docs/runbooks.md has no section {heading}")
    return found[1]


class Walk:
    """One section, and the steps of it that were taken."""

    def __init__(self, scene, alert, *others):
        self.scene, self.alert = scene, alert
        texts = [section(name) for name in (alert, *others, "Common steps")]
        self.text = folded("\n".join(texts))
        self.queries = re.findall(r"```sql\n(.*?)```", "\n".join(texts[:-1]), flags=re.S)
        for name in (alert, *others):
            scene.walked.setdefault(name, [])

    def written(self, text):
        if folded(text) not in self.text:
            raise LookupError(f"docs/runbooks.md#{self.alert.lower()} does not have: {text}")
        return text

    def step(self, text, shows=""):
        steps = self.scene.walked[self.alert]
        if (step := f"{text} shows {shows}" if shows else text) not in steps:
            steps.append(step)

    def held(self, output, has, of):
        if not all(word in output for word in ([has] if isinstance(has, str) else has)):
            raise LookupError(f"docs/runbooks.md#{self.alert.lower()}: {of} does not show {has}: {output[-1500:]}")
        return output

    def command(self, text, shows="", has="", token=None, env=None, fails=False, **filled):
        """Runs a command of the section, with each placeholder replaced; gives what it prints."""
        line = self.written(text)
        for name, value in filled.items():
            line = re.sub(rf"\b{name}\b", lambda _: str(value), line)
        env = self.scene.shell(token) | (env or {})
        for _ in range(RETRIES):
            done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=120)
            if done.returncode != RETRYABLE:
                break
            time.sleep(1)
        output = done.stdout + done.stderr
        if bool(done.returncode) != fails:
            at = f"docs/runbooks.md#{self.alert.lower()}"
            raise LookupError(f"{at}: {line} exited {done.returncode}: {output[-1500:]}")
        self.held(output, has, line)
        self.step(f"`{text}`", shows)
        return output

    def query(self, shows, has="", user="callgate", number=0, **filled):
        """Asks a query of the section; gives its rows."""
        text = self.queries[number]
        for name, value in filled.items():
            text = text.replace(f"'{name}'", f"'{value}'")
        rows = self.scene.postgres.sql(text, user=user)
        self.held("\n".join(map(str, rows)), has, "the query")
        self.step("the query", shows)
        return rows

    def statement(self, text, user="callgate", **filled):
        """Runs a short statement of the section."""
        line = self.written(text)
        for name, value in filled.items():
            line = re.sub(rf"\b{name}\b", lambda _: str(value), line)
        rows = self.scene.postgres.sql(line, user=user)
        self.step(f"`{text}`")
        return rows

    def log(self, replica, text, shows=""):
        """Waits for a line that the section names in the replica's log."""
        self.written(text)
        pattern = re.compile(".*".join(map(re.escape, text.split("…"))))
        stage.until(f"the log of {replica.name} has {text}", lambda: pattern.search(self.scene.log(replica.name)), 30)
        self.step(f'the log line "{text}"', shows)
