//! Parties over several nodes: users with several clients invite, accept, lead, go and leave, repeat unanswered commands,
//! acknowledge their inbox messages, while nodes crash, stop, sleep and are cut off.
//!
//! | file | holds |
//! |---|---|
//! | `client` | the commands a client has sent and what it received |
//! | `frames` | answers and events, each checked against the store at that moment |
//! | `snapshot` | a party as clients receive it and as it is stored |
//! | `store_judge` | each change of the store |
//! | `end` | the invariants of the final state |

mod client;
mod end;
mod frames;
mod snapshot;
mod store_judge;

use super::calm::LastFault;
use super::{LIVENESS, Outcome, Profile, Workload, choose_connect, number, shards_of};
use crate::cluster::{Cluster, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use client::{PartiesClient, PartiesCommand, PartyOrder, PartyVerb};
use std::collections::BTreeMap;
use store_judge::{KnownUsers, PartyJudge};
use tavern_domain::Time;
use tavern_domain::party::PartyLimits;
use tavern_hub::{InboxRules, KindRules, PartyRules, Settings};

pub const STEPS: usize = 400;
const NODES: usize = 3;
const USERS: usize = 5;
const CLIENTS: usize = 8;
const MEMBERS: usize = 4;
const SKEW_MS: u64 = 100;
/// How long a lost member keeps their seat after the grace period of their presence.
const GRACE_MS: u64 = 5_000;
const RETRY_MS: u64 = 300;
/// How long ago the last fault must be before everything must work: a store that did not answer answers late.
const CALM_MS: u64 = 25_000;
/// How many later requests of a user may be on the way when one is repeated: the server stores the answers to the last
/// 16 of a user.
const LATER_REQUESTS: usize = 10;

pub struct PartiesWorkload {
    shards: Vec<usize>,
    require_ready: bool,
    clients: Vec<PartiesClient>,
    judge: PartyJudge,
    /// Every order, by number.
    orders: BTreeMap<u64, OrderRecord>,
    numbers: u64,
    /// When the last fault besides clean stops ended.
    last_fault: LastFault,
    counts: BTreeMap<&'static str, u64>,
}

struct OrderRecord {
    user: String,
    /// Its answer, if that is known.
    code: Option<String>,
}

impl PartiesWorkload {
    pub fn new(shards: &[usize], rng: &mut Rng) -> PartiesWorkload {
        let require_ready = rng.chance(50);
        PartiesWorkload {
            shards: shards_of(shards, NODES, rng),
            require_ready,
            clients: (0..CLIENTS)
                .map(|number| PartiesClient::new(format!("user{}", number % USERS)))
                .collect(),
            judge: PartyJudge::default(),
            orders: BTreeMap::new(),
            numbers: 0,
            last_fault: LastFault::default(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn choose_order(&mut self, rng: &mut Rng, who: usize) -> String {
        self.numbers += 1;
        let (number, target) = (self.numbers, rng.below(USERS));
        let mut pick = rng.below(100);
        for (verb, name, share) in PartyVerb::SHARES {
            if pick < share {
                // A user without an invite does something else.
                let lonely = verb == PartyVerb::Accept && self.clients[who].invites.is_empty();
                let name = if lonely { "invite" } else { name };
                return format!("client {who} {name} {target} {number}");
            }
            pick -= share;
        }
        unreachable!("the shares are a hundred together")
    }

    fn order(
        &mut self,
        cluster: &mut Cluster,
        who: usize,
        verb: PartyVerb,
        user: u64,
        number: u64,
    ) -> Outcome {
        let client = &mut self.clients[who];
        if client.order.is_some() {
            return Ok(());
        }
        let target = match verb {
            PartyVerb::Accept | PartyVerb::Decline => client.invites.pop().unwrap_or(1),
            PartyVerb::Ready => client.go_id,
            _ => user,
        };
        let order = PartyOrder { verb, target, number, at: cluster.now };
        self.orders.insert(number, OrderRecord { user: client.link.user.clone(), code: None });
        client.link.todo.push_back(PartiesCommand::Order(order));
        self.pump(cluster, who);
        Ok(())
    }

    /// The last order is sent once more, if the server still knows it.
    fn repeat(&mut self, cluster: &mut Cluster, who: usize) {
        let client = &mut self.clients[who];
        let Some(order) = client.done.filter(|order| cluster.now.since(order.at) < CALM_MS) else { return };
        if client.order.is_none() && is_stored(&self.orders, order) {
            client.link.todo.push_back(PartiesCommand::Order(order));
            self.pump(cluster, who);
        }
    }

    fn connect(&mut self, cluster: &mut Cluster, who: usize, node: usize, shard: usize) {
        let client = &self.clients[who];
        if client.link.connection.is_some() || node >= NODES || !cluster.nodes[node].is_open() {
            return;
        }
        if client.link.session.is_some() {
            self.acknowledge(who);
        }
        let client = &mut self.clients[who];
        client.sent_at = cluster.now;
        client.link.connect(cluster, who, node, shard, PartiesCommand::Hello);
    }

    /// The users as the judge of the store must know them.
    fn users(&self, cluster: &Cluster) -> KnownUsers {
        let user = |client: &PartiesClient| client.link.user.clone();
        let calm = self.last_fault.calm_ms(cluster) >= CALM_MS + LIVENESS.lease_ms;
        let long = |client: &&PartiesClient| {
            client.here_since.is_some_and(|since| cluster.now.since(since) >= CALM_MS)
        };
        KnownUsers {
            // Also orders sent over a connection that is closed by now.
            busy: self.clients.iter().filter(|client| client.order.is_some()).map(user).collect(),
            settled: self.clients.iter().filter(|_| calm).filter(long).map(user).collect(),
        }
    }
}

impl Workload for PartiesWorkload {
    fn profile(&self) -> Profile {
        Profile::with_moves(&self.shards, SKEW_MS)
    }

    fn settings(&self, _variant: u64, _fault: Option<PlantedFault>) -> Settings {
        let rules = PartyLimits {
            max_members: MEMBERS as u32,
            invite_ms: 8_000,
            gather_ms: 3_000,
            grace_ms: GRACE_MS,
            reinvite_ms: 1_000,
            invites_per_minute: 100_000,
            require_ready: self.require_ready,
            ..PartyLimits::default()
        };
        let own = KindRules { grace_ms: 2_000, ..KindRules::default() };
        Settings {
            commands_per_second: 0,
            mailbox_events: 1 << 16,
            kinds: [("user".into(), own)].into(),
            inbox: InboxRules { messages: 1_000_000, bytes: 1 << 30, keep_ms: 86_400_000 },
            parties: PartyRules { rules, block_ms: 0 },
            ..Settings::default()
        }
    }

    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String> {
        let who = rng.below(CLIENTS);
        let link = &self.clients[who].link;
        if link.connection.is_none() {
            let comes = rng.chance(45);
            return choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60)
                .filter(|_| comes)
                .into_iter()
                .collect();
        }
        if !link.is_idle() {
            // It has waited long enough.
            return rng.chance(6).then(|| format!("client {who} disconnect")).into_iter().collect();
        }
        match rng.below(100) {
            0..5 => {
                let again = choose_connect(cluster, rng, who, self.clients[who].link.home.0, 60);
                [format!("client {who} disconnect")].into_iter().chain(again).collect()
            }
            5..9 => vec![format!("client {who} disconnect")],
            9..11 => vec![format!("client {who} bye")],
            11..16 => vec![format!("client {who} ack")],
            16..22 => vec![format!("client {who} again")],
            22..26 => vec![format!("client {who} say {}", rng.below(1000))],
            _ => vec![self.choose_order(rng, who)],
        }
    }

    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let ["client", who, verb, rest @ ..] = words else { return Err("not an action of parties".into()) };
        let who: usize = number(who)?;
        let numbers: Vec<u64> = rest.iter().map(|word| number(word)).collect::<Result<_, _>>()?;
        let client = self.clients.get_mut(who).ok_or("no such client")?;
        match (*verb, &numbers[..]) {
            ("connect", [node, shard]) => self.connect(cluster, who, *node as usize, *shard as usize),
            ("disconnect", []) => {
                client.link.connection.inspect(|connection| cluster.disconnect(*connection));
            }
            ("again", []) => self.repeat(cluster, who),
            ("ack", []) => client.link.todo.push_back(PartiesCommand::Ack),
            ("bye", []) => client.link.todo.push_back(PartiesCommand::Bye),
            ("say", [number]) => client.link.todo.push_back(PartiesCommand::Say(*number)),
            (verb, [user, number]) => {
                let verb =
                    PartyVerb::parse(verb).ok_or_else(|| format!("{verb} is not an action of parties"))?;
                return self.order(cluster, who, verb, *user, *number);
            }
            _ => return Err(format!("{verb} is not an action of parties")),
        }
        self.pump(cluster, who);
        Ok(())
    }

    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome {
        self.last_fault.note(cluster);
        match signal {
            Signal::Committed => {
                let users = self.users(cluster);
                self.judge.observe(cluster, &users)
            }
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
                    self.clients[client].cut_off();
                }
                Ok(())
            }
            Signal::Ended { .. } => {
                self.last_fault.set(cluster.now);
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
        self.check_parties(cluster)?;
        self.check_orders()?;
        self.check_invites()
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
        let judged = [("parties", self.judge.count())];
        self.counts.iter().map(|(what, count)| (*what, *count)).chain(judged).collect()
    }
}

/// Whether the server still stores the answer to an order.
fn is_stored(orders: &BTreeMap<u64, OrderRecord>, order: PartyOrder) -> bool {
    let Some(own) = orders.get(&order.number) else { return false };
    let later = orders.range(order.number + 1..).filter(|(_, entry)| entry.user == own.user);
    later.count() < LATER_REQUESTS
}
