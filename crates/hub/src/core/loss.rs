//! Words of other nodes that were lost on their way here: everybody who may have missed some is told.
//! A Redis connection cannot be told and is closed, so that its client subscribes anew.

use crate::connection::Goodbye;
use crate::core::routing::PlaceIndex;
use crate::core::{Core, Notice};
use crate::event::{Event, Space};
use crate::settings::SlowReader;
use std::rc::Rc;
use std::sync::Arc;
use tavern_wire::json;

impl Core {
    /// Words of one channel were lost, or of all of them.
    pub(crate) fn lost_abroad(&mut self, channel: Option<&[u8]>) {
        let places = match channel {
            None => self.roster.heard(),
            Some(name) => {
                let mut places: Vec<PlaceIndex> =
                    self.roster.find(Space::Channel, name).into_iter().collect();
                for entry in self.node.registry.matching(name) {
                    places.extend(self.roster.find(Space::Pattern, &entry.name));
                }
                places
            }
        };
        for place in places {
            self.tell_loss(place);
        }
    }

    fn tell_loss(&mut self, index: PlaceIndex) {
        let now = self.now;
        let place = self.roster.place(index);
        let name = String::from_utf8_lossy(&place.entry.name);
        if place.space == Space::Presence {
            // What happened can be read: watchers hear the difference.
            let channel: Arc<str> = name.into();
            return self.notify(Notice::ChannelStale { channel });
        }
        let mut tail = Vec::new();
        match place.space {
            Space::Pattern => json::pattern_gap_tail(&mut tail, &name),
            Space::Channel | Space::Shard | Space::Presence | Space::People => {
                json::channel_gap_tail(&mut tail, &name)
            }
        }
        let listeners = place.listeners.clone();
        let event: Rc<Event> = Event::json(tail.into_boxed_slice(), now, SlowReader::Gap, &self.pool);
        for listener in listeners {
            if !self.listeners.at(listener).is_redis() {
                self.tell(listener, &event);
            } else if let Some(link) = self.listeners.at(listener).link.take() {
                self.listeners.at(listener).dirty = false;
                self.effects.closes.push((link.id, Goodbye::SlowReader));
                self.stats.closed_lost.add(1);
            }
        }
    }
}
