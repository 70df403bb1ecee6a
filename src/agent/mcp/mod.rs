//! MCP messages between a client and its server, as text: recognition of tool calls, results, replacement responses,
//! and inventories. This module knows the vocabulary of every protocol version in use; it must not know processes,
//! sockets or files (lines in, lines out). It parses only the necessary parts; unknown ones pass unchanged.

pub mod answer;
pub mod call;
pub mod config;
pub mod events;
pub mod inventory;
pub mod message;
pub mod outcome;
pub mod reported;
