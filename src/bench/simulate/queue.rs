//! Event queue, ordered by time.

use std::{cmp::Ordering, collections::BinaryHeap};

/// Future events; simultaneous ones in order of insertion.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: f64,
    place: u64,
    what: T,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }

    /// `at` is in seconds since the start.
    pub(crate) fn push(&mut self, at: f64, what: T) {
        self.pushed += 1;
        self.heap.push(Entry { at, place: self.pushed, what });
    }

    /// The next event and its time, in seconds since the start.
    pub(crate) fn pop(&mut self) -> Option<(f64, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed, because the heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.place.cmp(&self.place))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_first_and_equals_in_their_order() {
        let mut queue = EventQueue::new();
        [(2.0, 'c'), (1.0, 'a'), (2.0, 'd'), (1.5, 'b')].into_iter().for_each(|(at, what)| queue.push(at, what));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
