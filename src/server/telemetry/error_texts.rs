//! Plain error texts of failed exports, without the names of the libraries that have tried.

/// Messages without information of their own.
const EMPTY: [&str; 6] =
    ["Operation failed", "transport error", "tcp connect error", "Unavailable", "connection error", "error"];

/// The cause in an exporter's text, once.
pub(super) fn plain(text: &str) -> String {
    if text.contains("InvalidContentType") {
        return "it does not speak TLS: use http://, or give it a certificate".to_owned();
    }
    if text.contains("UnknownIssuer") {
        return "its certificate is of an unknown authority: set OTEL_EXPORTER_OTLP_CERTIFICATE to that authority"
            .to_owned();
    }
    let mut causes: Vec<&str> = Vec::new();
    for part in text.split(": ").map(|part| part.split_once(" (os error").map_or(part, |(part, _)| part)) {
        let is_of_library = part.starts_with("Tonic") || EMPTY.contains(&part);
        if !is_of_library && !causes.contains(&part) {
            causes.push(part);
        }
    }
    if causes.is_empty() { text.to_owned() } else { causes.join(": ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_and_without_names_of_libraries() {
        for (text, wanted) in [
            (
                "Operation failed: TonicTracesClient export failed with gRPC code: Unavailable: transport error: tcp \
                 connect error: tcp connect error: Connection refused (os error 111)",
                "Connection refused",
            ),
            (
                "Operation failed: TonicLogsClient export failed with gRPC code: Unauthenticated: no such key",
                "Unauthenticated: no such key",
            ),
            (
                "transport error: received corrupt message of type InvalidContentType: received corrupt message",
                "it does not speak TLS: use http://, or give it a certificate",
            ),
            ("Operation failed", "Operation failed"),
        ] {
            assert_eq!(plain(text), wanted);
        }
    }
}
