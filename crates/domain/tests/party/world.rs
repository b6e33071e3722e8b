//! A store made of maps. Commands run on it as the hub runs them: facts are loaded when they are needed, and changes are
//! committed at once. The invariants are checked after every commit.

use crate::{client_view, invariants};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{
    Call, Changes, Command, Guest, Need, Party, Reply, Rules, Standing, Table, Turn, User, run,
};

pub const RULES: Rules = Rules {
    max_members: 4,
    invite_ms: 60_000,
    gather_ms: 10_000,
    grace_ms: 30_000,
    reinvite_ms: 30_000,
    invites_per_minute: 8,
    max_pending: 3,
    require_ready: false,
};

#[derive(Clone)]
pub struct World {
    pub rules: Rules,
    pub now: Time,
    pub parties: BTreeMap<u64, Party>,
    pub guests: BTreeMap<User, Guest>,
    pub standings: BTreeMap<User, Standing>,
    pub next_id: u64,
    /// What each user knows of their party, from messages and replies alone.
    pub views: BTreeMap<User, Party>,
    /// The members of parties, by `entered` and `left`.
    pub present: BTreeSet<(u64, User)>,
    /// The tickets other services know of.
    pub tickets: BTreeSet<(u64, u64)>,
    pub ended: BTreeSet<u64>,
}

pub fn user(name: &str) -> User {
    Arc::from(name)
}

pub fn call(who: &str, command: Command) -> Call {
    Call { user: Some(user(who)), name: None, party: None, if_version: None, rid: None, command }
}

pub fn server(command: Command) -> Call {
    Call { user: None, name: None, party: None, if_version: None, rid: None, command }
}

impl World {
    /// The named users are online, except old, who is absent, and zoe, whom the store has never seen.
    pub fn new(rules: Rules) -> World {
        let mut world = World {
            rules,
            now: Time(0),
            parties: BTreeMap::new(),
            guests: BTreeMap::new(),
            standings: BTreeMap::new(),
            next_id: 1,
            views: BTreeMap::new(),
            present: BTreeSet::new(),
            tickets: BTreeSet::new(),
            ended: BTreeSet::new(),
        };
        for name in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"] {
            world.standings.insert(user(name), Standing::Online { name: None });
        }
        world.standings.insert(user("old"), Standing::Absent);
        world
    }

    pub fn guest(&self, who: &str) -> Guest {
        self.guests.get(who).cloned().unwrap_or_default()
    }

    pub fn standing(&self, who: &str) -> Standing {
        self.standings.get(who).cloned().unwrap_or(Standing::Never)
    }

    pub fn read(&self, facts: &mut Table, need: &Need) {
        match need {
            Need::Party(id) => facts.put_party(*id, self.parties.get(id).cloned()),
            Need::Guest(who) => facts.put_guest(who.clone(), self.guest(who)),
            Need::Standing(who) => facts.put_standing(who.clone(), self.standing(who)),
            Need::Id => facts.id = Some(self.next_id),
        }
    }

    /// Decides a command without committing it. Returns also what was loaded for it.
    pub fn decide(&self, call: &Call) -> (Reply, Changes, BTreeSet<Need>) {
        let mut facts = Table::default();
        let mut read = BTreeSet::new();
        loop {
            match run(self.now, &self.rules, &facts, call) {
                Turn::Answered { reply, changes } => return (reply, changes, read),
                Turn::Need(needs) => {
                    assert!(!needs.is_empty(), "{call:?}");
                    for need in needs {
                        self.read(&mut facts, &need);
                        assert!(read.insert(need.clone()), "{need:?} was loaded before");
                    }
                }
            }
        }
    }

    /// The same with all facts loaded: those that are not needed must not matter.
    fn decide_knowing_all(&self, call: &Call) -> (Reply, Changes) {
        let mut facts = Table::default();
        self.read(&mut facts, &Need::Id);
        for id in 0..=self.next_id + 9 {
            self.read(&mut facts, &Need::Party(id));
        }
        let named = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "old", "zoe", ""].map(user);
        for who in self.guests.keys().chain(self.standings.keys()).chain(&named) {
            self.read(&mut facts, &Need::Guest(who.clone()));
            self.read(&mut facts, &Need::Standing(who.clone()));
        }
        match run(self.now, &self.rules, &facts, call) {
            Turn::Answered { reply, changes } => (reply, changes),
            Turn::Need(needs) => panic!("{needs:?} is not in the store"),
        }
    }

    pub fn act(&mut self, call: &Call) -> (Reply, Changes) {
        let (reply, changes, _) = self.decide(call);
        assert_eq!(self.decide_knowing_all(call), (reply.clone(), changes.clone()));
        self.commit(call, &reply, &changes);
        (reply, changes)
    }

    /// Commits the changes of a command, and checks the invariants.
    pub fn commit(&mut self, call: &Call, reply: &Reply, changes: &Changes) {
        let before = self.clone();
        for (id, party) in &changes.parties {
            match party {
                Some(party) => {
                    assert!(!self.ended.contains(id), "{id} was destroyed");
                    self.next_id = self.next_id.max(id + 1);
                    self.parties.insert(*id, party.clone());
                }
                None => {
                    assert!(self.parties.remove(id).is_some());
                    self.ended.insert(*id);
                }
            }
        }
        for (who, guest) in &changes.guests {
            match guest.is_empty() {
                true => self.guests.remove(who),
                false => self.guests.insert(who.clone(), guest.clone()),
            };
        }
        client_view::update(&mut self.views, reply, call, changes);
        invariants::check(&before, self, call, reply, changes);
    }

    /// Fires every timer that is due.
    pub fn wake(&mut self) -> Changes {
        let mut all = Changes::default();
        let due = |party: &&Party| party.next_wake().is_some_and(|at| at <= self.now);
        let due: Vec<u64> = self.parties.values().filter(due).map(|party| party.id).collect();
        for party in due {
            let (reply, changes) = self.act(&server(Command::Wake { party }));
            assert_eq!(reply, Reply::Nothing);
            all.letters.extend(changes.letters);
        }
        let late = self.parties.values().find(|party| party.next_wake().is_some_and(|at| at <= self.now));
        assert_eq!(late, None, "what was due has happened");
        all
    }

    pub fn say_bye(&mut self, who: &str) {
        self.standings.insert(user(who), Standing::Absent);
        let now = self.now;
        self.guests.entry(user(who)).or_default().bye = Some(now);
    }
}
