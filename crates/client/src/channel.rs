//! Handles for a channel (messages, presence, joining) and for a pattern of channels.

use crate::Error;
use crate::event::{Events, Message, Messages};
use crate::history::{ChannelPosition, HistoryQuery, PastMessages, PublishReceipt, SubscribeFrom};
use crate::presence::Members;
use crate::presence_map::PresenceMap;
use crate::shared::{Handle, OnSuccess, lock};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Users of one page: few enough that their states fit into one answer.
const WHO_PAGE: u64 = 100;

/// One channel.
#[derive(Clone)]
pub struct Channel {
    handle: Handle,
    name: String,
}

impl Channel {
    pub(crate) fn new(handle: Handle, name: String) -> Channel {
        Channel { handle, name }
    }

    /// The name of the channel.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn members(&self) -> Value {
        json!({"channel": self.name})
    }

    /// Subscribes: [`Channel::messages`] yields messages from the return of this call on.
    pub async fn subscribe(&self) -> Result<(), Error> {
        let on_success = OnSuccess::Subscribe { channel: self.name.clone(), watch: false };
        self.handle.ask("subscribe", self.members(), true, on_success).await.map(drop)
    }

    /// Subscribes to a channel with history: the last messages come first, or those after a position. After a lost session the
    /// client asks for what it missed by itself.
    ///
    /// ```no_run
    /// # async fn example(client: tavern_client::Client) -> Result<(), tavern_client::Error> {
    /// use tavern_client::SubscribeFrom;
    ///
    /// let room = client.channel("chat#lobby");
    /// let mut messages = room.messages();
    /// room.subscribe_from(SubscribeFrom::Last(50)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subscribe_from(&self, from: SubscribeFrom) -> Result<(), Error> {
        let mut members = self.members();
        match from {
            SubscribeFrom::Last(count) => members["last"] = json!(count),
            SubscribeFrom::Since(position) => members["since"] = json!(position),
        }
        let known = self.handle.shared.with_cursor(&self.name, |cursor| {
            cursor.awaited = true;
            cursor.position.take()
        });
        let on_success = OnSuccess::Subscribe { channel: self.name.clone(), watch: false };
        let subscribed = self.handle.ask("subscribe", members, true, on_success).await;
        if subscribed.is_err() {
            self.handle.shared.with_cursor(&self.name, |cursor| {
                cursor.awaited = false;
                cursor.position = cursor.position.or(known);
            });
        }
        subscribed.map(drop)
    }

    /// Where this client is in the history of the channel: the last message that it got. None: the channel keeps none.
    pub fn position(&self) -> Option<ChannelPosition> {
        self.handle.shared.with_cursor(&self.name, |cursor| cursor.position)
    }

    /// A part of the history of the channel.
    pub async fn history(&self, query: HistoryQuery) -> Result<PastMessages, Error> {
        let mut members = self.members();
        let given = [("after", query.after), ("before", query.before), ("limit", query.limit)];
        for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            members[name] = json!(value);
        }
        let page = self.handle.ask("history", members, true, OnSuccess::Nothing).await?;
        serde_json::from_value(page).map_err(Error::unexpected)
    }

    /// Ends the subscription.
    pub async fn unsubscribe(&self) -> Result<(), Error> {
        let on_success = OnSuccess::Unsubscribe { channel: self.name.clone() };
        self.handle.ask("unsubscribe", self.members(), true, on_success).await.map(drop)
    }

    /// The messages from now on. Call `subscribe` as well.
    pub fn messages(&self) -> Messages {
        let (shared, name) = (self.handle.shared.clone(), self.name.clone());
        let events = Events::new(shared.events.subscribe());
        Messages::new(events, move |message: &Message| message.channel == shared.actual(&name))
    }

    /// Publishes a message. Returns how many subscriptions on the server's node received it. The error `unknown_outcome` means that the
    /// connection was lost before the answer: publishing is not retried.
    pub async fn publish(&self, data: impl Serialize) -> Result<u64, Error> {
        Ok(self.publish_with(self.members(), data, false).await?.receivers)
    }

    /// Publishes a message with an id to a channel with history: it is retried after a lost connection, and published once.
    pub async fn publish_once(&self, id: &str, data: impl Serialize) -> Result<PublishReceipt, Error> {
        let mut members = self.members();
        members["message_id"] = json!(id);
        self.publish_with(members, data, true).await
    }

    /// Publishes a message and keeps it as the last value of a channel without history: a new subscriber that asks for the last
    /// message gets it. Not retried, like [`Channel::publish`].
    pub async fn publish_retained(&self, data: impl Serialize) -> Result<PublishReceipt, Error> {
        let mut members = self.members();
        members["retain"] = json!(true);
        self.publish_with(members, data, false).await
    }

    async fn publish_with(
        &self,
        members: Value,
        data: impl Serialize,
        safe: bool,
    ) -> Result<PublishReceipt, Error> {
        let data = serde_json::value::to_raw_value(&data);
        let data = data.map_err(Error::unsendable)?;
        let ok =
            self.handle.ask_with("publish", members, Some(data.into()), safe, OnSuccess::Nothing).await?;
        Ok(PublishReceipt {
            receivers: ok["receivers"].as_u64().unwrap_or(0),
            position: ChannelPosition::of(&ok),
            duplicate: ok["duplicate"] == true,
        })
    }

    /// Joins the channel: the user is present, with this state.
    pub async fn join(&self, state: impl Serialize) -> Result<(), Error> {
        let state = value(state)?;
        let mut members = self.members();
        members["state"] = state.clone();
        let on_success = OnSuccess::Join { channel: self.name.clone(), state: Some(state) };
        self.handle.ask("join", members, true, on_success).await.map(drop)
    }

    /// Replaces the state of this client's presence.
    pub async fn update(&self, state: impl Serialize) -> Result<(), Error> {
        let state = value(state)?;
        let mut members = self.members();
        members["state"] = state.clone();
        let on_success = OnSuccess::Update { channel: self.name.clone(), state };
        self.handle.ask("update", members, true, on_success).await.map(drop)
    }

    /// Leaves the channel: this session is no longer present.
    pub async fn leave(&self) -> Result<(), Error> {
        let on_success = OnSuccess::Leave { channel: self.name.clone() };
        self.handle.ask("leave", self.members(), true, on_success).await.map(drop)
    }

    /// Who is here now, all pages.
    ///
    /// ```no_run
    /// # async fn example(client: tavern_client::Client) -> Result<(), tavern_client::Error> {
    /// for member in client.channel("game#1").who().await?.users {
    ///     println!("{:?} since {}", member.user, member.since);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn who(&self) -> Result<Members, Error> {
        let mut members = self.who_page(None).await?;
        while let Some(after) = members.next.take() {
            members.append(self.who_page(Some(after)).await?);
        }
        Ok(members)
    }

    async fn who_page(&self, after: Option<String>) -> Result<Members, Error> {
        let mut members = self.members();
        members["limit"] = json!(WHO_PAGE);
        if let Some(after) = after {
            members["after"] = json!(after);
        }
        let page = self.handle.ask("who", members, true, OnSuccess::Nothing).await?;
        serde_json::from_value(page).map_err(Error::unexpected)
    }

    /// The live map of who is here. The first call subscribes to the channel with presence.
    pub async fn presence(&self) -> Result<LivePresence, Error> {
        let live = self.handle.shared.live(&self.name);
        if !lock(&live.map).is_synced() {
            let mut members = self.members();
            members["presence"] = json!(true);
            let on_success = OnSuccess::Subscribe { channel: self.name.clone(), watch: true };
            self.handle.ask("subscribe", members, true, on_success).await?;
        }
        let changes = live.changes.subscribe();
        Ok(LivePresence { map: live.map.clone(), changes })
    }
}

