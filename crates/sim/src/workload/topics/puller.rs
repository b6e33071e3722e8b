//! A service that administers its own subscription and pulls it: it creates the subscription, pulls events and
//! acknowledges them with the next pull, replays, deletes the subscription and creates it again. Must hold: events are
//! numbered from 1 without holes, and arrive in order; each has its number, also when it is replayed; everything that
//! was published after the subscription was created is pulled, or is in a gap.

use super::log::{LogJudge, data_number};
use super::membership::Memberships;
use super::pending::PendingCommand;
use super::{END_MS, NODES, PULLED, TOPICS};
use crate::cluster::Cluster;
use crate::rng::Rng;
use crate::workload::{Outcome, number};
use serde_json::Value;
use tavern_domain::Time;
use tavern_hub::topics::{Pulled, ReplayFrom, SubscriptionChange, TopicCaller, TopicCommand, TopicReply};

/// Events in one pull at the end, the pause after an empty one, and how long it continues.
const LAST_PULL: u32 = 50;
const LAST_PAUSE_MS: u64 = 5_000;
const LAST_MS: u64 = END_MS - 30_000;

pub struct SimPuller {
    pending: PendingCommand<PullerCommand>,
    /// The subscription exists.
    created: bool,
    /// The last event that it has pulled, or that is in a gap.
    known: u64,
    /// The last pulled event; none: the next pull determines it.
    cursor: Option<u64>,
    /// Where a replay must start.
    replays_from: Option<u64>,
    /// The faults have ended: it pulls everything, until this time. Publishers may still retry unacknowledged events.
    last_until: Option<Time>,
    next_pull: Option<Time>,
    pub pulled: u64,
    pub gaps: u64,
    pub replays: u64,
    pub subscriptions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullerCommand {
    Create,
    Delete,
    Pull { limit: u32 },
    Replay { from: u64 },
}

impl Default for SimPuller {
    fn default() -> SimPuller {
        SimPuller {
            pending: PendingCommand::new(1),
            created: false,
            known: 0,
            cursor: None,
            replays_from: None,
            last_until: None,
            next_pull: None,
            pulled: 0,
            gaps: 0,
            replays: 0,
            subscriptions: 0,
        }
    }
}

impl SimPuller {
    pub fn choose(&self, cluster: &Cluster, rng: &mut Rng) -> Option<String> {
        let (node, limit) = (rng.below(NODES), 1 + rng.below(8));
        let line = match rng.below(100) {
            _ if !self.created => format!("create {node}"),
            0..4 => format!("delete {node}"),
            4..12 if self.known > 0 => format!("replay {node} {}", 1 + rng.below(self.known as usize)),
            _ => format!("pull {node} {limit}"),
        };
        (self.pending.is_idle() && cluster.nodes[node].is_open()).then_some(line)
    }

    /// `busy`: the operator changes something.
    pub fn perform(
        &mut self,
        cluster: &mut Cluster,
        words: &[&str],
        memberships: &mut Memberships,
        busy: bool,
    ) -> Outcome {
        let (command, node) = match words {
            ["create", node] => (PullerCommand::Create, node),
            ["delete", node] => (PullerCommand::Delete, node),
            ["pull", node, limit] => (PullerCommand::Pull { limit: number(limit)? }, node),
            ["replay", node, from] => (PullerCommand::Replay { from: number(from)? }, node),
            _ => return Err("not an action on topics".into()),
        };
        let administers = matches!(command, PullerCommand::Create | PullerCommand::Delete);
        // A shrunk script may lack what this depends on.
        let fits = self.created == (command != PullerCommand::Create);
        if self.pending.is_idle() && fits && !(administers && busy) {
            if administers {
                (0..TOPICS.len()).for_each(|topic| memberships.unsettle(cluster.now, PULLED, topic));
            }
            self.begin(cluster, command, number(node)?);
        }
        Ok(())
    }

    /// Its subscription exists, and it does not create or delete it now.
    pub fn is_settled(&self) -> bool {
        !matches!(self.pending.command(), Some(PullerCommand::Create | PullerCommand::Delete))
    }

    pub fn has_subscription(&self) -> bool {
        self.created && self.is_settled()
    }

    pub fn owns(&self, number: u64) -> bool {
        self.pending.owns(number)
    }

    fn begin(&mut self, cluster: &mut Cluster, command: PullerCommand, node: usize) {
        self.pending.begin(command, node);
        self.send(cluster);
    }

    fn send(&mut self, cluster: &mut Cluster) {
        let Some(command) = self.pending.command() else { return };
        let name = PULLED.into();
        let command = match command {
            PullerCommand::Create => {
                let topics = Some(TOPICS.iter().map(|topic| (*topic).into()).collect());
                let (pull, spare_secret) = (Some(true), "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".into());
                let change =
                    SubscriptionChange { topics, pull, spare_secret, ..SubscriptionChange::default() };
                TopicCommand::PutSubscription { name, change: Box::new(change) }
            }
            PullerCommand::Delete => TopicCommand::DeleteSubscription { name },
            PullerCommand::Pull { limit } => {
                TopicCommand::Pull { name, after: self.cursor, limit, wait_ms: 0 }
            }
            PullerCommand::Replay { from } => TopicCommand::Replay { name, from: ReplayFrom::Seq(from) },
        };
        let caller = TopicCaller { id: "service".into(), admin: false };
        self.pending.send(cluster, caller, command);
    }

