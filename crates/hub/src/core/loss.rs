//! Messages of other nodes that were lost on the bus: sessions that may have missed some get a gap. A Redis
//! connection cannot get a gap and is closed, so that its client subscribes again. Missed messages of a channel with
//! history are read from the store.

use crate::connection::CloseReason;
use crate::core::routing::RouteIndex;
use crate::core::{Core, Notice};
use crate::event::{Event, Namespace};
use crate::settings::SlowReader;
use std::rc::Rc;
use std::sync::Arc;
use tavern_wire::json;

/// Messages of one channel were lost, or of all of them.
pub(crate) fn messages_lost(core: &mut Core, channel: Option<&[u8]>) {
    let places = match channel {
        None => core.routing.with_listeners(),
        Some(name) => {
            let mut places: Vec<RouteIndex> =
                core.routing.find(Namespace::Channel, name).into_iter().collect();
            for entry in core.node.registry.matching(name) {
                places.extend(core.routing.find(Namespace::Pattern, &entry.name));
            }
            places
        }
    };
    for place in places {
        let route = core.routing.place(place);
        let name = route.entry.name.clone();
        if route.space != Namespace::Channel || core.node.history_limits(&name).is_none() {
            add_gaps(core, place);
        }
    }
}

fn add_gaps(core: &mut Core, index: RouteIndex) {
    let now = core.now;
    let place = core.routing.place(index);
    let name = String::from_utf8_lossy(&place.entry.name);
    if place.space == Namespace::Presence {
        // Presence can be read again: watchers get the difference.
        let channel: Arc<str> = name.into();
        return core.notify(Notice::ChannelStale { channel });
    }
    let mut tail = Vec::new();
    match place.space {
        Namespace::Pattern => json::pattern_gap_tail(&mut tail, &name),
        Namespace::Channel | Namespace::Shard | Namespace::Presence | Namespace::People => {
            json::channel_gap_tail(&mut tail, &name)
        }
    }
    let listeners = place.all_listeners();
    let event: Rc<Event> = Event::json(tail.into_boxed_slice(), now, SlowReader::Gap, &core.event_memory);
    for listener in listeners {
        if !core.listeners.at(listener).is_redis() {
            core.deliver_event(listener, &event);
        } else if let Some(link) = core.listeners.at(listener).link.take() {
            core.listeners.at(listener).dirty = false;
            core.effects.closes.push((link.id, CloseReason::SlowReader));
            core.stats.closed_lost.add(1);
        }
    }
}
