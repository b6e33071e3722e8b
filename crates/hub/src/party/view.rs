//! The party as a user's sessions see it: the snapshot in `hello`, in the reply to a poll and in refusals, and the
//! party's channel, which the server subscribes them to. Must hold: a snapshot in a reply was read after the request
//! arrived, or is left out when the store does not answer in time; a snapshot that was read before a commit of this
//! shard does not overwrite the result of that commit; a user who is not a member is not subscribed.

use super::cached::forget_rows;
use super::decision::party_key;
use super::snapshot::SnapshotRequests;
use super::{Parties, PartyDecision};
use crate::core::{Core, ReplyTo, Timer};
use crate::event::Namespace;
use crate::rows::{MembershipRow, party_channel};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::party::{Party, PartyCommand};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{Found, Read, StoreAnswer, Versioned};
use tavern_wire::error::Refusal;
use tavern_wire::json::party as json;
use tavern_wire::record::read_party;

/// How often a read is repeated because the party changed on another node during it: a party may change all the time.
const REPEATS: u8 = 3;
/// How often a missing party that a membership names is read again: the party may be ending at this moment.
const TRIES: u8 = 3;

/// The cached party of a user.
#[derive(Default)]
struct PartyView {
    /// None: not known.
    party: Option<KnownParty>,
    /// The number of the last read.
    last_read: u64,
    reading: bool,
    /// It has changed since the read began: it is read again.
    changed: bool,
    /// The read in progress is older than a commit of this shard, or may be older than one of another node.
    outdated: bool,
    /// How often a read was repeated because of commits elsewhere.
    repeated: u8,
    check: OwnCheck,
    /// Refusals that wait for a snapshot, each with the read that is recent enough.
    refusals: Vec<(u64, ReplyTo, Refusal)>,
}

/// The stored party says a user is away who has a session here: the party is checked before a snapshot is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OwnCheck {
    #[default]
    None,
    Running,
    /// The check is done; the snapshot is read once more.
    Done,
}

struct KnownParty {
    /// None: they are in no party.
    party: Option<Arc<Party>>,
    /// The last known party and its version, also after the user has left it.
    seen: (u64, u64),
}

impl KnownParty {
    fn id(&self) -> Option<u64> {
        self.party.as_ref().map(|party| party.id)
    }

    /// The snapshot as JSON, or `null`.
    fn text(&self) -> Box<str> {
        let mut text = Vec::new();
        json::snapshot(&mut text, self.party.as_deref());
        String::from_utf8(text).unwrap_or_default().into_boxed_str()
    }
}

#[derive(Default)]
pub(super) struct PartyViews {
    users: HashMap<Arc<str>, PartyView, RandomState>,
    pub requests: SnapshotRequests,
}

/// A read of a user's party: first their membership, then the party that it names.
#[derive(Clone)]
pub(crate) struct PartyRead {
    user: Arc<str>,
    membership: Option<Box<MembershipRow>>,
    tries: u8,
}

impl PartyViews {
    /// The party whose channel a user's sessions are subscribed to.
    pub fn party_of(&self, user: &str) -> Option<u64> {
        self.users.get(user)?.party.as_ref()?.id()
    }

    /// The last known snapshot of a user's party, for a refusal while the store does not answer.
    pub fn text(&self, user: Option<&str>) -> Box<str> {
        let view = user.and_then(|user| self.users.get(user)?.party.as_ref());
        view.map_or_else(|| "null".into(), KnownParty::text)
    }

    /// Drops the cached view of a user without a session here, unless it is still needed.
    fn forget(&mut self, core: &mut Core, user: &Arc<str>) {
        if core.users.sessions(user).is_empty()
            && self.users.get(user).is_some_and(|view| !view.reading && view.refusals.is_empty())
        {
            if let Some(party) = self.party_of(user) {
                forget_rows(core, user, party);
            }
            self.users.remove(user);
        }
    }
}

impl Parties {
    /// Refuses a command with a fresh snapshot of the user's party.
    pub(super) fn refuse_with_party(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        refusal: Refusal,
        claim: ReplyTo,
    ) {
        let read = self.fresh_read(core, user);
        if let Some(view) = self.views.users.get_mut(user) {
            view.refusals.push((read, claim, refusal));
        }
    }

