//! Networking: the [`clock`], the [`listener`] for incoming connections, the HTTP [`client`], and [`outgoing`] requests
//! to configured addresses. No SQL, no contract, no policy.

pub mod client;
pub mod clock;
pub mod listener;
pub mod outgoing;
