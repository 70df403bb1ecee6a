//! The server: [`auth`] authenticates, [`gate`] judges and records, [`grpc`], [`web`] and [`console`] answer, and
//! [`telemetry`] reports. [`serve`] puts them together, as the [`config`] says.

#[macro_use]
extern crate callgate_client;

mod audit_stream;
pub mod auth;
pub mod backups;
pub mod config;
pub mod console;
pub mod database;
mod expiry;
mod file_watcher;
pub mod gate;
pub mod grpc;
pub mod keys;
pub mod notifications;
pub mod plane;
pub mod policy_file;
pub mod serve;
pub mod telemetry;
pub mod tenant_keys;
mod traced;
pub mod web;
mod workers;
