//! What was learned of one tenant's retries: the counted estimate, and the logistic layer that may stand on it.

use super::{estimate::Estimate, layer::Layer};
use crate::domain::profile::Trial;

/// What was learned of one tenant's retries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// The counts.
    pub estimate: Estimate,
    /// The residual on top of them.
    pub layer: Layer,
}

impl Profiles {
    /// Learns one trial. Trials come in the order in which they were known.
    pub fn learn(&mut self, trial: &Trial) {
        self.estimate.learn(trial);
        self.layer.learn(trial);
    }
}
