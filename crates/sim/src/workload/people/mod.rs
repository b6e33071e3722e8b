//! People over several nodes: users follow each other, hide and show themselves, connect, disconnect and join
//! channels, and services write to their inboxes, while nodes crash, stop, sleep and are cut off.
//!
//! Must hold: what was answered `ok` is in the store; a user is not shown to those they hide from; a message that a
//! service repeats is stored once, and every session gets every message that no session of its user has acknowledged;
//! in the end every follower knows who is online and where, and offline users were last seen when they left.
//!
//! | file | holds |
//! |---|---|
//! | `client` | the wanted state of a user and what their client received |
//! | `hear` | answers and events, checked against the store |
//! | `service` | a service that writes to inboxes and repeats unanswered requests |
//! | `store_judge` | the stored facts about people, as they change |
//! | `end` | the invariants of the final state |

mod client;
mod end;
mod hear;
mod service;
mod store_judge;

use super::{Outcome, Profile, Trouble, Workload, number};
use crate::cluster::{Cluster, Setup, Signal, SimNode};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use client::{PeopleChange, PeopleClient, PeopleCommand};
use service::Service;
use std::collections::BTreeMap;
use store_judge::PeopleJudge;
use tavern_domain::Time;
use tavern_domain::presence::Visibility;
use tavern_hub::{InboxRules, KindRules, LivenessRules, Settings};

pub const STEPS: usize = 400;
const NODES: usize = 3;
const USERS: usize = 5;
const CLIENTS: usize = 7;
const CHANNELS: [&str; 3] = ["game#A", "lobby#B", "room#C"];
const VISIBILITIES: [(&str, Visibility); 3] = [
    ("everyone", Visibility::Everyone),
    ("followers_i_follow", Visibility::FollowersIFollow),
    ("nobody", Visibility::Nobody),
];
const SKEW_MS: u64 = 100;
const RETRY_MS: u64 = 300;
const GRACE_MS: u64 = 3_000;
/// How long ago the last fault must be before everything must work: a store that did not answer answers late.
const CALM_MS: u64 = 25_000;
const RULES: LivenessRules = LivenessRules {
    heartbeat_ms: 2_000,
    lease_ms: 10_000,
    drain_ms: 15_000,
    sweep_ms: 60_000,
    sweep_age_ms: 120_000,
};
/// Long enough for a lease, the grace period, and the checks in between.
const END_MS: u64 = 60_000;

pub struct PeopleWorkload {
    shards: Vec<usize>,
    users: Vec<String>,
    clients: Vec<PeopleClient>,
    service: Service,
    judge: PeopleJudge,
    /// When a client of each user was last connected.
    left_at: BTreeMap<String, Time>,
    /// When the last fault besides clean stops ended.
    troubled_at: Time,
    counts: BTreeMap<&'static str, u64>,
}

