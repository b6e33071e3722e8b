//! Messages on one node with two shards: clients publish and subscribe without waiting for answers, read slowly or not at
//! all, lose their connection, reconnect by WebSocket or by polls whose answers are lost, and the node is restarted.
//! Must hold: the promises of `promise`, for every session; a session is only deleted after its time to resume.

mod client;
mod frames;

use super::promise::MessageSource;
use super::{Outcome, Profile, Trouble, Workload, number};
use crate::cluster::{Cluster, Ended, Setup, Signal, SimPoll};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use client::{MessagesClient, SimTransport};
use std::collections::BTreeMap;
use tavern_hub::{CloseReason, LivenessRules, Settings, SlowReader};

pub const STEPS: usize = 1_500;
const SHARDS: usize = 2;
const CHANNELS: usize = 4;
const CLIENTS: usize = 6;
/// Small mailboxes, so that they overflow.
const MAILBOX_EVENTS: usize = 24;
const MAILBOXES_BYTES: usize = 40_000;
const RULES: LivenessRules = LivenessRules {
    heartbeat_ms: 2_000,
    lease_ms: 10_000,
    drain_ms: 15_000,
    sweep_ms: 60_000,
    sweep_age_ms: 120_000,
};

pub struct MessagesWorkload {
    shards: Vec<usize>,
    clients: Vec<MessagesClient>,
    /// How many messages each publisher has sent on each channel, and how many of them were accepted.
    sent: BTreeMap<MessageSource, u64>,
    accepted: BTreeMap<MessageSource, u64>,
    publishers: usize,
    counts: BTreeMap<&'static str, u64>,
}

