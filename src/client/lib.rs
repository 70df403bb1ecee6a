//! What every command of `callgate` shares: how it reaches a server ([`contexts`], [`credential`], [`remote`]), how it
//! begins and ends ([`process`], [`signal`]), and what it prints ([`mod@out`], [`json`], [`progress`]).

#[macro_use]
pub mod out;

pub mod contexts;
pub mod credential;
pub mod json;
pub mod process;
pub mod progress;
mod refused;
pub mod remote;
pub mod signal;
