//! process: what the process itself takes up, read when somebody asks for figures. From Linux's /proc; elsewhere that
//! is not told.

use opentelemetry::metrics::{Meter, MeterProvider};
use tokio::runtime::Handle;

use super::super::names;

/// Tells what this process and its runtime take up, for as long as `provider` is there.
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
    gauge(names::METRIC_RUNTIME_WORKERS, "{thread}", "Threads that answer calls.", |runtime| {
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
    use opentelemetry::{KeyValue, metrics::Meter};
    use procfs::{
        Current as _, Uptime,
        process::{Process, Stat},
    };

    use crate::telemetry::names;

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
        let memory = memory.with_description("Memory that this process has in use.").with_callback(|figures| {
            if let Some(pages) = stat().and_then(|stat| i64::try_from(stat.rss).ok()) {
                figures.observe(pages.saturating_mul(i64::try_from(procfs::page_size()).unwrap_or(4_096)), &[]);
            }
        });
        let _ = memory.build();
        let files = meter.i64_observable_up_down_counter(names::METRIC_FILES).with_unit("{file_descriptor}");
        let files = files.with_description("Files and connections that are open.").with_callback(|figures| {
            let count = Process::myself().and_then(|process| process.fd_count());
            if let Some(count) = count.ok().and_then(|count| i64::try_from(count).ok()) {
                figures.observe(count, &[]);
            }
        });
        let _ = files.build();
        let uptime = meter.f64_observable_gauge(names::METRIC_UPTIME).with_unit("s");
        let uptime = uptime.with_description("How long this process has been running.").with_callback(|figures| {
            if let (Some(stat), Ok(Uptime { uptime, .. })) = (stat(), Uptime::current()) {
                figures.observe((uptime - seconds(stat.starttime)).max(0.0), &[]);
            }
        });
        let _ = uptime.build();
    }

    fn stat() -> Option<Stat> {
        Process::myself().and_then(|process| process.stat()).ok()
    }

    fn seconds(ticks: u64) -> f64 {
        ticks as f64 / procfs::ticks_per_second() as f64
    }
}
