//! What can go wrong between the gate and the database.

/// The database could not be used. None of these texts reaches a client.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No answer within the step's time.
    #[error("the database did not answer within {0} ms")]
    Timeout(u64),
    /// The queue to the writer is full.
    #[error("more is being asked than the database can store")]
    Overloaded,
    /// The writer has stopped.
    #[error("the store is shutting down")]
    Stopped,
    /// The server is set up in a way that would lose acknowledged rows.
    #[error("the database has {setting} = {value}, and would lose acknowledged rows: set it to on")]
    Unsafe {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// A stored row cannot be read back.
    #[error("a stored row makes no sense: {0}")]
    Corrupt(String),
    /// A migration failed.
    #[error("the schema could not be brought up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// Anything else the database says.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
}

/// Why a change was not accepted: what it was decided on has moved.
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
        }
    }
}
