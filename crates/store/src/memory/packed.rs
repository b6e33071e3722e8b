//! A stored presence as one short byte string: a server holds hundreds of thousands of them, and a `Presence` with
//! its allocations is several times as large. Used only inside the process. Must hold: unpacking returns what was
//! packed; every node that a packed presence refers to is in `NodeEpochs`.
//!
//! Numbers are varints. Layout: version, flags, number of clients, the node of each client, since, name, departure; then for
//! each client: id (10 bytes), flags, since, state (8 bytes of digest, text), lost.

use crate::page::Versioned;
use crate::presence::{PresenceKey, PresenceRow};
use std::sync::Arc;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Time};

const ANONYMOUS: u8 = 1;
const NAMED: u8 = 2;
/// The name is the user's id.
const NAMED_AS_USER: u8 = 4;
const DEPARTED: u8 = 8;
const FOLLOWERS_I_FOLLOW: u8 = 16;
const NOBODY: u8 = 32;

const HAS_STATE: u8 = 1;
const LOST: u8 = 2;
/// The client joined when its user did.
const SAME_SINCE: u8 = 4;

const CLIENT_BYTES: usize = 10;

const DEPARTURES: [OfflineReason; 6] = [
    OfflineReason::Left,
    OfflineReason::Bye,
    OfflineReason::Lost,
    OfflineReason::NodeDown,
    OfflineReason::Removed,
    OfflineReason::Expired,
];

pub(super) struct PackedPresence(Box<[u8]>);

/// The nodes of all clients, each once, with the number of clients that refer to it.
#[derive(Default)]
pub(super) struct NodeEpochs(Vec<(NodeEpoch, usize)>);

impl NodeEpochs {
    pub fn find(&self, node: &NodeEpoch) -> Option<u64> {
        let found = self.0.iter().position(|(known, clients)| *clients > 0 && known == node)?;
        Some(found as u64)
    }

    fn get(&self, id: u64) -> &NodeEpoch {
        &self.0[id as usize].0
    }

    fn acquire(&mut self, node: &NodeEpoch) -> u64 {
        if let Some(id) = self.find(node) {
            self.0[id as usize].1 += 1;
            return id;
        }
        let free = self.0.iter().position(|(_, clients)| *clients == 0).unwrap_or(self.0.len());
        match self.0.get_mut(free) {
            Some(place) => *place = (node.clone(), 1),
            None => self.0.push((node.clone(), 1)),
        }
        free as u64
    }

    /// The presence was deleted: decrements the counts of its nodes.
    pub fn release(&mut self, packed: &PackedPresence) {
        for id in packed.nodes() {
            self.0[id as usize].1 -= 1;
        }
    }
}

impl PackedPresence {
    pub fn new(presence: &PresenceRow, version: u64, nodes: &mut NodeEpochs) -> PackedPresence {
        let PresenceRow { key, anonymous, name, visibility, attendance } = presence;
        let clients = attendance.clients();
        let mut out = Vec::with_capacity(64);
        put_number(&mut out, version);
        let is_user = name.as_ref().is_some_and(|name| *name == key.user);
        out.push(
            flag(*anonymous, ANONYMOUS)
                | flag(name.is_some() && !is_user, NAMED)
                | flag(is_user, NAMED_AS_USER)
                | flag(attendance.departed().is_some(), DEPARTED)
                | match visibility {
                    Visibility::Everyone => 0,
                    Visibility::FollowersIFollow => FOLLOWERS_I_FOLLOW,
                    Visibility::Nobody => NOBODY,
                },
        );
        put_number(&mut out, clients.len() as u64);
        for client in clients {
            put_number(&mut out, nodes.acquire(&client.node));
        }
        put_number(&mut out, attendance.since().0);
        if let Some(name) = name.as_deref().filter(|_| !is_user) {
            put_text(&mut out, name);
        }
        if let Some(departed) = attendance.departed() {
            let reason = DEPARTURES.iter().position(|reason| *reason == departed.reason);
            out.push(reason.expect("every departure is listed") as u8);
            put_number(&mut out, departed.seen.0);
        }
        for client in clients {
            put_client(&mut out, client, attendance.since());
        }
        PackedPresence(out.into_boxed_slice())
    }

    pub fn version(&self) -> u64 {
        PackedReader(&self.0).number()
    }

    /// The node of each client, by its number in `NodeEpochs`.
    pub fn nodes(&self) -> impl Iterator<Item = u64> {
        let mut from = PackedReader(&self.0);
        from.number();
        from.byte();
        let clients = from.number();
        (0..clients).map(move |_| from.number())
    }

