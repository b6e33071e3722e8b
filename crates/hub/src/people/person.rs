//! A stored user as their followers see them.

use tavern_domain::Time;
use tavern_domain::presence::{Followee, PresenceSummary, UserFact, Visibility};
use tavern_store::{PresenceRow, UserSnapshot, Versioned};

/// The stored visibility and its version. None: it was never set.
pub(super) fn visibility_of(person: &UserSnapshot) -> Option<(u64, Visibility)> {
    person.known.as_ref().map(|row| (row.version, row.row.visibility))
}

/// When a user last went offline, as it is stored.
pub(super) fn last_seen_of(person: &UserSnapshot) -> Option<Time> {
    person.known.as_ref().and_then(|row| row.row.last_seen)
}

/// A user as their followers know them. Anonymous presences are left out.
pub(super) fn followee_of(now: Time, person: &UserSnapshot) -> Followee {
    let facts = person.presences.iter().filter(|row| !row.row.anonymous).map(fact_of);
    Followee::read(now, visibility_of(person), last_seen_of(person), facts)
}

fn fact_of(row: &Versioned<PresenceRow>) -> UserFact {
    UserFact::Channel {
        channel: row.row.key.channel.clone(),
        version: row.version,
        presence: PresenceSummary::of(&row.row.attendance),
        last_seen: None,
        name: row.row.name.clone(),
    }
}
