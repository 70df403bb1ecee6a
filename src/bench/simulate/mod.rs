//! A simulated fleet: what learned advice on retries is worth, compared with a hard-coded flag and with an oracle.
//! Equal plans give equal bytes.
//!
//! Advice comes from the product's own retry room: `advise`, `Profiles::learn`, `Health`, `Traits`. Calls do not run
//! through the whole engine: its rules would refuse some of the calls that the flag and the oracle make, and the
//! comparison would be one of rules and not of advice.

mod account;
mod chart;
mod closed;
pub(crate) mod command;
mod dice;
mod environment;
mod fleet;
mod learner;
mod metrics;
mod policies;
mod predict;
mod queue;
mod report;
#[cfg(test)]
mod tests;
mod trap;

pub(crate) use self::{
    chart::draw,
    environment::{Setting, TOOLS_MIN},
    report::Report,
};

/// What is simulated.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The fleet.
    pub(crate) setting: Setting,
    /// Which fleets: one a seed.
    pub(crate) seeds: Vec<u64>,
    /// How well retries are foretold.
    pub(crate) predict: bool,
    /// What advice is worth once agents obey it.
    pub(crate) closed: bool,
    /// How advice fares when a tool breaks for two days and is mended.
    pub(crate) trap: bool,
}

impl Plan {
    /// How many days are simulated, over all fleets; the trap's own fleet is small and does not count.
    #[must_use]
    pub(crate) fn days(&self) -> u64 {
        let fleets = usize::from(self.predict) + usize::from(self.closed) * closed::CONTENDERS.len();
        (self.seeds.len() * fleets) as u64 * u64::from(self.setting.days)
    }

    /// Simulates it. `progress` is told how many more days are over, again and again.
    #[must_use]
    pub(crate) fn run(&self, progress: &dyn Fn(u64)) -> Report {
        let Self { setting, seeds, .. } = self;
        Report {
            setting: *setting,
            seeds: seeds.clone(),
            predict: self.predict.then(|| predict::run(seeds, *setting, progress)),
            closed: self.closed.then(|| closed::run(seeds, *setting, progress)),
            trap: self.trap.then(|| trap::run(seeds)),
        }
    }
}
