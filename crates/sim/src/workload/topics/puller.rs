//! A service that administers its own subscription and pulls it: it creates the subscription, pulls events and
//! acknowledges them with the next pull, replays, deletes the subscription and creates it again. One command at a
//! time; a command without an answer is sent again, to another node. Must hold: events are numbered from 1 without
//! holes, and arrive in order; each number is one event, also when it is replayed; everything that was published
//! after the subscription was created is pulled.

use super::publisher::SentEvent;
use super::{END_MS, NODES, RETRY_MS, TOPICS};
use crate::cluster::Cluster;
use crate::rng::Rng;
use crate::workload::{Outcome, number};
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_hub::topics::{Pulled, ReplayFrom, SubscriptionChange, TopicCaller, TopicCommand, TopicReply};

/// The number of its first command: those of publishers are the numbers of their events.
const FIRST_COMMAND: u64 = 1 << 40;
/// Its subscription.
const NAME: &str = "pulled";
/// Events in one pull at the end, the pause after an empty one, and how long it continues.
const LAST_PULL: u32 = 50;
const LAST_PAUSE_MS: u64 = 5_000;
const LAST_MS: u64 = END_MS - 30_000;

#[derive(Default)]
pub struct SimPuller {
    commands: u64,
    pending: Option<PendingPull>,
    /// Since when the subscription exists, if it does.
    created_at: Option<Time>,
    /// The pulled events, by number.
    events: BTreeMap<u64, u64>,
    /// The last pulled event; none: the next pull determines it.
    cursor: Option<u64>,
    /// Where a replay must start.
    replays_from: Option<u64>,
    /// The faults have ended: it pulls everything, until this time. Publishers may still retry unacknowledged events.
    last_until: Option<Time>,
    next_pull: Option<Time>,
    pub pulled: u64,
    pub replays: u64,
    pub subscriptions: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingPull {
    number: u64,
    command: PullerCommand,
    node: usize,
    /// When it is sent again; none: it is in flight.
    retry_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullerCommand {
    Create,
    Delete,
    Pull { limit: u32 },
    Replay { from: u64 },
}

impl SimPuller {
    pub fn choose(&self, cluster: &Cluster, rng: &mut Rng) -> Option<String> {
        let (node, limit) = (rng.below(NODES), 1 + rng.below(8));
        let last = self.events.last_key_value().map_or(0, |(seq, _)| *seq as usize);
        let line = match rng.below(100) {
            _ if self.created_at.is_none() => format!("create {node}"),
            0..4 => format!("delete {node}"),
            4..12 if last > 0 => format!("replay {node} {}", 1 + rng.below(last)),
            _ => format!("pull {node} {limit}"),
        };
        (self.pending.is_none() && cluster.nodes[node].is_open()).then_some(line)
    }

    pub fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let (command, node) = match words {
            ["create", node] => (PullerCommand::Create, node),
            ["delete", node] => (PullerCommand::Delete, node),
            ["pull", node, limit] => (PullerCommand::Pull { limit: number(limit)? }, node),
            ["replay", node, from] => (PullerCommand::Replay { from: number(from)? }, node),
            _ => return Err("not an action on topics".into()),
        };
        // A shrunk script may lack what this depends on.
        let there = self.created_at.is_some();
        if self.pending.is_none() && there == (command != PullerCommand::Create) {
            self.begin(cluster, command, number(node)?);
        }
        Ok(())
    }

    pub fn owns(number: u64) -> bool {
        number >= FIRST_COMMAND
    }

    fn begin(&mut self, cluster: &mut Cluster, command: PullerCommand, node: usize) {
        self.pending = Some(PendingPull { number: 0, command, node, retry_at: None });
        self.send(cluster);
    }

    fn send(&mut self, cluster: &mut Cluster) {
        let Some(pending) = &mut self.pending else { return };
        // A late answer to an earlier attempt has another number.
        self.commands += 1;
        pending.number = FIRST_COMMAND + self.commands;
        let name = NAME.into();
        let command = match pending.command {
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
        let (node, number) = (pending.node, pending.number);
        let caller = TopicCaller { id: "service".into(), admin: false };
        if !cluster.command_topic(node, number, caller, command) {
            self.put_off(cluster);
        }
    }

    /// To the next node, after a delay.
    fn put_off(&mut self, cluster: &Cluster) {
        if let Some(pending) = &mut self.pending {
            pending.node = (pending.node + 1) % NODES;
            pending.retry_at = Some(cluster.now + RETRY_MS);
        }
    }

    pub fn answered(
        &mut self,
        cluster: &mut Cluster,
        number: u64,
        reply: &Result<TopicReply, String>,
    ) -> Outcome {
        let Some(pending) = self.pending.filter(|pending| pending.number == number) else { return Ok(()) };
        let command = pending.command;
        match (command, reply) {
            (_, Err(code)) if code == "unavailable" || code == "conflict" => {
                self.put_off(cluster);
                return Ok(());
            }
            (PullerCommand::Create, Ok(TopicReply::Put { .. })) => {
                (self.created_at, self.cursor, self.replays_from) = (Some(cluster.now), None, None);
                self.events.clear();
                self.subscriptions += 1;
            }
            (PullerCommand::Delete, Ok(_)) => self.created_at = None,
            // An earlier attempt has deleted it.
            (PullerCommand::Delete, Err(code)) if code == "not_found" => self.created_at = None,
            (PullerCommand::Pull { .. }, Ok(TopicReply::Pulled(pulled))) => self.took(pulled)?,
            (PullerCommand::Replay { from }, Ok(TopicReply::Replayed { from_seq, rewound })) => {
                if *from_seq != from {
                    return Err(format!("a replay from {from} begins at {from_seq}"));
                }
                // Without a replay, the next pull starts after what was acknowledged.
                (self.cursor, self.replays_from) = (None, rewound.then_some(from));
                self.replays += 1;
            }
            (command, reply) => return Err(format!("{command:?} was answered {reply:?}")),
        }
        self.pending = None;
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

    fn took(&mut self, pulled: &Pulled) -> Outcome {
        let entries = [b"[", &pulled.entries[..], b"]"].concat();
        let entries: Vec<serde_json::Value> =
            serde_json::from_slice(&entries).map_err(|error| format!("pulled events: {error}"))?;
        let begin = self.replays_from.take().or(self.cursor.map(|cursor| cursor + 1));
        for (at, entry) in entries.iter().enumerate() {
            let (Some(seq), Some(event)) = (entry["seq"].as_u64(), entry["data"].as_u64()) else {
                return Err(format!("not an event: {entry}"));
            };
            let expected = begin.unwrap_or(pulled.first_seq) + at as u64;
            if seq != expected {
                return Err(format!("event {event} was pulled as {seq}, expected {expected}"));
            }
            let known = self.events.last_key_value().map_or(0, |(seq, _)| *seq);
            if seq > known + 1 {
                return Err(format!("event {event} was pulled as {seq} after {known}"));
            }
            if let Some(other) = self.events.insert(seq, event).filter(|other| *other != event) {
                return Err(format!("events {other} and {event} were pulled as {seq}"));
            }
            self.cursor = Some(seq);
            self.pulled += 1;
        }
        Ok(())
    }

    /// The faults have ended.
    pub fn pull_rest(&mut self, cluster: &mut Cluster) {
        self.last_until = Some(cluster.now + LAST_MS);
        self.pull_again(cluster);
    }

    fn pull_again(&mut self, cluster: &mut Cluster) {
        if self.pending.is_none() && self.created_at.is_some() {
            self.begin(cluster, PullerCommand::Pull { limit: LAST_PULL }, 0);
        }
    }

    /// Requests in flight at a node will not be answered.
    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        if self.pending.is_some_and(|pending| pending.node == node && pending.retry_at.is_none()) {
            self.put_off(cluster);
        }
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.pending.and_then(|pending| pending.retry_at).or(self.next_pull)
    }

    pub fn wake(&mut self, cluster: &mut Cluster) {
        if self.next_pull.take_if(|due| *due <= cluster.now).is_some() {
            self.pull_again(cluster);
        }
        if let Some(pending) = &mut self.pending
            && pending.retry_at.is_some_and(|due| due <= cluster.now)
        {
            pending.retry_at = None;
            self.send(cluster);
        }
    }

    pub fn check_end(&self, accepted: &BTreeMap<u64, SentEvent>) -> Outcome {
        if let Some(pending) = &self.pending {
            return Err(format!("a command about the subscription was never answered: {pending:?}"));
        }
        let Some(created_at) = self.created_at else { return Ok(()) };
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        for (seq, event) in &self.events {
            if let Some(other) = places.insert(*event, *seq) {
                return Err(format!("event {event} was pulled as {other} and as {seq}"));
            }
        }
        let mut later: Option<(u64, SentEvent)> = None;
        let mut by_place: Vec<(u64, u64, SentEvent)> = Vec::new();
        for (event, sent) in accepted.iter().filter(|(_, sent)| sent.sent_at > created_at) {
            let place = places.get(event).ok_or_else(|| format!("event {event} was never pulled"))?;
            by_place.push((*place, *event, *sent));
        }
        by_place.sort_by_key(|(place, ..)| *place);
        for (_, event, sent) in by_place {
            // The latest time at which an earlier one was sent.
            if let Some((other, first)) = later.filter(|(_, first)| sent.accepted_at < first.sent_at) {
                return Err(format!(
                    "event {event} was answered before {other} was sent ({first:?}), and pulled after it"
                ));
            }
            later = later.filter(|(_, first)| first.sent_at >= sent.sent_at).or(Some((event, sent)));
        }
        Ok(())
    }
}
