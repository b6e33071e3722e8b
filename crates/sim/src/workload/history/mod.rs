//! Channels with history: a few clients publish, all of them read, slowly or not at all, lose their connection or their
//! session, move between nodes and recover, while a service clears a history now and then, messages between nodes are lost,
//! repeated and overtake each other, and nodes stop, crash, sleep and are cut off.
//!
//! Must hold: what a publisher is answered is in the store, once; every subscriber gets the messages after its position in
//! the order of their offsets, without a hole and without a duplicate, on every node the same; a recovery is refused, and a
//! gap announced, only if messages are gone; what was cleared does not come back; in the end everybody has everything.

mod client;
mod frames;
mod log;

use super::{LIVENESS, Outcome, Profile, Trouble, Workload, choose_connect, number, shards_of};
use crate::cluster::{Cluster, Setup, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use client::{HistoryClient, HistoryOp, Listening, NumberedPublish};
use log::{HistoryLog, channel_name};
use std::collections::BTreeMap;
use tavern_domain::{HistoryLimits, Time, Verbs};
use tavern_hub::{HistoryRules, KindRules, ServiceCommand, Settings};

pub const STEPS: usize = 600;
const NODES: usize = 3;
const CLIENTS: usize = 7;
/// The first clients publish.
const PUBLISHERS: usize = 2;
const CHANNELS: usize = 2;
const KEEP: u64 = 40;
const TTL_MS: u64 = 50_000;
/// Small mailboxes, so that they overflow.
const MAILBOX_EVENTS: usize = 16;
const RETRY_MS: u64 = 300;
const END_MS: u64 = 40_000;

pub struct HistoryWorkload {
    shards: Vec<usize>,
    clients: Vec<HistoryClient>,
    log: HistoryLog,
    /// Clears that were sent: the channel, and the end of its history at that time.
    clears: BTreeMap<u64, (usize, log::Place)>,
    /// Of each channel, the last place that is known to be cleared.
    cleared: [log::Place; CHANNELS],
    /// The last message of each channel that a client of a node got: the node has no more of it than this for certain.
    delivered: BTreeMap<(usize, usize), log::Place>,
    orders: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl HistoryWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> HistoryWorkload {
        HistoryWorkload {
            shards: shards_of(shards, NODES, rng),
            clients: (0..CLIENTS).map(HistoryClient::new).collect(),
            log: HistoryLog::default(),
            clears: BTreeMap::new(),
            cleared: [(0, 0); CHANNELS],
            delivered: BTreeMap::new(),
            orders: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn connect(&mut self, cluster: &mut Cluster, who: usize, node: usize, shard: usize) {
        if node >= cluster.nodes.len() || !cluster.nodes[node].is_open() {
            return;
        }
        let open = self.clients[who].link.connection;
        self.cut_off(who);
        let client = &mut self.clients[who];
        // An older one that was never answered is closed.
        let older = std::mem::replace(&mut client.old, open);
        older.inspect(|connection| cluster.disconnect(*connection));
        self.clients[who].link.connect(cluster, who, node, shard, HistoryOp::Hello);
    }

    fn clear(&mut self, cluster: &mut Cluster, channel: usize, node: usize) {
        if node >= cluster.nodes.len() || !cluster.nodes[node].is_open() {
            return;
        }
        self.orders += 1;
        let order = ServiceCommand::ClearHistory { channel: channel_name(channel).into() };
        if cluster.order(node, self.orders, order) {
            self.clears.insert(self.orders, (channel, self.log.head(channel)));
        }
    }

    /// What was there when the clear was sent is gone when it is answered.
    fn cleared(&mut self, number: u64, is_done: bool) -> Outcome {
        let Some((channel, head)) = self.clears.remove(&number) else { return Ok(()) };
        if is_done && head.0 > 0 && self.log.head(channel).0 == head.0 {
            return Err(format!("{} was cleared, and its epoch is still {}", channel_name(channel), head.0));
        }
        if is_done {
            self.cleared[channel] = self.cleared[channel].max(head);
        }
        self.count(if is_done { "histories cleared" } else { "clears refused" });
        Ok(())
    }
}

impl Workload for HistoryWorkload {
    fn profile(&self) -> Profile {
        Profile {
            setup: Setup {
                shards: self.shards.clone(),
                rules: LIVENESS,
                moves: true,
                // Messages between nodes are lost and repeated without a word.
                ordered_channels: false,
                deliveries: None,
                shard_delay_ms: 5,
            },
            trouble: Trouble {
                nodes: 14,
                crash: 2,
                stop: 3,
                sleep: 1,
                cut: 2,
                level: 8,
                level_max: 10,
                skew_ms: 100,
            },
            pace_ms: [40, 200, 1_500, 6_000],
            last_sleep_ms: 0,
            end_ms: END_MS,
        }
    }

    fn settings(&self, variant: u64, _fault: Option<PlantedFault>) -> Settings {
        let limits = HistoryLimits { messages: KEEP, bytes: 1 << 20, ttl_ms: TTL_MS };
        let history = Some(HistoryRules { limits, with_subscribe: true });
        let mut settings =
            Settings { commands_per_second: 0, mailbox_events: MAILBOX_EVENTS, ..Settings::default() };
        let chat = KindRules { allow: Verbs::ALL, history, ..KindRules::default() };
        settings.kinds.insert("chat".into(), chat);
        if variant & 1 == 1 {
            // The memory of all mailboxes is short.
            settings.mailbox_total_bytes = 12_000;
        }
        settings
    }

    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        if rng.chance(1) {
            return vec![format!("service clear {} {}", rng.below(CHANNELS), rng.below(NODES))];
        }
        let publishes = rng.chance(60);
        let who = if publishes { rng.below(PUBLISHERS) } else { rng.below(CLIENTS) };
        let channel = rng.below(CHANNELS);
        let client = &self.clients[who];
        if client.link.connection.is_none() {
            let comes = rng.chance(60);
            let connect = choose_connect(cluster, rng, who, self.clients[who].link.home.0, 40);
            return connect.filter(|_| comes).into_iter().collect();
        }
        if !client.link.is_idle() {
            return rng.chance(4).then(|| format!("client {who} disconnect")).into_iter().collect();
        }
        if publishes {
            return vec![format!("client {who} publish {channel}")];
        }
        let hears = client.channels.contains_key(&channel);
        match rng.below(100) {
            0..25 if !hears => vec![format!("client {who} subscribe {channel} {}", rng.below(60))],
            25..28 if hears => vec![format!("client {who} unsubscribe {channel}")],
            28..38 => vec![format!("client {who} page {channel} {}", 1 + rng.below(50))],
            38..50 => vec![format!("client {who} ack")],
            50..65 => vec![format!("client {who} room {}", rng.below(400))],
            65..75 => vec![format!("client {who} room {}", usize::MAX)],
            75..85 => {
                let again = choose_connect(cluster, rng, who, self.clients[who].link.home.0, 40);
                let left = rng.chance(60).then(|| format!("client {who} disconnect"));
                left.into_iter().chain(again).collect()
            }
            85..90 => vec![format!("client {who} disconnect")],
            90..93 => vec![format!("client {who} forget")],
            _ => Vec::new(),
        }
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        if let ["service", "clear", channel, node] = words {
            let channel: usize = number(channel)?;
            self.clear(cluster, channel % CHANNELS, number(node)?);
            return Ok(());
        }
        let ["client", who, verb, rest @ ..] = words else { return Err("not an action of history".into()) };
        let who: usize = number(who)?;
        let numbers: Vec<usize> = rest.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
        let client = self.clients.get_mut(who).ok_or("no such client")?;
        match (*verb, &numbers[..]) {
            ("connect", [node, shard]) => self.connect(cluster, who, *node, *shard),
            ("disconnect" | "forget", []) => {
                if let Some(connection) = client.link.connection {
                    self.cut_off(who);
                    cluster.disconnect(connection);
                }
                // A session that expired: the positions are all that is left.
                if *verb == "forget" {
                    self.clients[who].link.forget();
                    self.clients[who].session_lost();
                }
            }
            ("publish", [channel]) => {
                client.published += 1;
                let publication = NumberedPublish { channel: *channel, count: client.published };
                client.link.todo.push_back(HistoryOp::Publish(publication));
            }
            ("subscribe", [channel, last]) => {
                let last = (*last > 0).then_some(*last as u64);
                client.channels.entry(*channel).or_insert_with(Listening::default);
                client.link.todo.push_back(HistoryOp::Subscribe { channel: *channel, last });
            }
            ("unsubscribe", [channel]) => client.link.todo.push_back(HistoryOp::Unsubscribe(*channel)),
            ("page", [channel, limit]) => {
                client.link.todo.push_back(HistoryOp::Page { channel: *channel, limit: *limit as u64 });
            }
            ("ack", []) => client.link.todo.push_back(HistoryOp::Ack),
            ("room", [bytes]) => {
                if let Some(connection) = client.link.connection {
                    cluster.set_room(connection, *bytes);
                }
            }
            _ => return Err(format!("{verb} is not an action of history")),
        }
        self.pump(cluster, who);
        Ok(())
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        match signal {
            Signal::Received { client, connection, frame } => {
                if self.clients[client].link.connection != Some(connection) {
                    return Ok(());
                }
                let node = self.clients[client].link.node;
                self.received(cluster, client, &frame)
                    .map_err(|error| format!("client {client} on n{node}: {error}"))
            }
            Signal::Closed { client, connection, .. } => {
                if self.clients[client].link.connection == Some(connection) {
                    self.cut_off(client);
                    let old = self.clients[client].old.take();
                    old.inspect(|connection| cluster.disconnect(*connection));
                }
                Ok(())
            }
            Signal::Committed => self.log.look(cluster),
            Signal::Ordered { number, reply } => self.cleared(number, reply.is_ok()),
            Signal::Broken(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn choose_last(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let line = |who: usize| match self.clients[who].link.connection {
            Some(_) => Some(format!("client {who} room {}", usize::MAX)),
            None => choose_connect(cluster, rng, who, self.clients[who].link.home.0, 40),
        };
        (0..CLIENTS).filter_map(line).collect()
    }

    fn check_end(&mut self, _cluster: &Cluster) -> Outcome {
        for (who, client) in self.clients.iter().enumerate() {
            if client.link.connection.is_none() {
                continue;
            }
            if !client.link.is_idle() || !client.link.todo.is_empty() {
                let (pending, todo) = (client.link.pending, &client.link.todo);
                return Err(format!("client {who} waits forever: {pending:?}, then {todo:?}"));
            }
            for (&channel, listening) in &client.channels {
                let last = self.log.last(channel);
                // What was cleared need not arrive.
                let is_missing = listening.place != Some(last) && self.log.head(channel) == last;
                if !listening.confirmed || (is_missing && !listening.open) {
                    let name = channel_name(channel);
                    return Err(format!("client {who} has {listening:?} of {name}, which ends at {last:?}"));
                }
            }
        }
        Ok(())
    }

    fn next_wake(&self) -> Option<Time> {
        self.clients.iter().filter_map(|client| client.link.retry_at).min()
    }

    fn wake(&mut self, cluster: &mut Cluster) -> Outcome {
        for who in 0..CLIENTS {
            let client = &mut self.clients[who];
            if client.link.retry_at.is_some_and(|due| due <= cluster.now) {
                client.link.retry_at = None;
                client.catch_up();
                self.pump(cluster, who);
            }
        }
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let stored = [("messages stored", self.log.stored), ("epochs begun", self.log.epochs)];
        self.counts.iter().map(|(what, count)| (*what, *count)).chain(stored).collect()
    }
}
