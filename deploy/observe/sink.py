"""Where the collector sends: takes OTLP over HTTP, and remembers what arrived."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def value(it):
    kind = it.WhichOneof("value")
    if kind == "array_value":
        return [value(item) for item in it.array_value.values]
    return getattr(it, kind) if kind else None


def attributes(of):
    return {pair.key: value(pair.value) for pair in of}


class Sink:
    """`spans`, `metrics` and `logs`: each a list of dicts, with the attributes of the resource under `resource`."""

    def __init__(self):
        self.spans, self.metrics, self.logs = [], [], []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.take(self.path, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path, body):
        if path.endswith("/traces"):
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = attributes(group.resource.attributes)
                for span in (span for scope in group.scope_spans for span in scope.spans):
                    self.spans.append(
                        {
                            "name": span.name,
                            "kind": span.kind,
                            "trace": span.trace_id.hex(),
                            "id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "attributes": attributes(span.attributes),
                            "status": span.status.code,
                            "resource": resource,
                            "start": span.start_time_unix_nano,
                            "end": span.end_time_unix_nano,
                            "links": [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                            "events": [(event.name, attributes(event.attributes)) for event in span.events],
                        }
                    )
        elif path.endswith("/metrics"):
            for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                resource = attributes(group.resource.attributes)
                for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                    data = getattr(metric, metric.WhichOneof("data"))
                    for point in data.data_points:
                        self.metrics.append(
                            {
                                "name": metric.name,
                                "unit": metric.unit,
                                "resource": resource,
                                "attributes": attributes(point.attributes),
                            }
                        )
        elif path.endswith("/logs"):
            for group in ExportLogsServiceRequest.FromString(body).resource_logs:
                resource = attributes(group.resource.attributes)
                for record in (record for scope in group.scope_logs for record in scope.log_records):
                    self.logs.append(
                        {
                            "body": value(record.body),
                            "attributes": attributes(record.attributes),
                            "trace": record.trace_id.hex(),
                            "span": record.span_id.hex(),
                            "severity": record.severity_text,
                            "resource": resource,
                        }
                    )

    def fields(self):
        """Every name of an attribute that arrived, of spans, their events, points, records and resources."""
        seen = set()
        for it in [*self.spans, *self.metrics, *self.logs]:
            seen |= it["attributes"].keys() | it["resource"].keys()
            for _, event in it.get("events", []):
                seen |= event.keys()
        return seen
