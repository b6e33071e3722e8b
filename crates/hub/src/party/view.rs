//! The party as a user's sessions see it: the snapshot in `hello`, in the reply to a poll and in refusals, and the
//! party's channel, which the server subscribes them to. Must hold: a snapshot in a reply was read after the request
//! arrived, or is left out when the store does not answer in time; a snapshot that was read before a commit of this
//! shard does not overwrite the result of that commit; a user who is not a member is not subscribed.

use super::cached::forget_rows;
use super::decision::party_key;
use super::snapshot::{PartyWaiter, SnapshotRequests};
use super::{Parties, PartyDecision};
use crate::core::{Core, Feature, ReplyTo};
use crate::event::Namespace;
use crate::replica::{PageLoad, Replica, Replicas};
use crate::rows::{MembershipRow, party_channel};
use std::sync::Arc;
use tavern_domain::party::{Party, PartyCommand};
use tavern_store::{Found, Read, StoreAnswer, Ticket, Versioned};
use tavern_wire::error::Refusal;
use tavern_wire::json::party as json;
use tavern_wire::record::read_party;

/// How often a read is repeated because the party changed on another node during it: a party may change all the time.
const REPEATS: u8 = 3;
/// How often a missing party that a membership names is read again: the party may be ending at this moment.
const TRIES: u8 = 3;

/// The cached party of a user.
#[derive(Default)]
pub(super) struct PartyView {
    /// None: not known.
    party: Option<KnownParty>,
    /// How often a read was repeated because of commits elsewhere.
    repeated: u8,
    check: OwnCheck,
    /// The party that the membership named, in the read in progress; None: the membership is being read.
    reading: Option<u64>,
    /// The party that the read in progress has found, and its document.
    found: Option<(Party, Versioned<Arc<[u8]>>)>,
    /// How often the read in progress missed the party.
    tries: u8,
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

    /// The same for a user, who is shown here if they are local, whatever the stored party says.
    fn text_for(&self, user: &str, local: bool) -> Box<str> {
        let away = |party: &&Arc<Party>| party.member(user).is_some_and(|own| own.away.is_some());
        let Some(stored) = self.party.as_ref().filter(|_| local).filter(away) else { return self.text() };
        let mut party = Party::clone(stored);
        party.members.iter_mut().filter(|member| *member.user == *user).for_each(|own| own.away = None);
        KnownParty { party: Some(Arc::new(party)), seen: self.seen }.text()
    }

    /// The snapshot as JSON, or `null`.
    fn text(&self) -> Box<str> {
        let mut text = Vec::new();
        json::snapshot(&mut text, self.party.as_deref());
        String::from_utf8(text).unwrap_or_default().into_boxed_str()
    }
}

impl PartyView {
    fn id(&self) -> Option<u64> {
        self.party.as_ref()?.id()
    }

    /// Whether the stored party says that the user is away.
    fn is_away(&self, user: &str) -> bool {
        let party = self.party.as_ref().and_then(|known| known.party.as_ref());
        party.and_then(|party| party.member(user)).is_some_and(|own| own.away.is_some())
    }
}

impl Replica for PartyView {
    type Host = Core;
    type Update = ();
    type Waiter = PartyWaiter;

    /// First the membership, then the party that it names.
    fn begin(&mut self, _: &mut Core, user: &Arc<str>) -> Option<Read> {
        (self.reading, self.found, self.tries) = (None, None, 0);
        Some(Read::Document(MembershipRow::key(user)))
    }

    fn load(&mut self, core: &mut Core, user: &Arc<str>, found: Found) -> PageLoad {
        let Found::Document(found) = found else { return PageLoad::Unusable };
        let found = found.map(|found| Versioned { version: found.version, row: found.row.body });
        let Some(id) = self.reading else {
            let Ok(MembershipRow { membership, .. }) = MembershipRow::read(found.as_ref()) else {
                return PageLoad::Unusable;
            };
            if core.users.contains(user) {
                core.cache.documents.insert(MembershipRow::key(user), found);
            }
            // A user who logged out is not a member, though their party may not know yet.
            self.reading = membership.party.filter(|_| membership.logged_out.is_none());
            return match self.reading {
                Some(party) => PageLoad::More(Read::Document(party_key(party))),
                None => PageLoad::Complete,
            };
        };
        let Some(found) = found else {
            if self.tries == TRIES {
                return PageLoad::Complete;
            }
            (self.reading, self.tries) = (None, self.tries + 1);
            return PageLoad::More(Read::Document(MembershipRow::key(user)));
        };
        let Ok(party) = read_party(id, &found.row) else { return PageLoad::Unusable };
        self.found = Some((party, found));
        PageLoad::Complete
    }

    fn install(&mut self, core: &mut Core, user: &Arc<str>) {
        let former = self.id();
        let found = self.found.take().filter(|(party, _)| party.member(user).is_some());
        let seen = found.as_ref().map_or((0, 0), |(party, _)| (party.id, party.version));
        let (party, document) = found.unzip();
        let known = KnownParty { party: party.map(Arc::new), seen };
        let id = known.id();
        if let Some(former) = former.filter(|former| id != Some(*former)) {
            forget_rows(core, user, former);
        }
        if let Some(id) = id.filter(|_| self.is_used(core, user)) {
            core.cache.documents.insert(party_key(id), document);
        }
        (self.party, self.repeated) = (Some(known), 0);
    }

