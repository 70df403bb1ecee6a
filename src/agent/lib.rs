//! What runs beside an agent: the dialects of hosts ([`hosts`]) and what they ask of a server ([`hooks`]), the command
//! that a hook runs ([`hook`]), the settings of hosts ([`agents`]), messages of MCP ([`mcp`]) and the proxy in front of
//! an MCP server ([`proxy`]). No SQL, no rules: a server decides.

#[macro_use]
extern crate callgate_client;

pub mod agents;
mod asked;
pub mod hook;
pub mod hooks;
mod host;
pub mod hosts;
pub mod mcp;
pub mod proxy;
