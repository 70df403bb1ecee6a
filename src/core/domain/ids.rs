//! Validated names that callers choose. Each is checked once, at the boundary; afterwards its type guarantees validity.

use std::{fmt, sync::Arc};

/// A value from a caller that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field, as a path in the request: `call.arguments_json`.
    pub field: String,
    /// The problem, and what a valid value is.
    pub problem: String,
}

impl Invalid {
    /// A problem with `field`.
    #[must_use]
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Maximum length of an id or name, in bytes: enough for a UUID with a prefix, or a framework's thread path.
pub const NAME_BYTES_MAX: usize = 200;

fn check_id(field: &str, text: &str) -> Result<Arc<str>, Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "is empty"));
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(Invalid::new(field, format!("is {} bytes long; at most {NAME_BYTES_MAX} are allowed", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(field, "contains a control character"));
    }
    Ok(text.into())
}

/// OpenTelemetry trace id of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts a `text` of 1 to [`NAME_BYTES_MAX`] bytes without control characters.
            ///
            /// # Errors
            /// [`Invalid`] naming `field`.
            pub fn parse(field: &str, text: &str) -> Result<Self, Invalid> {
                check_id(field, text).map(Self)
            }

            /// The name itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// One agent conversation.
    SessionId
);
name!(
    /// One tool call; the same id is the same call, however often it is judged.
    CallId
);
name!(
    /// A part of a session: one user turn, one heartbeat.
    RunId
);
name!(
    /// Name of an agent, which may have many sessions.
    AgentId
);
name!(
    /// A user on whose behalf agents act, as callers name them.
    UserId
);
name!(
    /// Host program of an agent, by its own name.
    HostName
);
name!(
    /// A model, by the name that its provider bills.
    ModelName
);
name!(
    /// A tool's name as the model calls it.
    ToolName
);
name!(
    /// A parameter of a tool.
    ParameterName
);

/// An isolated customer of the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub i64);

/// The tenant of callers without credentials; the first migration creates it.
pub const DEFAULT_TENANT: TenantId = TenantId(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_name_is_refused_with_its_field() {
        let too_long = "x".repeat(NAME_BYTES_MAX + 1);
        for (text, problem) in [
            ("", "is empty"),
            ("a\0b", "contains a control character"),
            (&*too_long, "is 201 bytes long; at most 200 are allowed"),
        ] {
            assert_eq!(ToolName::parse("call.tool", text), Err(Invalid::new("call.tool", problem)));
        }
        assert!(SessionId::parse("session_id", &"é".repeat(100)).is_ok());
    }
}
