//! Presence and statuses, as the server sends them. Every type keeps members that it does not know in `other`, so that
//! additions of a newer server are passed on.

use crate::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who is in a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Members {
    /// Grows with every change of the channel's presence.
    pub version: u64,
    /// Users in the channel, anonymous ones included.
    pub count: u64,
    /// Empty in a channel that is so large that its users are only counted.
    pub users: Vec<Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Members {
    /// Adds the next page.
    pub(crate) fn append(&mut self, mut page: Members) {
        self.users.append(&mut page.users);
        self.next = page.next;
    }
}

/// A user in a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// None: an anonymous user, or one who is hidden from the caller.
    pub user: Option<String>,
    /// The display name.
    pub name: Option<String>,
    /// The clients of the user in the channel.
    pub clients: Vec<MemberClient>,
    /// Milliseconds since 1970.
    pub since: u64,
    /// All clients are lost, and the grace period is running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One client of a user in a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberClient {
    /// The public id of the client.
    pub client: String,
    /// Its presence state.
    pub state: Value,
    /// Milliseconds since 1970.
    pub since: u64,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl MemberClient {
    /// The state as a type of the app.
    pub fn state<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(&self.state).map_err(Error::unexpected)
    }
}

/// The status of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The user id.
    pub user: String,
    /// The display name.
    pub name: Option<String>,
    /// Whether the user is online.
    pub online: bool,
    /// All clients are lost, and the grace period is running.
    pub leaving: bool,
    /// The user's activities, most important first.
    pub activities: Vec<Activity>,
    /// The channels the user is in.
    pub channels: Vec<String>,
    /// Milliseconds since 1970.
    pub last_seen: Option<u64>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An activity of a user in a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// The activity that is configured for the channel.
    pub activity: String,
    /// The channel.
    pub channel: String,
    /// Milliseconds since 1970.
    pub since: u64,
}

/// The status of a followed user has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusUpdate {
    /// The user id.
    pub user: String,
    /// The complete status after the change.
    pub status: Status,
    /// What changed, such as `came_online`.
    pub change: String,
    /// The channel in which it changed.
    pub channel: Option<String>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_written_as_they_were_read() {
        let sent = json!({
            "version": 3, "count": 2, "later": 1,
            "users": [
                {"user": "ann", "name": null, "clients": [{"client": "c1", "state": {"a": 1}, "since": 5}], "since": 5},
                {"user": null, "name": null, "clients": [], "since": 6, "leaving": true},
            ],
        });
        let members: Members = serde_json::from_value(sent.clone()).expect("members");
        assert_eq!(members.users[0].user.as_deref(), Some("ann"));
        assert_eq!(serde_json::to_value(members).expect("JSON"), sent);
    }

    #[test]
    fn statuses_are_written_as_they_were_read() {
        let sent = json!({
            "user": "ann", "name": "Ann", "online": true, "leaving": false, "channels": ["game#1"], "last_seen": null,
            "activities": [{"activity": "playing", "channel": "game#1", "since": 5}],
        });
        let status: Status = serde_json::from_value(sent.clone()).expect("a status");
        assert_eq!(serde_json::to_value(status).expect("JSON"), sent);
    }
}
