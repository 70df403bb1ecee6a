//! Retry advice: classification of failures, estimates from past retries, and decisions. This module must not know
//! rules, policies, stores or clocks.

pub mod advice;
pub mod classify;
pub mod estimate;
pub mod layer;
pub mod next_step;
pub mod profiles;
pub mod self_correction;
