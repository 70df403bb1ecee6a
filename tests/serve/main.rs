//! `callgate serve` as a process: the built binary with its private PostgreSQL, signals and exit codes.

#[path = "../telemetry/collector.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod collector;
#[path = "../common/mod.rs"]
mod common;

mod adversary;
mod agents;
mod audit_stream;
mod backup;
mod contexts;
mod crash;
mod doctor;
mod email;
mod hooks;
mod http;
mod identities;
mod json_lines;
mod keys;
mod mcp;
mod memory;
mod notifications;
mod operators;
mod pipes;
mod policies;
mod policy_command;
mod printed;
mod privacy;
mod psql;
mod receiver;
mod refusals;
mod relay;
mod replicas;
mod restored;
mod run;
mod scripts;
mod server;
mod signals;
mod slack;
mod sockets;
mod traces;
mod unread;
