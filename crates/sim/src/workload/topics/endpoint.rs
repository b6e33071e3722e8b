//! The endpoint of a subscription: it accepts batches, is slow, fails, throttles, and refuses some events until it is
//! repaired. It judges what it gets. Must hold: every event has its number, a gap has only events that a limit has
//! dropped; a batch that is sent again is identical; with one post at a time no number is skipped.

use super::log::{LogJudge, event_number};
use super::{Outcome, is_poison};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_hub::topics::delivery::{AttemptEntry, AttemptRequest};

pub struct SimEndpoint {
    pub name: Arc<str>,
    /// The topics that it begins with, by their index in `TOPICS`.
    pub topics: Vec<usize>,
    /// Concurrent posts; more than one: in no order.
    pub concurrency: u32,
    /// What arrived, by number: the batches with their bodies, the events, and those that are lost.
    batches: BTreeMap<u64, Vec<u8>>,
    taken: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    /// The numbers of events that it has ever accepted.
    accepted: BTreeSet<u64>,
    /// The numbers of events that it has refused.
    refused: BTreeSet<u64>,
    /// Everything that has ever arrived in one of these ways; and the last event before which nothing is missing.
    seen: BTreeSet<u64>,
    reached: u64,
    /// It accepts events that it has refused before.
    pub repaired: bool,
    /// It was replayed: what is a dead letter may also have been delivered.
    replayed: bool,
    pub repeated: u64,
    pub delivered: u64,
    pub gaps: u64,
    /// Events that it accepted after it had refused them.
    pub requeued: u64,
}

impl SimEndpoint {
    pub fn new(name: &str, topics: &[usize], concurrency: u32) -> SimEndpoint {
        SimEndpoint {
            name: name.into(),
            topics: topics.to_vec(),
            concurrency,
            batches: BTreeMap::new(),
            taken: BTreeSet::new(),
            lost: BTreeSet::new(),
            accepted: BTreeSet::new(),
            refused: BTreeSet::new(),
            seen: BTreeSet::new(),
            reached: 0,
            repaired: false,
            replayed: false,
            repeated: 0,
            delivered: 0,
            gaps: 0,
            requeued: 0,
        }
    }

    /// The last event that it has accepted.
    pub fn last(&self) -> u64 {
        self.taken.last().copied().unwrap_or(0)
    }

    /// It refuses a batch with an event that it cannot accept.
    pub fn refuses(&mut self, post: &AttemptRequest) -> bool {
        // What it has accepted once, it accepts again.
        let poison = post.events.iter().filter_map(poison).filter(|seq| !self.accepted.contains(seq));
        let poison: Vec<u64> = poison.collect();
        if self.repaired {
            return false;
        }
        self.refused.extend(&poison);
        self.seen.extend(&poison);
        !poison.is_empty()
    }

    /// Everything after this event is delivered again.
    pub fn replay(&mut self, after: u64) {
        self.taken.split_off(&(after + 1));
        self.lost.split_off(&(after + 1));
        self.replayed = true;
    }

    /// It accepts a batch, or all but its last entry.
    pub fn take(&mut self, log: &LogJudge, post: &AttemptRequest, whole: bool) -> Outcome {
        let body = post.body();
        let before = self.batches.insert(post.batch, body.clone());
        self.repeated += u64::from(before.is_some());
        if before.is_some_and(|before| before != body) {
            return Err(format!("batch {} came again, and is another", post.batch));
        }
        for entry in &post.events {
            self.judge(log, entry)?;
        }
        let taken = if whole { post.events.len() } else { post.events.len() - 1 };
        post.events[..taken].iter().try_for_each(|entry| self.take_entry(entry))
    }

    fn judge(&self, log: &LogJudge, entry: &AttemptEntry) -> Outcome {
        match entry {
            AttemptEntry::Event { seq, entry } => {
                let number = event_number(&entry.body).ok_or_else(|| format!("not an event: {entry:?}"))?;
                log.judge_event(&self.name, *seq, number, &entry.topic)
            }
            AttemptEntry::Gap { first, last } => log.judge_gap(&self.name, *first, *last),
        }
    }

    fn take_entry(&mut self, entry: &AttemptEntry) -> Outcome {
        while self.seen.contains(&(self.reached + 1)) {
            self.reached += 1;
        }
        // What is replayed or was a dead letter comes again, out of order.
        if self.concurrency == 1 && entry.seq() > self.reached + 1 && !self.seen.contains(&entry.seq()) {
            return Err(format!("{} came before {}", entry.seq(), self.reached + 1));
        }
        match entry {
            AttemptEntry::Event { seq, .. } => {
                self.delivered += u64::from(self.taken.insert(*seq));
                self.requeued += u64::from(self.refused.remove(seq));
                self.accepted.insert(*seq);
                self.seen.insert(*seq);
            }
            AttemptEntry::Gap { first, last } => {
                self.gaps += 1;
                self.lost.extend(*first..=*last);
                self.seen.extend(*first..=*last);
            }
        }
        Ok(())
    }

    /// Every event was delivered, is a dead letter, or was reported as lost.
    pub fn check_end(&self, events: u64, dead: &BTreeSet<u64>) -> Outcome {
        let told = |seq: &u64| self.taken.contains(seq) || self.lost.contains(seq) || dead.contains(seq);
        if let Some(hole) = (1..=events).find(|seq| !told(seq)) {
            return Err(format!("never got {hole} of {events}"));
        }
        match dead.iter().find(|seq| self.taken.contains(seq)) {
            Some(seq) if !self.replayed => Err(format!("{seq} was delivered, and is a dead letter")),
            _ => Ok(()),
        }
    }
}

/// The number of an event that is refused.
fn poison(entry: &AttemptEntry) -> Option<u64> {
    match entry {
        AttemptEntry::Event { seq, entry } => {
            event_number(&entry.body).filter(|number| is_poison(*number)).map(|_| *seq)
        }
        AttemptEntry::Gap { .. } => None,
    }
}
