"""Asks every panel's query: Prometheus' through its API, SQL through psql as the reader."""

import json
import re
import time
import urllib.parse

from scene import ROOT, fetch

DASHBOARDS = ROOT / "deploy/grafana/dashboards"


def panels():
    """Board, panel, and each of its queries."""
    for file in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield board, panel, target


def variables():
    """Each choice's question, once."""
    seen = {}
    for file in sorted(DASHBOARDS.glob("*.json")):
        for variable in json.loads(file.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                seen[variable["name"]] = variable
    return seen


def prometheus(url, expr):
    """The figures that the question has given over the last two minutes."""
    now = time.time()
    query = urllib.parse.urlencode({"query": expr, "start": now - 120, "end": now, "step": "2s"})
    status, text = fetch(f"{url}/api/v1/query_range?{query}")
    answer = json.loads(text)
    if status != 200:
        raise LookupError(answer.get("error", text))
    return [float(value) for series in answer["data"]["result"] for _, value in series["values"]]


def expression(expr):
    """As Grafana sends it, for every replica."""
    return expr.replace("$__rate_interval", "1m").replace('"$job"', '".+"').replace('"$instance"', '".+"')


def statement(text, choices):
    """As Grafana sends it, for the last day."""
    begin, end = "(now() - interval '1 day')", "(now() + interval '1 minute')"
    text = re.sub(r"\$__timeGroup\((\w+), \$__interval\)", r"floor(extract(epoch from \1) / 60) * 60", text)
    text = re.sub(r"\$__timeFilter\(((?:\w|\(\w+\))+)\)", rf"\1 between {begin} and {end}", text)
    text = text.replace("$__timeFrom()", begin).replace("$__timeTo()", end)
    for name, value in choices.items():
        text = text.replace(f"${name}", value)
    if "$" in text:
        raise LookupError(f"a macro or choice that is not known here: {text}")
    return text


def runbooks():
    """The questions that the runbooks put to the database."""
    text = (ROOT / "docs/runbooks.md").read_text()
    return re.findall(r"```sql\n(.*?)```", text, flags=re.S)
