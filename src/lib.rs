//! callgate
pub mod domain;
pub mod retry;
pub mod store;
