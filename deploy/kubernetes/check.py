"""Holds rendered manifests (the folder $1) against the files of callgate that they repeat, and against each other."""

import json
import pathlib
import re
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Kinds that operators define: Kubernetes has no schema of them.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "HTTPRoute", "BackendTLSPolicy"}
APP = {"app.kubernetes.io/name": "callgate"}


def named(objects, kind):
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def rules(objects):
    source = [group for file in sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
              for group in yaml.safe_load(file.read_text())["groups"]]
    if [one["spec"]["groups"] for one in named(objects, "PrometheusRule").values()] != [source]:
        yield "the PrometheusRule has other groups than deploy/prometheus/rules: run deploy/kubernetes/build"


def dashboards(objects):
    source = {file.name: json.loads(file.read_text()) for file in (ROOT / "deploy/grafana/dashboards").glob("*.json")}
    maps = [one for one in named(objects, "ConfigMap").values() if "grafana_dashboard" in one["metadata"]["labels"]]
    found = {name: json.loads(text) for one in maps for name, text in one["data"].items()}
    if found != source:
        yield f"ConfigMaps have {sorted(found)}, dashboards are {sorted(source)}: see deploy/grafana/kustomization.yaml"
    for one in maps:
        # `kubectl apply` keeps the object as an annotation, and 256 KiB hold all annotations.
        if len(json.dumps(json.dumps(one))) > 250_000:
            yield f"{one['metadata']['name']} is too large for kubectl apply"


def console(objects):
    routes = (ROOT / "src/server/web/routes.rs").read_text()
    pages = {f"/{page}" for page in re.findall(r'"([a-z-]*)"', routes.partition("pub const PAGES")[2].partition("];")[0])}
    ingress = named(objects, "Ingress")["callgate-console"]["spec"]["rules"][0]["http"]["paths"]
    route = named(objects, "HTTPRoute")["callgate-console"]["spec"]["rules"][0]
    routed = {"Ingress": [(one["path"], one["pathType"]) for one in ingress],
              "HTTPRoute": [(one["path"]["value"], one["path"]["type"].removeprefix("Path")) for one in route["matches"]]}
    for kind, paths in routed.items():
        if {path for path, _ in paths} != pages:
            yield f"the {kind} routes {sorted(path for path, _ in paths)}, pages are {sorted(pages)}"
        for path, how in paths:
            if how != ("Exact" if path == "/" else "Prefix"):
                yield f"the {kind} routes {path} as {how}"
    services = named(objects, "Service")
    ports = {(name, port["name"]) for name, one in services.items() for port in one["spec"]["ports"]}
    ports |= {(name, port["port"]) for name, one in services.items() for port in one["spec"]["ports"]}
    asked = [(one["backend"]["service"]["name"], one["backend"]["service"]["port"]["name"]) for one in ingress]
    asked += [(one["name"], one["port"]) for one in route["backendRefs"]]
    asked += [(one["name"], one["sectionName"]) for one in named(objects, "BackendTLSPolicy")["callgate-console"]
              ["spec"]["targetRefs"]]
    for backend in asked:
        if backend not in ports:
            yield f"no service has the port {backend}"


def selectors(objects):
    pod = named(objects, "Deployment")["callgate"]["spec"]["template"]
    if not APP.items() <= pod["metadata"]["labels"].items():
        yield "the pods lack the label that all selectors ask for"
    for one in objects:
        spec = one.get("spec", {})
        asked = spec.get("podSelector", spec.get("selector")) if one["kind"] != "ServiceMonitor" else None
        if asked is not None and asked.get("matchLabels", asked) != APP:
            yield f"{one['kind']} {one['metadata']['name']} selects {asked}"
    monitor = named(objects, "ServiceMonitor")["callgate"]["spec"]
    chosen = [one for one in named(objects, "Service").values()
              if monitor["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()]
    ports = [port["name"] for one in chosen for port in one["spec"]["ports"]]
    if len(chosen) != 1 or monitor["endpoints"][0]["port"] not in ports:
        yield f"the ServiceMonitor finds {len(chosen)} services, with the ports {ports}"


def server(objects):
    """The deployment's variables are the server's, and each port that it opens is let in by a network policy."""
    known = set(re.findall(r"^#?(CALLGATE_\w+)=", (ROOT / ".env.example").read_text(), re.M))
    known.add("CALLGATE_ADMIN_DATABASE_URL")
    container = named(objects, "Deployment")["callgate"]["spec"]["template"]["spec"]["containers"][0]
    for variable in container["env"]:
        if variable["name"].startswith("CALLGATE_") and variable["name"] not in known:
            yield f"the deployment sets {variable['name']}, which callgate serve does not know"
    policies = [one["spec"] for one in named(objects, "NetworkPolicy").values()]
    let_in = {port["port"] for one in policies for rule in one.get("ingress", []) for port in rule["ports"]}
    opened = {port["containerPort"] for port in container["ports"]}
    if let_in != opened:
        yield f"network policies let in {sorted(let_in)}, the container opens {sorted(opened)}"


def main():
    folder, wrong = pathlib.Path(sys.argv[1]), []
    for file in [one for one in sorted(folder.glob("*.yaml")) if one.name != "kustomization.yaml"]:
        objects = list(yaml.safe_load_all(file.read_text()))
        if file.stem == "all":
            checks = (rules, dashboards, console, selectors, server)
            wrong += [problem for check in checks for problem in check(objects)]
            print(f"kubernetes: {len(objects)} objects")
        known = [one for one in objects if one["kind"] not in FOREIGN]
        (folder / f"{file.stem}.known.yaml").write_text(yaml.safe_dump_all(known))
    if wrong:
        raise SystemExit("kubernetes: " + "\nkubernetes: ".join(wrong))


main()
