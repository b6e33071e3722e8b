//! People over several nodes: users follow each other, hide and show themselves, connect, disconnect and join
//! channels, and services write to their inboxes, while nodes crash, stop, sleep and are cut off.
//!
//! Must hold: what was answered `ok` is in the store; a user is never shown to users they hide from; a message that a
//! service repeats is stored once, and every session gets every message that no session of its user has acknowledged;
//! in the end every follower knows who is online and where, and offline users were last seen when they left.
//!
//! | file | holds |
//! |---|---|
//! | `client` | the wanted state of a user and what their client received |
//! | `frames` | answers and events, checked against the store |
//! | `service` | a service that writes to inboxes and repeats unanswered requests |
//! | `store_judge` | the stored facts about people, as they change |
//! | `end` | the invariants of the final state |

mod client;
mod end;
mod frames;
mod service;
mod store_judge;

use super::calm::LastFault;
use super::{Outcome, Profile, Workload, choose_connect, number, shards_of};
use crate::cluster::{Cluster, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use client::{PeopleChange, PeopleClient, PeopleCommand};
use service::Service;
use std::collections::BTreeMap;
use store_judge::PeopleJudge;
use tavern_domain::Time;
use tavern_domain::presence::Visibility;
use tavern_hub::{InboxRules, KindRules, Settings};

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
/// The most that a request of a distant node takes to the store, beyond 100 ms.
const SLOW_MS: usize = 400;
/// How long ago the last fault must be before everything must work: a store that did not answer answers late.
const CALM_MS: u64 = 25_000;

pub struct PeopleWorkload {
    shards: Vec<usize>,
    users: Vec<String>,
    clients: Vec<PeopleClient>,
    service: Service,
    judge: PeopleJudge,
    /// When a client of each user was last connected for certain, and when one was perhaps.
    visit_ends: BTreeMap<String, (Time, Time)>,
    /// When the last fault besides clean stops ended.
    last_fault: LastFault,
    counts: BTreeMap<&'static str, u64>,
}

impl PeopleWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> PeopleWorkload {
        PeopleWorkload {
            shards: shards_of(shards, NODES, rng),
            users: (0..USERS).map(|user| format!("user{user}")).collect(),
            clients: (0..CLIENTS)
                .map(|number| PeopleClient::new(format!("user{}", number % USERS)))
                .collect(),
            service: Service::default(),
            judge: PeopleJudge::default(),
            visit_ends: BTreeMap::new(),
            last_fault: LastFault::default(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
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

    /// A client disconnects. One whose hello was not answered was perhaps never here.
    fn leave(&mut self, cluster: &Cluster, who: usize) {
        let client = &mut self.clients[who];
        if client.here_since.is_some() {
            self.visit_ends.insert(client.link.user.clone(), (cluster.now, cluster.now));
        } else if let Some((_, latest)) = self.visit_ends.get_mut(&client.link.user) {
            *latest = cluster.now;
        }
        client.cut_off();
    }
}

/// A node is far from its store, or near again.
fn choose_slow_store(cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
    let node = rng.below(NODES);
    let action = match rng.chance(60) {
        true => format!("node {node} cut 1 0 {}", 100 + rng.below(SLOW_MS)),
        false => format!("node {node} mend"),
    };
    cluster.nodes[node].is_open().then_some(action).into_iter().collect()
}

impl Workload for PeopleWorkload {
    fn profile(&self) -> Profile {
        Profile::with_moves(&self.shards, SKEW_MS)
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
        if rng.chance(1) {
            return choose_slow_store(cluster, rng);
        }
        let who = rng.below(CLIENTS);
        let link = &self.clients[who].link;
        if link.connection.is_none() {
            let comes = rng.chance(40);
            return choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60)
                .filter(|_| comes)
                .into_iter()
                .collect();
        }
        if !link.is_idle() {
            // It has waited long enough.
            return rng.chance(6).then(|| format!("client {who} disconnect")).into_iter().collect();
        }
        if rng.chance(5) {
            let again = choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60);
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
        self.last_fault.note(cluster);
        match signal {
            Signal::Committed => self.judge.observe(cluster, &self.users),
            Signal::Received { client, connection, frame } => {
                if self.clients[client].link.connection != Some(connection) {
                    return Ok(());
                }
                let node = self.clients[client].link.node;
                self.receive_frame(cluster, client, &frame)
                    .map_err(|error| format!("client {client} on n{node}: {error}"))
            }
            Signal::Closed { client, connection, .. } => {
                if self.clients[client].link.connection == Some(connection) {
                    self.leave(cluster, client);
                }
                Ok(())
            }
            Signal::Ordered { number, reply } => self.service.answered(cluster, &self.judge, number, &reply),
            Signal::Ended { node, .. } => {
                self.last_fault.set(cluster.now);
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
        back.into_iter()
            .filter_map(|who| choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60))
            .collect()
    }

    fn check_end(&mut self, cluster: &Cluster) -> Outcome {
        self.check_clients()?;
        self.check_statuses()?;
        self.check_visibility(cluster)?;
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
