//! Rows, keys and deadlines that several features read or write, and how they are named in the store.

use crate::settings::InboxRules;
use crate::user::own_channel;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::Membership;
use tavern_domain::presence::{Attendance, NodeEpoch, Visibility};
use tavern_store::{
    ChannelVersionBump, Commit, Deadline, Document, DocumentKey, Expect, NewInboxMessage, PresenceHold,
    PresenceKey, PresenceRow, Row, RowKey, UserSnapshot, Versioned,
};
use tavern_wire::record::{self, RecordError, read_membership, write_membership};

/// The kinds of deadlines. The grace period of a lost client:
pub(crate) const GRACE: &str = "grace";
/// The end of a hold:
pub(crate) const HOLD: &str = "hold";
/// When an inbox is checked again:
pub(crate) const INBOX: &str = "inbox";
/// When the idempotency key of a request expires; also the kind of that document:
pub(crate) const ONCE: &str = "once";
/// When the stored reply to a publish with an idempotency key expires; also the kind of that document:
pub(crate) const KEYED_PUBLISH: &str = "publish";
/// When the forward of a session that moved expires; also the kind of that document:
pub(crate) const MOVED: &str = "moved";
/// A party by its number; a user whose party must check them; short-lived records of a user:
pub(crate) const PARTY: &str = "party";
pub(crate) const MEMBERSHIP: &str = "membership";
pub(crate) const FORGET: &str = "forget";

/// A user with presences of nodes that are not alive, and the epochs that wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleUser {
    pub user: Arc<str>,
    pub nodes: Vec<NodeEpoch>,
}

/// The channel of a party: its members are present there and subscribed to it.
pub(crate) fn party_channel(party: u64) -> Arc<str> {
    format!("{PARTY}#{party}").into()
}

pub(crate) fn is_party_channel(channel: &[u8]) -> bool {
    channel.strip_prefix(PARTY.as_bytes()).is_some_and(|rest| rest.starts_with(b"#"))
}

/// A user in their own channel.
pub(crate) fn own_key(user: &Arc<str>) -> PresenceKey {
    PresenceKey { channel: own_channel(user), user: user.clone() }
}

/// A member in the channel of a party.
pub(crate) fn member_key(party: u64, user: &Arc<str>) -> PresenceKey {
    PresenceKey { channel: party_channel(party), user: user.clone() }
}

/// Who may see a user, as it is stored.
pub(crate) fn stored_visibility(person: &UserSnapshot) -> Visibility {
    person.known.as_ref().map(|row| row.row.visibility).unwrap_or_default()
}

/// A commit that relies on it expects this: it is decided again if the user changes it meanwhile.
pub(crate) fn expected_user(user: &Arc<str>, person: &UserSnapshot) -> Expect {
    let version = person.known.as_ref().map_or(0, |row| row.version);
    Expect { key: RowKey::User(user.clone()), version }
}

/// The presence that a deadline is about.
pub(crate) fn presence_of(deadline: &Deadline) -> Option<PresenceKey> {
    if &*deadline.kind != GRACE && &*deadline.kind != HOLD {
        return None;
    }
    let (length, rest) = deadline.name.split_once(':')?;
    let length: usize = length.parse().ok()?;
    let (channel, user) = (rest.get(..length)?, rest.get(length..)?.strip_prefix('/')?);
    Some(PresenceKey::new(channel, user))
}

/// The hold that an app asks for.
pub(crate) fn hold_of(
    now: Time,
    channel: &Arc<str>,
    user: &Arc<str>,
    with: Option<Arc<str>>,
    ttl_ms: Option<u64>,
) -> PresenceHold {
    // Without a channel or a time, all clients of the user carry it.
    let held_with = with.or_else(|| ttl_ms.is_none().then(|| own_channel(user)));
    PresenceHold {
        key: PresenceKey { channel: channel.clone(), user: user.clone() },
        held_with,
        until: ttl_ms.map(|ttl_ms| now + ttl_ms),
    }
}

/// The deadline that checks a hold.
pub(crate) fn hold_deadline_key(key: &PresenceKey) -> RowKey {
    RowKey::Deadline { kind: HOLD.into(), name: key.to_string().into() }
}

/// Adds the removal of a hold to a commit.
pub(crate) fn remove_hold(commit: &mut Commit, key: &PresenceKey) {
    commit.deletes.insert(0, RowKey::Hold(key.clone()));
    commit.deletes.insert(0, hold_deadline_key(key));
}

/// Adds a presence that differs from `before` to a commit, with the version of its channel and the deadline of its lost
/// clients.
pub(crate) fn add_presence(commit: &mut Commit, before: &Attendance, row: PresenceRow, changes: usize) {
    let by = changes as u32;
    match commit.raises.iter_mut().find(|raise| raise.channel == row.key.channel) {
        Some(raise) => raise.by += by,
        None => commit.raises.push(ChannelVersionBump { channel: row.key.channel.clone(), by }),
    }
    match row.attendance.next_wake() {
        Some(due) => commit.deadlines.push(Deadline::new(due, GRACE, &row.key.to_string())),
        None if before.next_wake().is_some() => {
            commit.deletes.push(RowKey::Deadline { kind: GRACE.into(), name: row.key.to_string().into() });
        }
        None => {}
    }
    match row.attendance.is_present() {
        true => commit.puts.push(Row::Presence(row)),
        false => commit.deletes.push(RowKey::Presence(row.key)),
    }
}

/// Adds an inbox message to a commit, and the deadline by which it is freed unread.
pub(crate) fn add_inbox_message(
    rules: &InboxRules,
    now: Time,
    commit: &mut Commit,
    user: Arc<str>,
    body: Arc<[u8]>,
) {
    let due = Deadline::new(now + rules.keep_ms, INBOX, &user);
    if !commit.deadlines.contains(&due) {
        commit.deadlines.push(due);
    }
    commit.inbox_messages.push(NewInboxMessage {
        user,
        body,
        max_messages: rules.messages,
        max_bytes: rules.bytes,
    });
}

/// The party records of a user: their party and the invites they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct MembershipRow {
    pub version: u64,
    pub membership: Membership,
}

impl MembershipRow {
    pub fn key(user: &Arc<str>) -> DocumentKey {
        DocumentKey::shared(record::MEMBERSHIP, user.clone())
    }

    pub fn read(found: Option<&Versioned<Arc<[u8]>>>) -> Result<MembershipRow, RecordError> {
        let Some(found) = found else { return Ok(MembershipRow::default()) };
        Ok(MembershipRow { version: found.version, membership: read_membership(&found.row)? })
    }

    /// A party or an invite depends on whether the user is online.
    pub fn is_concerned(&self) -> bool {
        self.membership.party.is_some() || !self.membership.invites.is_empty()
    }

    /// Adds to the commit that ends a user's presence what their party needs: a deadline to check them, and whether
    /// they logged out. An invite and a logout never miss each other, because each expects the row that the other
    /// changes.
    pub fn note_departure(&self, now: Time, user: &Arc<str>, said_bye: bool, commit: &mut Commit) {
        if !self.is_concerned() {
            return;
        }
        commit.deadlines.push(Deadline::new(now, MEMBERSHIP, user));
        if said_bye {
            let key = MembershipRow::key(user);
            let membership = Membership { logged_out: Some(now), ..self.membership.clone() };
            commit.puts.push(Row::Document(Document { key, body: write_membership(&membership).into() }));
        }
    }
}
