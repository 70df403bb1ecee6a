//! Resource use of the process, read at each collection. From Linux's /proc; elsewhere it is not reported.

use opentelemetry::metrics::{Meter, MeterProvider};
use tokio::runtime::Handle;

use super::super::names;

/// Observes the resources of this process and its runtime, for as long as `provider` is there.
pub(in crate::telemetry) fn observe(provider: &dyn MeterProvider) {
    let meter = provider.meter(names::SERVICE);
    #[cfg(target_os = "linux")]
    linux::observe(&meter);
    if let Ok(runtime) = Handle::try_current() {
        observe_runtime(&meter, &runtime);
    }
}

fn observe_runtime(meter: &Meter, runtime: &Handle) {
    let gauge = |name, unit, of, read: fn(&Handle) -> usize| {
        let runtime = runtime.clone();
        let gauge = meter.u64_observable_gauge(name).with_unit(unit).with_description(of);
        let _ = gauge.with_callback(move |figures| figures.observe(read(&runtime) as u64, &[])).build();
    };
    gauge(names::METRIC_RUNTIME_WORKERS, "{thread}", "Threads that serve requests.", |runtime| {
        runtime.metrics().num_workers()
    });
    gauge(names::METRIC_RUNTIME_TASKS, "{task}", "Tasks that have not ended.", |runtime| {
        runtime.metrics().num_alive_tasks()
    });
    gauge(names::METRIC_RUNTIME_QUEUE, "{task}", "Tasks that wait for a thread.", |runtime| {
        runtime.metrics().global_queue_depth()
    });
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use opentelemetry::{KeyValue, metrics::Meter};

    use crate::telemetry::names;

    /// Fields of `/proc/self/stat` (proc_pid_stat(5)), times in ticks.
    #[derive(Debug, PartialEq, Eq)]
    struct Stat {
        utime: u64,
        stime: u64,
        starttime: u64,
        /// Resident set size, in pages.
        rss: u64,
    }

    pub(super) fn observe(meter: &Meter) {
        let cpu = meter.f64_observable_counter(names::METRIC_CPU_TIME).with_unit("s");
        let cpu = cpu.with_description("Processor time of this process.").with_callback(|figures| {
            let Some(stat) = stat() else { return };
            for (mode, ticks) in [("user", stat.utime), ("system", stat.stime)] {
                figures.observe(seconds(ticks), &[KeyValue::new(names::CPU_MODE, mode)]);
            }
        });
        let _ = cpu.build();
        let memory = meter.i64_observable_up_down_counter(names::METRIC_MEMORY).with_unit("By");
        let memory = memory.with_description("Resident memory of this process.").with_callback(|figures| {
            let bytes = stat().map(|stat| stat.rss.saturating_mul(rustix::param::page_size() as u64));
            if let Some(bytes) = bytes.and_then(|bytes| i64::try_from(bytes).ok()) {
                figures.observe(bytes, &[]);
            }
        });
        let _ = memory.build();
        let files = meter.i64_observable_up_down_counter(names::METRIC_FILES).with_unit("{file_descriptor}");
        let files = files.with_description("Open files and connections.").with_callback(|figures| {
            let count = fs::read_dir("/proc/self/fd").map(Iterator::count);
            if let Some(count) = count.ok().and_then(|count| i64::try_from(count).ok()) {
                figures.observe(count, &[]);
            }
        });
        let _ = files.build();
        let uptime = meter.f64_observable_gauge(names::METRIC_UPTIME).with_unit("s");
        let uptime = uptime.with_description("Time since the start of this process.").with_callback(|figures| {
            if let (Some(stat), Some(uptime)) = (stat(), seconds_since_boot()) {
                figures.observe((uptime - seconds(stat.starttime)).max(0.0), &[]);
            }
        });
        let _ = uptime.build();
    }

    fn stat() -> Option<Stat> {
        read_stat(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The second field, the program's name in parentheses, may hold spaces and parentheses itself.
    fn read_stat(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Stat { utime: field(14)?, stime: field(15)?, starttime: field(22)?, rss: field(24)? })
    }

    /// Seconds since the machine's start.
    fn seconds_since_boot() -> Option<f64> {
        fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()
    }

    fn seconds(ticks: u64) -> f64 {
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    #[test]
    fn stat_is_read_behind_any_name() {
        let text = "17 (a) b (c) S 4 17 17 0 -1 4194304 9 0 0 0 250 50 7 3 20 0 1 0 99 1 2 3";
        assert_eq!(read_stat(text), Some(Stat { utime: 250, stime: 50, starttime: 99, rss: 2 }));
        assert_eq!(read_stat("17 (a"), None);
        assert!(stat().is_some_and(|stat| stat.rss > 0) && seconds_since_boot().is_some_and(|seconds| seconds > 0.0));
    }
}
