//! The agent's side: dialects of hosts ([`hosts`]), the protocol of hooks ([`hooks`]), the hook command ([`hook`]),
//! settings of hosts ([`agents`]), messages of MCP ([`mcp`]) and the MCP proxy ([`proxy`]). No SQL and no rules: a
//! server decides.

#[macro_use]
extern crate callgate_client;

pub mod agents;
pub mod hook;
pub mod hooks;
mod host;
pub mod hosts;
pub mod mcp;
mod pending_call;
pub mod proxy;