    pub fn unpack(&self, key: PresenceKey, nodes: &NodeEpochs) -> Versioned<PresenceRow> {
        let mut from = PackedReader(&self.0);
        let (version, flags, count) = (from.number(), from.byte(), from.number());
        let nodes: Vec<&NodeEpoch> = (0..count).map(|_| nodes.get(from.number())).collect();
        let since = Time(from.number());
        let name = match flags & (NAMED | NAMED_AS_USER) {
            0 => None,
            NAMED_AS_USER => Some(key.user.clone()),
            _ => Some(from.text()),
        };
        let departed = (flags & DEPARTED != 0)
            .then(|| LastDeparture { reason: DEPARTURES[from.byte() as usize], seen: Time(from.number()) });
        let visibility = match flags & (FOLLOWERS_I_FOLLOW | NOBODY) {
            0 => Visibility::Everyone,
            FOLLOWERS_I_FOLLOW => Visibility::FollowersIFollow,
            _ => Visibility::Nobody,
        };
        let clients = nodes.into_iter().map(|node| from.client(node.clone(), since)).collect();
        let attendance = Attendance::restore(clients, since, departed);
        let row = PresenceRow { key, anonymous: flags & ANONYMOUS != 0, name, visibility, attendance };
        Versioned { version, row }
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn put_client(out: &mut Vec<u8>, client: &ChannelClient, since: Time) {
    out.extend_from_slice(&client.client.bits().to_le_bytes()[..CLIENT_BYTES]);
    out.push(
        flag(client.state.is_some(), HAS_STATE)
            | flag(client.lost.is_some(), LOST)
            | flag(client.since == since, SAME_SINCE),
    );
    if client.since != since {
        put_number(out, client.since.0);
    }
    if let Some(state) = &client.state {
        out.extend_from_slice(&state.digest.to_le_bytes());
        put_text(out, &state.text);
    }
    if let Some(lost) = client.lost {
        put_number(out, lost.at.0);
        put_number(out, lost.until.0);
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The unread bytes. Panics on bytes that were not packed here.
struct PackedReader<'a>(&'a [u8]);

impl<'a> PackedReader<'a> {
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    fn text(&mut self) -> Arc<str> {
        let bytes = self.number() as usize;
        std::str::from_utf8(self.take(bytes)).expect("a text was packed").into()
    }

    fn client(&mut self, node: NodeEpoch, joined: Time) -> ChannelClient {
        let mut bits = [0; 16];
        bits[..CLIENT_BYTES].copy_from_slice(self.take(CLIENT_BYTES));
        let client = ClientId::from_random(u128::from_le_bytes(bits));
        let flags = self.byte();
        let since = if flags & SAME_SINCE != 0 { joined } else { Time(self.number()) };
        let state = (flags & HAS_STATE != 0).then(|| {
            let digest = self.take(8).try_into().map(u64::from_le_bytes).expect("eight bytes were taken");
            ClientState { text: self.text(), digest }
        });
        let lost =
            (flags & LOST != 0).then(|| LostClient { at: Time(self.number()), until: Time(self.number()) });
        ChannelClient { client, node, state, since, lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;

    fn node_epoch(node: &str, epoch: u64) -> NodeEpoch {
        NodeEpoch { node: node.into(), epoch: Epoch(epoch) }
    }

    fn client(bits: u128, node: NodeEpoch, since: u64) -> ChannelClient {
        ChannelClient {
            client: ClientId::from_random(bits),
            node,
            state: None,
            since: Time(since),
            lost: None,
        }
    }

    fn presences() -> Vec<PresenceRow> {
        let key = PresenceKey::new("game#A", "ann");
        let plain = PresenceRow {
            key,
            anonymous: false,
            name: None,
            visibility: Visibility::Everyone,
            attendance: Attendance::default(),
        };
        let full = vec![
            client(u128::MAX, node_epoch("n1", u64::MAX), 0),
            ChannelClient {
                state: Some(ClientState { text: "{\"a\":\"\u{fc}\"}".into(), digest: u64::MAX }),
                lost: Some(LostClient { at: Time(1), until: Time::NEVER }),
                ..client(7, node_epoch("", 0), 1_790_000_000_001)
            },
        ];
        let mut presences = vec![
            plain.clone(),
            PresenceRow { name: Some("ann".into()), anonymous: true, ..plain.clone() },
            PresenceRow { name: Some("".into()), visibility: Visibility::Nobody, ..plain.clone() },
        ];
        presences.extend(DEPARTURES.map(|reason| PresenceRow {
            name: Some("Ann".into()),
            visibility: Visibility::FollowersIFollow,
            attendance: Attendance::restore(
                full.clone(),
                Time(1_790_000_000_000),
                Some(LastDeparture { reason, seen: Time::NEVER }),
            ),
            ..plain.clone()
        }));
        presences
    }

    #[test]
    fn what_is_packed_is_unpacked_the_same() {
        let mut nodes = NodeEpochs::default();
        for (presence, version) in presences().into_iter().zip([1, u64::MAX, 127, 128].into_iter().cycle()) {
            let packed = PackedPresence::new(&presence, version, &mut nodes);
            assert_eq!(packed.version(), version);
            let key = presence.key.clone();
            assert_eq!(packed.unpack(key, &nodes), Versioned { version, row: presence });
        }
    }

    #[test]
    fn slots_of_nodes_without_clients_are_reused() {
        let mut nodes = NodeEpochs::default();
        let at = |node: &str| {
            let attendance = Attendance::restore(vec![client(1, node_epoch(node, 1), 1)], Time(1), None);
            PresenceRow { attendance, ..presences().remove(0) }
        };
        let packed: Vec<PackedPresence> = ["n1", "n2", "n1"]
            .map(|node| PackedPresence::new(&at(node), 1, &mut nodes))
            .into_iter()
            .collect();
        assert_eq!((nodes.find(&node_epoch("n1", 1)), nodes.find(&node_epoch("n2", 1))), (Some(0), Some(1)));
        nodes.release(&packed[0]);
        assert_eq!(nodes.find(&node_epoch("n1", 1)), Some(0), "one client is left");
        nodes.release(&packed[2]);
        assert_eq!(nodes.find(&node_epoch("n1", 1)), None);
        PackedPresence::new(&at("n3"), 1, &mut nodes);
        assert_eq!((nodes.find(&node_epoch("n3", 1)), nodes.0.len()), (Some(0), 2));
    }
}
