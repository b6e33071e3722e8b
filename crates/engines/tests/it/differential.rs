//! Differential tests: random commits must have the same outcome on every engine as in memory, and leave the same rows. On
//! Redis the commit algorithm is implemented a second time, in Lua.

use crate::{postgres_server, server};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Epoch, Scopes, SessionKey, Time};
use tavern_store::blocking::BlockingStore;
use tavern_store::memory::MemoryEngine;
use tavern_store::{
    AnswerReceiver, ApiKey, Append, ChannelVersionBump, Clock, CloseProof, Commit, Deadline, Document,
    DocumentKey, Expect, Follow, FreedMessages, HistoryClear, HistoryLimits, HistorySender, LastSeenUpdate,
    LogEntry, ManualClock, NewHistoryMessage, NewInboxMessage, NodeChange, PresenceHold, PresenceKey,
    PresenceRow, Read, Row, RowKey, RowKind, Store, StoreAnswer, StoreError, StoredSession, TakeLease, Trim,
    UserRow, Work, Writer,
};

const PATIENCE: Duration = Duration::from_secs(30);
const START: Time = Time(1_790_000_000_000);
const SEEDS: u64 = 8;
const ROUNDS: usize = 60;
const CHANNELS: [&str; 3] = ["game#a", "game#b", "user#\"x\\\n"];
const KINDS: [&str; 2] = ["thing", "party"];
const USERS: [&str; 3] = ["ann", "bob", "ü/\"z"];
const NAMES: [&str; 2] = ["one", "two"];

/// Pseudorandom numbers from a seed.
struct Random(u64);

impl Random {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }

    fn time(&mut self) -> Time {
        match self.roll(6) {
            0 => Time(0),
            1 => Time::NEVER,
            _ => Time(START.0 + self.roll(20) as u64),
        }
    }

    fn bytes(&mut self) -> Arc<[u8]> {
        match self.roll(4) {
            0 => Arc::from(*b""),
            1 => Arc::from(*b"\0\xff{}"),
            2 => "{\"a\":\"\u{1}é\"}".as_bytes().into(),
            _ => "x".repeat(self.roll(40)).into_bytes().into(),
        }
    }

    fn presence_key(&mut self) -> PresenceKey {
        PresenceKey::new(self.pick(&CHANNELS), self.pick(&USERS))
    }

    fn home(&mut self, nodes: &[Writer]) -> NodeEpoch {
        match nodes {
            [] => NodeEpoch { node: "gone".into(), epoch: Epoch(1) },
            _ => NodeEpoch::from(&nodes[self.roll(nodes.len())]),
        }
    }

    fn presence(&mut self, nodes: &[Writer]) -> PresenceRow {
        let count = 1 + self.roll(3);
        let clients = (0..count).map(|n| ChannelClient {
            client: ClientId::from_random(n as u128),
            node: self.home(nodes),
            state: self.one_in(2).then(|| ClientState { text: "{\"s\": 1}".into(), digest: u64::MAX }),
            since: self.time(),
            lost: self.one_in(3).then(|| LostClient { at: Time(3), until: self.time() }),
        });
        let clients = clients.collect();
        let departed =
            self.one_in(4).then(|| LastDeparture { reason: OfflineReason::Bye, seen: self.time() });
        PresenceRow {
            key: self.presence_key(),
            anonymous: self.one_in(3),
            name: self.one_in(2).then(|| "Ä\"".into()),
            visibility: Visibility::FollowersIFollow,
            attendance: Attendance::restore(clients, Time(7), departed),
        }
    }

    fn row(&mut self, nodes: &[Writer]) -> Row {
        match self.roll(8) {
            0..3 => Row::Presence(self.presence(nodes)),
            3 => {
                let held_with = self.one_in(2).then(|| self.pick(&CHANNELS).into());
                Row::Hold(PresenceHold {
                    key: self.presence_key(),
                    held_with,
                    until: self.one_in(2).then(|| self.time()),
                })
            }
            4 => Row::Document(Document {
                key: DocumentKey::new(self.pick(&KINDS), self.pick(&NAMES)),
                body: self.bytes(),
            }),
            5 => {
                let last_seen = self.one_in(2).then(|| self.time());
                Row::User(UserRow {
                    user: self.pick(&USERS).into(),
                    last_seen,
                    visibility: Visibility::Nobody,
                })
            }
            6 => Row::Follow(Follow {
                follower: self.pick(&USERS).into(),
                followee: self.pick(&USERS).into(),
                since: self.time(),
            }),
            _ if self.one_in(2) => Row::Key(ApiKey {
                id: self.pick(&NAMES).into(),
                name: "k".into(),
                hash: [self.roll(2) as u8; 32],
                scopes: Scopes::ALL,
                created_at: Time(1),
                revoked_at: self.one_in(2).then(|| self.time()),
                expires_at: self.one_in(2).then(|| self.time()),
                last_used_at: self.one_in(2).then(|| self.time()),
            }),
            _ => Row::Session(StoredSession {
                client: ClientId::from_random(self.roll(3) as u128),
                secret: SessionKey::from_bits(7),
                user: self.one_in(2).then(|| "ann".into()),
                name: None,
                owner: Writer::new(self.pick(&NAMES), Epoch(4)),
                body: self.bytes(),
                detached_at: self.one_in(2).then(|| self.time()),
                expires_at: self.time(),
            }),
        }
    }

    fn deletion(&mut self, nodes: &[Writer]) -> RowKey {
        match self.roll(5) {
            0 => Deadline::new(Time(1), "grace", self.pick(&NAMES)).key(),
            1 => RowKey::Lease(self.pick(&NAMES).into()),
            _ => self.row(nodes).key(),
        }
    }

    fn change(&mut self, nodes: &[Writer]) -> NodeChange {
        let node = match nodes {
            [] => Writer::new("n9", Epoch(9)),
            _ => nodes[self.roll(nodes.len())].clone(),
        };
        let proof = if self.one_in(2) { CloseProof::LeaseEnded } else { CloseProof::ProcessGone };
        match self.roll(6) {
            0 | 1 => NodeChange::Open { name: self.pick(&NAMES).into(), lease_ms: self.roll(50) as u64 },
            2 => NodeChange::Renew { node, lease_ms: self.roll(50) as u64 },
            3 => NodeChange::Close { node, proof },
            4 => NodeChange::Stop { node },
            _ => NodeChange::Forget { node },
        }
    }
}

