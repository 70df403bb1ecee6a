//! The wire contract: generated code of `proto/`, its descriptors, and conversions of times.

pub mod time;

/// Metadata key of the caller's name, for servers without authentication.
pub const BY: &str = "callgate-by";

/// Envoy's external authorization: the part in `proto/envoy`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated; documented in proto/envoy"
)]
pub mod envoy {
    tonic::include_proto!("envoy.service.auth.v3");
}

/// Messages, clients and services of `proto/callgate/v1`.
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

    /// The compiled descriptors, for reflection and JSON.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/callgate.bin"));
}
