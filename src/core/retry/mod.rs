//! Is a retry worth it? This room knows failures and the record of past retries; it must not know rules, policies,
//! stores or clocks.

pub mod advice;
pub mod classify;
pub mod estimate;
pub mod layer;
pub mod next_step;
pub mod profiles;
pub mod self_correction;
