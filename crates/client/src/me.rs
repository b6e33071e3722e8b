//! The user of a session: follows, statuses, visibility. Statuses and inbox messages arrive as events.

use crate::Error;
use crate::presence::Status;
use crate::shared::{Handle, OnSuccess};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The user of a session: follows, statuses, visibility.
pub struct Me {
    handle: Handle,
}

/// Who sees a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Everyone sees the user.
    Everyone,
    /// Only followers whom the user follows back.
    FollowersIFollow,
    /// The user looks offline to everyone.
    Nobody,
}

impl Visibility {
    /// The value as the protocol writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Visibility::Everyone => "everyone",
            Visibility::FollowersIFollow => "followers_i_follow",
            Visibility::Nobody => "nobody",
        }
    }
}

impl Me {
    pub(crate) fn new(handle: Handle) -> Me {
        Me { handle }
    }

    /// The user of the session; None: anonymous.
    pub fn user(&self) -> Option<String> {
        self.handle.shared.view().user.clone()
    }

    /// The public id of this session.
    pub fn client(&self) -> Option<String> {
        self.handle.shared.view().client.clone()
    }

    async fn ask(&self, op: &str, members: Value) -> Result<Value, Error> {
        self.handle.ask(op, members, true, OnSuccess::Nothing).await
    }

    /// The statuses of up to 100 users, in the requested order.
    pub async fn status<'a>(&self, users: impl IntoIterator<Item = &'a str>) -> Result<Vec<Status>, Error> {
        let users: Vec<&str> = users.into_iter().collect();
        let mut ok = self.ask("status", json!({"users": users})).await?;
        serde_json::from_value(ok["statuses"].take()).map_err(Error::unexpected)
    }

    /// The statuses of followed users that are known so far, by user; they are kept up to date. With
    /// [`Builder::statuses`](crate::Builder::statuses) those of all are known.
    pub fn statuses(&self) -> BTreeMap<String, Status> {
        self.handle.shared.statuses.borrow().clone()
    }

    /// Requests [`Event::Statuses`](crate::Event::Statuses): the statuses of all followed users.
    pub async fn request_statuses(&self) -> Result<(), Error> {
        self.ask("hello", json!({"status": true})).await.map(drop)
    }

    /// Follows a user.
    pub async fn follow(&self, user: &str) -> Result<(), Error> {
        self.ask("follow", json!({"user": user})).await.map(drop)
    }

    /// No longer follows a user.
    pub async fn unfollow(&self, user: &str) -> Result<(), Error> {
        let on_success = OnSuccess::Unfollow { user: user.to_owned() };
        self.handle.ask("unfollow", json!({"user": user}), true, on_success).await.map(drop)
    }

    /// Whom the user follows, all pages.
    pub async fn following(&self) -> Result<Vec<String>, Error> {
        self.pages("following").await
    }

    /// Who follows the user, all pages.
    pub async fn followers(&self) -> Result<Vec<String>, Error> {
        self.pages("followers").await
    }

    async fn pages(&self, op: &str) -> Result<Vec<String>, Error> {
        let (mut users, mut members) = (Vec::new(), json!({}));
        loop {
            let page = self.ask(op, members).await?;
            let listed = page["users"].as_array().into_iter().flatten();
            users.extend(listed.filter_map(Value::as_str).map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => members = json!({"after": next}),
                None => return Ok(users),
            }
        }
    }

    /// Sets who sees the user.
    pub async fn visibility(&self, value: Visibility) -> Result<(), Error> {
        self.ask("visibility", json!({"value": value.as_str()})).await.map(drop)
    }
}