impl MessagesWorkload {
    pub fn new(shards: &[usize]) -> MessagesWorkload {
        MessagesWorkload {
            shards: if shards.is_empty() { vec![SHARDS] } else { shards.to_vec() },
            clients: (0..CLIENTS).map(MessagesClient::new).collect(),
            sent: BTreeMap::new(),
            accepted: BTreeMap::new(),
            publishers: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// By WebSocket on any shard, or by a poll.
    fn choose_return(&self, rng: &mut Rng, who: usize) -> String {
        if self.clients[who].session.is_some() && rng.chance(30) {
            let timeout = if rng.chance(50) { 0 } else { 5_000 };
            return format!("client {who} poll {timeout} {}", u8::from(rng.chance(15)));
        }
        format!("client {who} connect {}", rng.below(SHARDS))
    }

    /// Sends a command over the client's socket, if it has one.
    fn send(&mut self, cluster: &mut Cluster, who: usize, body: &str) {
        if let SimTransport::Socket(connection) = self.clients[who].transport {
            cluster.send(connection, format!("{{{body}}}"));
        }
    }

    fn connect(&mut self, cluster: &mut Cluster, who: usize, shard: usize) {
        if !cluster.nodes[0].is_open() {
            return;
        }
        self.publishers += 1;
        let client = &mut self.clients[who];
        client.detach(cluster.now);
        (client.publisher, client.reads) = (self.publishers, true);
        client.transport = SimTransport::Socket(cluster.connect(who, 0, shard));
        let session = match &client.session {
            Some(session) => format!(r#","session":"{session}","seq":{}"#, client.promise.seq),
            None => String::new(),
        };
        let hello = format!(r#""id":1,"op":"hello","token":"token-of-{}"{session}"#, client.user);
        self.send(cluster, who, &hello);
    }

    fn poll(&mut self, cluster: &mut Cluster, who: usize, timeout_ms: u64, loses_answer: bool) {
        let Some(session) = self.clients[who].session.clone() else { return };
        if !cluster.nodes[0].is_open() {
            return;
        }
        if let SimTransport::Socket(connection) = self.clients[who].detach(cluster.now) {
            cluster.disconnect(connection);
        }
        let cursor = self.clients[who].promise.seq;
        let request = SimPoll { session: &session, cursor, timeout_ms, loses_answer };
        // An immediate answer is handled before the next action.
        if let Some(connection) = cluster.poll(who, 0, &request) {
            self.clients[who].transport = SimTransport::Poll(connection);
        }
    }

    fn publish(&mut self, cluster: &mut Cluster, who: usize, channel: usize) {
        if !matches!(self.clients[who].transport, SimTransport::Socket(_)) {
            return;
        }
        let publisher = self.clients[who].publisher;
        let count = self.sent.entry((publisher, channel)).or_default();
        *count += 1;
        let data = format!(r#"{{"p":{publisher},"c":{count}}}"#);
        let id = client::PUBLISH + channel as u64;
        self.send(
            cluster,
            who,
            &format!(r#""id":{id},"op":"publish","channel":"room#{channel}","data":{data}"#),
        );
    }

    fn subscribe(&mut self, cluster: &mut Cluster, who: usize, channel: usize, pattern: bool) {
        if !self.clients[who].greeted {
            return;
        }
        let id = self.clients[who].subscribe_id(channel);
        let target = if pattern { "pattern" } else { "channel" };
        let star = if pattern { "*" } else { "" };
        self.send(cluster, who, &format!(r#""id":{id},"op":"subscribe","{target}":"room#{channel}{star}""#));
    }

    fn unsubscribe(&mut self, cluster: &mut Cluster, who: usize, channel: usize) {
        if !self.clients[who].greeted {
            return;
        }
        self.clients[who].unsubscribed(channel);
        for target in [format!(r#""channel":"room#{channel}""#), format!(r#""pattern":"room#{channel}*""#)] {
            self.send(cluster, who, &format!(r#""id":2,"op":"unsubscribe",{target}"#));
        }
    }
}

impl Workload for MessagesWorkload {
    fn profile(&self) -> Profile {
        Profile {
            setup: Setup {
                shards: self.shards.clone(),
                rules: RULES,
                moves: false,
                ordered_channels: true,
                deliveries: None,
                shard_delay_ms: 8,
            },
            trouble: Trouble {
                nodes: 6,
                crash: 0,
                stop: 3,
                sleep: 1,
                cut: 0,
                level: 0,
                level_max: 0,
                skew_ms: 0,
            },
            pace_ms: [3, 12, 300, 80_000],
            last_sleep_ms: 0,
            end_ms: 2_000,
        }
    }

    /// The first bit of the variant closes slow readers, the second bounds the memory of all mailboxes.
    fn settings(&self, variant: u64, _fault: Option<PlantedFault>) -> Settings {
        let mut settings = Settings {
            mailbox_events: MAILBOX_EVENTS,
            detached_unread: 1,
            commands_per_second: 0,
            ..Settings::default()
        };
        if variant & 1 == 1 {
            settings.other_kinds.slow_reader = SlowReader::Close;
        }
        if variant & 2 == 2 {
            settings.mailbox_total_bytes = MAILBOXES_BYTES;
        }
        settings
    }

    fn choose(&mut self, _cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let who = rng.below(CLIENTS);
        let channel = rng.below(CHANNELS);
        let pick = rng.below(1000);
        if self.clients[who].is_detached() && pick < 400 {
            return vec![self.choose_return(rng, who)];
        }
        vec![match pick {
            0..550 => format!("client {who} publish {channel}"),
            550..640 => format!("client {who} subscribe {channel} {}", u8::from(rng.chance(20))),
            640..660 => format!("client {who} unsubscribe {channel}"),
            660..680 => format!("client {who} disconnect"),
            680..720 => format!("client {who} room 0"),
            720..760 => format!("client {who} room {}", rng.below(200)),
            760..800 => format!("client {who} ack"),
            800..830 => self.choose_return(rng, who),
            830..930 => format!("client {who} room {}", usize::MAX),
            _ => format!("client {who} publish {channel}"),
        }]
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let ["client", who, verb, rest @ ..] = words else { return Err("not an action of messages".into()) };
        let who: usize = number(who)?;
        if who >= self.clients.len() {
            return Err("no such client".into());
        }
        let numbers: Vec<usize> = rest.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
        match (*verb, &numbers[..]) {
            ("connect", [shard]) => self.connect(cluster, who, *shard),
            ("poll", [timeout_ms, loses]) => self.poll(cluster, who, *timeout_ms as u64, *loses == 1),
            ("disconnect", []) => match self.clients[who].detach(cluster.now) {
                SimTransport::Socket(connection) | SimTransport::Poll(connection) => {
                    cluster.disconnect(connection)
                }
                SimTransport::None => {}
            },
            ("publish", [channel]) => self.publish(cluster, who, *channel),
            ("subscribe", [channel, pattern]) => self.subscribe(cluster, who, *channel, *pattern == 1),
            ("unsubscribe", [channel]) => self.unsubscribe(cluster, who, *channel),
            ("ack", []) => {
                let seq = self.clients[who].promise.seq;
                if seq > 0 && self.clients[who].greeted {
                    self.send(cluster, who, &format!(r#""id":3,"op":"ack","seq":{seq}"#));
                }
            }
            ("room", [bytes]) => {
                if let SimTransport::Socket(connection) = self.clients[who].transport {
                    self.clients[who].reads = *bytes == usize::MAX;
                    cluster.set_room(connection, *bytes);
                }
            }
            _ => return Err(format!("{verb} is not an action of messages")),
        }
        Ok(())
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        match signal {
            Signal::Received { client, connection, frame } => {
                if self.clients[client].transport != SimTransport::Socket(connection) {
                    return Ok(());
                }
                self.receive_frame(cluster, client, &frame)
                    .map_err(|error| format!("client {client}: {error}"))
            }
            Signal::Polled { client, answer } => {
                self.polled(cluster, client, answer).map_err(|error| format!("client {client}: {error}"))
            }
            Signal::PollUnknown { client } => {
                self.clients[client].detach(cluster.now);
                self.forgotten(cluster, client).map_err(|error| format!("client {client}: {error}"))
            }
            Signal::Closed { client, connection, why } => {
                let known = self.clients[client].transport;
                if known == SimTransport::Socket(connection) || known == SimTransport::Poll(connection) {
                    self.clients[client].detach(cluster.now);
                    if why == Ended::Node(CloseReason::SlowReader) {
                        self.count("slow readers closed");
                    }
                }
                Ok(())
            }
            Signal::Broken(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn choose_last(&mut self, _cluster: &Cluster, _rng: &mut Rng) -> Vec<String> {
        let connected = |who: usize| matches!(self.clients[who].transport, SimTransport::Socket(_));
        let line = |who: usize| match connected(who) {
            true => format!("client {who} room {}", usize::MAX),
            false => format!("client {who} connect {}", who % SHARDS),
        };
        (0..CLIENTS).map(line).collect()
    }

    fn check_end(&mut self, _cluster: &Cluster) -> Outcome {
        // A client that is disconnected or does not read has not received everything.
        let reads = |client: &MessagesClient| client.greeted && client.reads;
        for (who, client) in self.clients.iter().enumerate().filter(|(_, client)| reads(client)) {
            client.promise.complete(&self.accepted).map_err(|error| format!("client {who}: {error}"))?;
        }
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counts.iter().map(|(what, count)| (*what, *count)).collect()
    }
}
