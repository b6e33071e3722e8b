//! Connections that wait for a snapshot of their user's party before they are answered: a `hello`, a poll.
//! Must hold: each is answered within `PATIENCE_MS`, without a party if necessary: a slow store delays no reply
//! longer.

use super::Parties;
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{Core, ReplyTo, Timer, detached};
use crate::event::Event;
use crate::rows::is_party_channel;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::limits::POLL_EVENTS;
use tavern_wire::error::Refusal;

/// How long a reply waits for the store: a few round trips to a busy one.
const PATIENCE_MS: u64 = 2_500;

#[derive(Default)]
pub(super) struct SnapshotRequests {
    requests: HashMap<LinkId, SnapshotRequest, RandomState>,
    /// The connections that wait until the presence of their user is committed, by user.
    announcing: HashMap<Arc<str>, Vec<LinkId>, RandomState>,
    numbers: u64,
}

/// Somebody who waits for a party.
pub(super) enum PartyWaiter {
    /// A refused command, whose reply has the party.
    Refusal(ReplyTo, Refusal),
    /// A request for a snapshot, with its number.
    Snapshot(LinkId, u64),
}

struct SnapshotRequest {
    number: u64,
    user: Arc<str>,
    /// The last event of the session when the request was made.
    last_event: u64,
    progress: SnapshotProgress,
}

enum SnapshotProgress {
    /// The presence of the user is being committed.
    Announcing,
    /// Their party is being read. With a snapshot: it was read, and the party checks that the user is here.
    Reading(Option<Box<str>>),
    /// None: it could not be read in time.
    Done(Option<Box<str>>),
}

/// A snapshot that is not older than the events of its session up to `last_event`.
pub(crate) struct Snapshot {
    /// None: not known.
    pub party: Option<Box<str>>,
    pub last_event: u64,
}

impl SnapshotRequests {
    /// The party was read, or with None could not be read. False: this request does not wait any more.
    pub fn answer(&mut self, link: LinkId, number: u64, party: Option<&str>) -> bool {
        let request = self.requests.get_mut(&link).filter(|request| request.number == number);
        let waiting = request.filter(|request| matches!(request.progress, SnapshotProgress::Reading(_)));
        waiting.map(|request| request.progress = SnapshotProgress::Done(party.map(Box::from))).is_some()
    }

    /// The party was read for these, but a newer version of it is on its way: this one is good enough if that takes
    /// too long.
    pub fn keep(&mut self, waiters: &[PartyWaiter], party: Option<&str>) {
        for waiter in waiters {
            let PartyWaiter::Snapshot(link, number) = waiter else { continue };
            if let Some(request) = self.requests.get_mut(link).filter(|request| request.number == *number)
                && let SnapshotProgress::Reading(known) = &mut request.progress
            {
                *known = party.map(Box::from);
            }
        }
    }

    fn take_done(&mut self, link: LinkId) -> Option<Snapshot> {
        let request = self.requests.get(&link)?;
        if !matches!(request.progress, SnapshotProgress::Done(_)) {
            return None;
        }
        let SnapshotRequest { last_event, progress: SnapshotProgress::Done(party), .. } =
            self.requests.remove(&link)?
        else {
            return None;
        };
        Some(Snapshot { party, last_event })
    }

    /// The connection is closed, or needs no reply any more.
    pub fn forget_link(&mut self, link: LinkId) {
        // Most connections wait for no snapshot.
        let Some(request) = self.requests.remove(&link) else { return };
        self.stop_waiting(link, &request.user, &request.progress);
    }

    fn stop_waiting(&mut self, link: LinkId, user: &str, progress: &SnapshotProgress) {
        let waiting = match progress {
            SnapshotProgress::Announcing => &mut self.announcing,
            SnapshotProgress::Reading(_) | SnapshotProgress::Done(_) => return,
        };
        if let Some(links) = waiting.get_mut(user) {
            links.retain(|other| *other != link);
            if links.is_empty() {
                waiting.remove(user);
            }
        }
    }
}

impl Parties {
    /// Whether the reply to a poll needs a snapshot. Messages of channels say nothing about the party: a reply that holds
    /// only such messages goes without it, and costs no read.
    pub fn poll_needs_snapshot(&self, core: &Core, id: ListenerId, link: LinkId) -> bool {
        let Some(mailbox) = core.listener(id).map(|listener| &listener.mailbox) else { return true };
        let of_another_channel =
            |event: &Event| event.channel().is_some_and(|channel| !is_party_channel(channel));
        let only_messages = mailbox.has_unread()
            && mailbox.gap().is_none()
            && mailbox.unread_events().take(POLL_EVENTS).all(|(_, event)| of_another_channel(event));
        !only_messages || self.views.requests.requests.contains_key(&link)
    }

    /// The snapshot for the reply to a connection. None: the link is named in `Effects::ready` when it was read or
    /// could not be read. `announcing`: the presence of the user is being committed first.
    pub fn snapshot(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        link: LinkId,
        announcing: bool,
    ) -> Option<Snapshot> {
        detached::collect(core, id);
        let last_event = core.listener(id).map_or(0, |listener| listener.mailbox.last());
        let Some(user) = core.user_of(id) else {
            return Some(Snapshot { party: Some("null".into()), last_event });
        };
        if self.views.requests.requests.contains_key(&link) {
            return self.views.requests.take_done(link);
        }
        self.views.requests.numbers += 1;
        let number = self.views.requests.numbers;
        core.agenda.set(core.now + PATIENCE_MS, Timer::SnapshotTimeout(link, number));
        let progress = match announcing {
            true => {
                self.views.requests.announcing.entry(user.clone()).or_default().push(link);
                SnapshotProgress::Announcing
            }
            false => {
                self.views.wait(core, &user, PartyWaiter::Snapshot(link, number));
                SnapshotProgress::Reading(None)
            }
        };
        let request = SnapshotRequest { number, user, last_event, progress };
        self.views.requests.requests.insert(link, request);
        None
    }

    /// The presence of a user is committed: their party can be read.
    pub fn user_announced(&mut self, core: &mut Core, user: &Arc<str>) {
        for link in self.views.requests.announcing.remove(user).unwrap_or_default() {
            let Some(request) = self.views.requests.requests.get_mut(&link) else { continue };
            request.progress = SnapshotProgress::Reading(None);
            let waiter = PartyWaiter::Snapshot(link, request.number);
            self.views.wait(core, user, waiter);
        }
    }

    /// The store was too slow: the reply is sent without a party.
    pub fn snapshot_timeout(&mut self, core: &mut Core, link: LinkId, number: u64) {
        let requests = &mut self.views.requests;
        let Some(request) = requests.requests.get_mut(&link).filter(|request| request.number == number)
        else {
            return;
        };
        if matches!(request.progress, SnapshotProgress::Done(_)) {
            return;
        }
        let user = request.user.clone();
        let known = match &mut request.progress {
            SnapshotProgress::Reading(known) => known.take(),
            SnapshotProgress::Announcing | SnapshotProgress::Done(_) => None,
        };
        let progress = std::mem::replace(&mut request.progress, SnapshotProgress::Done(known));
        requests.stop_waiting(link, &user, &progress);
        core.effects.ready.push(link);
    }
}
