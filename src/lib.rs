//! **callgate**: the policy plane between a fleet of LLM agents and their tools. Before a tool call an agent asks
//! `Evaluate`; after it, `Record`; after a context compaction, `GetSessionState`. Every call and its outcome is a row
//! in Postgres.
//!
//! This crate has the commands of the one binary, a file each. docs/architecture.md#crates is the map of the others.

#[macro_use]
extern crate callgate_client;

pub mod cli;
