"""Building blocks of boards: queries, panels, rows. A board is data, from which these functions make Grafana's JSON.

Panels fill rows from left to right by their widths, and wrap at 24 columns, so none can overlap.
"""

import re

SCHEMA = 41  # of dashboards, as Grafana 12 writes them; later versions read it
PROMETHEUS = {"type": "prometheus", "uid": "${prometheus}"}
SQL = {"type": "grafana-postgresql-datasource", "uid": "${sql}"}
PALETTE = {"good": "green", "look": "orange", "bad": "red"}
# One colour a decision, on every board.
DECISIONS = {"ALLOW": "green", "ASK": "blue", "WAIT": "yellow", "REUSE": "purple", "DENY": "orange", "STOP": "red"}


def prom(expr, legend="__auto", instant=False):
    """A query to Prometheus. `$of` stands for the selected replicas."""
    of = 'job=~"$job",instance=~"$instance"'
    target = {"datasource": PROMETHEUS, "expr": expr.replace("$of", of), "legendFormat": legend}
    return target | ({"instant": True, "range": False, "format": "table"} if instant else {"range": True})


def sql(text, series=False):
    """A query to the views of the schema callgate."""
    text = re.sub(r"\s+", " ", text).strip()
    return {
        "datasource": SQL,
        "rawSql": text,
        "rawQuery": True,
        "editorMode": "code",
        "format": "time_series" if series else "table",
    }


def panel(
    title,
    kind,
    words,
    *queries,
    unit="short",
    wide=8,
    high=8,
    steps=None,
    stack=False,
    runbook=None,
    of=None,
    hide=(),
    units=None,
    least=None,
    most=None,
    x=None,
):
    """A panel: `words` describe it in plain language; `steps` are thresholds, as (value, state); `runbook` is the alert
    with the steps to take; `units` are of single columns; `x` is the field of a chart's axis."""
    colours = [{"color": PALETTE["good"], "value": None}]
    colours += [{"color": PALETTE[how], "value": value} for value, how in steps or ()]
    defaults = {
        "unit": unit,
        "thresholds": {"mode": "absolute", "steps": colours},
        "color": {"mode": "thresholds" if kind in ("stat", "gauge") else "palette-classic"},
    }
    defaults |= {"min": least} if least is not None else {}
    defaults |= {"max": most} if most is not None else {}
    options, overrides = {}, []
    legend = {"displayMode": "list", "placement": "bottom", "calcs": [], "showLegend": True}
    if kind in ("timeseries", "trend"):
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if stack else 8,
            "spanNulls": False,
            "showPoints": "auto" if kind == "trend" else "never",
            "stacking": {"mode": "normal" if stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if steps else "off"},
        }
        options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}} | ({"xField": x} if x else {})
    if kind == "barchart":
        options = {
            "legend": legend,
            "tooltip": {"mode": "multi", "sort": "none"},
            "xField": x,
            "showValue": "never",
            "stacking": "none",
            "orientation": "auto",
        }
    if kind in ("stat", "gauge"):
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
            "textMode": "auto",
            "justifyMode": "auto",
            "orientation": "auto",
        }
    if kind == "table":
        options = {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}}
        defaults["custom"] = {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}}
    for name, its in (units or {}).items():
        overrides.append({"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": its}]})
    for name in hide:
        properties = [{"id": "custom.hidden", "value": True}]
        overrides.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
    if of == "decision":
        for name, colour in DECISIONS.items():
            properties = [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]
            overrides.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
    made = {
        "title": title,
        "type": kind,
        "description": words,
        "datasource": queries[0]["datasource"],
        "targets": [query | {"refId": chr(65 + n)} for n, query in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": options,
        "gridPos": {"w": wide, "h": high},
    }
    if runbook:
        made["links"] = [
            {"title": f"Runbook: {runbook}", "url": f"${{runbooks}}#{runbook.lower()}", "targetBlank": True}
        ]
    return made


def row(title, *panels):
    """A row with its panels."""
    return title, panels


def variable(name, label, query, words, several=True, source=None):
    """A variable at the top of a board, with values from a source."""
    source = source or (SQL if query.lstrip().lower().startswith("select") else PROMETHEUS)
    asked = query if source is SQL else {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}
    every = {"text": ["All"], "value": ["$__all"]} if several else {}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": source,
        "query": asked,
        "definition": query,
        "description": words,
        "includeAll": several,
        "multi": several,
        "refresh": 2,
        "sort": 1,
        "current": every,
        "options": [],
        "hide": 0,
        "regex": "",
        "skipUrlSync": False,
    }


def source(name, label, kind, uid):
    """A variable that selects a data source of a kind."""
    return {
        "name": name,
        "label": label,
        "type": "datasource",
        "query": kind,
        "current": {"text": uid, "value": uid},
        "includeAll": False,
        "multi": False,
        "options": [],
        "hide": 0,
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }


METRICS = [
    source("prometheus", "Metrics", PROMETHEUS["type"], "prometheus"),
    variable("job", "Fleet", "label_values(callgate_cache_trees, job)", "Prometheus' jobs that scrape callgate."),
    variable("instance", "Replica", 'label_values(callgate_cache_trees{job=~"$job"}, instance)', "Its replicas."),
]
STORED = [
    source("sql", "Database", SQL["type"], "callgate-sql"),
    variable(
        "tenant",
        "Tenant",
        "select distinct tenant_id::text from callgate.policy_activations order by 1",
        "Tenants that the login of this data source may see, by number (callgate tenants list has their names).",
    ),
]
RUNBOOKS = {
    "name": "runbooks",
    "label": "Runbooks",
    "type": "textbox",
    "query": "docs/runbooks.md",
    "hide": 0,
    "description": "URL of the runbooks, to which panels link.",
    "skipUrlSync": False,
    "current": {"text": "docs/runbooks.md", "value": "docs/runbooks.md"},
    "options": [{"selected": True, "text": "docs/runbooks.md", "value": "docs/runbooks.md"}],
}


def board(uid, title, words, variables, *rows, since="now-6h", refresh="30s"):
    """A whole board."""
    placed, y, number = [], 0, 0
    for name, panels in rows:
        number += 1
        placed.append(
            {
                "id": number,
                "type": "row",
                "title": name,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
            }
        )
        x, y, high = 0, y + 1, 0
        for it in panels:
            number += 1
            size = it["gridPos"]
            if x + size["w"] > 24:
                x, y, high = 0, y + high, 0
            placed.append(it | {"id": number, "gridPos": {"x": x, "y": y, **size}})
            x, high = x + size["w"], max(high, size["h"])
        y += high
    links = [
        {
            "title": "callgate",
            "type": "dashboards",
            "tags": ["callgate"],
            "asDropdown": True,
            "icon": "external link",
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
            "tooltip": "",
            "url": "",
        }
    ]
    return {
        "uid": f"callgate-{uid}",
        "title": f"callgate: {title}",
        "description": words,
        "tags": ["callgate"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": refresh,
        "time": {"from": since, "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "links": links,
        "annotations": {"list": []},
        "templating": {"list": [*variables, RUNBOOKS]},
        "panels": placed,
    }
