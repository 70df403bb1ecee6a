//! Classification of database errors for the writer.

use crate::error::cause;

/// Final failure of a batch.
#[derive(Debug)]
pub(super) enum BatchFailure {
    Passing(String),
    /// The database rejects the statement.
    Permanent(String),
    /// The database rejects a value.
    Value(String),
}

impl BatchFailure {
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Passing(_) => "unreachable",
            Self::Permanent(_) => "rejected",
            Self::Value(_) => "value",
        }
    }
}

/// Failure of one attempt.
#[derive(Debug)]
pub(super) enum AttemptProblem {
    /// Retry on a new connection.
    Connection(String),
    /// Retry: a conflict.
    Race(String),
    /// Permanent.
    Permanent(String),
    /// A value that no row can hold.
    Value(String),
}

impl AttemptProblem {
    pub(super) fn late() -> Self {
        Self::Connection("no answer within a step's time".into())
    }
}

impl From<sqlx::Error> for AttemptProblem {
    fn from(error: sqlx::Error) -> Self {
        let text = cause(&error);
        let sqlx::Error::Database(database) = &error else {
            return Self::Connection(text);
        };
        match database.code().as_deref().unwrap_or_default() {
            "40001" | "40P01" => Self::Race(text),
            // Failover, shutdown, no slot, no disk: a matter of time or of another server.
            code if ["08", "25", "53", "55", "57", "58"].contains(&code.get(..2).unwrap_or_default()) => {
                Self::Connection(text)
            }
            // A partition that is not there yet: the server makes it ahead of time, and is asked again.
            "23514" => Self::Connection(text),
            // The functions were tidied away by another build: the next connection makes them again.
            "42883" | "42704" | "XX000" => Self::Connection(text),
            // A row of another tenant than its tree's: a fault of callgate, and none of the database's.
            "CG002" => Self::Value(text),
            code if ["22", "23"].contains(&code.get(..2).unwrap_or_default()) => Self::Value(text),
            _ => Self::Permanent(text),
        }
    }
}
