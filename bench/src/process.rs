//! What a process has used: processor time, memory, context switches, from `/proc`.
//! Must hold: processor time counts every thread of the process, in user and kernel mode.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// What a process had used at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

/// Memory of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub rss_kib: u64,
    /// Pages that only this process holds: what its end would give back.
    pub private_kib: u64,
}

pub fn usage(pid: u32) -> anyhow::Result<Usage> {
    let stat = read(pid, "stat")?;
    let ticks = ticks(&stat).with_context(|| format!("unreadable /proc/{pid}/stat"))?;
    let mut usage = Usage {
        cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        ..Usage::default()
    };
    for task in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| gone(pid))? {
        // A thread may end between the listing and the reading: it counts nothing then.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        usage.voluntary_switches += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        usage.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
    }
    Ok(usage)
}

/// Processor time of all threads that live, to the nanosecond: for what is too little to be seen in ticks.
pub fn on_cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| gone(pid))? {
        // A thread may end between the listing and the reading: it counts nothing then.
        let Ok(stat) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += stat.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

/// The processes that a process has started and that still run.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Bytes that a process wrote to storage since its start, including the page cache.
pub fn stored_bytes(pid: u32) -> anyhow::Result<u64> {
    field(&read(pid, "io")?, "write_bytes:").with_context(|| format!("unreadable /proc/{pid}/io"))
}

pub fn memory(pid: u32) -> anyhow::Result<Memory> {
    let rollup = read(pid, "smaps_rollup")?;
    Ok(parse_memory(&rollup))
}

fn read(pid: u32, name: &str) -> anyhow::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{name}")).with_context(|| gone(pid))
}

fn gone(pid: u32) -> String {
    format!("process {pid} cannot be read: has it ended?")
}

/// User and system time. The name of the program stands in parentheses and may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn parse_memory(rollup: &str) -> Memory {
    let kib = |name| field(rollup, name).unwrap_or(0);
    Memory { rss_kib: kib("Rss:"), private_kib: kib("Private_Clean:") + kib("Private_Dirty:") }
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_past_a_strange_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 120 34 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(154));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn private_memory_is_the_sum_of_clean_and_dirty() {
        let rollup = "00-ff ---p 0 0 0 [rollup]\nRss:  900 kB\nPss: 800 kB\nPrivate_Clean: 100 kB\nPrivate_Dirty: 650 kB\n";
        assert_eq!(parse_memory(rollup), Memory { rss_kib: 900, private_kib: 750 });
    }

    #[test]
    fn voluntary_and_involuntary_switches_are_distinguished() {
        let status = "voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(12));
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), Some(3));
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(memory(pid).unwrap().private_kib > 0);
        assert!(usage(pid).is_ok());
        assert!(on_cpu(pid).unwrap() > Duration::ZERO);
        assert!(usage(u32::MAX).is_err());
    }
}
