//! The contract on the wire: a real client over TCP, a real server, a real PostgreSQL.

#[path = "../common/mod.rs"]
mod common;

mod approvals;
mod calls;
<<<<<<< HEAD
mod connect;
=======
mod compression;
>>>>>>> 2f473d2 (Let the binary allocate with mimalloc, take one thread less than there are cores, compile policies aside, and leave short answers uncompressed)
mod contract;
mod errors;
mod fields;
mod health;
mod learning;
mod people;
mod policies;
mod settle;
mod storm;
mod waiting;
