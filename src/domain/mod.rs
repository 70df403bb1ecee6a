//! The nouns. This room knows what a call, a verdict and a call tree are; it must not know that a network, a
//! database, a policy file or a clock exist.
pub mod failure;
