//! A party as its members see it, the events about it, and the snapshot after an event.
//! Must hold: a duplicate event changes nothing; an event that does not fit changes nothing and makes a new read necessary.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A party as its members see it. The first member leads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartySnapshot {
    /// The number of the party.
    pub party_id: u64,
    /// Grows with every change.
    #[serde(default)]
    pub version: u64,
    /// What the party is doing.
    #[serde(default)]
    pub state: PartyState,
    /// What the app keeps about the party.
    #[serde(default)]
    pub data: Value,
    /// The members; the first one leads.
    #[serde(default)]
    pub members: Vec<PartyMember>,
    /// Invites that are open.
    #[serde(default)]
    pub pending: Vec<PartyInvite>,
    /// The ticket, while the party is gathering or queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_id: Option<u64>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl PartySnapshot {
    /// The user who leads.
    pub fn leader(&self) -> Option<&str> {
        self.members.first().map(|member| member.user.as_str())
    }
}

/// What a party is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PartyState {
    /// One member.
    #[default]
    Forming,
    /// Several members.
    Idle,
    /// The members confirm that they are ready.
    Gathering,
    /// The matchmaker has the ticket.
    Queued,
    /// A state that this version of the client does not know.
    #[serde(untagged)]
    Other(String),
}

/// A member of a party.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PartyMember {
    /// The user id.
    pub user: String,
    /// The display name.
    pub name: Option<String>,
    /// Whether the user is online.
    pub online: bool,
    /// Milliseconds since 1970.
    pub since: u64,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An open invite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PartyInvite {
    /// Who is invited.
    pub user: String,
    /// Who invited them.
    pub by: String,
    /// Milliseconds since 1970.
    pub expires_at: u64,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What happened to a party, or to an invite of this user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PartyEvent {
    /// What happened: `invite`, `join`, `leave`, `party_go`, `party_matched` and others.
    pub cmd: String,
    /// The number of the party.
    pub party_id: u64,
    /// The version of the party after it.
    pub version: u64,
    /// Milliseconds since 1970.
    pub ts: u64,
    /// The id of the user whom it is about.
    #[serde(rename = "uid", skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Their display name, or their id.
    #[serde(rename = "user", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who was invited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invitee: Option<String>,
    /// When the invite ends, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Why it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The ticket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub go_id: Option<u64>,
    /// The state of the party after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PartyState>,
    /// All others, such as `data`, `match` and `message`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Events of another party that change nothing for this user's.
const NOT_OURS: [&str; 6] = ["invite", "invite_cancel", "decline", "kick", "leave", "disband"];

/// The snapshot after an event; false: it must be read again.
pub(crate) fn after_event(
    party: Option<&PartySnapshot>,
    event: &PartyEvent,
    me: Option<&str>,
) -> (Option<PartySnapshot>, bool) {
    let cmd = event.cmd.as_str();
    let Some(party) = party.filter(|party| party.party_id == event.party_id) else {
        return (party.cloned(), NOT_OURS.contains(&cmd));
    };
    if event.version <= party.version {
        return (Some(party.clone()), true);
    }
    if cmd == "kick" || cmd == "disband" || (cmd == "leave" && event.user.as_deref() == me && me.is_some()) {
        return (None, true);
    }
    let mut new = party.clone();
    new.version = event.version;
    if event.version != party.version + 1 || change(&mut new, event).is_none() {
        return (Some(party.clone()), false);
    }
    // Without a ticket the state follows from the members.
    if matches!(new.state, PartyState::Forming | PartyState::Idle) {
        new.state = if new.members.len() < 2 { PartyState::Forming } else { PartyState::Idle };
    }
    (Some(new), true)
}

/// Applies one event. None: it does not fit the snapshot, or this client does not know it.
fn change(party: &mut PartySnapshot, event: &PartyEvent) -> Option<()> {
    let PartySnapshot { members, pending, .. } = party;
    let user = event.user.clone().unwrap_or_default();
    match event.cmd.as_str() {
        "join" | "accept" => {
            // The id stands in for a missing name.
            let name = event.name.clone().filter(|name| *name != user);
            pending.retain(|invite| invite.user != user);
            members.retain(|member| member.user != user);
            members.push(PartyMember { user, name, online: true, since: event.ts, other: Map::new() });
        }
        "invited" => pending.push(PartyInvite {
            user: event.invitee.clone()?,
            by: user,
            expires_at: event.expires_at?,
            other: Map::new(),
        }),
        "decline" | "uninvited" => pending.retain(|invite| invite.user != user),
        "leave" => members.retain(|member| member.user != user),
        "leader" => {
            let at = members.iter().position(|member| member.user == user)?;
            members[..=at].rotate_right(1);
        }
        "data" => party.data = event.other.get("data")?.clone(),
        "online" | "offline" => {
            let member = members.iter_mut().find(|member| member.user == user)?;
            member.online = event.cmd == "online";
        }
        "party_go" | "ready" => {
            party.go_id = event.go_id;
            party.state = event.state.clone()?;
        }
        "party_matched" | "go_failed" | "go_cancel" => {
            party.go_id = None;
            party.state = PartyState::Idle;
        }
        // Unknown events of newer servers: read the snapshot again.
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_snapshot_is_written_as_it_was_read() {
        let sent = json!({
            "party_id": 5, "version": 3, "state": "queued", "data": {"map": "x"}, "go_id": 8, "later": 1,
            "members": [{"user": "ann", "name": null, "online": true, "since": 1}],
            "pending": [{"user": "cid", "by": "ann", "expires_at": 99}],
        });
        let party: PartySnapshot = serde_json::from_value(sent.clone()).expect("a party");
        assert_eq!((party.leader(), &party.state), (Some("ann"), &PartyState::Queued));
        assert_eq!(serde_json::to_value(party).expect("JSON"), sent);
        let newer: PartyState = serde_json::from_value(json!("dancing")).expect("a state");
        assert_eq!(newer, PartyState::Other("dancing".into()));
    }

    #[test]
    fn an_event_keeps_what_it_does_not_know() {
        let sent = json!({"event": "party", "cmd": "party_matched", "party_id": 5, "version": 4, "ts": 7, "go_id": 8, "match": "m1"});
        let event: PartyEvent = serde_json::from_value(sent.clone()).expect("an event");
        assert_eq!((event.go_id, event.other["match"].as_str()), (Some(8), Some("m1")));
        assert_eq!(serde_json::to_value(event).expect("JSON"), sent);
    }
}
