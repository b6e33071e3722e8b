//! A session that comes from another node, seen from the node that its client has come to: what it listens to is listened
//! to here before it is given, then it is taken from the store.
//! Must hold: until it is taken nothing of it can be used here; if it cannot be had nothing of it stays.

use super::leaving::removal;
use super::moves::{ASK_MS, Errand, Migration, RETRY_MS, Sought};
use super::{Packed, unpacked};
use crate::connection::LinkId;
use crate::core::listener::{ListenerId, Who};
use crate::core::session::Session;
use crate::core::{Core, Notice, Timer, Watched};
use crate::event::Space;
use crate::node::{Carried, Unsaid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::{ClientId, Identity, Rights, Scopes, SessionKey, Time};
use tavern_engine::{Answer, Found, Read, StoreError, Work};
use tavern_wire::bus::letter::{Claim, Name, Says};

/// How long a session that was found may take to come.
pub(super) const MOVE_MS: u64 = 5_000;
/// What another shard says is on the bus after its turn.
const UNSAID_MS: u64 = 2;

pub(super) struct Coming {
    pub key: SessionKey,
    pub number: u64,
    pub claim: Claim,
    pub gentle: bool,
    pub stage: Stage,
    /// Who has it.
    pub giver: Arc<str>,
    names: Vec<Name>,
    /// By which the bus names it.
    wait: LinkId,
    /// Where it collects already.
    listener: Option<ListenerId>,
    /// What other shards of this node were saying when it began to collect: its owner must hear that.
    unsaid: Unsaid,
    /// From which version on this node tells about what it watches; none: that is being read.
    bases: BTreeMap<Arc<str>, Option<u64>>,
    /// All nodes were asked, and these do not have it.
    pub asked_all: bool,
    pub without: BTreeSet<Arc<str>>,
    pub links: Vec<LinkId>,
    pub began: Time,
    pub due: Time,
    /// Until when the others may say that they have it.
    pub until: Time,
    /// How long the next answer is waited for.
    pub patience_ms: u64,
}

pub(super) enum Stage {
    Asking,
    /// The bus is asked to carry what it listens to.
    Listening,
    /// Watched channels are read.
    Reading,
    /// It listens here; its owner is asked to lay it down.
    Giving,
    Fetching {
        client: ClientId,
        version: u64,
    },
    Taking(Box<Packed>),
}

impl Coming {
    /// Its owner was found: it may be here in a moment.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Asking)
    }

    /// Whether it is here is decided in the store at this moment.
    pub fn is_being_taken(&self) -> bool {
        matches!(self.stage, Stage::Fetching { .. } | Stage::Taking(_))
    }

    /// The next letter is written again after twice as long.
    pub fn be_patient(&mut self, now: Time) {
        self.due = now + self.patience_ms;
        self.patience_ms *= 2;
    }

    fn is_from(&self, node: &Arc<str>, number: u64) -> bool {
        self.giver == *node && self.number == number
    }

    fn wanted(&self) -> impl Iterator<Item = (Space, &[u8])> {
        self.names.iter().flat_map(|known| {
            let space = if known.pattern { Space::Pattern } else { Space::Channel };
            let watched = known.presence.then_some((Space::Presence, known.name.as_bytes()));
            [(space, known.name.as_bytes())].into_iter().chain(watched)
        })
    }
}

impl Migration {
    pub(super) fn new_coming(
        &mut self,
        core: &mut Core,
        key: SessionKey,
        number: u64,
        stage: Stage,
    ) -> Coming {
        let now = core.now;
        let due = now + RETRY_MS;
        core.agenda.set(due, Timer::Migration(key.half()));
        Coming {
            key,
            number,
            claim: Claim::Secret,
            gentle: false,
            stage,
            giver: core.node.name.clone(),
            names: Vec::new(),
            wait: self.wait(key.half()),
            listener: None,
            unsaid: Unsaid::new(),
            bases: BTreeMap::new(),
            asked_all: true,
            without: BTreeSet::new(),
            links: Vec::new(),
            began: now,
            due,
            until: now + ASK_MS,
            patience_ms: RETRY_MS,
        }
    }

    /// Its owner was found.
    pub(super) fn found(
        &mut self,
        core: &mut Core,
        watched: &dyn Watched,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        names: Vec<Name>,
    ) {
        let Some(coming) = self.comings.get_mut(&key.half()).filter(|c| c.number == number) else {
            // Too late: nobody waits for it any more.
            return self.write_letter(core, Some(from), key, number, Says::No);
        };
        if coming.is_under_way() {
            return;
        }
        (coming.giver, coming.names, coming.stage) = (from.clone(), names, Stage::Listening);
        coming.patience_ms = RETRY_MS;
        self.listen_ahead(core, watched, key.half());
    }

