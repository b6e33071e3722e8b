//! A recorded run as text, small enough to be read and kept: the actions with their times, and the bug it once showed.
//!
//! ```text
//! # A client that was away when its node stopped was lost at the time of the stop.
//! workload presence
//! seed 45
//! shards 1 1 1
//! 0 node 0 start 0 0
//! 1000 client 0 connect 0 0
//! 1200 fate work n0 commit game#A user0 = 0 fails 0
//! 1210 client 0 join 0 1
//! ```
//!
//! Lines that start with `#` describe the bug. Times are milliseconds since the start and do not go back. A fate is
//! the fault of the next decision about its subject; without fates there are no faults.

use crate::workload::{Name, number};
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub story: String,
    pub workload: Name,
    /// Decides the ids that are drawn.
    pub seed: u64,
    /// How many shards each node has.
    pub shards: Vec<usize>,
    pub lines: Vec<(u64, String)>,
}

impl Script {
    pub fn parse(text: &str) -> Result<Script, String> {
        let (mut story, mut workload, mut seed) = (Vec::new(), None, 0);
        let (mut shards, mut lines) = (Vec::new(), Vec::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
            match head {
                "#" => story.push(rest),
                "workload" => workload = Name::parse(rest),
                "seed" => seed = number(rest)?,
                "shards" => shards = rest.split(' ').map(number).collect::<Result<_, _>>()?,
                _ => lines.push((number(head)?, rest.to_owned())),
            }
        }
        if !lines.is_sorted_by_key(|(ms, _)| *ms) {
            return Err("the times of a script must not go back".into());
        }
        let workload = workload.ok_or("a script must name its workload")?;
        Ok(Script { story: story.join("\n"), workload, seed, shards, lines })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.story.lines() {
            writeln!(f, "# {line}")?;
        }
        let shards: Vec<String> = self.shards.iter().map(usize::to_string).collect();
        writeln!(f, "workload {}\nseed {}\nshards {}", self.workload.text(), self.seed, shards.join(" "))?;
        self.lines.iter().try_for_each(|(ms, line)| writeln!(f, "{ms} {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_as_it_was_written() {
        let text =
            "# Why.\nworkload presence\nseed 7\nshards 1 2\n0 node 0 start 0 0\n5 client 1 connect 0 0\n";
        let script = Script::parse(text).unwrap();
        assert_eq!(script.lines[1], (5, "client 1 connect 0 0".into()));
        assert_eq!(script.to_string(), text);
        assert!(Script::parse("workload presence\n5 a\n4 b\n").is_err(), "time goes back");
        assert!(Script::parse("5 a\n").is_err(), "no workload");
    }
}
