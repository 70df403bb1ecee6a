//! The contract on the wire. This room owns the generated types and turns them into nouns and back; it must not know
//! the store or the rules.

mod approvals;
mod audit;
mod authentication;
mod backtest;
mod calls;
mod connect;
mod decode;
mod dialects;
mod encode;
mod fleet;
mod front;
mod grants;
mod guard;
mod health;
pub mod hooks;
mod identity;
mod info;
mod inside;
mod large;
mod limits;
mod malformed;
mod mirrors;
mod observed;
mod page;
mod policies;
mod privacy;
mod profiles;
mod roles;
mod server;
mod service;
mod sessions;
mod shortcut;
mod status;
mod stop;
mod streamed;
mod tenancy;
mod tenants;
pub mod time;
mod tokens;
mod watch;

pub use front::Front;
pub use identity::BY;
pub use inside::{Inside, Insider};
pub use privacy::{PrivacyService, privacy_of};
pub use server::{Pages, ServeError, Settings, serve};
pub use tokens::{TokenService, tokens_of};

/// What `proto/callgate/v1` compiles to.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the contract is documented in proto/"
)]
pub mod v1 {
    tonic::include_proto!("callgate.v1");

    /// The compiled descriptors, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/callgate.bin"));
}
