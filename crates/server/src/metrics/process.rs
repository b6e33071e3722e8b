//! What every Prometheus client library reports about its process, from `/proc`. Elsewhere than on Linux there is nothing.

use super::{MetricKind, MetricSource, Series};
use rustix::process::{Resource, getrlimit};

/// The metrics of this process.
pub struct ProcessMetrics;

/// What `/proc/self/stat` says, in its own units.
#[derive(Debug, Default, PartialEq, Eq)]
struct ProcStat {
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// What the process has used.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    pub cpu_ms: u64,
    pub resident_bytes: u64,
}

/// None: the system does not tell.
pub fn process_usage() -> Option<ProcessUsage> {
    let stat = read_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(ProcessUsage {
        cpu_ms: (stat.user_ticks + stat.system_ticks).saturating_mul(1_000) / ticks,
        resident_bytes: stat.resident_pages * rustix::param::page_size() as u64,
    })
}

impl MetricSource for ProcessMetrics {
    fn gather(&self, all: &mut Vec<Series>) {
        let Ok(text) = std::fs::read_to_string("/proc/self/stat") else { return };
        let Some(stat) = read_stat(&text) else { return };
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let ms = |of: u64| of.saturating_mul(1_000) / ticks;
        let mut seconds = |name, kind, help, value_ms| {
            let mut series = Series::new(name, kind, help);
            series.add_seconds([], value_ms);
            all.push(series);
        };
        seconds(
            "process_cpu_seconds_total",
            MetricKind::Counter,
            "User and system CPU time of the process",
            ms(stat.user_ticks + stat.system_ticks),
        );
        if let Some(boot_s) = boot_time_s() {
            seconds(
                "process_start_time_seconds",
                MetricKind::Gauge,
                "When the process started, in seconds since 1970",
                boot_s.saturating_mul(1_000).saturating_add(ms(stat.start_ticks)),
            );
        }
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        let page_bytes = rustix::param::page_size() as u64;
        for (name, help, value) in [
            ("process_virtual_memory_bytes", "Virtual memory of the process", stat.virtual_bytes),
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                stat.resident_pages * page_bytes,
            ),
            ("process_open_fds", "Open file descriptors", files),
            ("process_max_fds", "File descriptors that may be open", max_files()),
            ("process_threads", "Threads of the process", stat.threads),
        ] {
            all.push(Series::one(name, MetricKind::Gauge, help, value));
        }
    }
}

fn max_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The second field is the name of the program in parentheses, and may contain anything.
fn read_stat(text: &str) -> Option<ProcStat> {
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    // The first of these is field 3 of proc(5).
    let number = |field: usize| fields.get(field - 3)?.trim().parse().ok();
    Some(ProcStat {
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        threads: number(20)?,
        start_ticks: number(22)?,
        virtual_bytes: number(23)?,
        resident_pages: number(24)?,
    })
}

fn boot_time_s() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_is_skipped() {
        let text =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 5 0 678 9000 21 18446744073709551615\n";
        let expected = ProcStat {
            user_ticks: 12,
            system_ticks: 34,
            threads: 5,
            start_ticks: 678,
            virtual_bytes: 9000,
            resident_pages: 21,
        };
        assert_eq!(read_stat(text), Some(expected));
        assert_eq!(read_stat("nothing"), None);
    }
}
