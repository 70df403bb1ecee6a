//! callgate
pub mod cli;
pub mod clock;
pub mod domain;
pub mod engine;
pub mod policy;
pub mod retry;
pub mod rules;
pub mod store;
pub mod telemetry;
