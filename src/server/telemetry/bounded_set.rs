//! Bounded set of label values, of a set that anybody can add to. Every label is a time series for ever, so the first
//! values have time series of their own, and all others share one.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use opentelemetry::StringValue;
use parking_lot::RwLock;

use super::names::OTHER;

/// The first `max` that were seen. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct BoundedSet<T> {
    known: Arc<RwLock<BTreeSet<T>>>,
    max: usize,
}

impl<T: Ord + Clone + Display> BoundedSet<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { known: Arc::default(), max }
    }

    /// The label of one, which may have figures of its own or not.
    pub(super) fn label(&self, one: &T, may: bool) -> StringValue {
        let (is_known, is_full) = {
            let known = self.known.read();
            (known.contains(one), known.len() >= self.max)
        };
        if may && (is_known || !is_full && self.has_room_for(one)) { one.to_string().into() } else { OTHER.into() }
    }

    fn has_room_for(&self, one: &T) -> bool {
        let mut known = self.known.write();
        let has_room = known.len() < self.max || known.contains(one);
        if has_room {
            known.insert(one.clone());
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_have_figures_of_their_own() {
        let few = BoundedSet::new(100);
        assert_eq!(few.label(&7, false).as_str(), OTHER, "what an agent made up");
        for n in 0..100 {
            assert_eq!(few.label(&n, true).as_str(), n.to_string());
        }
        assert_eq!(few.label(&100, true).as_str(), OTHER);
        assert_eq!(few.label(&7, true).as_str(), "7");
    }
}
