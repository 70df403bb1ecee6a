//! Disk sync latency beside a load: a lower bound of commit latency, which reveals stalls of the disk itself.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::tally::{Percentiles, Times};

/// Interval of probes, negligible for the load.
const PAUSE: Duration = Duration::from_millis(20);
const PAGE: [u8; 8_192] = [1; 8_192];

/// Repeatedly writes and syncs one page of a file, until dropped.
#[derive(Debug)]
pub(super) struct Disk {
    times: Arc<Mutex<Times>>,
    is_over: Arc<AtomicBool>,
}

impl Disk {
    /// A probe of the disk with this folder.
    pub(super) fn of(folder: &Path) -> anyhow::Result<Self> {
        let file = File::create(folder.join("page")).context("a page to try the disk with")?;
        let disk = Self { times: Arc::new(Mutex::new(Times::default())), is_over: Arc::default() };
        let (times, is_over) = (Arc::clone(&disk.times), Arc::clone(&disk.is_over));
        thread::Builder::new().name("bench disk".to_owned()).spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                if file.write_all_at(&PAGE, 0).and_then(|()| file.sync_data()).is_err() {
                    return;
                }
                times.lock().note(began.elapsed());
                thread::sleep(PAUSE);
            }
        })?;
        Ok(disk)
    }

    /// Latencies since the last call.
    pub(super) fn take(&self) -> Percentiles {
        let mut times = self.times.lock();
        std::mem::take(&mut *times).percentiles()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_durable_in_some_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::of(folder.path()).expect("a disk");
        thread::sleep(PAUSE * 10);
        let took = disk.take();
        assert!(took.count > 0 && took.max > 0, "{took:?}");
    }
}
