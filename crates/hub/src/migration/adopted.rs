//! Sessions adopted from the store after their node stopped.
//! Must hold: an adopted watcher that missed presence changes gets a gap, even if the channel is loaded later.

use super::arrival;
use super::packed::PackedSession;
use crate::core::listener::{ListenerId, ListenerKind};
use crate::core::session::Session;
use crate::core::{Core, Notice, WatchedVersions};
use crate::event::Namespace;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_store::{NodeRow, Writer};

/// Whether messages may have been published while a session of a stopped node was in the store. False only if its
/// node stopped cleanly and every other node, including earlier processes of the adopter, had closed its lease
/// before. A node whose lease expired may be alive and publish.
pub fn may_have_missed(owner: &Writer, adopter: &Writer, nodes: &[NodeRow]) -> bool {
    // A node that did not stop cleanly stored the session for a move, some time before it was closed.
    let stored =
        nodes.iter().find(|node| node.writer == *owner && node.clean).and_then(|node| node.closed_at);
    let Some(stored) = stored else { return true };
    let others = nodes.iter().filter(|node| node.writer != *adopter && node.writer != *owner);
    others.into_iter().any(|node| !node.clean || node.closed_at.is_none_or(|closed| closed > stored))
}

/// Adopted watchers and the version they have, until their channel is loaded.
#[derive(Default)]
pub(super) struct AdoptedWatchers(BTreeMap<Arc<str>, Vec<(ListenerId, u64)>>);

impl AdoptedWatchers {
    pub fn adopt(&mut self, core: &mut Core, watched: &dyn WatchedVersions, packed: &PackedSession) {
        let session = Session::new(packed.key, packed.client, packed.identity(), packed.detached_at);
        let id = core.listeners.insert(ListenerKind::Session(Box::new(session)), None);
        let mut bases = BTreeMap::new();
        for subscription in &packed.body.subscriptions {
            let space = if subscription.pattern { Namespace::Pattern } else { Namespace::Channel };
            subscribe(core, id, space, &subscription.name);
            if subscription.presence
                && let Ok(name) = std::str::from_utf8(&subscription.name)
            {
                subscribe(core, id, Namespace::Presence, name.as_bytes());
                let channel: Arc<str> = name.into();
                match watched.base(&channel) {
                    Some(base) => drop(bases.insert(channel, base)),
                    None => {
                        let known = packed.presence_version(&channel);
                        self.0.entry(channel.clone()).or_default().push((id, known));
                        core.notify(Notice::ChannelStale { channel });
                    }
                }
            }
        }
        arrival::install(core, id, packed, bases);
    }

    pub fn channel_loaded(&mut self, core: &mut Core, channel: &Arc<str>, base: u64) {
        for (id, known) in self.0.remove(channel).unwrap_or_default() {
            arrival::add_presence_gap(core, id, channel, known, base);
        }
    }
}

/// Does not wait until the bus has confirmed the subscription.
fn subscribe(core: &mut Core, id: ListenerId, space: Namespace, name: &[u8]) {
    let node = core.node.clone();
    node.bus_interests.lock().request(space, name, None);
    core.subscribe(id, space, name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::{Epoch, Time};

    #[test]
    fn a_gap_is_due_when_another_node_outlived_the_owner() {
        let node = |name: &str, closed_at: Option<u64>, clean: bool| NodeRow {
            writer: Writer::new(name, Epoch(1)),
            opened_at: Time(0),
            lease_until: Time(1_000),
            closed_at: closed_at.map(Time),
            clean,
        };
        let owner = node("a", Some(100), true);
        let adopter = Writer::new("b", Epoch(2));
        let check = |others: &[NodeRow], expected: bool| {
            let nodes: Vec<NodeRow> = others.iter().cloned().chain([owner.clone()]).collect();
            assert_eq!(may_have_missed(&owner.writer, &adopter, &nodes), expected, "{others:?}");
        };
        check(&[], false);
        check(&[NodeRow { writer: adopter.clone(), ..node("b", None, false) }], false);
        check(&[node("b", Some(110), false)], true);
        check(&[node("c", Some(90), true)], false);
        check(&[node("c", None, false)], true);
        check(&[node("c", Some(110), true)], true);
        check(&[node("c", Some(90), false)], true);
        assert!(
            may_have_missed(&owner.writer, &adopter, &[node("c", Some(1), true)]),
            "the owner is not known"
        );
        assert!(
            may_have_missed(&owner.writer, &adopter, &[node("a", Some(100), false)]),
            "the owner was closed"
        );
    }
}
