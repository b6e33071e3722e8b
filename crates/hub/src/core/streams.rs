//! The position of this shard in the messages of each node, so that a session that migrates gets no message twice.

use crate::event::{Event, EventMemory, MessageId};
use crate::settings::SlowReader;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::{Epoch, Time};
use tavern_store::body::BusPosition;
use tavern_wire::json;

/// The messages a session has received on another node: they are not delivered again here.
#[derive(Clone, Debug, Default)]
pub struct ReceivedElsewhere {
    pub streams: Vec<BusPosition>,
    pub presence_versions: Vec<(Arc<str>, u64)>,
    /// Until when some of them may still be in flight.
    pub until: Time,
}

impl ReceivedElsewhere {
    /// The part of an event that the session has not received. `None`: it has all of it.
    pub(crate) fn remainder(
        &self,
        event: &Rc<Event>,
        now: Time,
        pool: &Rc<EventMemory>,
    ) -> Option<Rc<Event>> {
        let Some(watched) = event.watched_version() else {
            return (!self.has_received(event)).then(|| event.clone());
        };
        match self.presence_version(&watched.channel) {
            version if watched.version <= version => None,
            // A difference that overlaps with what the session has cannot be split, so it becomes a gap.
            version if watched.from < version => {
                let mut tail = Vec::new();
                json::channel_gap_tail(&mut tail, &watched.channel);
                Some(Event::json(tail.into_boxed_slice(), now, SlowReader::Gap, pool))
            }
            _ => Some(event.clone()),
        }
    }

    /// The version of a watched channel that the session had when it came. 0: it did not watch it.
    pub fn presence_version(&self, channel: &str) -> u64 {
        let known = self.presence_versions.iter().find(|(known, _)| **known == *channel);
        known.map_or(0, |(_, version)| *version)
    }

    /// The session gets the members of a channel, and from then on every change of them, even one that it knew before.
    pub fn forget_presence(&mut self, channel: &str) {
        self.presence_versions.retain(|(known, _)| **known != *channel);
    }

    fn has_received(&self, event: &Event) -> bool {
        let Some(origin) = event.origin() else { return false };
        self.streams.iter().any(|stream| {
            stream.node == origin.node
                && stream.shard == origin.shard()
                && (origin.epoch, origin.n) <= (stream.epoch, stream.n)
        })
    }
}

/// The last message received from each shard of each node.
#[derive(Default)]
pub(crate) struct BusPositions {
    positions: HashMap<Arc<str>, Vec<(u8, Epoch, u64)>, RandomState>,
}

impl BusPositions {
    pub fn advance(&mut self, origin: &MessageId) {
        let Some(streams) = self.positions.get_mut(&*origin.node) else {
            self.positions.insert(origin.node.clone(), vec![(origin.shard(), origin.epoch, origin.n)]);
            return;
        };
        let shard = origin.shard();
        match streams.iter_mut().find(|(of, ..)| *of == shard) {
            Some((_, epoch, n)) => (*epoch, *n) = (*epoch, *n).max((origin.epoch, origin.n)),
            None => streams.push((shard, origin.epoch, origin.n)),
        }
    }

    /// The last message received from each shard, here or where the session was before.
    pub fn last(&self, before: Option<&ReceivedElsewhere>) -> Vec<BusPosition> {
        let own = self.positions.iter().flat_map(|(node, streams)| {
            let stream =
                |&(shard, epoch, n): &(u8, Epoch, u64)| BusPosition { node: node.clone(), epoch, shard, n };
            streams.iter().map(stream)
        });
        let mut last: BTreeMap<(Arc<str>, u8), BusPosition> = BTreeMap::new();
        for stream in own.chain(before.into_iter().flat_map(|marks| marks.streams.iter().cloned())) {
            let known = last.entry((stream.node.clone(), stream.shard)).or_insert_with(|| stream.clone());
            if (known.epoch, known.n) < (stream.epoch, stream.n) {
                *known = stream;
            }
        }
        last.into_values().collect()
    }
}
