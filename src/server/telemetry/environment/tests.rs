use super::*;

fn environment(pairs: &[(&str, &str)]) -> OtelEnvironment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn plan(pairs: &[(&str, &str)]) -> ExportPlan {
    read(&environment(pairs), None).expect("a plan")
}

fn error(pairs: &[(&str, &str)]) -> String {
    read(&environment(pairs), None).map(drop).expect_err("refused").to_string()
}

/// Destinations of traces, metrics and logs; `-` for none.
fn ways(plan: &ExportPlan) -> [String; 3] {
    [&plan.traces, &plan.metrics, &plan.logs]
        .map(|to| to.as_ref().map_or_else(|| "-".to_owned(), |to| format!("{} {}", to.protocol.as_str(), to.endpoint)))
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");

#[test]
fn export_is_off_by_default() {
    assert_eq!(ways(&plan(&[])), ["-", "-", "-"]);
    assert_eq!(ways(&plan(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")])), ["-", "-", "-"]);
    let one = plan(&[ENDPOINT, ("OTEL_LOGS_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "prometheus")]);
    assert_eq!(ways(&one), ["grpc http://collector:4317/", "-", "-"]);
    assert_eq!(one.warnings, [""; 0]);
}

#[test]
fn an_exporter_that_is_asked_for_by_name_goes_to_this_machine() {
    assert_eq!(ways(&plan(&[("OTEL_TRACES_EXPORTER", "otlp")])), ["grpc http://localhost:4317/", "-", "-"]);
    let http = plan(&[("OTEL_LOGS_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
    assert_eq!(ways(&http), ["-", "-", "http/protobuf http://localhost:4318/v1/logs"]);
}

#[test]
fn http_endpoint_gets_the_path_of_the_signal_unless_it_is_the_signals_own() {
    let plan = plan(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/otel/"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://elsewhere/metrics"),
        ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://lines:4317"),
    ]);
    let [traces, metrics, logs] = ways(&plan);
    assert_eq!(traces, "http/protobuf http://collector:4318/otel/v1/traces");
    assert_eq!(metrics, "http/protobuf https://elsewhere/metrics");
    assert_eq!(logs, "grpc http://lines:4317/");
    let metrics = plan.metrics.as_ref().expect("exported");
    assert!(metrics.tls.is_some() && plan.traces.expect("exported").tls.is_none());
}

#[test]
fn the_command_lines_endpoint_stands_before_the_environments() {
    let plan = read(&environment(&[ENDPOINT]), Some("http://other:4317")).expect("a plan");
    assert_eq!(ways(&plan), ["grpc http://other:4317/"; 3]);
    assert_eq!(plan.warnings, [""; 0]);
}

#[test]
fn tuning_variables_are_applied() {
    let plan = plan(&[
        ENDPOINT,
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "7"),
        ("OTEL_BLRP_EXPORT_TIMEOUT", "1000"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3000"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2000"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret%20one, x-tenant = a"),
        ("OTEL_SERVICE_NAME", "gate"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
    ]);
    assert_eq!(plan.warnings, [""; 0]);
    assert_eq!(plan.spans, BatchSettings { queue: 100, batch: 100, every: Duration::from_millis(20) });
    assert_eq!(plan.lines, BatchSettings { queue: QUEUE, batch: 7, every: LINES_EVERY });
    assert_eq!(plan.metrics_every, Duration::from_millis(1_500));
    let told = [plan.traces, plan.metrics, plan.logs].map(|to| to.map(|to| to.timeout.as_millis()));
    assert_eq!(told, [Some(2_000), Some(3_000), Some(1_000)]);
    assert!(format!("{:?}", plan.sampler).contains("TraceIdRatioBased(0.25)"), "{:?}", plan.sampler);
    assert_eq!(plan.traced_per_second, None, "who names a sampler gets all that it keeps");
}

#[test]
fn invalid_tuning_variable_is_ignored_with_a_warning() {
    let plan = plan(&[
        ENDPOINT,
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta "),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "trace_based"),
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ("OTEL_TRACES_EXPORTER", "otlp,console"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team"),
        ("OTEL_LOG_LEVEL", "debug"),
        ("OTEL_CONFIG_FILE", "otel.yaml"),
    ]);
    assert_eq!((plan.spans.queue, plan.metrics_every), (QUEUE, METRICS_EVERY));
    let said = plan.warnings.join("\n");
    for begin in [
        "OTEL_SDK_DISABLED=yes is ignored: it should be true or false",
        "OTEL_BSP_MAX_QUEUE_SIZE=many is ignored: it should be a number from 1 to 1048576; 4096 applies",
        "OTEL_METRIC_EXPORT_INTERVAL=0 is ignored: it should be a number of milliseconds from 1; 60000 applies",
        "OTEL_EXPORTER_OTLP_COMPRESSION=zstd is ignored: it should be gzip or none",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta is ignored: it should be cumulative",
        "OTEL_TRACES_SAMPLER=xray is ignored: it should be always_on",
        "OTEL_TRACES_SAMPLER_ARG=0.1 is ignored: this sampler has no argument",
        "OTEL_METRICS_EXEMPLAR_FILTER=trace_based is ignored: this SDK records no exemplars",
        "OTEL_PROPAGATORS=b3 is ignored: callers' traces are read from traceparent",
        "OTEL_EXPORTER_OTLP_INSECURE=true is ignored: the scheme of the endpoint decides",
        "OTEL_TRACES_EXPORTER=otlp,console is ignored: callgate exports by otlp, or none",
        "OTEL_RESOURCE_ATTRIBUTES=team is ignored",
        "callgate does not read OTEL_CONFIG_FILE, OTEL_LOG_LEVEL",
    ] {
        assert!(said.lines().any(|line| line.starts_with(begin)), "{begin}:\n{said}");
    }
}

#[test]
fn endpoint_without_a_destination_is_refused() {
    let with =
        |name: &'static str, value: &'static str| error(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c"), (name, value)]);
    assert_eq!(
        with("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        "OTEL_EXPORTER_OTLP_PROTOCOL cannot be applied: callgate supports grpc and http/protobuf, not \"http/json\""
    );
    assert!(with("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "udp").starts_with("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL cannot"));
    assert!(with("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem").contains("/nowhere.pem cannot be read: "));
    let half = with("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nowhere.pem");
    assert!(half.ends_with("it requires its key in OTEL_EXPORTER_OTLP_CLIENT_KEY"), "{half}");
    let header = with("OTEL_EXPORTER_OTLP_HEADERS", "a=b,authorization: hunter2");
    assert_eq!(
        header,
        "OTEL_EXPORTER_OTLP_HEADERS cannot be applied: its entry 2 is no header: it should read name=value,name=value"
    );
    let secret = error(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@collector:4317")]);
    assert!(secret.contains("OTEL_EXPORTER_OTLP_HEADERS") && !secret.contains("hunter2"), "{secret}");
}

#[test]
fn a_port_of_the_other_protocol_is_hinted_at() {
    let hint = |pairs: &[_]| plan(pairs).traces.expect("exported").hint();
    assert_eq!(hint(&[ENDPOINT]), None);
    let said = hint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")]).expect("a hint");
    assert_eq!(
        said,
        "4318 is commonly the port of OTLP by http/protobuf, and this is grpc: set \
         OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or use port 4317"
    );
    let said = hint(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).expect("a hint");
    assert!(said.ends_with("set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use port 4318"), "{said}");
}
