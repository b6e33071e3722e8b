//! Acting on users, and how many there are. Scope `users`; the numbers need `presence`.

use super::{Api, ApiRequest, ApiUsers};
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// How many users, sessions and connections there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStats {
    /// All living nodes together.
    pub cluster: ClusterNumbers,
    /// The node that answered.
    pub node: NodeNumbers,
}

/// The numbers of all living nodes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNumbers {
    /// Users who are online.
    pub users_online: u64,
    /// Sessions, with or without a connection.
    pub sessions: u64,
    /// Connections by transport.
    pub connections: ConnectionNumbers,
    /// Channels with a subscriber, counted once for each node.
    pub channels: u64,
    /// Users in channels, counted once for each channel.
    pub presences: u64,
    /// Parties.
    pub parties: u64,
    /// Nodes that were counted.
    pub nodes: u64,
}

/// The numbers of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeNumbers {
    /// The name of the node.
    pub node: String,
    /// Users with a session on it.
    pub users: u64,
    /// Sessions, with or without a connection.
    pub sessions: u64,
    /// Connections by transport.
    pub connections: ConnectionNumbers,
    /// Channels with a subscriber.
    pub channels: u64,
}

/// Connections by transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionNumbers {
    /// WebSockets.
    pub websocket: u64,
    /// Event streams.
    pub sse: u64,
    /// Long-polls that wait.
    pub poll: u64,
    /// Redis connections.
    pub redis: u64,
}

/// The sessions of a user on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionsOfUser {
    /// The oldest first.
    pub sessions: Vec<SessionSummary>,
    /// Nodes that did not answer in time: there may be more sessions.
    pub missing_nodes: Vec<String>,
}

/// A session of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSummary {
    /// The public id of the client.
    pub client: String,
    /// The node that has it.
    pub node: String,
    /// Milliseconds since 1970.
    pub since: u64,
    /// `websocket`, `sse` or `poll`; None while nothing is attached.
    pub transport: Option<String>,
    /// The last sign of life of a session without a transport.
    pub heard_at: u64,
    /// Channels it is subscribed to.
    pub channels: u64,
    /// It is on its way to another node.
    pub moving: bool,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A ban that is not over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BanSummary {
    /// The user id.
    pub user: String,
    /// Milliseconds since 1970; None: until it is lifted.
    pub until: Option<u64>,
    /// Shown to the user.
    pub reason: String,
    /// When it began.
    pub at: u64,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What an order about a user's sessions has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReachedSessions {
    /// Sessions that were concerned.
    pub sessions: u64,
    /// Sessions for which it failed.
    pub failed: u64,
    /// Nodes that did not answer in time: send it again.
    pub missing_nodes: Vec<String>,
}

/// How to disconnect a user; the default ends all their sessions.
///
/// ```
/// use tavern_client::DisconnectOptions;
/// let options = DisconnectOptions { reason: Some("new rules".into()), ..DisconnectOptions::default() };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DisconnectOptions {
    /// The close code of WebSockets, 4000 to 4999; clients reconnect after 4500 and above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Shown to the client; at most 123 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Public ids of clients that stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Close connections only: clients may resume their sessions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_resume: bool,
}

impl Api {
    /// How many users, sessions, connections, channels, presences and parties there are. Scope `presence`.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// println!("{} users online", api.stats().await?.cluster.users_online);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stats(&self) -> Result<ServerStats, Error> {
        self.call(ApiRequest::new("GET", &["stats"])).await
    }
}

/// Acting on users. Scope `users`.
impl ApiUsers<'_> {
    /// The sessions of a user on all nodes.
    pub async fn sessions(&self, user: &str) -> Result<SessionsOfUser, Error> {
        self.api.call(ApiRequest::new("GET", &["users", user, "sessions"])).await
    }

    /// Ends the sessions of a user on all nodes, or closes their connections.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// let ended = api.users().disconnect("ann", &tavern_client::DisconnectOptions::default()).await?;
    /// println!("{} sessions ended", ended.sessions);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn disconnect(
        &self,
        user: &str,
        options: &DisconnectOptions,
    ) -> Result<ReachedSessions, Error> {
        let path = ["users", user, "disconnect"];
        self.api.call(ApiRequest::new("POST", &path).body(options)?).await
    }

    /// Subscribes all sessions of a user to a channel.
    pub async fn subscribe(&self, user: &str, channel: &str) -> Result<ReachedSessions, Error> {
        let path = ["users", user, "subscribe"];
        self.api.call(ApiRequest::new("POST", &path).body(&json!({"channel": channel}))?).await
    }

    /// Ends the subscriptions of all sessions of a user to a channel.
    pub async fn unsubscribe(&self, user: &str, channel: &str) -> Result<ReachedSessions, Error> {
        let path = ["users", user, "unsubscribe"];
        self.api.call(ApiRequest::new("POST", &path).body(&json!({"channel": channel}))?).await
    }

    /// Bans a user until a time in milliseconds since 1970, or until the ban is lifted. Their sessions end.
    pub async fn ban(&self, user: &str, reason: &str, until: Option<u64>) -> Result<ReachedSessions, Error> {
        let path = ["users", user, "ban"];
        let body = json!({"reason": reason, "until": until});
        self.api.call(ApiRequest::new("PUT", &path).body(&body)?).await
    }

    /// All bans that are not over.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// for ban in api.users().bans().await? {
    ///     println!("{}: {}", ban.user, ban.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn bans(&self) -> Result<Vec<BanSummary>, Error> {
        self.api.list(&["bans"], "bans").await
    }

    /// Lifts the ban of a user.
    pub async fn unban(&self, user: &str) -> Result<(), Error> {
        let path = ["users", user, "ban"];
        self.api.call::<Value>(ApiRequest::new("DELETE", &path)).await.map(drop)
    }

    /// Erases what is stored about a user.
    pub async fn erase(&self, user: &str) -> Result<(), Error> {
        self.api.call::<Value>(ApiRequest::new("DELETE", &["users", user])).await.map(drop)
    }
}
