//! A session that goes to another node, seen from the node that has it: it is frozen, goes on collecting, is laid down
//! in the store, and is forgotten when the other has it or taken back when the other does not come.
//! Must hold: this node has the session until it lies in the store, and again only by removing it there; what it does
//! not have any more it neither delivers nor reports lost, unless nobody else vouches for it.

use super::moves::{Errand, Migration, RETRY_MS};
use super::packed::subscriptions;
use super::stopping::{OFFER_MS, Stops};
use super::{Packed, stored};
use crate::connection::{Format, Goodbye, Link, LinkId};
use crate::core::listener::ListenerId;
use crate::core::{Core, Notice, Timer, Watched};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::presence::{Departure, Loss};
use tavern_domain::{ClientId, Identity, SessionKey, Time};
use tavern_engine::{Answer, Commit, Expect, Row, RowKey, StoreError, Work, Writer};
use tavern_wire::bus::letter::{Claim, Name, Says};

/// How long a session stays frozen for somebody who asked for it and then says nothing.
pub(super) const FROZEN_MS: u64 = 5_000;
/// After this long somebody else may ask for it: who asked first has probably died.
const SILENT_MS: u64 = 500;
/// How long what this node was told of a watched channel may lag behind the new node, and what the session does may be
/// undecided.
const LAG_MS: u64 = 300;
const BUSY_MS: u64 = 4_000;
/// How long the new node may take to remove the session from the store.
const RECLAIM_MS: u64 = 5_000;
/// When it is looked whether the new node vouches for the client.
const PARTED_MS: u64 = 5_000;

pub(super) struct Leaving {
    pub id: ListenerId,
    pub key: SessionKey,
    pub number: u64,
    pub taker: Arc<str>,
    pub stage: Stage,
    /// Its node stops: it is offered to others, and its transport is closed when it is gone.
    pub stops: Option<Stops>,
    /// Transports on this node that want it back.
    links: Vec<LinkId>,
    began: Time,
    due: Time,
    pub until: Time,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The other knows what to listen to.
    Named,
    /// The other listens; what this node was told must not be older than what the other begins with.
    Lagging(BTreeMap<String, u64>),
    /// On its way into the store. Unsure: it may be there already.
    Putting {
        unsure: bool,
    },
    Put {
        client: ClientId,
        version: u64,
    },
    Reclaiming,
}

/// A session that left, while somebody may still ask for it here.
pub(super) struct Parted {
    pub until: Time,
    pub half: u64,
    pub client: ClientId,
    identity: Identity,
    channels: Vec<Arc<str>>,
    at: Time,
}

impl Leaving {
    /// It may lie in the store: this node does not decide alone any more.
    pub fn is_laid_down(&self) -> bool {
        matches!(self.stage, Stage::Putting { .. } | Stage::Put { .. } | Stage::Reclaiming)
    }

    pub fn wait(&mut self, link: LinkId) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }
}

impl Migration {
    /// Another node wants a session.
    pub(super) fn asked(
        &mut self,
        core: &mut Core,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        claim: &Claim,
        gentle: bool,
    ) {
        let says = self.answer_to(core, from, key, number, claim, gentle);
        self.write_letter(core, Some(from), key, number, says);
    }

    fn answer_to(
        &mut self,
        core: &mut Core,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        claim: &Claim,
        gentle: bool,
    ) -> Says {
        let now = core.now;
        let half = key.half();
        let Some(id) = core.find_held(key) else {
            let moving = self.comings.get(&half).is_some_and(|coming| coming.is_under_way())
                || self.parted.iter().any(|parted| parted.half == half);
            return if moving { Says::Moving } else { Says::No };
        };
        let listener = core.listeners.get(id);
        let Some(session) = listener.and_then(|listener| listener.session()) else { return Says::No };
        if !claims(claim, &session.identity) || now >= session.identity.expires {
            return Says::Refused;
        }
        let pushed = |link: Link| link.format != Format::Poll;
        if gentle && listener.and_then(|listener| listener.link).is_some_and(pushed) {
            return Says::Attached;
        }
        match self.leavings.get(&half) {
            Some(leaving) if leaving.stops.is_some() || leaving.is_laid_down() => return Says::Moving,
            Some(leaving) if leaving.taker != *from && now < leaving.began + SILENT_MS => {
                return Says::Moving;
            }
            _ => {}
        }
        core.supersede(id);
        self.freeze(core, id, from.clone(), number, None);
        Says::Here { names: self.names(core, id) }
    }