impl PeopleWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> PeopleWorkload {
        let random = (0..NODES).map(|_| 1 + rng.below(2));
        PeopleWorkload {
            shards: if shards.is_empty() { random.collect() } else { shards.to_vec() },
            users: (0..USERS).map(|user| format!("user{user}")).collect(),
            clients: (0..CLIENTS)
                .map(|number| PeopleClient::new(format!("user{}", number % USERS)))
                .collect(),
            service: Service::default(),
            judge: PeopleJudge::default(),
            left_at: BTreeMap::new(),
            troubled_at: Time(0),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn choose_connect(&self, cluster: &Cluster, rng: &mut Rng, who: usize) -> Option<String> {
        let own = self.clients[who].link.home.0;
        let node = if rng.chance(60) { own } else { rng.below(NODES) };
        let shard = rng.below(2);
        cluster.nodes[node].is_open().then(|| format!("client {who} connect {node} {shard}"))
    }

    fn choose_command(&mut self, cluster: &Cluster, rng: &mut Rng, who: usize) -> Option<String> {
        let (other, channel) = (rng.below(USERS), rng.below(CHANNELS.len()));
        let itself = self.clients[who].link.user == self.users[other];
        let command = match rng.below(100) {
            0..22 if !itself => format!("follow {other}"),
            22..30 if !itself => format!("unfollow {other}"),
            30..42 => format!("show {}", rng.below(VISIBILITIES.len())),
            42..58 => format!("join {channel}"),
            58..68 => format!("leave {channel}"),
            68..74 => "ack".into(),
            74..77 => "bye".into(),
            77..82 => "disconnect".into(),
            82..84 => "statuses".into(),
            84..96 => return self.service.choose(cluster, rng),
            _ => return None,
        };
        Some(format!("client {who} {command}"))
    }

    fn connect(&mut self, cluster: &mut Cluster, who: usize, node: usize, shard: usize) {
        let client = &mut self.clients[who];
        if client.link.connection.is_some() || node >= NODES || !cluster.nodes[node].is_open() {
            return;
        }
        if client.link.session.is_some() {
            self.judge.inbox.acknowledge(&client.link.user, client.message_id);
        }
        client.link.connect(cluster, who, node, shard, PeopleCommand::Hello);
    }

    /// A client disconnected.
    fn left(&mut self, cluster: &Cluster, who: usize) {
        self.left_at.insert(self.clients[who].link.user.clone(), cluster.now);
    }

    fn note_trouble(&mut self, cluster: &Cluster) {
        let faults = cluster.faults.state();
        let asleep = cluster.nodes.iter().any(SimNode::is_asleep);
        if faults.level > 0 || !faults.cut.is_empty() || asleep {
            self.troubled_at = cluster.now;
        }
    }

    fn calm_ms(&self, cluster: &Cluster) -> u64 {
        cluster.now.since(self.troubled_at)
    }
}

impl Workload for PeopleWorkload {
    fn profile(&self) -> Profile {
        Profile {
            setup: Setup {
                shards: self.shards.clone(),
                rules: RULES,
                moves: true,
                ordered_channels: true,
                deliveries: None,
                shard_delay_ms: 0,
            },
            trouble: Trouble {
                nodes: 16,
                crash: 3,
                stop: 2,
                sleep: 2,
                cut: 2,
                level: 10,
                level_max: 10,
                skew_ms: SKEW_MS,
            },
            pace_ms: [60, 400, 2_500, 10_000],
            last_sleep_ms: RULES.lease_ms + 2 * RULES.heartbeat_ms,
            end_ms: END_MS,
        }
    }