    /// A node that stops wants somebody to take a session.
    pub(super) fn offered(
        &mut self,
        core: &mut Core,
        watched: &dyn Watched,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        names: Vec<Name>,
    ) {
        let now = core.now;
        let half = key.half();
        if self.comings.get(&half).is_some_and(|coming| coming.is_from(from, number)) {
            return;
        }
        let busy = self.comings.get(&half).is_some_and(Coming::is_under_way);
        if busy || core.find_held(key).is_some() || self.leaves {
            return self.write_letter(core, Some(from), key, number, Says::No);
        }
        // Its client may be here already and look for it.
        let mut coming = match self.comings.remove(&half) {
            Some(coming) => coming,
            None => self.new_coming(core, key, number, Stage::Listening),
        };
        (coming.number, coming.began, coming.stage) = (number, now, Stage::Listening);
        (coming.giver, coming.names) = (from.clone(), names);
        self.comings.insert(half, coming);
        self.listen_ahead(core, watched, half);
    }

    /// Begins to collect for it as soon as the bus carries everything it listens to.
    pub(super) fn listen_ahead(&mut self, core: &mut Core, watched: &dyn Watched, half: u64) {
        let listening = |coming: &&Coming| matches!(coming.stage, Stage::Listening);
        let Some(coming) = self.comings.get(&half).filter(listening) else { return };
        let (node, wait) = (core.node.clone(), coming.wait);
        let mut hold = node.carrier.hold();
        match hold.carry_all(coming.wanted(), Some((core.index, wait))) {
            Carried::Yes => self.collect_ahead(core, watched, half),
            Carried::Wait => {
                // If it does not come, nobody else lets go of these.
                let names: Vec<(Space, Arc<[u8]>)> =
                    coming.wanted().map(|(space, name)| (space, name.into())).collect();
                names.into_iter().for_each(|(space, name)| core.linger(space, name));
            }
            Carried::Failed => {
                drop(hold);
                self.fail(core, half, Sought::Nowhere);
            }
        }
    }

    fn collect_ahead(&mut self, core: &mut Core, watched: &dyn Watched, half: u64) {
        let now = core.now;
        let Some(coming) = self.comings.get(&half) else { return };
        let mut session = Session::new(coming.key, ClientId::from_random(0), nobody(), now);
        session.frozen = true;
        let names: Vec<(Space, Arc<[u8]>)> =
            coming.wanted().map(|(space, name)| (space, name.into())).collect();
        let id = core.listeners.insert(Who::Session(Box::new(session)), None);
        for (space, name) in &names {
            core.subscribe(id, *space, name);
        }
        let presence = names.iter().filter(|(space, _)| *space == Space::Presence);
        let channels: Vec<Arc<str>> =
            presence.filter_map(|(_, name)| std::str::from_utf8(name).ok().map(Arc::from)).collect();
        let mut bases = BTreeMap::new();
        for channel in channels {
            let base = watched.base(&channel);
            if base.is_none() {
                core.notify(Notice::ChannelStale { channel: channel.clone() });
            }
            bases.insert(channel, base);
        }
        let unsaid = core.node.carrier.speech.unsaid(core.index);
        if let Some(coming) = self.comings.get_mut(&half) {
            coming.unsaid = unsaid;
            (coming.listener, coming.bases, coming.stage) = (Some(id), bases, Stage::Reading);
        }
        self.ask_to_give(core, half);
    }

    /// A channel that was being read is known: who is told about it from now on begins at this version.
    pub(crate) fn room_is_known(&mut self, core: &mut Core, channel: &Arc<str>, base: u64) {
        for (id, told) in self.unread.remove(channel).unwrap_or_default() {
            self.tell_hole(core, id, channel, told, base);
        }
        let waits = |coming: &Coming| coming.bases.get(channel).is_some_and(Option::is_none);
        let halves: Vec<u64> = self.comings.iter().filter(|(_, c)| waits(c)).map(|(half, _)| *half).collect();
        for half in halves {
            if let Some(coming) = self.comings.get_mut(&half) {
                coming.bases.insert(channel.clone(), Some(base));
            }
            self.ask_to_give(core, half);
        }
    }

    /// Everything is listened to here: its owner may lay it down.
    fn ask_to_give(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(coming) = self.comings.get_mut(&half) else { return };
        let known = coming.bases.values().all(Option::is_some);
        if !known || !matches!(coming.stage, Stage::Reading | Stage::Giving) {
            return;
        }
        if !core.node.carrier.speech.is_said(&coming.unsaid) {
            coming.due = now + UNSAID_MS;
            return core.agenda.set(now + UNSAID_MS, Timer::Migration(half));
        }
        coming.stage = Stage::Giving;
        coming.be_patient(now);
        let due = coming.due;
        let versions =
            coming.bases.iter().map(|(name, base)| (name.to_string(), base.unwrap_or(0))).collect();
        let (key, number, giver) = (coming.key, coming.number, coming.giver.clone());
        core.agenda.set(due, Timer::Migration(half));
        self.write_letter(core, Some(&giver), key, number, Says::Give { versions });
    }