/// The in-memory store and the store under test.
struct StorePair {
    clock: Arc<ManualClock>,
    memory: BlockingStore,
    other: BlockingStore,
    /// Every epoch of a node that was opened.
    nodes: Vec<Writer>,
}

impl StorePair {
    fn new(open: impl FnOnce(Arc<ManualClock>, Arc<dyn AnswerReceiver>) -> Arc<dyn Store>) -> StorePair {
        let clock = Arc::new(ManualClock::at(START));
        let engine = MemoryEngine::new(clock.clone());
        let memory = BlockingStore::with(PATIENCE, |inbox| Ok(engine.store("one", inbox))).unwrap();
        let other = BlockingStore::with(PATIENCE, |inbox| Ok(open(clock.clone(), inbox))).unwrap();
        StorePair { clock, memory, other, nodes: Vec::new() }
    }

    /// The current version of a row; now and then another number.
    fn version(&self, rng: &mut Random, key: &RowKey) -> u64 {
        if rng.one_in(6) {
            return [0, 1, u64::MAX][rng.roll(3)];
        }
        let probe = Expect { key: key.clone(), version: u64::MAX };
        match self.memory.commit(Commit { expects: vec![probe], ..Commit::default() }) {
            Err(StoreError::Conflict { found, .. }) => found,
            // A deadline that is never due.
            Ok(_) => u64::MAX,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&self, rng: &mut Random) -> Commit {
        let mut commit = Commit::default();
        if rng.one_in(2) && !self.nodes.is_empty() {
            commit.writer = Some(self.nodes[rng.roll(self.nodes.len())].clone());
        }
        if rng.one_in(5) {
            commit.node = Some(rng.change(&self.nodes));
        }
        for _ in 0..rng.roll(3) {
            let key = rng.deletion(&self.nodes);
            let version = self.version(rng, &key);
            commit.expects.push(Expect { key, version });
        }
        commit.deletes = (0..rng.roll(3)).map(|_| rng.deletion(&self.nodes)).collect();
        commit.puts = (0..rng.roll(4)).map(|_| rng.row(&self.nodes)).collect();
        if rng.one_in(4) {
            // The kind of commit that the Lua script has its own step for.
            let presence = rng.presence(&self.nodes);
            let key = RowKey::Presence(presence.key.clone());
            let version = self.version(rng, &key);
            let writer = commit.writer.take();
            let (expects, puts) = (vec![Expect { key, version }], vec![Row::Presence(presence)]);
            commit = Commit { writer, expects, puts, ..Commit::default() };
        }
        let keys = commit.puts.iter().map(Row::key).chain(commit.deletes.iter().cloned());
        let mut raised: Vec<Arc<str>> = keys
            .filter_map(|key| match key {
                RowKey::Presence(key) => Some(key.channel),
                _ => None,
            })
            .collect();
        raised.sort();
        raised.dedup();
        commit.raises = raised
            .into_iter()
            .map(|channel| ChannelVersionBump { channel, by: rng.roll(4) as u32 })
            .collect();
        if rng.one_in(2) {
            self.more(rng, &mut commit);
        }
        commit
    }

    fn more(&self, rng: &mut Random, commit: &mut Commit) {
        commit.seen = (0..rng.roll(2))
            .map(|_| LastSeenUpdate { user: rng.pick(&USERS).into(), at: rng.time() })
            .collect();
        commit.deadlines =
            (0..rng.roll(3)).map(|_| Deadline::new(rng.time(), "grace", rng.pick(&NAMES))).collect();
        if commit.writer.is_some() {
            commit.takes = NAMES[..rng.roll(3)]
                .iter()
                .map(|name| TakeLease { name: (*name).into(), lease_ms: 5 })
                .collect();
        }
        for _ in 0..rng.roll(3) {
            let id = rng.one_in(2).then(|| rng.pick(&["i", "j", "k", ""]).into());
            commit.appends.push(Append { topic: rng.pick(&NAMES).into(), id, body: rng.bytes() });
        }
        if rng.one_in(4) {
            // Above the head or not, and with a topic's count as it comes.
            let (position, count) = (1 + rng.roll(120) as u64, 1 + rng.roll(40) as u64);
            let id = rng.one_in(2).then(|| rng.pick(&["i", "j", "k", ""]).into());
            let (topic, body) = (rng.pick(&NAMES).into(), rng.bytes());
            commit.restores.push(LogEntry { position, topic, count, at: Time(START.0), id, body });
        }
        if rng.one_in(6) {
            commit.trim = Some(Trim { before: rng.roll(30) as u64, ids_before: rng.roll(30) as u64 });
        }
        if rng.one_in(3) {
            let through = [0, START.0 * 1000 + rng.roll(40) as u64, u64::MAX][rng.roll(3)];
            commit.freed_messages =
                vec![FreedMessages { user: rng.pick(&USERS).into(), through, unread: rng.one_in(2) }];
        }
        for _ in 0..rng.roll(3) {
            commit.inbox_messages.push(NewInboxMessage {
                user: rng.pick(&USERS).into(),
                body: rng.bytes(),
                max_messages: rng.roll(4),
                max_bytes: rng.roll(80),
            });
        }
        self.history(rng, commit);
    }

    fn history(&self, rng: &mut Random, commit: &mut Commit) {
        if rng.one_in(8) {
            commit.history_clears.push(HistoryClear { channel: rng.pick(&CHANNELS).into(), only_at: None });
        }
        for _ in 0..rng.roll(4) {
            let sender = HistorySender {
                user: rng.one_in(2).then(|| rng.pick(&USERS).into()),
                client: ClientId::from_random(rng.roll(3) as u128),
            };
            commit.history.push(NewHistoryMessage {
                channel: rng.pick(&CHANNELS).into(),
                id: rng.one_in(2).then(|| rng.pick(&["i", "j", "k", ""]).into()),
                sender: rng.one_in(2).then_some(sender),
                json: rng.one_in(2),
                body: rng.bytes(),
                keep: HistoryLimits { messages: 6, bytes: 900, ttl_ms: 8 },
            });
        }
    }

    fn run(&mut self, commits: Vec<Commit>, what: &str) {
        let works = |commits: &[Commit]| commits.iter().cloned().map(Work::Commit).collect();
        let (one, other) = (self.memory.run(works(&commits)), self.other.run(works(&commits)));
        for ((one, other), commit) in one.iter().zip(&other).zip(&commits) {
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "{what}: {commit:#?}");
            if let (StoreAnswer::Committed(receipt), Some(NodeChange::Open { name, .. })) =
                (one, &commit.node)
            {
                self.nodes.push(Writer::new(name, receipt.epoch.unwrap()));
            }
        }
    }

