//! Sweep time of a tree: the time by which its open calls need attention without further requests.

use super::CallTree;
use crate::domain::{event::Event, time::Timestamp};

impl CallTree {
    /// The first expiry of an open call's lease; none without open calls.
    #[must_use]
    pub fn first_lease_end(&self) -> Option<Timestamp> {
        if self.open_calls == 0 {
            return None;
        }
        let open = self.calls().filter(|call| call.is_open());
        open.filter_map(|call| call.permit.as_ref()).map(|permit| permit.lease_until).min()
    }

    /// Keeps `due` no later than the first expiry of an open call's lease. It moves only when necessary: each move
    /// writes an index entry, and a call that is settled in time moves it at most once per lease.
    pub(super) fn keep_due(&mut self, event: &Event) {
        let lease = match event {
            // Its report comes with it.
            Event::Judged(judged) if judged.observed => return,
            Event::Judged(judged) => judged.permit.as_ref().map(|permit| permit.lease_until),
            Event::Settled(settled) => settled.lease_until,
            Event::Controlled(_) => None,
        };
        let is_swept = matches!(event, Event::Settled(settled) if settled.by_lease);
        match self.due {
            Some(due) if due > event.at() && !is_swept => {
                self.due = Some(lease.map_or(due, |lease| lease.min(due)));
            }
            _ => self.due = self.first_lease_end(),
        }
    }
}
