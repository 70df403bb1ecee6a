//! Networking: the [`clock`], the [`listener`] for incoming connections, the HTTP [`client`], and [`outgoing`] requests
//! to addresses that somebody has named. No SQL, no contract, no policy.

pub mod client;
pub mod clock;
pub mod listener;
pub mod outgoing;