    fn compare(&self, what: &str) {
        let mut reads = vec![
            Read::Time,
            Read::Totals,
            Read::Keys { after: None, limit: 9 },
            Read::KeyByHash([1; 32]),
            Read::Sessions { node: None, after: None, limit: 9 },
            Read::Sessions { node: Some("one".into()), after: None, limit: 2 },
            Read::Nodes { after: None, limit: 1000 },
            Read::DueDeadlines { by: Time::NEVER, after: None, limit: 2 },
            Read::StalePresences { before: START + 10, limit: 3 },
            Read::StalePresences { before: Time::NEVER, limit: 100 },
            Read::Log { topics: Vec::new(), after: 3, limit: 4 },
            Read::Log { topics: vec!["two".into()], after: 0, limit: 1000 },
            Read::Histories { after: None, limit: 2 },
            Read::Topics { names: Vec::new(), after: None, limit: 9 },
            Read::Topics { names: vec!["two".into()], after: Some("two".into()), limit: 9 },
            Read::People { users: USERS.map(Arc::from).to_vec(), viewer: Some("ann".into()) },
        ];
        for kind in [RowKind::Document, RowKind::Presence, RowKind::Hold, RowKind::User, RowKind::Follow] {
            reads.push(Read::Rows { kind, after: None, limit: 1000 });
        }
        for name in NAMES {
            reads.push(Read::Lease(name.into()));
        }
        for channel in CHANNELS {
            reads.push(Read::Roster { channel: channel.into(), after: None, limit: 2 });
            for (newest, limit) in [(false, 1000), (true, 2)] {
                let (after, before) = (1, u64::MAX);
                reads.push(Read::History { channel: channel.into(), after, before, newest, limit });
            }
            reads.extend(USERS.map(|user| Read::Hold(PresenceKey::new(channel, user))));
        }
        for user in USERS {
            reads.push(Read::ChannelsOf { user: user.into(), after: Some("game#a".into()), limit: 9 });
            reads.push(Read::Following { user: user.into(), after: None, limit: 9 });
            reads.push(Read::Followers { user: user.into(), after: Some("ann".into()), limit: 9 });
            reads.push(Read::Inbox { user: user.into(), after: 0, limit: 2 });
        }
        for home in &self.nodes {
            reads.push(Read::PresencesAt { node: home.clone(), after: None, limit: 3 });
        }
        for read in reads {
            let (one, other) = (self.memory.read(read.clone()), self.other.read(read.clone()));
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "{what}: {read:?}");
        }
    }
}