    pub fn answered(
        &mut self,
        cluster: &mut Cluster,
        number: u64,
        reply: &Result<TopicReply, String>,
        log: &LogJudge,
        memberships: &mut Memberships,
    ) -> Outcome {
        let Some(command) = self.pending.answered(number) else { return Ok(()) };
        match (command, reply) {
            (_, Err(code)) if code == "unavailable" || code == "conflict" => {
                self.pending.put_off(cluster);
                return Ok(());
            }
            (PullerCommand::Create, Ok(TopicReply::Put { .. })) => {
                (self.created, self.known, self.cursor, self.replays_from) = (true, 0, None, None);
                self.subscriptions += 1;
                (0..TOPICS.len()).for_each(|topic| memberships.settle(PULLED, topic, true));
            }
            (PullerCommand::Delete, Ok(_)) => self.created = false,
            // An earlier attempt has deleted it.
            (PullerCommand::Delete, Err(code)) if code == "not_found" => self.created = false,
            (PullerCommand::Pull { .. }, Ok(TopicReply::Pulled(pulled))) => self.took(pulled, log)?,
            (PullerCommand::Replay { from }, Ok(TopicReply::Replayed { from_seq, rewound })) => {
                if *from_seq != from {
                    return Err(format!("a replay from {from} begins at {from_seq}"));
                }
                // Without a replay, the next pull starts after what was acknowledged.
                (self.cursor, self.replays_from) = (None, rewound.then_some(from));
                self.replays += 1;
            }
            (PullerCommand::Replay { from }, Err(code))
                if code == "bad_request" && log.is_trimmed(PULLED, from) => {}
            (command, reply) => return Err(format!("{command:?} was answered {reply:?}")),
        }
        self.pending.end();
        let empty = matches!(reply, Ok(TopicReply::Pulled(pulled)) if pulled.count == 0);
        match self.last_until {
            Some(until) if empty => {
                self.next_pull = Some(cluster.now + LAST_PAUSE_MS).filter(|next| *next < until)
            }
            Some(_) => self.pull_again(cluster),
            None => {}
        }
        Ok(())
    }

    fn took(&mut self, pulled: &Pulled, log: &LogJudge) -> Outcome {
        let entries = [b"[", &pulled.entries[..], b"]"].concat();
        let entries: Vec<Value> =
            serde_json::from_slice(&entries).map_err(|error| format!("pulled events: {error}"))?;
        // A replay begins where it was wanted, unless that was dropped since.
        let begin = self.replays_from.take().or(self.cursor.map(|cursor| cursor + 1));
        let mut expected = begin.unwrap_or(pulled.first_seq);
        for entry in &entries {
            let seq = entry["seq"].as_u64().ok_or_else(|| format!("not an event: {entry}"))?;
            if seq != expected || seq > self.known + 1 {
                return Err(format!("pulled {entry}, expected {expected} after {}", self.known));
            }
            let last = self.take_entry(entry, seq, log)?;
            (self.known, self.cursor) = (self.known.max(last), Some(last));
            expected = last + 1;
        }
        Ok(())
    }

    /// Returns its last number.
    fn take_entry(&mut self, entry: &Value, seq: u64, log: &LogJudge) -> Result<u64, String> {
        if entry["type"] == "tavern.gap" {
            let last = entry["data"]["last_seq"].as_u64().ok_or_else(|| format!("not a gap: {entry}"))?;
            log.judge_gap(PULLED, seq, last)?;
            self.gaps += 1;
            return Ok(last);
        }
        let (number, topic) = (data_number(&entry["data"]), entry["topic"].as_str());
        let (Some(number), Some(topic)) = (number, topic) else {
            return Err(format!("not an event: {entry}"));
        };
        log.judge_event(PULLED, seq, number, topic)?;
        self.pulled += 1;
        Ok(seq)
    }

    /// The faults have ended.
    pub fn pull_rest(&mut self, cluster: &mut Cluster) {
        self.last_until = Some(cluster.now + LAST_MS);
        self.pull_again(cluster);
    }

    fn pull_again(&mut self, cluster: &mut Cluster) {
        if self.pending.is_idle() && self.created {
            self.begin(cluster, PullerCommand::Pull { limit: LAST_PULL }, 0);
        }
    }

    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        self.pending.node_ended(cluster, node);
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.pending.next_wake().or(self.next_pull)
    }

    pub fn wake(&mut self, cluster: &mut Cluster) {
        if self.next_pull.take_if(|due| *due <= cluster.now).is_some() {
            self.pull_again(cluster);
        }
        if self.pending.take_due(cluster.now) {
            self.send(cluster);
        }
    }

    pub fn check_end(&self, log: &LogJudge) -> Outcome {
        self.pending.check_end()?;
        match log.queue_len(PULLED) {
            events if self.created && self.known < events => {
                Err(format!("pulled {} of {events} events", self.known))
            }
            _ => Ok(()),
        }
    }
}
