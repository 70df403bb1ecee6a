//! Destination of one signal: endpoint, protocol and TLS.

use std::{fmt, time::Duration};

use http::{HeaderName, HeaderValue, Uri};

use super::values::Values;
use crate::telemetry::{setup::TelemetryError, watch::Signal};

/// Longest time for one export, connecting included, unless a variable says otherwise.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// The ports of OTLP, by gRPC and over HTTP.
const GRPC_PORT: u16 = 4_317;
const HTTP_PORT: u16 = 4_318;

/// Transport protocol of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::telemetry) enum Protocol {
    /// `grpc`.
    Grpc,
    /// `http/protobuf`.
    Http,
}

impl Protocol {
    pub(in crate::telemetry) const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http/protobuf",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Grpc => GRPC_PORT,
            Self::Http => HTTP_PORT,
        }
    }

    const fn other_protocol(self) -> Self {
        match self {
            Self::Grpc => Self::Http,
            Self::Http => Self::Grpc,
        }
    }
}

/// Destination of one signal.
#[derive(Debug, Clone)]
pub(in crate::telemetry) struct Destination {
    pub(in crate::telemetry) protocol: Protocol,
    /// Over HTTP with the signal's path.
    pub(in crate::telemetry) endpoint: Uri,
    /// Longest time for one export, connecting included.
    pub(in crate::telemetry) timeout: Duration,
    /// None: in the clear.
    pub(in crate::telemetry) tls: Option<DestinationTls>,
}

impl Destination {
    /// The collector, without a path.
    pub(in crate::telemetry) fn collector(&self) -> String {
        let endpoint = &self.endpoint;
        let (scheme, authority) = (endpoint.scheme_str().unwrap_or_default(), endpoint.authority());
        format!("{scheme}://{}", authority.map_or("", |authority| authority.as_str()))
    }

    /// Hint at a likely cause where the port is the other protocol's.
    pub(in crate::telemetry) fn hint(&self) -> Option<String> {
        let (ours, other) = (self.protocol, self.protocol.other_protocol());
        (self.endpoint.port_u16() == Some(other.port())).then(|| {
            format!(
                "{} is commonly the port of OTLP by {}, and this is {}: set OTEL_EXPORTER_OTLP_PROTOCOL={}, or use \
                 port {}",
                other.port(),
                other.as_str(),
                ours.as_str(),
                other.as_str(),
                ours.port()
            )
        })
    }
}

/// TLS credentials for a collector behind `https`, in PEM.
#[derive(Clone, Default)]
pub(in crate::telemetry) struct DestinationTls {
    /// Beside the public ones.
    pub(in crate::telemetry) authorities: Option<Vec<u8>>,
    /// A certificate of ours and its key.
    pub(in crate::telemetry) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for DestinationTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Destination of `signal`; none without an endpoint, unless its exporter is named.
pub(super) fn read(
    values: &mut Values<'_>,
    signal: Signal,
    base: Option<&str>,
) -> Result<Option<Destination>, TelemetryError> {
    let own = format!("OTEL_EXPORTER_OTLP_{}_", signal.as_str().to_ascii_uppercase());
    let of_signal = |values: &Values<'_>, what: &str| -> (String, Option<String>) {
        let (own, all) = (format!("{own}{what}"), format!("OTEL_EXPORTER_OTLP_{what}"));
        // Both are read, so that neither counts as unknown.
        let (of_own, of_all) = (values.text(&own), values.text(&all));
        let name = if of_own.is_some() { own } else { all };
        (name, of_own.or(of_all).map(str::to_owned))
    };
    let (protocol_name, protocol_text) = of_signal(values, "PROTOCOL");
    let (headers_name, headers) = of_signal(values, "HEADERS");
    let (timeout_name, _) = of_signal(values, "TIMEOUT");
    let (compression, _) = of_signal(values, "COMPRESSION");
    let (ca_name, ca) = of_signal(values, "CERTIFICATE");
    let (certificate_name, certificate) = of_signal(values, "CLIENT_CERTIFICATE");
    let (key_name, key) = of_signal(values, "CLIENT_KEY");
    let endpoint = values.text(&format!("{own}ENDPOINT"));
    // The command line's endpoint stands before this one: it counts as read.
    values.text("OTEL_EXPORTER_OTLP_ENDPOINT");

