//! Authentication by credential: API tokens, client certificates, tokens of issuers. This module reads, checks and
//! maps; it must not know where a credential comes from, what is stored of it, or what time it is.

pub mod certificate;
pub mod file;
pub mod jwt;
mod provider;
pub mod token;
