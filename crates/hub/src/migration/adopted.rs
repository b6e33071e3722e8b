//! Sessions adopted from the store after their node stopped.
//! Must hold: an adopted watcher that missed presence changes gets a gap, even if the channel is loaded later.

use super::arrival;
use super::packed::PackedSession;
use crate::core::listener::{ListenerId, Who};
use crate::core::session::Session;
use crate::core::{Core, Notice, Watched};
use crate::event::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Adopted watchers and the version they were told, until their channel is loaded.
#[derive(Default)]
pub(super) struct AdoptedWatchers(BTreeMap<Arc<str>, Vec<(ListenerId, u64)>>);

impl AdoptedWatchers {
    pub fn adopt(&mut self, core: &mut Core, watched: &dyn Watched, packed: &PackedSession) {
        let session = Session::new(packed.key, packed.client, packed.identity(), packed.detached_at);
        let id = core.listeners.insert(Who::Session(Box::new(session)), None);
        let mut bases = BTreeMap::new();
        for subscription in &packed.body.subscriptions {
            let space = if subscription.pattern { Space::Pattern } else { Space::Channel };
            subscribe(core, id, space, &subscription.name);
            if subscription.presence
                && let Ok(name) = std::str::from_utf8(&subscription.name)
            {
                subscribe(core, id, Space::Presence, name.as_bytes());
                let channel: Arc<str> = name.into();
                match watched.base(&channel) {
                    Some(base) => drop(bases.insert(channel, base)),
                    None => {
                        let told = packed.told(&channel);
                        self.0.entry(channel.clone()).or_default().push((id, told));
                        core.notify(Notice::ChannelStale { channel });
                    }
                }
            }
        }
        arrival::install(core, id, packed, bases);
    }

    pub fn channel_loaded(&mut self, core: &mut Core, channel: &Arc<str>, base: u64) {
        for (id, told) in self.0.remove(channel).unwrap_or_default() {
            arrival::add_presence_gap(core, id, channel, told, base);
        }
    }
}

/// Does not wait until the bus carries the name.
fn subscribe(core: &mut Core, id: ListenerId, space: Space, name: &[u8]) {
    let node = core.node.clone();
    node.carrier.hold().carry(space, name, None);
    core.subscribe(id, space, name);
}
