//! Shared by all commands: connections to a server ([`contexts`], [`credential`], [`remote`]), runtimes, exit codes and
//! signals ([`process`], [`signal`]), and output ([`mod@output`], [`json`], [`csv`],
//! [`progress`]).

#[macro_use]
pub mod output;

pub mod contexts;
pub mod credential;
pub mod csv;
pub mod json;
pub mod process;
pub mod progress;
mod refused;
pub mod remote;
pub mod signal;
