//! A store made of maps. Commands run on it as the hub runs them: facts are loaded when they are needed, and changes are
//! committed at once. The invariants are checked after every commit.

use super::{client_view, invariants};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{
    Membership, Party, PartyChanges, PartyCommand, PartyFacts, PartyLimits, PartyNeed, PartyReply,
    PartyRequest, PartyResult, UserId, UserPresence, run,
};

pub const RULES: PartyLimits = PartyLimits {
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
    pub rules: PartyLimits,
    pub now: Time,
    pub parties: BTreeMap<u64, Party>,
    pub memberships: BTreeMap<UserId, Membership>,
    pub presences: BTreeMap<UserId, UserPresence>,
    pub next_id: u64,
    /// What each user knows of their party, from messages and replies alone.
    pub views: BTreeMap<UserId, Party>,
    /// The members of parties, by `entered` and `left`.
    pub present: BTreeSet<(u64, UserId)>,
    /// The tickets other services know of.
    pub tickets: BTreeSet<(u64, u64)>,
    pub ended: BTreeSet<u64>,
}

pub fn user(name: &str) -> UserId {
    Arc::from(name)
}

pub fn call(who: &str, command: PartyCommand) -> PartyRequest {
    PartyRequest { user: Some(user(who)), name: None, party: None, if_version: None, rid: None, command }
}

pub fn server(command: PartyCommand) -> PartyRequest {
    PartyRequest { user: None, name: None, party: None, if_version: None, rid: None, command }
}

impl World {
    /// The named users are online, except old, who is absent, and zoe, whom the store has never seen.
    pub fn new(rules: PartyLimits) -> World {
        let mut world = World {
            rules,
            now: Time(0),
            parties: BTreeMap::new(),
            memberships: BTreeMap::new(),
            presences: BTreeMap::new(),
            next_id: 1,
            views: BTreeMap::new(),
            present: BTreeSet::new(),
            tickets: BTreeSet::new(),
            ended: BTreeSet::new(),
        };
        for name in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"] {
            world.presences.insert(user(name), UserPresence::Online { name: None });
        }
        world.presences.insert(user("old"), UserPresence::Absent);
        world
    }

    pub fn membership(&self, who: &str) -> Membership {
        self.memberships.get(who).cloned().unwrap_or_default()
    }

    pub fn presence(&self, who: &str) -> UserPresence {
        self.presences.get(who).cloned().unwrap_or(UserPresence::Never)
    }

    pub fn read(&self, facts: &mut PartyFacts, need: &PartyNeed) {
        match need {
            PartyNeed::Party(id) => facts.put_party(*id, self.parties.get(id).cloned()),
            PartyNeed::Membership(who) => facts.put_membership(who.clone(), self.membership(who)),
            PartyNeed::Presence(who) => facts.put_presence(who.clone(), self.presence(who)),
            PartyNeed::Id => facts.id = Some(self.next_id),
        }
    }

    /// Decides a command without committing it. Returns also what was loaded for it.
    pub fn decide(&self, call: &PartyRequest) -> (PartyReply, PartyChanges, BTreeSet<PartyNeed>) {
        let mut facts = PartyFacts::default();
        let mut read = BTreeSet::new();
        loop {
            match run(self.now, &self.rules, &facts, call) {
                PartyResult::Answered { reply, changes } => return (reply, changes, read),
                PartyResult::Need(needs) => {
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
    fn decide_knowing_all(&self, call: &PartyRequest) -> (PartyReply, PartyChanges) {
        let mut facts = PartyFacts::default();
        self.read(&mut facts, &PartyNeed::Id);
        for id in 0..=self.next_id + 9 {
            self.read(&mut facts, &PartyNeed::Party(id));
        }
        let named = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "old", "zoe", ""].map(user);
        for who in self.memberships.keys().chain(self.presences.keys()).chain(&named) {
            self.read(&mut facts, &PartyNeed::Membership(who.clone()));
            self.read(&mut facts, &PartyNeed::Presence(who.clone()));
        }
        match run(self.now, &self.rules, &facts, call) {
            PartyResult::Answered { reply, changes } => (reply, changes),
            PartyResult::Need(needs) => panic!("{needs:?} is not in the store"),
        }
    }

    pub fn act(&mut self, call: &PartyRequest) -> (PartyReply, PartyChanges) {
        let (reply, changes, _) = self.decide(call);
        assert_eq!(self.decide_knowing_all(call), (reply.clone(), changes.clone()));
        self.commit(call, &reply, &changes);
        (reply, changes)
    }

    /// Commits the changes of a command, and checks the invariants.
    pub fn commit(&mut self, call: &PartyRequest, reply: &PartyReply, changes: &PartyChanges) {
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
        for (who, membership) in &changes.memberships {
            match membership.is_empty() {
                true => self.memberships.remove(who),
                false => self.memberships.insert(who.clone(), membership.clone()),
            };
        }
        client_view::update(&mut self.views, reply, call, changes);
        invariants::check(&before, self, call, reply, changes);
    }

    /// Fires every timer that is due.
    pub fn wake(&mut self) -> PartyChanges {
        let mut all = PartyChanges::default();
        let due = |party: &&Party| party.next_wake().is_some_and(|at| at <= self.now);
        let due: Vec<u64> = self.parties.values().filter(due).map(|party| party.id).collect();
        for party in due {
            let (reply, changes) = self.act(&server(PartyCommand::Wake { party }));
            assert_eq!(reply, PartyReply::Nothing);
            all.events.extend(changes.events);
        }
        let late = self.parties.values().find(|party| party.next_wake().is_some_and(|at| at <= self.now));
        assert_eq!(late, None, "what was due has happened");
        all
    }

    pub fn log_out(&mut self, who: &str) {
        self.presences.insert(user(who), UserPresence::Absent);
        let now = self.now;
        self.memberships.entry(user(who)).or_default().logged_out = Some(now);
    }
}
