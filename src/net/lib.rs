//! What connects callgate with others: the [`clock`], the [`listener`] for connections that come in, the HTTP
//! [`client`] and [`outgoing`] requests to whom somebody has named. No SQL, no contract, no policy.

pub mod client;
pub mod clock;
pub mod listener;
pub mod outgoing;