    let exported = is_exported(values, signal);
    if exported == Some(false) || (exported.is_none() && endpoint.or(base).is_none()) {
        return Ok(None);
    }
    let protocol = match protocol_text.as_deref() {
        None | Some("grpc") => Protocol::Grpc,
        Some("http/protobuf") => Protocol::Http,
        Some(other) => {
            return Err(refuse_value(
                &protocol_name,
                format!("callgate supports grpc and http/protobuf, not {other:?}"),
            ));
        }
    };
    let endpoint = match (endpoint, base) {
        (Some(endpoint), _) => parse_endpoint(endpoint, None)?,
        (None, Some(base)) => parse_endpoint(base, (protocol == Protocol::Http).then_some(signal))?,
        (None, None) => {
            let local = format!("http://localhost:{}", protocol.port());
            parse_endpoint(&local, (protocol == Protocol::Http).then_some(signal))?
        }
    };
    if let Some(headers) = headers {
        check_headers(&headers_name, &headers)?;
    }
    values.warn_unless_one_of(&compression, &["gzip", "none"], "it should be gzip or none");
    let tls = (endpoint.scheme_str() == Some("https")).then(|| -> Result<_, TelemetryError> {
        let authorities = ca.map(|path| file(&ca_name, &path)).transpose()?;
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((file(&certificate_name, &certificate)?, file(&key_name, &key)?)),
            (Some(_), None) => {
                return Err(refuse_value(&certificate_name, format!("it requires its key in {key_name}")));
            }
            (None, Some(_)) => return Err(refuse_value(&key_name, format!("it requires {certificate_name}"))),
        };
        Ok(DestinationTls { authorities, identity })
    });
    let tls = tls.transpose()?;
    let timeout = values.millis(&timeout_name, EXPORT_MAX);
    Ok(Some(Destination { protocol, endpoint, timeout, tls }))
}

/// True when a signal's exporter is named, and is `otlp`. None: no exporter is named.
fn is_exported(values: &mut Values<'_>, signal: Signal) -> Option<bool> {
    let name = format!("OTEL_{}_EXPORTER", signal.as_str().to_ascii_uppercase());
    let mut names = values.text(&name)?.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (otlp, others): (Vec<_>, Vec<_>) = names.by_ref().partition(|name| *name == "otlp");
    // Metrics are served at /metrics in any case.
    let is_done = |other: &&str| *other == "none" || (*other == "prometheus" && matches!(signal, Signal::Metrics));
    if !others.iter().all(is_done) {
        values.warn_ignored(&name, "callgate exports by otlp, or none");
    }
    Some(!otlp.is_empty())
}

/// An endpoint, with the path of a signal behind it.
fn parse_endpoint(endpoint: &str, signal: Option<Signal>) -> Result<Uri, TelemetryError> {
    let wrong = |why: String| TelemetryError::Endpoint { endpoint: endpoint.to_owned(), why };
    let uri: Uri = endpoint.parse().map_err(|error| wrong(format!("{error}")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(wrong("it should read http://host:port or https://host:port".to_owned()));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let why = "credentials belong in OTEL_EXPORTER_OTLP_HEADERS, as authorization=Bearer%20…".to_owned();
        return Err(TelemetryError::Endpoint { endpoint: "http://…@…".to_owned(), why });
    }
    let Some(signal) = signal else { return Ok(uri) };
    let full = format!("{}/v1/{}", endpoint.trim_end_matches('/'), signal.as_str());
    full.parse().map_err(|error| wrong(format!("{error}")))
}

/// The exporter reads them itself, and would ignore unreadable ones. Their values are secrets.
fn check_headers(name: &str, text: &str) -> Result<(), TelemetryError> {
    for (i, pair) in text.split_terminator(',').enumerate() {
        let whole = pair.split_once('=').is_some_and(|(key, value)| {
            let value = value.trim();
            HeaderName::from_bytes(key.trim().as_bytes()).is_ok()
                && !value.is_empty()
                && HeaderValue::from_str(value).is_ok()
        });
        if !whole {
            let n = i + 1;
            return Err(refuse_value(
                name,
                format!("its entry {n} is no header: it should read name=value,name=value"),
            ));
        }
    }
    Ok(())
}

fn file(name: &str, path: &str) -> Result<Vec<u8>, TelemetryError> {
    std::fs::read(path).map_err(|error| refuse_value(name, format!("{path} cannot be read: {error}")))
}

fn refuse_value(name: &str, why: String) -> TelemetryError {
    TelemetryError::Variable { name: name.to_owned(), why }
}