    fn settings(&self, _variant: u64, _fault: Option<PlantedFault>) -> Settings {
        Settings {
            commands_per_second: 0,
            mailbox_events: 1 << 16,
            other_kinds: KindRules { grace_ms: GRACE_MS, ..KindRules::default() },
            inbox: InboxRules { messages: 1_000_000, bytes: 1 << 30, keep_ms: 86_400_000 },
            ..Settings::default()
        }
    }

    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let who = rng.below(CLIENTS);
        let link = &self.clients[who].link;
        if link.connection.is_none() {
            let comes = rng.chance(40);
            return self.choose_connect(cluster, rng, who).filter(|_| comes).into_iter().collect();
        }
        if !link.is_idle() {
            // It has waited long enough.
            return rng.chance(6).then(|| format!("client {who} disconnect")).into_iter().collect();
        }
        if rng.chance(5) {
            let again = self.choose_connect(cluster, rng, who);
            return [format!("client {who} disconnect")].into_iter().chain(again).collect();
        }
        self.choose_command(cluster, rng, who).into_iter().collect()
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let (who, verb, rest) = match words {
            ["service", rest @ ..] => return self.service.perform(cluster, rest),
            ["client", who, verb, rest @ ..] => (number::<usize>(who)?, *verb, rest),
            _ => return Err("not an action of people".into()),
        };
        let numbers: Vec<usize> = rest.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
        let client = self.clients.get_mut(who).ok_or("no such client")?;
        let changes = client.change.is_none();
        match (verb, &numbers[..]) {
            ("connect", [node, shard]) => self.connect(cluster, who, *node, *shard),
            ("disconnect", []) => {
                client.link.connection.inspect(|connection| cluster.disconnect(*connection));
            }
            ("join", [channel]) => {
                client.wants.insert(*channel);
                client.link.todo.push_back(PeopleCommand::Join(*channel));
            }
            ("leave", [channel]) => {
                client.wants.remove(channel);
                client.link.todo.push_back(PeopleCommand::Leave(*channel));
            }
            ("ack", []) => client.link.todo.push_back(PeopleCommand::Ack),
            ("statuses", []) => client.link.todo.push_back(PeopleCommand::Statuses),
            ("bye", []) => {
                client.wants.clear();
                client.link.todo.push_back(PeopleCommand::Bye);
            }
            ("follow", [user]) if changes => {
                client.link.todo.push_back(PeopleCommand::Change(PeopleChange::Follow(*user)))
            }
            ("unfollow", [user]) if changes => {
                client.link.todo.push_back(PeopleCommand::Change(PeopleChange::Unfollow(*user)));
            }
            ("show", [value]) if changes => {
                client.link.todo.push_back(PeopleCommand::Change(PeopleChange::Show(*value)))
            }
            ("follow" | "unfollow" | "show", _) => {}
            _ => return Err(format!("{verb} is not an action of people")),
        }
        self.pump(cluster, who);
        Ok(())
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        self.note_trouble(cluster);
        match signal {
            Signal::Committed => self.judge.observe(cluster, &self.users),
            Signal::Heard { client, connection, frame } => {
                if self.clients[client].link.connection != Some(connection) {
                    return Ok(());
                }
                let node = self.clients[client].link.node;
                self.heard(cluster, client, &frame)
                    .map_err(|error| format!("client {client} on n{node}: {error}"))
            }
            Signal::Closed { client, connection, .. } => {
                if self.clients[client].link.connection == Some(connection) {
                    self.clients[client].cut_off();
                    self.left(cluster, client);
                }
                Ok(())
            }
            Signal::Ordered { number, reply } => self.service.answered(cluster, &self.judge, number, &reply),
            Signal::Ended { node, .. } => {
                self.troubled_at = cluster.now;
                self.service.node_ended(cluster, node);
                Ok(())
            }
            Signal::Broken(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn choose_last(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let away = (0..CLIENTS).filter(|who| self.clients[*who].link.connection.is_none());
        let back: Vec<usize> = away.filter(|_| rng.chance(60)).collect();
        back.into_iter().filter_map(|who| self.choose_connect(cluster, rng, who)).collect()
    }

    fn check_end(&mut self, cluster: &Cluster) -> Outcome {
        self.check_clients()?;
        self.check_statuses()?;
        self.check_last_seen(cluster)?;
        self.service.check_end(&self.judge)
    }

    fn next_wake(&self) -> Option<Time> {
        let clients = self.clients.iter().filter_map(|client| client.link.retry_at);
        clients.chain(self.service.next_wake()).min()
    }

    fn wake(&mut self, cluster: &mut Cluster) -> Outcome {
        self.service.wake(cluster);
        for who in 0..CLIENTS {
            let client = &mut self.clients[who];
            if client.link.retry_at.is_none_or(|due| due > cluster.now) {
                continue;
            }
            client.link.retry_at = (!client.link.is_idle()).then_some(cluster.now + RETRY_MS);
            if client.link.is_idle() {
                client.catch_up();
            }
            self.pump(cluster, who);
        }
        Ok(())
    }

    fn busiest_node(&self) -> usize {
        let here = |node: &usize| self.clients.iter().filter(|client| client.link.node == *node).count();
        (0..NODES).max_by_key(here).unwrap_or(0)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let posted = [("messages posted", self.service.done), ("messages deduplicated", self.service.known)];
        self.counts.iter().map(|(what, count)| (*what, *count)).chain(posted).collect()
    }
}
