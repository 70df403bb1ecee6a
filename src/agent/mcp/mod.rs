//! What goes between an MCP client and its server, as text: which line is a call of a tool, what a result says, which
//! answers stand in for a server's, and what a server said of its tools before. This room knows the protocol's words of
//! every version in use; it must not know processes, sockets or files (lines come in, lines go out), and it reads no
//! more of a message than it must: what it does not know passes as it is.

pub mod answer;
pub mod call;
pub mod config;
pub mod events;
pub mod inventory;
pub mod message;
pub mod outcome;