    pub(super) fn freeze(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        taker: Arc<str>,
        number: u64,
        stops: Option<Stops>,
    ) {
        let now = core.now;
        let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        session.frozen = true;
        let key = session.key;
        if stops.as_ref().is_none_or(|stops| stops.link.is_some()) {
            self.begin_window(core, id);
        }
        let due = now + if stops.is_some() { OFFER_MS } else { FROZEN_MS };
        let (stage, until) = (Stage::Named, now + FROZEN_MS);
        let (links, began) = (Vec::new(), now);
        let leaving = Leaving { id, key, number, taker, stage, stops, links, began, due, until };
        self.leavings.insert(key.half(), leaving);
        core.agenda.set(due, Timer::Migration(key.half()));
    }

    pub(super) fn names(&self, core: &Core, id: ListenerId) -> Vec<Name> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let subscriptions = subscriptions(core, id).into_iter();
        subscriptions
            .map(|known| Name { name: text(&known.name), pattern: known.pattern, presence: known.presence })
            .collect()
    }

    /// The new node listens to everything: from now on it collects too.
    pub(super) fn give(
        &mut self,
        core: &mut Core,
        watched: &dyn Watched,
        from: &Arc<str>,
        key: SessionKey,
        number: u64,
        versions: BTreeMap<String, u64>,
    ) {
        let now = core.now;
        let half = key.half();
        let Some(leaving) = self.leavings.get_mut(&half).filter(|l| l.is_to(from, number)) else {
            return self.write_letter(core, Some(from), key, number, Says::No);
        };
        match leaving.stage {
            Stage::Named => {
                leaving.stage = Stage::Lagging(versions);
                leaving.until = now + LAG_MS;
                self.lay_down_when_told(core, watched, half);
            }
            Stage::Put { client, version } => {
                self.write_letter(core, Some(from), key, number, Says::Given { client, version });
            }
            Stage::Lagging(_) | Stage::Putting { .. } | Stage::Reclaiming => {}
        }
    }

    /// Lays the session down as soon as it was told what the new node takes for known.
    fn lay_down_when_told(&mut self, core: &mut Core, watched: &dyn Watched, half: u64) {
        let now = core.now;
        let Some(leaving) = self.leavings.get(&half) else { return };
        let Stage::Lagging(versions) = &leaving.stage else { return };
        let behind =
            |(channel, version): (&String, &u64)| watched.told(channel).is_some_and(|known| known < *version);
        let undecided = watched.is_busy(leaving.id);
        if undecided && now >= leaving.until + BUSY_MS {
            // What is decided here after it has left would take it from whoever vouches for it then.
            return self.thaw(core, half);
        }
        if undecided || (now < leaving.until && versions.iter().any(behind)) {
            return self.look_again(core, half, RETRY_MS / 10);
        }
        self.lay_down(core, half, false);
    }

    pub(super) fn look_again(&mut self, core: &mut Core, half: u64, ms: u64) {
        let now = core.now;
        if let Some(leaving) = self.leavings.get_mut(&half) {
            leaving.due = now + ms;
            core.agenda.set(now + ms, Timer::Migration(half));
        }
    }

    fn lay_down(&mut self, core: &mut Core, half: u64, unsure: bool) {
        let Some(leaving) = self.leavings.get_mut(&half) else { return };
        leaving.stage = Stage::Putting { unsure };
        core.notify(Notice::SessionPacks { half });
    }

    /// The session that must be packed, and how long its client may stay away.
    pub(crate) fn to_pack(&self, half: u64) -> Option<(ListenerId, u64)> {
        let leaving = self.leavings.get(&half).filter(|l| matches!(l.stage, Stage::Putting { .. }))?;
        Some((leaving.id, leaving.stops.as_ref().map_or(0, |stops| stops.window_ms)))
    }

    /// The session is packed: it goes into the store. If it could not be packed, it stays.
    pub(crate) fn put(&mut self, core: &mut Core, half: u64, packed: Option<&Packed>) {
        let Some(packed) = packed else { return self.thaw(core, half) };
        let Some(number) = self.leavings.get(&half).map(|leaving| leaving.number) else { return };
        let row = stored(packed, &core.writer());
        let expects = vec![Expect { key: RowKey::Session(packed.client), version: 0 }];
        let commit = Commit {
            writer: Some(core.writer()),
            expects,
            puts: vec![Row::Session(row)],
            ..Commit::default()
        };
        self.run_errand(core, half, number, Errand::Put, Work::Commit(commit));
    }

    pub(super) fn laid_down(&mut self, core: &mut Core, half: u64, number: u64, answer: Answer) {
        let now = core.now;
        let Some(leaving) = self.leavings.get_mut(&half).filter(|l| l.number == number) else { return };
        let Stage::Putting { unsure } = leaving.stage else { return };
        let version = match answer {
            Answer::Committed(receipt) => receipt.put.first().copied().unwrap_or(0),
            // It was there after all: nobody takes it before it is told the version.
            Answer::Failed(StoreError::Conflict { found, .. }) if unsure => found,
            Answer::Failed(StoreError::Unavailable { .. }) => {
                leaving.stage = Stage::Putting { unsure: true };
                return self.look_again(core, half, RETRY_MS);
            }
            // Others took this node for dead; whether they found the session in the store nobody can tell.
            Answer::Failed(StoreError::Fenced { .. }) if unsure => return self.part(core, half),
            _ => return self.thaw(core, half),
        };
        let Some(client) = core.listeners.get(leaving.id).and_then(|l| l.session()).map(|s| s.client) else {
            return;
        };
        leaving.stage = Stage::Put { client, version };
        leaving.until = now + RECLAIM_MS;
        let (key, taker) = (leaving.key, leaving.taker.clone());
        self.look_again(core, half, RECLAIM_MS);
        self.write_letter(core, Some(&taker), key, number, Says::Given { client, version });
    }

    pub(super) fn taken(&mut self, core: &mut Core, from: &Arc<str>, key: SessionKey, number: u64) {
        let half = key.half();
        if self.leavings.get(&half).is_some_and(|leaving| leaving.is_to(from, number)) {
            self.part(core, half);
        }
    }

    /// Whom it was to go to does not want it, or not any more.
    pub(super) fn declined(&mut self, core: &mut Core, from: &Arc<str>, key: SessionKey, number: u64) {
        let half = key.half();
        let Some(leaving) = self.leavings.get(&half).filter(|l| l.is_to(from, number)) else { return };
        match leaving.stage {
            Stage::Named | Stage::Lagging(_) if leaving.stops.is_some() => self.offer_next(core, half),
            Stage::Named | Stage::Lagging(_) => self.thaw(core, half),
            Stage::Put { client, version } => self.reclaim(core, half, number, client, version),
            Stage::Putting { .. } | Stage::Reclaiming => {}
        }
    }

    pub(super) fn leaving_is_due(&mut self, core: &mut Core, watched: &dyn Watched, half: u64) {
        let now = core.now;
        let Some(leaving) = self.leavings.get(&half).filter(|leaving| leaving.due <= now) else {
            return;
        };
        let (key, number, taker) = (leaving.key, leaving.number, leaving.taker.clone());
        match leaving.stage {
            Stage::Named if now >= leaving.until && leaving.stops.is_some() => self.offer_next(core, half),
            Stage::Named if now >= leaving.until => self.thaw(core, half),
            Stage::Named => {
                if leaving.stops.is_some() {
                    let names = self.names(core, leaving.id);
                    self.write_letter(core, Some(&taker), key, number, Says::Offer { names });
                }
                self.look_again(core, half, OFFER_MS);
            }
            Stage::Lagging(_) => self.lay_down_when_told(core, watched, half),
            Stage::Putting { unsure } if unsure => self.lay_down(core, half, true),
            Stage::Putting { .. } | Stage::Reclaiming => {}
            Stage::Put { client, version } => self.reclaim(core, half, number, client, version),
        }
    }

    /// Nobody came for it: whoever removes it from the store has it.
    fn reclaim(&mut self, core: &mut Core, half: u64, number: u64, client: ClientId, version: u64) {
        if let Some(leaving) = self.leavings.get_mut(&half) {
            leaving.stage = Stage::Reclaiming;
        }
        let commit = removal(core.writer(), client, version);
        self.run_errand(core, half, number, Errand::Reclaim, Work::Commit(commit));
    }

    pub(super) fn reclaimed(&mut self, core: &mut Core, half: u64, number: u64, answer: Answer) {
        let reclaiming = |l: &&Leaving| l.number == number && matches!(l.stage, Stage::Reclaiming);
        if self.leavings.get(&half).filter(reclaiming).is_none() {
            return;
        }
        match answer {
            Answer::Committed(_) => self.thaw(core, half),
            // Somebody has it; or nobody can tell, and then it is better lost than had twice.
            _ => self.part(core, half),
        }
    }

    /// It stays: it lives on here as if nobody had asked.
    pub(super) fn thaw(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(leaving) = self.leavings.remove(&half) else { return };
        core.effects.ready.extend(leaving.links);
        let Some(session) = core.listeners.get_mut(leaving.id).and_then(|l| l.session_mut()) else { return };
        session.frozen = false;
        let seen = match leaving.stops {
            // Its client was seen elsewhere a moment ago: its window begins now.
            None => true,
            // Its transport is closed now. Whoever was away when the node stopped was lost then.
            Some(stops) => {
                session.window_ms = (stops.window_ms > 0).then_some(stops.window_ms);
                stops.link.is_some()
            }
        };
        if seen {
            session.heard_at = session.heard_at.max(now);
        }
        // The node may have begun a new life meanwhile, and vouches for its clients in each.
        core.notify(Notice::SessionStays { id: leaving.id });
        core.schedule_loss(leaving.id);
    }

    /// It is somebody else's now.
    pub(super) fn part(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(leaving) = self.leavings.remove(&half) else { return };
        core.effects.ready.extend(leaving.links);
        if let Some(link) = leaving.stops.and_then(|stops| stops.link) {
            core.effects.closes.push((link, Goodbye::Closing));
        }
        let Some(session) = core.listeners.get_mut(leaving.id).and_then(|l| l.session_mut()) else { return };
        let present = std::mem::take(&mut session.present);
        core.agenda.set(now + PARTED_MS, Timer::Departed);
        self.parted.push_back(Parted {
            until: now + PARTED_MS,
            half,
            client: session.client,
            identity: session.identity.clone(),
            channels: if session.lost { Vec::new() } else { present.channels().cloned().collect() },
            at: now,
        });
        core.stats.sessions_left.add(1);
        core.notify(Notice::SessionEnds { id: leaving.id });
        self.offer_some(core);
    }

    /// If the new node did not come to vouch for the client, nobody does: it is lost.
    pub(super) fn look_after(&mut self, core: &mut Core, parted: Parted) {
        // It came back meanwhile, and perhaps left again: then it is vouched for, or looked after later.
        let again = self.parted.iter().any(|later| later.half == parted.half);
        if again || core.sessions.contains_key(&parted.half) {
            return;
        }
        for channel in parted.channels {
            let loss = Loss { at: parted.at, grace_ms: core.grace_ms(&channel), reason: Departure::Lost };
            let (identity, client) = (Box::new(parted.identity.clone()), parted.client);
            core.notify(Notice::ClientLost { identity, client, channel, loss });
        }
    }
}

impl Leaving {
    pub fn is_to(&self, node: &Arc<str>, number: u64) -> bool {
        self.taker == *node && self.number == number
    }
}

/// The commit by which a session in the store becomes the writer's. Only one such commit can succeed.
pub(super) fn removal(writer: Writer, client: ClientId, version: u64) -> Commit {
    let key = RowKey::Session(client);
    let expects = vec![Expect { key: key.clone(), version }];
    Commit { writer: Some(writer), expects, deletes: vec![key], ..Commit::default() }
}

pub(super) fn claims(claim: &Claim, identity: &Identity) -> bool {
    match claim {
        Claim::Secret => true,
        Claim::Anonymous => identity.user.is_none(),
        Claim::User(user) => identity.user.as_deref() == Some(user),
    }
}
