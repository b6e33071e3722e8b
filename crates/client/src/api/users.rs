//! Users for a service: status, channels, follows, visibility, inbox. Scope `presence`.

use super::{ApiRequest, ApiUsers};
use crate::presence::Activity;
use crate::{Error, Visibility};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A user in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserSummary {
    /// The user id.
    pub user: String,
    /// The display name.
    pub name: Option<String>,
    /// Whether the user is online.
    pub online: bool,
    /// All clients are lost, and the grace period is running.
    pub leaving: bool,
    /// Milliseconds since 1970.
    pub last_seen: Option<u64>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A page of users.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct UserPage {
    /// By id.
    pub users: Vec<UserSummary>,
    /// The next page is after this user; None: this is the last page.
    pub next: Option<String>,
}

/// A user's channels, and why they count as online or offline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserReport {
    /// The user id.
    pub user: String,
    /// Whether the user is online.
    pub online: bool,
    /// All clients are lost, and the grace period is running.
    pub leaving: bool,
    /// The reason, for people.
    pub why: String,
    /// The user's activities.
    pub activities: Vec<Activity>,
    /// The channels the user is in.
    pub channels: Vec<UserChannel>,
    /// Milliseconds since 1970.
    pub last_seen: Option<u64>,
    /// Who sees the user.
    pub visibility: String,
    /// The user cannot connect.
    pub banned: bool,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A channel that a user is in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserChannel {
    /// The channel.
    pub channel: String,
    /// Milliseconds since 1970.
    pub since: u64,
    /// All clients are lost, and the grace period is running.
    pub leaving: bool,
    /// The clients of the user in the channel.
    pub clients: Vec<UserClient>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A client of a user in a channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserClient {
    /// The public id of the client.
    pub client: String,
    /// The node that has its session.
    pub node: String,
    /// Milliseconds since 1970.
    pub since: u64,
    /// Its presence state.
    pub state: Value,
    /// When its connection was lost; it counts until its grace period ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<u64>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ApiUsers<'_> {
    /// One page of the users who are online or known, by id: those that begin with `prefix`, after the user `after`.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// let page = api.users().list("an", None).await?;
    /// let online = page.users.iter().filter(|user| user.online).count();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(&self, prefix: &str, after: Option<&str>) -> Result<UserPage, Error> {
        let mut request = ApiRequest::new("GET", &["users"]).query("prefix", prefix);
        if let Some(after) = after {
            request = request.query("after", after);
        }
        self.api.call(request).await
    }

    /// A user's channels, and why they count as online or offline.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// let ann = api.users().get("ann").await?;
    /// println!("{} is {}: {}", ann.user, if ann.online { "online" } else { "offline" }, ann.why);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(&self, user: &str) -> Result<UserReport, Error> {
        self.api.call(ApiRequest::new("GET", &["users", user])).await
    }

    /// Whom a user follows, all pages.
    pub async fn following(&self, user: &str) -> Result<Vec<String>, Error> {
        self.api.list(&["users", user, "following"], "users").await
    }

    /// Who follows a user, all pages.
    pub async fn followers(&self, user: &str) -> Result<Vec<String>, Error> {
        self.api.list(&["users", user, "followers"], "users").await
    }

    /// Makes one user follow another.
    pub async fn follow(&self, follower: &str, followee: &str) -> Result<(), Error> {
        let path = ["users", follower, "following", followee];
        self.api.call::<Value>(ApiRequest::new("PUT", &path)).await.map(drop)
    }

    /// Makes one user no longer follow another.
    pub async fn unfollow(&self, follower: &str, followee: &str) -> Result<(), Error> {
        let path = ["users", follower, "following", followee];
        self.api.call::<Value>(ApiRequest::new("DELETE", &path)).await.map(drop)
    }

    /// Sets who sees a user.
    pub async fn set_visibility(&self, user: &str, visibility: Visibility) -> Result<(), Error> {
        let path = ["users", user, "visibility"];
        let request = ApiRequest::new("PUT", &path).body(&json!({"value": visibility.as_str()}))?;
        self.api.call::<Value>(request).await.map(drop)
    }

    /// Puts a message into a user's inbox; it waits there until one of their sessions has acknowledged it. Scope `publish`.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// api.users().send_to_inbox("ann", serde_json::json!({"gift": 5})).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_to_inbox(&self, user: &str, data: impl Serialize) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<T> {
            data: T,
        }
        let path = ["users", user, "messages"];
        self.api.call::<Value>(ApiRequest::new("POST", &path).body(&Body { data })?).await.map(drop)
    }
}
