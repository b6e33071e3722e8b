//! Listeners of the Redis protocol: they live as long as their connection.

use super::Core;
use crate::connection::{EventFormat, Link};
use crate::core::listener::{ListenerId, ListenerKind};

/// Opens a listener for a Redis connection that subscribes for the first time.
pub fn open(core: &mut Core, link: Link) -> ListenerId {
    core.listeners.insert(ListenerKind::Redis { pushing: true, waiting: false }, Some(link))
}

/// `TAVERN.MODE`: whether events are pushed to a Redis listener, or polled by it.
pub fn set_pushing(core: &mut Core, id: ListenerId, on: bool) {
    let Some(listener) = core.listeners.get_mut(id) else { return };
    if let ListenerKind::Redis { pushing, .. } = &mut listener.kind {
        *pushing = on;
    }
    core.mark_dirty(id);
}

/// `TAVERN.WAIT`: whether a Redis listener waits for the next event.
pub fn set_waiting(core: &mut Core, id: ListenerId, on: bool) {
    if let Some(listener) = core.listeners.get_mut(id)
        && let ListenerKind::Redis { waiting, .. } = &mut listener.kind
    {
        *waiting = on;
        listener.dirty = false;
    }
}

pub fn set_format(core: &mut Core, id: ListenerId, format: EventFormat) {
    if let Some(link) = core.listeners.get_mut(id).and_then(|listener| listener.link.as_mut()) {
        link.format = format;
    }
}
