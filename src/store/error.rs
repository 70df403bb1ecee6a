//! What can go wrong between the gate and the database: on opening, on reading, and with a change. None of these texts
//! reaches a client.

use std::{error::Error as _, time::Duration};

use callgate_core::domain::ids::TenantId;

/// What is busy when the database itself is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The queue to the writer.
    WriteQueue,
    /// The connections for reading.
    Readers,
    /// The connections for what people read.
    People,
    /// The database itself: a statement took longer than it may.
    Statement,
    /// Rows that others are changing.
    Rows,
    /// The rebuilding of retry profiles, which one does at a time.
    Rebuild,
}

impl Busy {
    /// In words, for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WriteQueue => "the write queue is full",
            Self::Readers => "every connection for reading is in use",
            Self::People => "as much is being read for people as may be at once; agents come first",
            Self::Statement => "the database answers too slowly",
            Self::Rows => "others are changing the same rows",
            Self::Rebuild => "the retry profiles are being rebuilt already",
        }
    }
}

/// The database could not be read, or not be asked to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer within the step's time.
    #[error("the database did not answer within {0} ms")]
    Timeout(u64),
    /// There is no server that could answer: it refused or lost the connection, shuts down, recovers, has no room on
    /// its disk, or only reads.
    #[error("the database is out of reach: {0}")]
    Unreachable(String),
    /// The database is well, and more is asked than can be done at once.
    #[error("the server is overloaded: {}", .0.as_str())]
    Overloaded(Busy),
    /// The writer has stopped.
    #[error("the store is shutting down")]
    Stopped,
    /// The database does not take a value that it was given.
    #[error("the database refused a value: {0}")]
    Rejected(String),
    /// A stored row cannot be read back.
    #[error("a stored row cannot be understood: {0}")]
    Corrupt(String),
    /// A stored value is sealed with a key that is not on this server.
    #[error("the key {key:?} of tenant {} is not on this server, and values are sealed with it", tenant.0)]
    KeyMissing {
        /// Whose value.
        tenant: TenantId,
        /// The name of the key.
        key: String,
    },
    /// A statement that the database does not accept: a missing right, a changed schema, or a fault of callgate.
    #[error("the database refused a statement: {0}")]
    Refused(String),
}

impl StoreError {
    /// True when no database can be asked now; false when it answered, or was not asked at all.
    #[must_use]
    pub const fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Unreachable(_) | Self::Stopped)
    }

    pub(super) fn timeout(limit: Duration) -> Self {
        Self::Timeout(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    }

    /// True when the connection that it came from is of no use any more.
    pub(super) const fn ends_connection(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Unreachable(_))
    }
}

/// The one cause of an error, without the texts that wrap it.
pub(super) fn cause(error: &sqlx::Error) -> String {
    if let sqlx::Error::Database(database) = error {
        let code = database.code().unwrap_or_default();
        return format!("{} (SQLSTATE {code})", database.message());
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// What kind of failure a SQLSTATE is. 57014 is a statement's own time limit: the database is there to say so.
fn of_sqlstate(code: &str, cause: String) -> StoreError {
    match (code.get(..2).unwrap_or_default(), code) {
        (_, "40001" | "40P01" | "55P03") => StoreError::Overloaded(Busy::Rows),
        (_, "57014") => StoreError::Overloaded(Busy::Statement),
        // Failover, shutdown, no slot, no disk: a matter of time, or of another server.
        ("08" | "25" | "53" | "57" | "58", _) | (_, "55000" | "55006") => StoreError::Unreachable(cause),
        ("22" | "23", _) => StoreError::Rejected(cause),
        _ => StoreError::Refused(cause),
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let cause = cause(&error);
        match &error {
            sqlx::Error::Database(database) => of_sqlstate(&database.code().unwrap_or_default(), cause),
            sqlx::Error::RowNotFound
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_) => Self::Corrupt(cause),
            sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => Self::Rejected(cause),
            // Everything else is about the connection.
            _ => Self::Unreachable(cause),
        }
    }
}

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A URL of something else.
    #[error("the database URL begins with `{0}://`, which is not PostgreSQL; it has to begin with `postgres://`")]
    Scheme(String),
    /// Not a URL that can be read.
    #[error("the database URL cannot be read: {0}; it has the form postgres://user@host:5432/database")]
    Url(String),
    /// TLS was demanded, and did not come about.
    #[error("the connection to the database could not be encrypted: {0}")]
    Tls(String),
    /// The server is set up in a way that would lose acknowledged rows.
    #[error("the database has {setting} = {value}, and would lose acknowledged rows: set it to on")]
    Unsafe {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// What a connection sets would go to others.
    #[error(
        "the database is behind a pooler that hands out connections by transaction, so that what callgate sets on one \
         (whose rows it may read, locks, time limits) would go to others: have it pool sessions (PgBouncer: \
         pool_mode=session for this database), or name PostgreSQL itself in the URL"
    )]
    Pooled,
    /// The database cannot be distributed as it is.
    #[error("the database cannot be distributed: {0}")]
    Citus(&'static str),
    /// A migration failed.
    #[error("the schema could not be brought up to date: {0}")]
    Migrate(String),
    /// The database could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<sqlx::migrate::MigrateError> for OpenError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        Self::Migrate(match &error {
            MigrateError::ExecuteMigration(sql, version) => format!("migration {version}: {}", cause(sql)),
            MigrateError::Execute(sql) => cause(sql),
            other => other.source().map_or_else(|| other.to_string(), ToString::to_string),
        })
    }
}

/// Why a change was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The tree has another version.
    Version,
    /// A ledger row has another revision.
    Ledger,
    /// The call_id is known, though no longer remembered.
    CallId,
    /// A reservation would pass a shared limit.
    Counter,
    /// The session belongs to another tree.
    Session,
    /// The database was out of reach; the change may have been accepted or not.
    Unreachable,
    /// The database does not take it, and never will: it was not stored.
    Rejected,
}

impl Lost {
    /// The name used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Ledger => "ledger",
            Self::CallId => "call_id",
            Self::Counter => "counter",
            Self::Session => "session",
            Self::Unreachable => "unreachable",
            Self::Rejected => "rejected",
        }
    }
}
