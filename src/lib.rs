//! callgate
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod engine;
pub mod gate;
pub mod grpc;
pub mod policy;
pub mod retry;
pub mod rules;
pub mod store;
pub mod telemetry;