    fn is_used(&self, core: &Core, user: &Arc<str>) -> bool {
        !core.users.sessions(user).is_empty()
    }

    fn end(self, core: &mut Core, user: &Arc<str>) {
        if let Some(party) = self.id() {
            forget_rows(core, user, party);
        }
    }
}

pub(super) struct PartyViews {
    copies: Replicas<PartyView>,
    pub requests: SnapshotRequests,
}

impl PartyViews {
    pub fn new() -> PartyViews {
        PartyViews { copies: Replicas::new(Feature::Party), requests: SnapshotRequests::default() }
    }

    /// The party whose channel a user's sessions are subscribed to.
    pub fn party_of(&self, user: &str) -> Option<u64> {
        self.copies.get(user)?.id()
    }

    /// The last known snapshot of a user's party, for a refusal while the store does not answer.
    pub fn text(&self, user: Option<&str>) -> Box<str> {
        let view = user.and_then(|user| self.copies.get(user)?.party.as_ref());
        view.map_or_else(|| "null".into(), KnownParty::text)
    }

    /// The view is read from now on: the waiter is answered after that.
    pub fn wait(&mut self, core: &mut Core, user: &Arc<str>, waiter: PartyWaiter) {
        self.copies.wait_fresh(core, user, waiter);
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
        self.views.wait(core, user, PartyWaiter::Refusal(claim, refusal));
    }

    /// A user's party may have changed, or the user has connected.
    pub(crate) fn party_changed(&mut self, core: &mut Core, user: &Arc<str>) {
        if core.users.sessions(user).is_empty() {
            return;
        }
        let copies = &mut self.views.copies;
        copies.refresh(core, user);
        if copies.reads_again(user)
            && let Some(view) = copies.get_mut(user).filter(|view| view.repeated < REPEATS)
        {
            // The command that changed it may be answered already: the read in progress may be older.
            view.repeated += 1;
            copies.outdate(user);
        }
    }

    /// A read of a party failed, or somebody waits for it.
    pub(crate) fn replica_is_due(&mut self, core: &mut Core, user: &Arc<str>) {
        self.views.copies.due(core, user);
    }

    pub(super) fn view_answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.views.copies.answered(core, ticket, answer) else { return };
        match read.failed {
            // The store does not answer: replies are sent without a party.
            Some(_) => self.serve(core, &read.name, None, read.waiters),
            None => self.view_loaded(core, &read.name, read.waiters),
        }
        self.views.copies.drop_unused(core, &read.name);
    }

    fn view_loaded(&mut self, core: &mut Core, user: &Arc<str>, waiters: Vec<PartyWaiter>) {
        let local = !core.users.sessions(user).is_empty();
        let Some(view) = self.views.copies.get_mut(user) else { return };
        let (id, away) = (view.id(), view.is_away(user) && local);
        let check = view.check;
        let text = view.party.as_ref().map(|known| known.text_for(user, local));
        view.check = match check {
            OwnCheck::None if away => OwnCheck::Running,
            OwnCheck::Done => OwnCheck::None,
            check => check,
        };
        match (away, check) {
            (false, _) | (true, OwnCheck::Done) => self.serve(core, user, text.as_deref(), waiters),
            // The next version of the party shows them here.
            (true, OwnCheck::None | OwnCheck::Running) => {
                self.views.requests.keep(&waiters, text.as_deref());
                self.views.copies.defer(core, user, waiters);
            }
        }
        if local {
            self.subscribe_to_party(core, user, id);
        }
        if away && check == OwnCheck::None {
            self.begin(core, PartyDecision::of_server(PartyCommand::Check { user: user.clone() }));
        }
    }

    /// Answers those who waited for a user's party. None: it could not be read.
    fn serve(&mut self, core: &mut Core, user: &Arc<str>, text: Option<&str>, waiters: Vec<PartyWaiter>) {
        for waiter in waiters {
            match waiter {
                PartyWaiter::Refusal(claim, refusal) => {
                    let party = text.map_or_else(|| self.views.text(Some(user)), Box::from);
                    core.finish(claim, Err(refusal.with_party(party)));
                }
                PartyWaiter::Snapshot(link, number) => {
                    if self.views.requests.answer(link, number, text) {
                        core.effects.ready.push(link);
                    }
                }
            }
        }
    }

    /// The party has checked a user's presence: snapshots that waited for it are read again.
    pub(super) fn checked(&mut self, core: &mut Core, user: &Arc<str>) {
        let running = |view: &&mut PartyView| view.check == OwnCheck::Running;
        if let Some(view) = self.views.copies.get_mut(user).filter(running) {
            view.check = OwnCheck::Done;
            self.views.copies.refresh(core, user);
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
        self.views.copies.outdate(user);
        let Some(view) = self.views.copies.get_mut(user) else { return };
        // A user who left one party may be in another by now.
        let known = view.party.as_mut().filter(|known| party.is_some() || known.id() == Some(id));
        // The replies to two commits may arrive in either order.
        let Some(known) = known.filter(|known| known.seen.0 != id || known.seen.1 < version) else { return };
        if known.id().is_some_and(|other| other != id) {
            // Which of the two is newer is unknown.
            self.views.copies.refresh(core, user);
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
        self.views.copies.drop_unused(core, user);
    }
}
