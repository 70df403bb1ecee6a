//! The gRPC contract. This module owns the generated types and converts them to nouns and back; it must not know the
//! store or the rules.

mod adapters;
mod approvals;
mod audit;
mod authentication;
mod backtest;
mod calls;
mod cancel_on_drop;
mod connect;
mod decode;
mod dialects;
mod encode;
mod ext_authz;
mod fleet;
mod grants;
mod guard;
mod health;
mod hook_route;
mod identity;
mod in_process;
mod info;
mod large_messages;
mod limits;
mod malformed;
mod mirrors;
mod observed;
mod page;
mod policies;
mod privacy;
mod profiles;
mod roles;
mod rollouts;
mod server;
mod service;
mod sessions;
mod shortcut;
mod shutdown;
mod status;
mod streamed;
mod tenancy;
mod tenants;
pub mod time;
mod tokens;
mod tool_descriptions;
mod watch;

pub use adapters::Front;
pub use in_process::{Inside, Insider};
pub use mirrors::{FromWire, ToWire};
pub use privacy::{PrivacyService, privacy_of};
pub use server::{Callbacks, GrpcSettings, Pages, ServeError, serve, starting};
pub use status::to_http_status;
pub use tokens::{TokenService, tokens_of};

/// What a method returns.
type MethodResult<M> = Result<tonic::Response<M>, tonic::Status>;
