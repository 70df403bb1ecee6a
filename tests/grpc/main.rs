//! The contract on the wire: a real client over TCP, a real server, a real PostgreSQL.

#[path = "../common/mod.rs"]
mod common;

mod approvals;
mod approved;
mod attempts;
mod audit;
mod backtest;
mod calls;
mod certified;
mod clients;
mod compression;
mod connect;
mod console;
mod contract;
mod credentials;
mod described;
mod dialects;
mod early;
mod edge;
mod edited;
mod errors;
mod explained;
mod fields;
mod fleet;
mod guards;
mod health;
mod hooks;
mod jwt;
mod learning;
mod overload;
mod people;
mod policies;
mod raise;
mod readers;
mod search;
mod second_approvals;
mod settle;
mod storm;
mod sweep;
mod timing;
mod tls;
mod usage;
mod waiting;
mod witnesses;