fn check(back: bool, open: impl Fn(u64, Arc<ManualClock>, Arc<dyn AnswerReceiver>) -> Arc<dyn Store>) {
    for seed in 1..=SEEDS {
        let mut rng = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut pair = StorePair::new(|clock, inbox| open(seed, clock, inbox));
        for round in 0..ROUNDS {
            let what = format!("seed {seed}, round {round}");
            let commits = (0..1 + rng.roll(6)).map(|_| pair.commit(&mut rng)).collect();
            pair.run(commits, &what);
            match rng.roll(5) {
                // An engine need not keep the time of a batch in which everything was refused.
                0 if back => pair.clock.set(Time(pair.clock.now().0 - 2)),
                1 => pair.clock.advance(3),
                _ => {}
            }
            if round % 10 == 9 {
                pair.compare(&what);
            }
        }
    }
}

#[test]
fn redis_equals_memory() {
    let server = server::Server::redis();
    check(true, |seed, clock, inbox| {
        let url = format!("{}?prefix=seed{seed}", server.url());
        Arc::new(tavern_engines::redis::RedisStore::open_by(&url, clock, inbox).unwrap())
    });
}

#[test]
fn sqlite_equals_memory() {
    let home = tempfile::tempdir().unwrap();
    check(false, |seed, clock, inbox| {
        let folder = home.path().join(seed.to_string());
        Arc::new(tavern_engines::sqlite::SqliteStore::open(&folder, clock, inbox).unwrap())
    });
}

#[test]
fn postgres_equals_memory() {
    check(false, |_, clock, inbox| {
        Arc::new(
            tavern_engines::postgres::PostgresStore::open_by(&postgres_server::fresh(), clock, inbox)
                .unwrap(),
        )
    });
}