    /// A user's party may have changed, or the user has connected.
    pub(crate) fn party_changed(&mut self, core: &mut Core, user: &Arc<str>) {
        if core.users.sessions(user).is_empty() {
            return;
        }
        self.fresh_read(core, user);
        if let Some(view) = self.views.users.get_mut(user)
            && view.changed
            && view.repeated < REPEATS
        {
            // The command that changed it may be answered already: the read in progress may be older.
            (view.outdated, view.repeated) = (true, view.repeated + 1);
        }
    }

    /// The number of a read of a user's party that starts now, or when the one in progress has ended.
    pub(super) fn fresh_read(&mut self, core: &mut Core, user: &Arc<str>) -> u64 {
        let view = self.views.users.entry(user.clone()).or_default();
        if view.reading {
            view.changed = true;
            return view.last_read + 1;
        }
        view.last_read += 1;
        (view.reading, view.changed, view.outdated) = (true, false, false);
        let last_read = view.last_read;
        self.read_membership(core, PartyRead { user: user.clone(), membership: None, tries: 0 });
        last_read
    }

    fn read_membership(&mut self, core: &mut Core, read: PartyRead) {
        let key = MembershipRow::key(&read.user);
        self.read_for(core, read, Read::Document(key));
    }

    pub(super) fn view_read(&mut self, core: &mut Core, mut read: PartyRead, answer: StoreAnswer) {
        let StoreAnswer::Read(Found::Document(found)) = answer else {
            return self.view_failed(core, &read.user);
        };
        let Some(membership) = &read.membership else {
            let found = found.map(|found| Versioned { version: found.version, row: found.row.body });
            let Ok(membership) = MembershipRow::read(found.as_ref()) else {
                return self.view_failed(core, &read.user);
            };
            if core.users.contains(&read.user) {
                core.cache.documents.insert(MembershipRow::key(&read.user), found);
            }
            let membership = Box::new(membership);
            // A user who logged out is not a member, though their party may not know yet.
            let party = membership.membership.party.filter(|_| membership.membership.logged_out.is_none());
            let Some(party) = party else {
                return self.view_loaded(core, &read.user, None, None);
            };
            read.membership = Some(membership);
            return self.read_for(core, read, Read::Document(party_key(party)));
        };
        let id = membership.membership.party.unwrap_or(0);
        match found.as_ref().map(|found| read_party(id, &found.row.body)).transpose() {
            Ok(Some(party)) => {
                let found = found.map(|found| Versioned { version: found.version, row: found.row.body });
                self.view_loaded(core, &read.user, Some(party), found);
            }
            Ok(None) if read.tries < TRIES => {
                self.read_membership(core, PartyRead { membership: None, tries: read.tries + 1, ..read });
            }
            Ok(None) => self.view_loaded(core, &read.user, None, None),
            Err(_) => self.view_failed(core, &read.user),
        }
    }

    /// The store does not answer: replies are sent without a party, and the read is retried.
    fn view_failed(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(view) = self.views.users.get_mut(user) else { return };
        view.reading = false;
        let (last_read, changed) = (view.last_read, view.changed);
        self.answer_requests(core, user, last_read, None);
        if changed && self.views.requests.has(user) {
            self.fresh_read(core, user);
        } else if !core.users.sessions(user).is_empty() {
            core.agenda.set(core.now + RETRY_AFTER_MS, Timer::RetryPartyView(user.clone()));
        }
        self.views.forget(core, user);
    }

    /// `document` is the party as it is stored.
    fn view_loaded(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        party: Option<Party>,
        document: Option<Versioned<Arc<[u8]>>>,
    ) {
        let local = !core.users.sessions(user).is_empty();
        let Some(view) = self.views.users.get_mut(user) else { return };
        view.reading = false;
        if view.outdated {
            self.fresh_read(core, user);
            return;
        }
        view.repeated = 0;
        let party = party.filter(|party| party.member(user).is_some());
        let away = party.as_ref().and_then(|party| party.member(user)).is_some_and(|own| own.away.is_some());
        let seen = party.as_ref().map_or((0, 0), |party| (party.id, party.version));
        let known = KnownParty { party: party.map(Arc::new), seen };
        let (id, text) = (known.id(), known.text());
        let former = view.party.as_ref().and_then(KnownParty::id);
        if let Some(former) = former.filter(|former| id != Some(*former)) {
            forget_rows(core, user, former);
        }
        if let Some(id) = id.filter(|_| local) {
            core.cache.documents.insert(party_key(id), document);
        }
        view.party = Some(known);
        let (last_read, changed) = (view.last_read, view.changed);
        let checks = away && local && view.check == OwnCheck::None;
        match checks {
            true => view.check = OwnCheck::Running,
            false if view.check == OwnCheck::Done => view.check = OwnCheck::None,
            false => {}
        }
        // The user is here: do not use a snapshot that shows them away.
        match away && local {
            true if !checks && view.check == OwnCheck::None => {
                self.answer_requests(core, user, last_read, None)
            }
            true => {}
            false => self.answer_requests(core, user, last_read, Some(&text)),
        }
        if local {
            self.subscribe_to_party(core, user, id);
        }
        if checks {
            self.begin(core, PartyDecision::of_server(PartyCommand::Check { user: user.clone() }));
        }
        if changed {
            self.fresh_read(core, user);
        }
        self.views.forget(core, user);
    }

