"""The table of a drill, and its place in docs/runbooks.md."""

import re

from deployment import RULES, WINDOWS
from runbooks import PAGE

HEAD = [
    "| alert | metric | provoked by | fires after, and `for` as shipped | cause found after | runbook, as walked | clears after |",
    "|---|---|---|---|---|---|---|",
]
BEGIN, END = "<!-- deploy/observe/drill --write: begin -->", "<!-- end -->"
# What is no metric in an expression has no underscore, or is one of these.
METRIC = re.compile(r"\b((?:callgate|pg|node|db|rpc|process)_[a-z0-9_]+)\b(?!=|:)|\b(up)\b\{")
LABELS = re.compile(r"\{[^}]*\}|(?:by|on|ignoring) \([^)]*\)")


def expressions(kind):
    """Name and expression of each rule of a kind, `alert` or `record`."""
    text = "".join(file.read_text() for file in sorted(RULES.glob("*.yml")))
    parts = re.split(rf"^ *- {kind}: (\S+)\n", text, flags=re.M)
    cut = re.compile(r"expr: (.*?)\n +(?:for|labels):|expr: (.*?)(?=\n +(?:#|- )|\n\n|\Z)", flags=re.S)
    return {name: next(filter(None, cut.search(rest).groups())) for name, rest in zip(parts[1::2], parts[2::2])}


def alerts():
    return list(expressions("alert"))


def metrics(name, records={}):
    """The first metric that an alert's expression reads, also by a recording rule."""
    records = records or expressions("record")
    text = expressions("alert")[name]
    for record, of in records.items():
        text = text.replace(record, of)
    found = METRIC.search(LABELS.sub(lambda it: "{" if it[0].startswith("{") else "", text))
    return found[1] or found[2]


def told(seconds):
    return "never" if seconds is None else f"{seconds:.0f} s"


def waits(name):
    """The `for` of an alert, as it is shipped."""
    text = "".join(file.read_text() for file in RULES.glob("*.yml"))
    own = re.split(r"- alert: (\w+)\n", text)
    found = re.search(r"\bfor: (\w+)", own[own.index(name) + 1])
    return f" + {found[1]}" if found else ""


def lines(rows):
    """A line of the table for each alert."""
    made = {}
    for row in rows:
        name, note = row["alert"], ""
        if name in WINDOWS:
            note = " (window of {1} instead of {0})".format(*WINDOWS[name])
        cells = [f"[{name}](#{anchor(name)})", f"`{metrics(name)}`", row["how"] + note]
        cells += [told(row["fires"]) + waits(name), told(row["found"]), "; ".join(row["steps"]), told(row["clears"])]
        made[name] = "| " + " | ".join(cells) + " |"
    return made


def anchor(name):
    """The runbook of an alert, which may be that of another."""
    text = "".join(file.read_text() for file in RULES.glob("*.yml"))
    return re.search(rf"- alert: {name}\n.*?runbook_url: [^\n]*#(\w+)'", text, flags=re.S)[1]


def write(new):
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    kept = {re.search(r"\[(\w+)\]", line)[1]: line for line in old.splitlines() if line.startswith("| [")}
    kept |= new
    table = [*HEAD, *[kept[name] for name in alerts() if name in kept]]
    PAGE.write_text("\n".join([before.rstrip("\n"), "", BEGIN, "", *table, "", END]) + after)