fn value(data: impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(data).map_err(Error::unsendable)
}

/// A live map of who is in a channel; clones share it.
#[derive(Clone)]
pub struct LivePresence {
    map: Arc<Mutex<PresenceMap>>,
    changes: watch::Receiver<u64>,
}

impl LivePresence {
    /// Reads the map under its lock; keep it short.
    pub fn look<T>(&self, at: impl FnOnce(&PresenceMap) -> T) -> T {
        at(&lock(&self.map))
    }

    /// A copy of the map as it is now.
    pub fn snapshot(&self) -> PresenceMap {
        self.look(PresenceMap::clone)
    }

    /// Waits until the map has changed since the last call. False: the client was dropped.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

/// All channels that match a glob.
#[derive(Clone)]
pub struct Pattern {
    handle: Handle,
    glob: String,
}

impl Pattern {
    pub(crate) fn new(handle: Handle, glob: String) -> Pattern {
        Pattern { handle, glob }
    }

    /// Subscribes to all matching channels.
    pub async fn subscribe(&self) -> Result<(), Error> {
        self.want("subscribe", true).await
    }

    /// Ends the subscription.
    pub async fn unsubscribe(&self) -> Result<(), Error> {
        self.want("unsubscribe", false).await
    }

    async fn want(&self, op: &str, wanted: bool) -> Result<(), Error> {
        let on_success = OnSuccess::Pattern { pattern: self.glob.clone(), wanted };
        self.handle.ask(op, json!({"pattern": self.glob}), true, on_success).await.map(drop)
    }

    /// The messages from now on. Call `subscribe` as well.
    pub fn messages(&self) -> Messages {
        let glob = self.glob.clone();
        let events = Events::new(self.handle.shared.events.subscribe());
        Messages::new(events, move |message| {
            crate::glob::matches(glob.as_bytes(), message.channel.as_bytes())
        })
    }
}