    /// It lies in the store.
    pub(super) fn given(
        &mut self,
        core: &mut Core,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        client: ClientId,
        version: u64,
    ) {
        let half = key.half();
        let Some(coming) = self.comings.get_mut(&half).filter(|c| c.is_from(from, number)) else {
            return self.write_letter(core, Some(from), key, number, Says::No);
        };
        if !matches!(coming.stage, Stage::Giving) {
            return;
        }
        coming.stage = Stage::Fetching { client, version };
        self.run_errand(core, half, number, Errand::Fetch, Work::Read(Read::Session(client)));
    }

    pub(super) fn fetched(&mut self, core: &mut Core, half: u64, number: u64, answer: Answer) {
        let now = core.now;
        let Some(coming) = self.comings.get_mut(&half).filter(|c| c.number == number) else { return };
        let Stage::Fetching { client, version } = coming.stage else { return };
        let found = match answer {
            Answer::Read(Found::Session(found)) => found,
            // It is asked for again.
            Answer::Failed(StoreError::Unavailable { .. }) => {
                coming.stage = Stage::Giving;
                coming.due = now + RETRY_MS;
                return core.agenda.set(now + RETRY_MS, Timer::Migration(half));
            }
            _ => None,
        };
        let found = found.filter(|found| found.version == version && found.row.secret.matches(coming.key));
        let Some(packed) = found.and_then(|found| unpacked(found.row, now).ok()) else {
            return self.fail(core, half, Sought::Nowhere);
        };
        coming.stage = Stage::Taking(Box::new(packed));
        let commit = removal(core.writer(), client, version);
        self.run_errand(core, half, number, Errand::Take, Work::Commit(commit));
    }

    pub(super) fn took(&mut self, core: &mut Core, half: u64, number: u64, answer: Answer) {
        let now = core.now;
        let taking = |c: &&Coming| c.number == number && matches!(c.stage, Stage::Taking(_));
        if self.comings.get(&half).filter(taking).is_none() {
            return;
        }
        // Whoever is not sure that it has it does not have it.
        if !matches!(answer, Answer::Committed(_)) {
            return self.fail(core, half, Sought::Nowhere);
        }
        let Some(coming) = self.comings.remove(&half) else { return };
        self.end_wait(coming.wait);
        let (Stage::Taking(packed), Some(id)) = (coming.stage, coming.listener) else { return };
        let bases = coming.bases.iter().map(|(channel, base)| (channel.clone(), base.unwrap_or(0))).collect();
        let mut packed = packed;
        if !coming.links.is_empty() {
            // Its client is here and attaches in a moment, however long it took to come.
            packed.detached_at = now;
        }
        self.settle_in(core, id, &packed, bases);
        core.stats.sessions_came.add(1);
        core.effects.ready.extend(coming.links);
        self.write_letter(core, Some(&coming.giver), coming.key, number, Says::Taken);
    }

    pub(super) fn coming_is_due(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(coming) = self.comings.get_mut(&half).filter(|coming| coming.due <= now) else {
            return;
        };
        let age = now.since(coming.began);
        match &coming.stage {
            Stage::Asking if now >= coming.until => self.fail(core, half, Sought::Nowhere),
            Stage::Asking => self.ask_all(core, half),
            // The store answers everything; what it took must not be forgotten here.
            Stage::Fetching { .. } | Stage::Taking(_) => {}
            _ if age >= MOVE_MS => self.fail(core, half, Sought::Nowhere),
            Stage::Giving => self.ask_to_give(core, half),
            Stage::Listening | Stage::Reading => {
                coming.due = now + RETRY_MS;
                core.agenda.set(now + RETRY_MS, Timer::Migration(half));
                self.ask_to_give(core, half);
            }
        }
    }

    /// It cannot be had: nothing of it stays here.
    pub(super) fn fail(&mut self, core: &mut Core, half: u64, sought: Sought) {
        let Some(coming) = self.comings.remove(&half) else { return };
        self.end_wait(coming.wait);
        if let Some(id) = coming.listener {
            self.end_quietly(core, id);
        }
        if coming.is_under_way() {
            // Its owner need not wait for this one. If it has told so itself, it knows.
            self.write_letter(core, Some(&coming.giver), coming.key, coming.number, Says::No);
        }
        if self.leaves {
            // The node stops: whoever waits is told that, and finds it elsewhere.
            return;
        }
        for link in coming.links {
            self.keep_outcome(link, half, sought.clone());
            core.effects.ready.push(link);
        }
    }
}

/// Who a session is of before it is known.
fn nobody() -> Identity {
    Identity {
        user: None,
        name: None,
        rights: Arc::new(Rights::default()),
        expires: Time::NEVER,
        unlimited: false,
        scopes: Scopes::NONE,
        key: None,
    }
}
