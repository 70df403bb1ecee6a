//! Processor time of processes, from /proc.

use std::{collections::BTreeMap, fs, path::Path};

/// Ticks per second of Linux' process times on every machine (`USER_HZ`).
const TICKS: u64 = 100;

/// Microseconds by kind of process.
pub(super) type Micros = BTreeMap<&'static str, u64>;

/// CPU time of one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuUsage {
    /// Its own.
    pub(super) own: u64,
    /// That of its ended children.
    pub(super) ended: u64,
    pub(super) parent: u32,
}

/// True where /proc is available.
pub(super) fn is_known() -> bool {
    Path::new("/proc/self/stat").exists()
}

/// Of the process `pid`, while it exists.
pub(super) fn read_cpu_usage(pid: u32) -> Option<CpuUsage> {
    read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Counts fields after the process name, which may contain anything.
fn read(stat: &str) -> Option<CpuUsage> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let micros = |n: usize| Some(fields.get(n)?.parse::<u64>().ok()? * (1_000_000 / TICKS));
    let parent = fields.get(1)?.parse().ok()?;
    Some(CpuUsage { own: micros(11)? + micros(12)?, ended: micros(13)? + micros(14)?, parent })
}

/// True for a process with a PostgreSQL title.
pub(super) fn is_postgres(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"postgres:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_the_name() {
        let stat = "17 (a) b (c) S 4 17 17 0 -1 4194304 9 0 0 0 250 50 7 3 20 0 1 0 99 1 2 3";
        let used = read(stat).expect("a process");
        assert_eq!((used.own, used.ended, used.parent), (3_000_000, 100_000, 4));
        assert!(read("17 (a").is_none());
    }
}
