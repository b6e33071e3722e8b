//! Sessions that migrate between live nodes: clients move from node to node with their session, publish and listen,
//! are present in a channel and watch it, while nodes stop in turn, crash, sleep and are cut off. Must hold: the
//! promises of `promise`, for every session, wherever it is; a session is on one node at most; unread events migrate
//! with it; while nothing else fails, every move and every stop is resumed, and watchers notice neither; in the end
//! watchers see the members that the store has, and the store has the connected clients.

mod frames;

use super::calm::LastFault;
use super::promise::{MessageSource, Promise};
use super::view::{View, roster, snapshot_of};
use super::{LIVENESS, Outcome, Profile, Trouble, Workload, choose_connect, number, shards_of};
use crate::cluster::{Cluster, ConnectionId, Exit, Setup, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use crate::session_client::SessionClient;
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::Time;
use tavern_hub::Settings;

pub const STEPS: usize = 500;
const NODES: usize = 3;
const CLIENTS: usize = 7;
const CHANNELS: usize = 3;
/// The channel every client is present in and some of them watch.
const LOBBY: &str = "game#A";
const RETRY_MS: u64 = 300;
const END_MS: u64 = 60_000;
const MAILBOX_EVENTS: usize = 256;
/// Sent events are kept for at least this long.
const KEPT_MS: u64 = 25_000;

pub struct MigrationWorkload {
    shards: Vec<usize>,
    clients: Vec<MigrationClient>,
    /// How many messages each publisher has sent on each channel, and how many of them were accepted.
    sent: BTreeMap<MessageSource, u64>,
    accepted: BTreeMap<MessageSource, u64>,
    publishers: usize,
    /// When the last fault besides moves and stops ended.
    last_fault: LastFault,
    counts: BTreeMap<&'static str, u64>,
}

struct MigrationClient {
    link: SessionClient<MigrationCommand>,
    promise: Promise,
    /// A new connection is a new publisher.
    publisher: usize,
    wants: BTreeSet<usize>,
    joined: bool,
    /// Its view of the lobby; none while it does not watch, or may have missed something.
    view: Option<View>,
    watches: bool,
    /// Since when it is connected and its hello answered.
    here_since: Option<Time>,
    /// When hello was last answered.
    greeted_at: Time,
    /// When it was last connected, and how long it was disconnected before the last hello.
    seen_at: Time,
    away_ms: u64,
    /// A connection that is still open while another one connects.
    old: Option<ConnectionId>,
    /// A process has crashed since its last hello: perhaps the one with its session.
    crashed: bool,
    /// When the node of its session started.
    home_started_at: Time,
    /// The node its session was last on.
    owners: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MigrationCommand {
    Hello,
    Join,
    Watch,
    Subscribe(usize),
    Unsubscribe(usize),
    Publish(usize),
}

impl MigrationWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> MigrationWorkload {
        let client = |number: usize| MigrationClient {
            link: SessionClient::new(format!("user{number}")),
            promise: Promise::default(),
            publisher: 0,
            wants: BTreeSet::new(),
            joined: false,
            view: None,
            watches: number < 2,
            here_since: None,
            greeted_at: Time(0),
            seen_at: Time(0),
            away_ms: 0,
            old: None,
            crashed: false,
            home_started_at: Time(0),
            owners: Vec::new(),
        };
        MigrationWorkload {
            shards: shards_of(shards, NODES, rng),
            clients: (0..CLIENTS).map(client).collect(),
            sent: BTreeMap::new(),
            accepted: BTreeMap::new(),
            publishers: 0,
            last_fault: LastFault::default(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl Workload for MigrationWorkload {
    fn profile(&self) -> Profile {
        Profile {
            setup: Setup {
                shards: self.shards.clone(),
                rules: LIVENESS,
                moves: true,
                ordered_channels: true,
                deliveries: None,
                shard_delay_ms: 3,
            },
            trouble: Trouble {
                nodes: 16,
                crash: 1,
                stop: 6,
                sleep: 1,
                cut: 1,
                level: 4,
                level_max: 6,
                skew_ms: 100,
            },
            pace_ms: [60, 400, 2_000, 6_000],
            last_sleep_ms: 0,
            end_ms: END_MS,
        }
    }

    fn settings(&self, _variant: u64, _fault: Option<PlantedFault>) -> Settings {
        Settings {
            commands_per_second: 0,
            mailbox_events: MAILBOX_EVENTS,
            detached_unread: 2,
            ..Settings::default()
        }
    }

    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let who = rng.below(CLIENTS);
        let channel = rng.below(CHANNELS);
        let client = &self.clients[who];
        if client.link.connection.is_none() {
            let comes = rng.chance(60);
            return choose_connect(cluster, rng, who, self.clients[who].link.home.0, 25)
                .filter(|_| comes)
                .into_iter()
                .collect();
        }
        if !client.link.is_idle() {
            // It has waited long enough, or moves away while a command is pending.
            return rng.chance(4).then(|| format!("client {who} disconnect")).into_iter().collect();
        }
        match rng.below(100) {
            0..55 => vec![format!("client {who} publish {channel}")],
            55..70 if !client.wants.contains(&channel) => vec![format!("client {who} subscribe {channel}")],
            70..72 if client.wants.contains(&channel) => vec![format!("client {who} unsubscribe {channel}")],
            72..90 => {
                // To any node, with or without closing the old connection.
                let again = choose_connect(cluster, rng, who, self.clients[who].link.home.0, 25);
                let left = rng.chance(60).then(|| format!("client {who} disconnect"));
                left.into_iter().chain(again).collect()
            }
            90..94 => vec![format!("client {who} disconnect")],
            _ => Vec::new(),
        }
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let ["client", who, verb, rest @ ..] = words else { return Err("not an action of migration".into()) };
        let who: usize = number(who)?;
        let numbers: Vec<usize> = rest.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
        let client = self.clients.get_mut(who).ok_or("no such client")?;
        match (*verb, &numbers[..]) {
            ("connect", [node, shard]) => {
                if *node < cluster.nodes.len() && cluster.nodes[*node].is_open() {
                    let open = self.clients[who].link.connection;
                    self.cut_off(cluster, who);
                    self.publishers += 1;
                    let client = &mut self.clients[who];
                    client.publisher = self.publishers;
                    // An older one that was never answered is closed.
                    let older = std::mem::replace(&mut client.old, open);
                    older.inspect(|connection| cluster.disconnect(*connection));
                    let client = &mut self.clients[who];
                    client.link.connect(cluster, who, *node, *shard, MigrationCommand::Hello);
                }
                return Ok(());
            }
            ("disconnect", []) => {
                client.link.connection.inspect(|connection| cluster.disconnect(*connection));
                return Ok(());
            }
            ("publish", [channel]) => client.link.todo.push_back(MigrationCommand::Publish(*channel)),
            ("subscribe", [channel]) => {
                client.wants.insert(*channel);
                client.link.todo.push_back(MigrationCommand::Subscribe(*channel));
            }
            ("unsubscribe", [channel]) => {
                client.wants.remove(channel);
                client.link.todo.push_back(MigrationCommand::Unsubscribe(*channel));
            }
            _ => return Err(format!("{verb} is not an action of migration")),
        }
        self.pump(cluster, who);
        Ok(())
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        self.last_fault.note(cluster);
        match signal {
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
                    self.cut_off(cluster, client);
                    // A client that gives up its new connection does not keep the one it replaced.
                    let old = self.clients[client].old.take();
                    old.inspect(|connection| cluster.disconnect(*connection));
                }
                Ok(())
            }
            Signal::Committed => self.check_owners(cluster),
            Signal::Ended { how, .. } => {
                if how != Exit::Clean {
                    self.last_fault.set(cluster.now);
                    self.clients.iter_mut().for_each(|client| client.crashed = true);
                }
                Ok(())
            }
            Signal::Adopted { .. } => {
                self.count("sessions adopted");
                Ok(())
            }
            Signal::Broken(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn choose_last(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let away = (0..CLIENTS).filter(|who| self.clients[*who].link.connection.is_none());
        let back: Vec<usize> = away.filter(|who| *who < 2 || rng.chance(70)).collect();
        back.into_iter()
            .filter_map(|who| choose_connect(cluster, rng, who, self.clients[who].link.home.0, 25))
            .collect()
    }

    fn check_end(&mut self, cluster: &Cluster) -> Outcome {
        let there = snapshot_of(&roster(cluster, LOBBY).1);
        let mut right: BTreeSet<String> = BTreeSet::new();
        for (who, client) in self.clients.iter().enumerate() {
            if client.link.connection.is_none() {
                continue;
            }
            if !client.link.is_idle() || !client.link.todo.is_empty() {
                let (pending, todo) = (client.link.pending, &client.link.todo);
                return Err(format!("client {who} waits forever: {pending:?}, then {todo:?}"));
            }
            client.promise.complete(&self.accepted).map_err(|error| format!("client {who}: {error}"))?;
            right.extend(client.link.id.map(|id| id.to_string()));
            if client.watches && client.view.as_ref().is_none_or(|view| view.users != there) {
                return Err(format!("client {who} sees {:?}, the store has {there:?}", client.view));
            }
        }
        let present: BTreeSet<String> = there.values().flat_map(|clients| clients.keys().cloned()).collect();
        match present == right {
            true => Ok(()),
            false => Err(format!("{present:?} are present, {right:?} are connected")),
        }
    }

    fn next_wake(&self) -> Option<Time> {
        self.clients.iter().filter_map(|client| client.link.retry_at).min()
    }

    fn wake(&mut self, cluster: &mut Cluster) -> Outcome {
        self.last_fault.note(cluster);
        for who in 0..CLIENTS {
            let link = &mut self.clients[who].link;
            if link.retry_at.is_some_and(|due| due <= cluster.now) {
                link.retry_at = None;
                self.catch_up(who);
                self.pump(cluster, who);
            }
        }
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counts.iter().map(|(what, count)| (*what, *count)).collect()
    }
}
