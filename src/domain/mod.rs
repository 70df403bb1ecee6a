//! The nouns. This room knows what a call, a verdict and a call tree are; it must not know that a network, a
//! database, a policy file or a clock exist. No type here derives `FromRow` or `Message`: each edge owns its mirror.

pub mod answer;
pub mod books;
pub mod budget;
pub mod call;
pub mod control;
pub mod digest;
pub mod effect;
pub mod event;
pub mod failure;
pub mod finding;
pub mod fingerprint;
pub mod grant;
pub mod halt;
pub mod health;
pub mod ids;
pub mod inbox;
pub mod json;
pub mod ledger;
mod mask;
pub mod outcome;
pub mod pattern;
pub mod previous;
pub mod profile;
pub mod quality;
pub mod reason;
pub mod rejection;
pub mod report;
pub mod revision;
pub mod session_state;
pub mod similarity;
pub mod time;
pub mod tool;
pub mod tree;
pub mod verdict;
pub mod violation;
