//! What the sessions of a user know of his party: the snapshot in `hello` and in every poll's answer, and the party's channel,
//! to which they listen by themselves. Read when the first of them comes, and again whenever somebody says that it changed.
//! Must hold: a hello tells the party as it is, or nothing when the store does not answer; who is no member does not listen.

use super::{Parties, PartyDecision};
use crate::connection::LinkId;
use crate::core::{Core, Timer};
use crate::event::Namespace;
use crate::rows::{MembershipRow, party_channel};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{Party, PartyCommand};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{DocumentKey, Found, Read, StoreAnswer, Versioned};
use tavern_wire::json::party as json;
use tavern_wire::record::{self, read_party};

/// How long what was read for a hello is good for the hello.
const FRESH_MS: u64 = 5_000;
/// How long a hello waits for the store.
const PATIENCE_MS: u64 = 300;
/// How often a party is looked for whose member knows of it and that is not there: it ends in the same moment.
const TRIES: u8 = 3;

/// What is known of a user's party here.
#[derive(Default)]
struct PartyView {
    /// None: not known.
    party: Option<EncodedParty>,
    /// It is being read; true: it has changed meanwhile and is read again.
    reading: Option<bool>,
    at: Time,
    /// Who waits to say hello, and until when.
    links: Vec<LinkId>,
    until: Time,
}

struct EncodedParty {
    id: Option<u64>,
    /// The snapshot as JSON, or `null`.
    text: Box<str>,
}

#[derive(Default)]
pub(super) struct PartyViews {
    users: BTreeMap<Arc<str>, PartyView>,
    /// Whom a transport waits to greet.
    waiting: HashMap<LinkId, Arc<str>, RandomState>,
}

/// What was asked of the store: first the membership, then his party.
#[derive(Clone)]
pub(crate) struct PartyRead {
    user: Arc<str>,
    membership: Option<Box<MembershipRow>>,
    tries: u8,
}

impl PartyViews {
    /// The party that a user's sessions listen to.
    pub fn party_of(&self, user: &str) -> Option<u64> {
        self.users.get(user)?.party.as_ref()?.id
    }

    /// The snapshot of a user's party as it is known here; None: it is not known.
    pub fn snapshot(&self, user: Option<&str>) -> Option<&str> {
        let Some(user) = user else { return Some("null") };
        Some(&self.users.get(user)?.party.as_ref()?.text)
    }

    /// The same for a refusal, which always holds one.
    pub fn text(&self, user: Option<&str>) -> Box<str> {
        self.snapshot(user).unwrap_or("null").into()
    }

    /// Forgets what is known for a user, unless a hello waits for it.
    fn forget(&mut self, user: &str) {
        if let Some(view) = self.users.get(user)
            && view.links.is_empty()
            && view.reading.is_none()
        {
            self.users.remove(user);
        }
    }

    pub fn forget_link(&mut self, link: LinkId) {
        // Most transports wait for nobody.
        let Some(user) = self.waiting.remove(&link) else { return };
        if let Some(view) = self.users.get_mut(&user) {
            view.links.retain(|other| *other != link);
        }
    }

    /// Those who wait to greet a user; they wait no longer.
    fn take_links(&mut self, user: &str) -> Vec<LinkId> {
        let links = self.users.get_mut(user).map(|view| std::mem::take(&mut view.links)).unwrap_or_default();
        links.iter().for_each(|link| drop(self.waiting.remove(link)));
        links
    }
}

impl Parties {
    /// Whether the party of a user is known well enough to greet him. If not, the link is named in `Effects::ready` when it
    /// is, or when it cannot be known.
    pub fn meet(&mut self, core: &mut Core, user: Option<&Arc<str>>, link: LinkId) -> bool {
        let now = core.now;
        let Some(user) = user else { return true };
        let here = !core.users.sessions(user).is_empty();
        let view = self.views.users.entry(user.clone()).or_default();
        if here || (view.at > Time(0) && now.since(view.at) < FRESH_MS) {
            return true;
        }
        if view.links.is_empty() {
            view.until = now + PATIENCE_MS;
            core.agenda.set(view.until, Timer::HelloTimeout(user.clone()));
            let expires = core.now + PATIENCE_MS + FRESH_MS;
            core.agenda.set(expires, Timer::PartyViewExpires(user.clone()));
        }
        view.links.push(link);
        let reads = view.reading.is_some();
        self.views.waiting.insert(link, user.clone());
        if !reads {
            self.glance(core, user);
        }
        false
    }

    /// His party may have changed, or he himself has come.
    pub(crate) fn party_changed(&mut self, core: &mut Core, user: &Arc<str>) {
        if core.users.sessions(user).is_empty() {
            return;
        }
        let view = self.views.users.entry(user.clone()).or_default();
        match &mut view.reading {
            Some(again) => *again = true,
            None => self.glance(core, user),
        }
    }

    fn glance(&mut self, core: &mut Core, user: &Arc<str>) {
        if let Some(view) = self.views.users.get_mut(user) {
            view.reading = Some(false);
        }
        self.read_membership(core, PartyRead { user: user.clone(), membership: None, tries: 0 });
    }

    fn read_membership(&mut self, core: &mut Core, glance: PartyRead) {
        let read = Read::Document(DocumentKey::new(record::MEMBERSHIP, &glance.user));
        self.read_for(core, glance, read);
    }

