//! The machine and the day of a run, for the reader of its results. Tells nothing that names the machine.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    /// Processor time of one loopback write. Figures of different days compare only where these are alike.
    pub write_us: Option<f64>,
}

/// The cost of one loopback write on the machine where the absolute targets were set.
const REFERENCE_WRITE_US: &str = "4 to 5 µs";
const LINES: usize = 100;
const WRITES: usize = 10_000;
const WRITE_BYTES: usize = 300;

impl Machine {
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?.to_owned();
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        Self {
            processor: value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            write_us: write_us().ok(),
        }
    }

    /// The cost of a write as text, with that of the machine of the targets.
    pub fn write_cost(&self) -> Option<String> {
        let us = self.write_us?;
        Some(format!(
            "One loopback write costs {us:.1} µs here; absolute targets were set on a machine where it costs \
             {REFERENCE_WRITE_US}"
        ))
    }
}

/// Measures what a message to a connection costs at least: one write each to many connections in turn.
fn write_us() -> anyhow::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let address = listener.local_addr()?;
    let mut lines = Vec::with_capacity(LINES);
    for _ in 0..LINES {
        let near = TcpStream::connect(address)?;
        near.set_nodelay(true)?;
        lines.push((near, listener.accept()?.0));
    }
    let mut bytes = [b'x'; WRITE_BYTES];
    let mut spent = 0.0;
    for _ in 0..WRITES / LINES {
        let before = thread_seconds();
        for (near, _) in &mut lines {
            near.write_all(&bytes)?;
        }
        spent += thread_seconds() - before;
        for (_, far) in &mut lines {
            far.read_exact(&mut bytes)?;
        }
    }
    Ok(spent * 1e6 / WRITES as f64)
}

fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A moment in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    pub year: i64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Date {
    pub fn now() -> Self {
        Self::at(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()))
    }

    /// The civil date of a count of seconds since 1970. Years begin in March here, so that the leap day is last.
    pub fn at(seconds: u64) -> Self {
        let days = seconds / 86_400 + 719_468;
        let era = days / 146_097;
        let of_era = days % 146_097;
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Self {
            year: (year_of_era + era * 400) as i64 + i64::from(month <= 2),
            month,
            day: of_year - (153 * shifted + 2) / 5 + 1,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    pub fn day(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// A name for a file that sorts by time.
    pub fn stamp(&self) -> String {
        format!("{}T{:02}{:02}{:02}Z", self.day(), self.hour, self.minute, self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil_ones() {
        for (seconds, stamp) in [
            (0, "1970-01-01T000000Z"),
            (951_782_400, "2000-02-29T000000Z"),
            (1_709_251_199, "2024-02-29T235959Z"),
            (1_709_251_200, "2024-03-01T000000Z"),
            (4_102_444_799, "2099-12-31T235959Z"),
        ] {
            assert_eq!(Date::at(seconds).stamp(), stamp);
        }
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && machine.memory_mib > 0 && !machine.kernel.is_empty());
        assert!(machine.write_us.unwrap() > 0.0);
    }
}
