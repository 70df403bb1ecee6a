//! What connects callgate with others: the [`clock`], the [`listener`] for connections that come in, and [`outgoing`]
//! requests. No SQL, no contract, no policy.

pub mod clock;
pub mod listener;
pub mod outgoing;
