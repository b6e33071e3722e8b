//! The presence that a hold gives a user: they are in a channel as long as their clients are in another one, the
//! carrier. `presence` makes it follow its carrier; `party` commits it together with the party. Must hold: a commit that
//! changes a held presence expects its version and that of its carrier.

use crate::rows::add_presence;
use tavern_domain::presence::{
    Attendance, AttendanceChange, AttendanceInput, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::{ChangedChannel, ChangedRow, Commit, PresenceKey, PresenceRow, Receipt, RowKey};

/// A held presence that is changed by a commit with other rows, for those who announce it.
#[derive(Clone, Debug)]
pub(crate) struct HeldChange {
    /// As it is after the change.
    pub row: PresenceRow,
    pub changes: Vec<AttendanceChange>,
    /// Changes of other users that the same commit makes in this channel before and after these.
    earlier: usize,
    later: usize,
}

impl HeldChange {
    /// A user enters a channel in which they are held, with all their clients in the carrier. None: nothing changes.
    pub fn enter(
        now: Time,
        key: PresenceKey,
        stored: Option<&PresenceRow>,
        carrier: Option<&PresenceRow>,
        visibility: Visibility,
    ) -> Option<(HeldChange, Attendance)> {
        let name = stored.or(carrier).and_then(|row| row.name.clone());
        // A stored one may be newer than what this node knows of its user.
        let visibility = stored.map_or(visibility, |row| row.visibility);
        let before = stored.map(|row| row.attendance.clone()).unwrap_or_default();
        let (mut attendance, mut changes) = (before.clone(), Vec::new());
        arrive(now, &mut attendance, carrier, None, &mut changes);
        let row = PresenceRow { key, anonymous: false, name, visibility, attendance };
        HeldChange::of(row, changes, before)
    }

    /// A user leaves it with all their clients, at once. None: nothing changes.
    pub fn leave(now: Time, stored: &PresenceRow) -> Option<(HeldChange, Attendance)> {
        let (mut row, mut changes) = (stored.clone(), Vec::new());
        row.attendance.handle(now, AttendanceInput::Remove { reason: OfflineReason::Expired }, &mut changes);
        HeldChange::of(row, changes, stored.attendance.clone())
    }

    fn of(
        row: PresenceRow,
        changes: Vec<AttendanceChange>,
        before: Attendance,
    ) -> Option<(HeldChange, Attendance)> {
        if row.attendance == before && changes.is_empty() {
            return None;
        }
        let change = HeldChange { row, changes, earlier: 0, later: 0 };
        Some((change, before))
    }

    /// Adds it to a commit.
    pub fn add_to(&self, commit: &mut Commit, before: &Attendance) {
        add_presence(commit, before, self.row.clone(), self.changes.len());
    }

    /// Counts the changes beside each. `all` are the held presences that a commit changes, in order, by party.
    pub fn count(all: &mut [(u64, HeldChange)]) {
        let counts: Vec<(u64, usize)> = all.iter().map(|(id, one)| (*id, one.changes.len())).collect();
        let sum = |counts: &[(u64, usize)], id: u64| {
            counts.iter().filter(|(other, _)| *other == id).map(|(_, count)| count).sum()
        };
        for (at, (id, one)) in all.iter_mut().enumerate() {
            (one.earlier, one.later) = (sum(&counts[..at], *id), sum(&counts[at + 1..], *id));
        }
    }

    /// The version of its row, unless it was deleted.
    pub fn version(&self, receipt: &Receipt) -> Option<u64> {
        let stays = self.row.attendance.is_present();
        receipt.version(&RowKey::Presence(self.row.key.clone())).filter(|_| stays)
    }

    /// The part of the commit's receipt for this presence alone.
    pub fn receipt(&self, receipt: &Receipt) -> Receipt {
        let key = RowKey::Presence(self.row.key.clone());
        let own = |rows: &[ChangedRow]| rows.iter().filter(|row| row.key == key).cloned().collect();
        let raised = receipt.channel(&self.row.key.channel).map(|raised| ChangedChannel {
            version: raised.version - self.later as u64,
            was_empty: raised.was_empty && self.earlier == 0,
            channel: raised.channel.clone(),
        });
        let held = receipt.held.iter().filter(|held| held.held_with == self.row.key);
        Receipt {
            put: own(&receipt.put),
            deleted: own(&receipt.deleted),
            raised: raised.into_iter().collect(),
            held: held.cloned().collect(),
            ..Receipt::default()
        }
    }
}

/// The node epoch of a user whom an app holds without a client: no node.
fn nowhere() -> NodeEpoch {
    NodeEpoch { node: "".into(), epoch: Epoch(0) }
}

/// Every client in the carrier is present here; without a carrier, the user alone is.
pub(crate) fn arrive(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&PresenceRow>,
    own: Option<ClientId>,
    changes: &mut Vec<AttendanceChange>,
) {
    for client in carrier.into_iter().flat_map(|row| row.attendance.connected()) {
        let input = AttendanceInput::Join { client: client.client, node: client.node.clone(), state: None };
        attendance.handle(now, input, changes);
    }
    if let Some(client) = own.filter(|_| !attendance.connected().any(|client| client.node.node.is_empty())) {
        attendance.handle(now, AttendanceInput::Join { client, node: nowhere(), state: None }, changes);
    }
}
