//! Presence over several nodes: users with several clients who connect, disconnect and reconnect, watch channels and
//! query who is there, while nodes crash, sleep, are cut off, stop and start.
//!
//! | file | holds |
//! |---|---|
//! | `client` | the wanted state of a user and what their client received |
//! | `reply` | answers and events, each checked against the store at that moment |
//! | `store_judge` | each change of the store, checked against what really happened |
//! | `end` | the invariants of the final state |

mod client;
mod end;
mod reply;
mod store_judge;

use super::{LIVENESS, Outcome, Profile, Trouble, Workload, choose_connect, number, shards_of};
use crate::cluster::{Cluster, Ended, Setup, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use client::{PresenceClient, PresenceCommand, Watch};
use std::collections::BTreeMap;
use store_judge::PresenceJudge;
use tavern_domain::Time;
use tavern_domain::presence::PresenceMode;
use tavern_hub::{KindRules, Settings};

pub const STEPS: usize = 500;
const NODES: usize = 3;
const USERS: usize = 5;
const CLIENTS: usize = 11;
/// A channel of each kind, and the grace period of its kind. One is shorter than the time for resuming a session.
const CHANNELS: [(&str, u64); 3] = [("game#A", 15_000), ("lobby#B", 5_000), ("quick#C", 1_000)];
const RESUME_MS: u64 = 2_000;
const SKEW_MS: u64 = 150;
/// A refused command is sent again after this time, and a little more for each client.
const RETRY_MS: u64 = 400;
/// Long enough for a lease, the longest grace period, and the checks in between.
const END_MS: u64 = 60_000;

pub struct PresenceWorkload {
    shards: Vec<usize>,
    clients: Vec<PresenceClient>,
    judge: PresenceJudge,
    /// The last state that a client set.
    states: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl PresenceWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> PresenceWorkload {
        PresenceWorkload {
            shards: shards_of(shards, NODES, rng),
            clients: (0..CLIENTS)
                .map(|number| PresenceClient::new(format!("user{}", number % USERS)))
                .collect(),
            judge: PresenceJudge::default(),
            states: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// One command of the user of a connected client.
    fn choose_command(&mut self, rng: &mut Rng, who: usize) -> Option<String> {
        let channel = rng.below(CHANNELS.len());
        self.states += 1;
        let state = self.states;
        let client = &self.clients[who];
        let command = match rng.below(90) {
            0..30 => format!("join {channel} {state}"),
            30..40 if client.wants.contains_key(&channel) => format!("update {channel} {state}"),
            40..52 => format!("leave {channel}"),
            52..72 if !client.watches.contains_key(&channel) => format!("watch {channel}"),
            72..75 if matches!(client.watches.get(&channel), Some(Watch::Seen(_))) => {
                format!("unwatch {channel}")
            }
            75..80 => format!("who {channel}"),
            80..83 => "bye".into(),
            83..90 => "disconnect".into(),
            _ => return None,
        };
        Some(format!("client {who} {command}"))
    }
}

impl Workload for PresenceWorkload {
    fn profile(&self) -> Profile {
        Profile {
            setup: Setup {
                shards: self.shards.clone(),
                rules: LIVENESS,
                moves: false,
                ordered_channels: false,
                deliveries: None,
                shard_delay_ms: 0,
            },
            trouble: Trouble {
                nodes: 18,
                crash: 3,
                stop: 2,
                sleep: 3,
                cut: 2,
                level: 12,
                level_max: 12,
                skew_ms: SKEW_MS,
            },
            pace_ms: [60, 400, 2_500, 12_000],
            last_sleep_ms: LIVENESS.lease_ms + 2 * LIVENESS.heartbeat_ms,
            end_ms: END_MS,
        }
    }

    /// Each bit of the variant makes one kind of channel send its changes in ticks.
    fn settings(&self, variant: u64, fault: Option<PlantedFault>) -> Settings {
        let mut settings = Settings {
            resume_ms: if fault == Some(PlantedFault::ShortResume) { 300 } else { RESUME_MS },
            commands_per_second: 0,
            mailbox_events: 1 << 16,
            ..Settings::default()
        };
        for (number, (channel, grace_ms)) in CHANNELS.iter().enumerate() {
            let kind = channel.split('#').next().unwrap_or_default();
            let presence_mode = (variant >> number & 1 == 1).then_some(PresenceMode::Coalesced);
            let rules = KindRules { grace_ms: *grace_ms, presence_mode, ..KindRules::default() };
            settings.kinds.insert(kind.into(), rules);
        }
        settings
    }

    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let who = rng.below(CLIENTS);
        let link = &self.clients[who].link;
        if link.connection.is_none() {
            let comes = rng.chance(35);
            return choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60)
                .filter(|_| comes)
                .into_iter()
                .collect();
        }
        if !link.is_idle() {
            // It has waited long enough.
            return rng.chance(6).then(|| format!("client {who} disconnect")).into_iter().collect();
        }
        if rng.chance(7) {
            // A new connection on any node, without closing the old one cleanly.
            let again = choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60);
            return [format!("client {who} disconnect")].into_iter().chain(again).collect();
        }
        self.choose_command(rng, who).into_iter().collect()
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let ["client", who, verb, rest @ ..] = words else { return Err("not an action of presence".into()) };
        let who: usize = number(who)?;
        let client = self.clients.get_mut(who).ok_or("no such client")?;
        let numbers: Vec<u64> = rest.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
        let channel = numbers.first().copied().unwrap_or(0) as usize;
        let command = match (*verb, &numbers[..]) {
            ("connect", [node, shard]) => {
                if client.link.connection.is_none() && cluster.nodes[*node as usize].is_open() {
                    let (node, shard) = (*node as usize, *shard as usize);
                    client.link.connect(cluster, who, node, shard, PresenceCommand::Hello);
                    if let Some(id) = client.link.id {
                        self.judge.client(id).connected = Some(cluster.now);
                    }
                }
                return Ok(());
            }
            ("disconnect", []) => {
                client.link.connection.inspect(|connection| cluster.disconnect(*connection));
                return Ok(());
            }
            ("join", [_, state]) => {
                client.wants.insert(channel, *state);
                PresenceCommand::Join(channel)
            }
            ("update", [_, state]) => {
                client.wants.insert(channel, *state);
                PresenceCommand::Update(channel)
            }
            ("leave", [_]) => {
                client.wants.remove(&channel);
                PresenceCommand::Leave(channel)
            }
            ("watch", [_]) => {
                client.watches.insert(channel, Watch::Asked);
                PresenceCommand::Watch(channel)
            }
            ("unwatch", [_]) => PresenceCommand::Unwatch(channel),
            ("who", [_]) => PresenceCommand::Who(channel),
            ("bye", []) => {
                client.wants.clear();
                PresenceCommand::Bye
            }
            _ => return Err(format!("{verb} is not an action of presence")),
        };
        client.link.todo.push_back(command);
        self.pump(cluster, who);
        Ok(())
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        match signal {
            Signal::Committed => self.judge.observe(cluster),
            Signal::Received { client, connection, frame } => {
                if self.clients[client].link.connection != Some(connection) {
                    return Ok(());
                }
                self.receive_frame(cluster, client, &frame).map_err(|error| {
                    format!("client {client} on n{}: {error}", self.clients[client].link.node)
                })
            }
            Signal::Closed { client, connection, why } => {
                if self.clients[client].link.connection == Some(connection) {
                    let node = self.clients[client].link.node;
                    self.clients[client].cut_off();
                    if let Ended::Node(_) = why
                        && let Some(id) = self.clients[client].link.id
                    {
                        self.judge.client(id).goes(cluster.local(node));
                    }
                }
                Ok(())
            }
            Signal::Detached { session, local } => {
                self.judge.client(session).goes(local);
                Ok(())
            }
            Signal::Started { node, adopted } => {
                let skew = cluster.nodes[node].skew;
                *self.counts.entry("sessions adopted").or_default() += adopted.len() as u64;
                adopted.into_iter().for_each(|id| self.judge.client(id).skew = skew);
                Ok(())
            }
            Signal::Adopted { .. } | Signal::Ended { .. } | Signal::Disturbed => Ok(()),
            Signal::Polled { .. } | Signal::PollUnknown { .. } => Err("no client polls here".into()),
            Signal::Ordered { .. } | Signal::TopicAnswered { .. } | Signal::Posted { .. } => {
                Err("there is no service here".into())
            }
            Signal::Broken(error) => Err(error),
        }
    }

    fn choose_last(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let away = (0..CLIENTS).filter(|who| self.clients[*who].link.connection.is_none());
        let back: Vec<usize> = away.filter(|_| rng.chance(60)).collect();
        back.into_iter()
            .filter_map(|who| choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60))
            .collect()
    }

    fn check_end(&mut self, cluster: &Cluster) -> Outcome {
        self.check_clients()?;
        self.check_rows()?;
        self.check_views(cluster)?;
        self.check_store(cluster)
    }

    fn next_wake(&self) -> Option<Time> {
        self.clients.iter().filter_map(|client| client.link.retry_at).min()
    }

    fn wake(&mut self, cluster: &mut Cluster) -> Outcome {
        for who in 0..CLIENTS {
            let client = &mut self.clients[who];
            if client.link.retry_at.is_none_or(|due| due > cluster.now) {
                continue;
            }
            // Refused commands are retried once nothing else is pending.
            let done = client.link.is_idle() && client.link.todo.is_empty();
            client.link.retry_at = (!done).then_some(cluster.now + RETRY_MS);
            if done {
                client.catch_up();
            }
            self.pump(cluster, who);
        }
        Ok(())
    }

    fn busiest_node(&self) -> usize {
        let connected = |node: usize| {
            let here = self.clients.iter().filter(move |client| client.link.node == node);
            here.filter(|client| client.link.connection.is_some()).map(|client| client.stands.len()).sum()
        };
        (0..NODES).max_by_key(|node| -> usize { connected(*node) }).unwrap_or(0)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let judged =
            [("clients taken over", self.judge.taken_over), ("grace periods ended", self.judge.expired)];
        self.counts.iter().map(|(what, count)| (*what, *count)).chain(judged).collect()
    }
}
