//! Faults between the nodes and their engines: delays, failures with and without an effect, conflicts, lost and
//! repeated bus messages, nodes that are cut off. At level 0 everything works, with small delays.
//! Each decision is a `Fate`. A random run takes them from its seed and can record them; a script lists those that
//! matter, and nothing else fails.

use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_store::memory::{self, MessageFault, WorkFault, WorkOutcome};
use tavern_store::{BusPacket, Commit, Expect, Read, RowKey, Work};

/// The longest delay of a duplicated bus message.
const REPEAT_MS: usize = 8_000;
/// A fate without a fault.
const NOTHING: &str = "-";
/// The delay of a channel message on a bus with one order.
const CHANNEL_MS: u64 = 2;

#[derive(Clone)]
pub struct SimFaults(Arc<Mutex<FaultState>>);

pub struct FaultState {
    rng: Rng,
    /// In percent: the probability of a fault.
    pub level: usize,
    /// The engines that a node cannot reach.
    pub cut: BTreeMap<String, NetworkCut>,
    /// The bus loses this percentage of messages in addition: a planted fault.
    pub bus_loss: usize,
    /// Channel messages keep one order and are lost only with an announcement, as the bus guarantees for them.
    pub ordered_channels: bool,
    source: FaultSource,
}

enum FaultSource {
    Random,
    Recorded(Vec<String>),
    Script(BTreeMap<String, VecDeque<String>>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCut {
    pub store: bool,
    /// The store does not refuse: it does not answer for this long.
    pub silent_ms: u64,
    pub bus: bool,
}

impl SimFaults {
    pub fn new(rng: Rng) -> SimFaults {
        SimFaults(Arc::new(Mutex::new(FaultState {
            rng,
            level: 0,
            cut: BTreeMap::new(),
            bus_loss: 0,
            ordered_channels: false,
            source: FaultSource::Random,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, FaultState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on decisions are kept until they are taken.
    pub fn record(&self) {
        self.state().source = FaultSource::Recorded(Vec::new());
    }

    /// The decisions since the last time, as lines of a script.
    pub fn take_recorded(&self) -> Vec<String> {
        match &mut self.state().source {
            FaultSource::Recorded(lines) => std::mem::take(lines),
            _ => Vec::new(),
        }
    }

    /// From now on only the faults of a script happen.
    pub fn follow_script(&self) {
        self.state().source = FaultSource::Script(BTreeMap::new());
    }

    /// `subject = fate`: the next decision about this subject is this fate.
    pub fn expect(&self, line: &str) -> Result<(), String> {
        let (subject, fate) = line.split_once(" = ").ok_or("a fate is written `subject = fate`")?;
        match &mut self.state().source {
            FaultSource::Script(fates) => fates.entry(subject.into()).or_default().push_back(fate.into()),
            _ => return Err("fates are only allowed in a script".into()),
        }
        Ok(())
    }

    /// A commit conflicts, although no other writer changed the row.
    pub fn conflicts(&self, node: &str, commit: &Commit) -> bool {
        // That a row unexpectedly exists is a fact that some commands report, not a race.
        let is_fact = |expect: &Expect| expect.version == 0 && !matches!(expect.key, RowKey::Presence(_));
        if commit.expects.first().is_none_or(is_fact) {
            return false;
        }
        let mut state = self.state();
        let level = state.level;
        let subject = || format!("conflict {node} {}", describe_commit(commit));
        let random = |rng: &mut Rng| if level > 0 && rng.below(100) < level { "yes" } else { "" }.to_owned();
        state.decide(subject, random) == "yes"
    }

    /// How an endpoint responds to a post, and after how long; it misbehaves in this percentage of cases. None: it
    /// accepts at once.
    pub fn endpoint(&self, subscription: &str, percent: usize) -> Option<(String, u64)> {
        let random = |rng: &mut Rng| {
            if rng.below(100) >= percent {
                return String::new();
            }
            let what = ["slow", "lost", "throttled", "fails", "partly"][rng.below(5)];
            format!("{what} {}", rng.below(3_000))
        };
        let fate = self.state().decide(|| format!("post {subscription}"), random);
        let (what, ms) = fate.split_once(' ')?;
        Some((what.to_owned(), ms.parse().ok()?))
    }

    /// How long a message takes from one shard of a node to another.
    pub fn shard_delay(&self, node: &str, from: usize, to: usize, most_ms: u64) -> u64 {
        if most_ms == 0 {
            return 0;
        }
        let random = |rng: &mut Rng| number(rng.below(most_ms as usize + 1) as u64);
        self.state().decide(|| format!("shard {node} {from} {to}"), random).parse().unwrap_or(0)
    }
}

impl FaultState {
    /// An empty fate means no fault.
    fn decide(
        &mut self,
        subject: impl FnOnce() -> String,
        random: impl FnOnce(&mut Rng) -> String,
    ) -> String {
        match &mut self.source {
            FaultSource::Random => random(&mut self.rng),
            FaultSource::Recorded(lines) => {
                let fate = random(&mut self.rng);
                let text = if fate.is_empty() { NOTHING } else { &fate };
                lines.push(format!("{} = {text}", subject()));
                fate
            }
            FaultSource::Script(fates) => match fates.get_mut(&subject()) {
                Some(fates) => fates.pop_front().unwrap_or_default(),
                None => String::new(),
            },
        }
    }
}

fn number(ms: u64) -> String {
    if ms == 0 { String::new() } else { ms.to_string() }
}

fn delay(rng: &mut Rng, level: usize) -> u64 {
    match rng.below(100) {
        0..60 => rng.below(3) as u64,
        60..95 => rng.below(20) as u64,
        _ if level > 0 => rng.below(1_500) as u64,
        _ => rng.below(60) as u64,
    }
}

impl memory::Faults for SimFaults {
    fn work(&mut self, node: &str, work: &Work) -> WorkFault {
        let mut state = self.state();
        let (level, cut) = (state.level, state.cut.get(node).copied().unwrap_or_default());
        let random = |rng: &mut Rng| {
            let (before, after) = (delay(rng, level), delay(rng, level));
            let outcome = match rng.below(200) {
                n if n < level => "fails",
                n if n < level * 2 => "unknown",
                _ => "ok",
            };
            if (before, outcome, after) == (0, "ok", 0) {
                return String::new();
            }
            format!("{before} {outcome} {after}")
        };
        let fate = state.decide(|| format!("work {node} {}", describe(work)), random);
        let mut words = fate.split(' ');
        let mut ms = words.next().unwrap_or_default().parse().unwrap_or(0);
        let mut outcome = match words.next() {
            Some("fails") => WorkOutcome::FailBefore,
            Some("unknown") => WorkOutcome::FailAfter,
            _ => WorkOutcome::Perform,
        };
        let after_ms = words.next().unwrap_or_default().parse().unwrap_or(0);
        if cut.store {
            ms += cut.silent_ms;
            outcome = if cut.silent_ms > 0 { WorkOutcome::Perform } else { WorkOutcome::FailBefore };
        }
        WorkFault { before_ms: ms, outcome, after_ms }
    }

    fn message(&mut self, from: &str, to: &str, packet: &BusPacket) -> MessageFault {
        let mut state = self.state();
        let cut = [from, to].iter().any(|name| state.cut.get(*name).is_some_and(|cut| cut.bus));
        let ordered = state.ordered_channels;
        let (level, loss) = (state.level, state.level + state.bus_loss);
        if ordered && packet.subject.channel().is_some() {
            return match cut {
                true => MessageFault { copies: Vec::new(), reported: true },
                false => MessageFault { copies: vec![CHANNEL_MS], reported: false },
            };
        }
        let random = |rng: &mut Rng| {
            if rng.below(100) < loss {
                return "lost".into();
            }
            let first = delay(rng, level);
            if rng.below(100) < level {
                return format!("{first} {}", rng.below(REPEAT_MS));
            }
            number(first)
        };
        let subject = || format!("bus {from} {to} {}", subject_of(packet));
        let fate = state.decide(subject, random);
        if cut || fate == "lost" {
            return MessageFault::lost();
        }
        let least = if ordered { CHANNEL_MS } else { 0 };
        let mut copies: Vec<u64> = fate.split(' ').filter_map(|ms| ms.parse().ok()).collect();
        if copies.is_empty() {
            copies.push(0);
        }
        copies.iter_mut().for_each(|ms| *ms += least);
        MessageFault { copies, reported: false }
    }

    fn subscribe(&mut self, node: &str) -> Option<u64> {
        let mut state = self.state();
        let (level, cut) = (state.level, state.cut.get(node).is_some_and(|cut| cut.bus));
        let random = |rng: &mut Rng| match rng.below(100) < level {
            true => "refused".into(),
            false => number(delay(rng, level)),
        };
        let fate = state.decide(|| format!("subscribe {node}"), random);
        let refused = cut || fate == "refused";
        (!refused).then(|| fate.parse().unwrap_or(0))
    }
}

fn subject_of(packet: &BusPacket) -> String {
    let name = packet.subject.channel().or_else(|| packet.subject.rest()).unwrap_or_default();
    format!("{} {}", packet.subject.kind(), String::from_utf8_lossy(&name))
}

/// Describes a request, in a form that stays the same when the code around it changes.
fn describe(work: &Work) -> String {
    match work {
        Work::Commit(commit) => describe_commit(commit),
        Work::Read(read) => describe_read(read),
    }
}

fn describe_commit(commit: &Commit) -> String {
    let mut words = vec!["commit".to_owned()];
    words.extend(commit.node.iter().map(|_| "node".into()));
    words.extend(commit.puts.iter().map(|row| describe_key(&row.key())));
    words.extend(commit.deletes.iter().map(describe_key));
    words.join(" ")
}

fn describe_key(key: &RowKey) -> String {
    match key {
        RowKey::Presence(key) => format!("{} {}", key.channel, key.user),
        RowKey::Session(_) => "session".into(),
        other => format!("{other:?}"),
    }
}

fn describe_read(read: &Read) -> String {
    match read {
        Read::Presence(key) => format!("read {} {}", key.channel, key.user),
        Read::Roster { channel, .. } => format!("read roster {channel}"),
        other => {
            let text = format!("{other:?}");
            let name = text.split([' ', '(', '{']).next().unwrap_or_default();
            format!("read {name}")
        }
    }
}