    /// Gives a snapshot to every request that waits for the read with this number or an earlier one.
    fn answer_requests(&mut self, core: &mut Core, user: &Arc<str>, last_read: u64, text: Option<&str>) {
        let Some(view) = self.views.users.get_mut(user) else { return };
        let known = || view.party.as_ref().map_or_else(|| "null".into(), KnownParty::text);
        let party: Box<str> = match view.refusals.is_empty() {
            true => Box::default(),
            false => text.map_or_else(known, Box::from),
        };
        for (_, claim, refusal) in view.refusals.extract_if(.., |(read, ..)| *read <= last_read) {
            core.finish(claim, Err(refusal.with_party(party.clone())));
        }
        let ready = self.views.requests.answer(user, last_read, text);
        core.effects.ready.extend(ready);
    }

    /// The party has checked a user's presence: snapshots that waited for it are read again.
    pub(super) fn checked(&mut self, core: &mut Core, user: &Arc<str>) {
        if let Some(view) = self.views.users.get_mut(user).filter(|view| view.check == OwnCheck::Running) {
            view.check = OwnCheck::Done;
            self.fresh_read(core, user);
        }
    }

    /// A commit of this shard has changed a user's party to this id and version: updates the cached view without a
    /// read. None: they have left it.
    pub(super) fn has_become(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        (id, version): (u64, u64),
        party: Option<&Arc<Party>>,
    ) {
        let Some(view) = self.views.users.get_mut(user) else { return };
        view.outdated |= view.reading;
        // A user who left one party may be in another by now.
        let known = view.party.as_mut().filter(|known| party.is_some() || known.id() == Some(id));
        // The replies to two commits may arrive in either order.
        let Some(known) = known.filter(|known| known.seen.0 != id || known.seen.1 < version) else { return };
        if known.id().is_some_and(|other| other != id) {
            // Which of the two is newer is unknown.
            self.fresh_read(core, user);
            return;
        }
        *known = KnownParty { party: party.cloned(), seen: (id, version) };
        if party.is_none() {
            forget_rows(core, user, id);
        }
        let id = party.map(|party| party.id);
        let away = party.and_then(|party| party.member(user)).is_some_and(|own| own.away.is_some());
        self.subscribe_to_party(core, user, id);
        if away {
            // If they have a session here, the party must check them.
            self.party_changed(core, user);
        }
    }

    /// Subscribes a user's sessions to the channel of their party, and to that of no other party.
    fn subscribe_to_party(&mut self, core: &mut Core, user: &Arc<str>, party: Option<u64>) {
        let channel = party.map(party_channel);
        for id in core.users.sessions(user).to_vec() {
            let subscribed = core.subscriptions(id, Namespace::Channel);
            let parties = subscribed.iter().filter(|name| name.starts_with(b"party#"));
            let mut there = false;
            for name in parties.cloned().collect::<Vec<_>>() {
                match channel.as_ref().is_some_and(|channel| *channel.as_bytes() == *name) {
                    true => there = true,
                    false => drop(core.unsubscribe(id, Namespace::Channel, &name)),
                }
            }
            if let Some(channel) = channel.as_ref().filter(|_| !there) {
                let node = core.node.clone();
                node.bus_interests.lock().request(Namespace::Channel, channel.as_bytes(), None);
                core.subscribe(id, Namespace::Channel, channel.as_bytes());
            }
        }
    }

    /// The last session of a user here has ended.
    pub(crate) fn user_left(&mut self, core: &mut Core, user: &Arc<str>) {
        core.cache.forget_membership(user);
        self.views.forget(core, user);
    }
}
