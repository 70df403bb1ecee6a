//! Addresses of traces in a tracing backend.

use std::sync::Arc;

use url::Url;

/// The part of a template that stands for the trace's id.
const TRACE_ID: &str = "{trace_id}";

/// Template of the address of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceUrl(Arc<str>);

impl TraceUrl {
    /// A template from its text.
    ///
    /// # Errors
    /// It is no address of a web page, or does not name the trace.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_web = |url: &Url| matches!(url.scheme(), "https" | "http");
        match Url::parse(text).ok().filter(is_web) {
            Some(_) if text.contains(TRACE_ID) => Ok(Self(text.into())),
            _ => Err(format!("{text:?} is no template such as https://traces.example/trace/{TRACE_ID}")),
        }
    }

    /// The address of the trace with this id, in hexadecimal.
    #[must_use]
    pub fn of(&self, trace_id: &str) -> String {
        self.0.replace(TRACE_ID, trace_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_url_is_a_web_address_that_names_the_trace() {
        let template = TraceUrl::parse("https://t.example/trace/{trace_id}?org=1#{trace_id}").expect("a template");
        assert_eq!(template.of("4bf9"), "https://t.example/trace/4bf9?org=1#4bf9");
        for text in ["", "/trace/{trace_id}", "javascript:alert('{trace_id}')", "https://t.example/trace/"] {
            assert!(TraceUrl::parse(text).is_err(), "{text}");
        }
    }
}