    pub(super) fn glanced(&mut self, core: &mut Core, mut glance: PartyRead, answer: StoreAnswer) {
        let StoreAnswer::Read(Found::Document(found)) = answer else {
            return self.unseen(core, &glance.user);
        };
        let Some(membership) = &glance.membership else {
            let found = found.map(|found| Versioned { version: found.version, row: found.row.body });
            let Ok(membership) = MembershipRow::read(found.as_ref()) else {
                return self.unseen(core, &glance.user);
            };
            if core.users.contains(&glance.user) {
                core.documents.insert(MembershipRow::key(&glance.user), found);
            }
            let membership = Box::new(membership);
            // Who has said reason is out, though his party may not know yet.
            let party = membership.membership.party.filter(|_| membership.membership.logged_out.is_none());
            let Some(party) = party else {
                return self.seen(core, &glance.user, None);
            };
            glance.membership = Some(membership);
            let read = Read::Document(DocumentKey::new(record::PARTY, &party.to_string()));
            return self.read_for(core, glance, read);
        };
        let id = membership.membership.party.unwrap_or(0);
        match found.map(|found| read_party(id, &found.row.body)).transpose() {
            Ok(Some(party)) => self.seen(core, &glance.user, Some(party)),
            Ok(None) if glance.tries < TRIES => {
                self.read_membership(core, PartyRead { membership: None, tries: glance.tries + 1, ..glance });
            }
            Ok(None) => self.seen(core, &glance.user, None),
            Err(_) => self.unseen(core, &glance.user),
        }
    }

    /// The store does not tell: who waits is greeted without a party, and it is asked again.
    fn unseen(&mut self, core: &mut Core, user: &Arc<str>) {
        let now = core.now;
        let Some(view) = self.views.users.get_mut(user) else { return };
        view.reading = None;
        view.at = now;
        let links = self.views.take_links(user);
        if !core.users.sessions(user).is_empty() {
            core.agenda.set(now + RETRY_AFTER_MS, Timer::RetryPartyView(user.clone()));
        } else if links.is_empty() {
            self.views.users.remove(user);
        }
        core.effects.ready.extend(links);
    }

    fn seen(&mut self, core: &mut Core, user: &Arc<str>, party: Option<Party>) {
        let now = core.now;
        let party = party.filter(|party| party.member(user).is_some());
        let away = party.as_ref().and_then(|party| party.member(user)).is_some_and(|own| own.away.is_some());
        let mut text = Vec::new();
        json::snapshot(&mut text, party.as_ref());
        let text = String::from_utf8(text).unwrap_or_default().into_boxed_str();
        let id = party.map(|party| party.id);
        let Some(view) = self.views.users.get_mut(user) else { return };
        view.party = Some(EncodedParty { id, text });
        view.at = now;
        let again = view.reading.take().unwrap_or(false);
        let links = self.views.take_links(user);
        if core.users.sessions(user).is_empty() {
            // Nobody hears here of what changes: it is good for those who wait, and for nobody who comes later.
            if links.is_empty() {
                self.views.users.remove(user);
            }
            return core.effects.ready.extend(links);
        }
        core.effects.ready.extend(links);
        self.listen_to_party(core, user, id);
        if away {
            self.begin(core, PartyDecision::of_server(PartyCommand::Check { user: user.clone() }));
        }
        if again {
            self.party_changed(core, user);
        }
    }

    /// A commit of this shard has changed a user's party: his sessions here know it before it is read.
    pub(super) fn has_become(&mut self, core: &mut Core, user: &Arc<str>, id: u64, party: Option<&Party>) {
        let known = self.views.users.get_mut(user).and_then(|view| view.party.as_mut());
        // Who has left one party may be in another by now.
        let Some(known) = known.filter(|known| party.is_some() || known.id == Some(id)) else { return };
        let mut text = Vec::new();
        json::snapshot(&mut text, party);
        known.text = String::from_utf8(text).unwrap_or_default().into_boxed_str();
        known.id = party.map(|party| party.id);
        let id = known.id;
        self.listen_to_party(core, user, id);
    }

    /// His sessions listen to the channel of his party, and to no other party's.
    fn listen_to_party(&mut self, core: &mut Core, user: &Arc<str>, party: Option<u64>) {
        let channel = party.map(party_channel);
        for id in core.users.sessions(user).to_vec() {
            let heard = core.subscriptions(id, Namespace::Channel);
            let others = heard.iter().filter(|name| name.starts_with(b"party#"));
            let mut there = false;
            for name in others.cloned().collect::<Vec<_>>() {
                match channel.as_ref().is_some_and(|channel| *channel.as_bytes() == *name) {
                    true => there = true,
                    false => drop(core.unsubscribe(id, Namespace::Channel, &name)),
                }
            }
            if let Some(channel) = channel.as_ref().filter(|_| !there) {
                let node = core.node.clone();
                node.carrier.hold().carry(Namespace::Channel, channel.as_bytes(), None);
                core.subscribe(id, Namespace::Channel, channel.as_bytes());
            }
        }
    }

    /// The snapshot of a user's party as it is known here; None: it is not known.
    pub(crate) fn party_snapshot(&self, user: Option<&str>) -> Option<&str> {
        self.views.snapshot(user)
    }

    /// The last session of a user here has ended.
    pub(crate) fn user_left(&mut self, core: &mut Core, user: &str) {
        core.documents.remove(&MembershipRow::key(user));
        self.views.forget(user);
    }

    /// A store that is slow holds up no one who needs nothing of it: the hello is answered without the party.
    pub(crate) fn hello_timeout(&mut self, core: &mut Core, user: &Arc<str>) {
        let now = core.now;
        if let Some(view) = self.views.users.get_mut(user).filter(|view| view.until <= now) {
            if !view.links.is_empty() {
                view.at = now;
            }
            core.effects.ready.extend(self.views.take_links(user));
        }
    }

    /// What was read for a user who did not come after all is forgotten.
    pub(crate) fn view_expires(&mut self, core: &mut Core, user: &Arc<str>) {
        if core.users.sessions(user).is_empty() {
            self.views.forget(user);
        }
    }
}
