//! How detailed the presence events of a channel are: every change, one difference per tick, or counts only.
//! The mode depends on the number of users, with hysteresis, so that it does not flap at a threshold.
//! Must hold: changes that cancel out within a tick are not sent; the differences add up to the current state.

use super::room::{RoomDifference, RoomMember, RoomSnapshot};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// How detailed the presence events of a channel are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PresenceMode {
    /// Every change, as it happens.
    #[default]
    Full,
    /// One difference for each tick.
    Coalesced,
    /// Only the number of users, and the users that a watcher follows.
    Counts,
}

impl PresenceMode {
    pub fn as_str(self) -> &'static str {
        match self {
            PresenceMode::Full => "full",
            PresenceMode::Coalesced => "coalesced",
            PresenceMode::Counts => "counts",
        }
    }
}

/// The numbers of users from which a channel is in a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub coalesce_at: usize,
    pub counts_at: usize,
}

impl Thresholds {
    /// The next mode for this many users. It goes down only below four fifths of the threshold that led up.
    pub fn mode(self, mode: PresenceMode, users: usize) -> PresenceMode {
        let up = self.reached(users, 5);
        let kept = self.reached(users, 4);
        if up > mode {
            up
        } else if kept < mode {
            kept
        } else {
            mode
        }
    }

    /// The mode if the thresholds were scaled by this many fifths.
    fn reached(self, users: usize, fifths: usize) -> PresenceMode {
        let at = |threshold: usize| users.saturating_mul(5) >= threshold.saturating_mul(fifths);
        if at(self.counts_at) {
            PresenceMode::Counts
        } else if at(self.coalesce_at) {
            PresenceMode::Coalesced
        } else {
            PresenceMode::Full
        }
    }
}

/// The users that changed since the last tick, as they were then.
#[derive(Clone, Debug, Default)]
pub struct TickChanges {
    from: u64,
    touched: BTreeMap<Arc<str>, Option<RoomMember>>,
}

impl TickChanges {
    /// A tick that begins at a version of the channel.
    pub fn at(version: u64) -> TickChanges {
        TickChanges { from: version, touched: BTreeMap::new() }
    }

    /// The version of the channel at the last tick.
    pub fn version(&self) -> u64 {
        self.from
    }

    /// The members at the last tick.
    pub fn members<'a>(&'a self, room: &'a RoomSnapshot) -> BTreeMap<&'a Arc<str>, &'a RoomMember> {
        let mut members: BTreeMap<&Arc<str>, &RoomMember> = room.members.iter().collect();
        for (user, before) in &self.touched {
            match before {
                Some(member) => members.insert(user, member),
                None => members.remove(user),
            };
        }
        members
    }

    /// Remembers a user before they change, once per tick.
    pub fn touch(&mut self, room: &RoomSnapshot, user: &Arc<str>) {
        if !self.touched.contains_key(user) {
            self.touched.insert(user.clone(), room.members.get(user).cloned());
        }
    }

    /// Ends the tick. Returns the difference, and begins the next tick. `None`: all changes cancelled out.
    pub fn settle(&mut self, room: &RoomSnapshot) -> Option<RoomDifference> {
        let mut difference =
            RoomDifference { from: self.from, to: room.version, ..RoomDifference::default() };
        difference.count = room.members.len();
        for (user, before) in core::mem::take(&mut self.touched) {
            difference.add(&user, before.as_ref(), room.members.get(&user));
        }
        self.from = room.version;
        // If all changes cancelled out, the next difference covers the versions of this tick too.
        if difference.is_empty() {
            self.from = difference.from;
            return None;
        }
        Some(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClientId;
    use crate::presence::RoomClient;
    use crate::time::Time;

    #[test]
    fn modes_have_names_and_a_tick_knows_where_it_began() {
        let modes = [PresenceMode::Full, PresenceMode::Coalesced, PresenceMode::Counts];
        assert_eq!(modes.map(PresenceMode::as_str), ["full", "coalesced", "counts"]);
        assert_eq!(TickChanges::at(7).version(), 7);
    }

    #[test]
    fn a_mode_begins_at_its_threshold_and_ends_below_four_fifths() {
        let thresholds = Thresholds { coalesce_at: 200, counts_at: 5_000 };
        let mut mode = PresenceMode::Full;
        let mut check = |users: usize, expected: PresenceMode| {
            mode = thresholds.mode(mode, users);
            assert_eq!(mode, expected, "{users}");
        };
        check(199, PresenceMode::Full);
        check(200, PresenceMode::Coalesced);
        check(160, PresenceMode::Coalesced);
        check(159, PresenceMode::Full);
        check(199, PresenceMode::Full);
        check(5_000, PresenceMode::Counts);
        check(4_000, PresenceMode::Counts);
        check(3_999, PresenceMode::Coalesced);
        check(5_000, PresenceMode::Counts);
        check(0, PresenceMode::Full);
    }

    fn set(room: &mut RoomSnapshot, user: &Arc<str>, clients: &[u128]) {
        room.version += 1;
        if clients.is_empty() {
            room.members.remove(user);
            return;
        }
        let seen = RoomClient { state: None, since: Time(0) };
        let clients = clients.iter().map(|n| (ClientId::from_random(*n), seen.clone())).collect();
        room.members.insert(user.clone(), RoomMember { clients, ..RoomMember::default() });
    }

    #[test]
    fn changes_that_cancel_out_within_a_tick_are_not_sent() {
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut room = RoomSnapshot::default();
        set(&mut room, &ann, &[1]);
        let mut tick = TickChanges::at(room.version);
        for (user, clients) in [(&bob, &[2u128][..]), (&ann, &[]), (&bob, &[]), (&ann, &[1])] {
            tick.touch(&room, user);
            set(&mut room, user, clients);
        }
        assert_eq!(tick.settle(&room), None);
        tick.touch(&room, &bob);
        set(&mut room, &bob, &[2, 3]);
        let difference = tick.settle(&room).unwrap();
        assert_eq!((difference.from, difference.to, difference.count), (1, 6, 2), "from the last difference");
        assert_eq!((difference.joined.len(), difference.left.len()), (2, 0));
        assert_eq!(tick.settle(&room), None, "a tick ends once");
    }
}
