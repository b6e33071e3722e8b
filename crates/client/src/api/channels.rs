//! Channels for a service: publish messages, read who is present, the history. Scopes `publish`, `presence` and `admin`.

use super::{ApiChannels, ApiRequest, PAGE};
use crate::{Error, HistoryQuery, Members, PastMessages};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct NewMessage<T> {
    data: T,
}

#[derive(Deserialize)]
struct MessagePublished {
    receivers: u64,
}

/// What became of one message of many.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Published {
    /// The channel.
    pub channel: String,
    /// Subscriptions on the server's node that received it; None if it was refused.
    pub receivers: Option<u64>,
    /// The offset in the history of the channel, if it has one.
    pub offset: Option<u64>,
    /// Why it was refused: the code and the message.
    pub error: Option<PublishRefusal>,
}

/// Why one message of many was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PublishRefusal {
    /// The code, as in [`Error`].
    pub code: String,
    /// For people.
    pub message: String,
}

#[derive(Deserialize)]
struct ManyPublished {
    results: Vec<Published>,
}

#[derive(Serialize)]
struct Broadcast<'a, T> {
    channels: &'a [&'a str],
    data: T,
}

#[derive(Serialize)]
struct ChannelMessage<'a, T> {
    channel: &'a str,
    data: &'a T,
}

#[derive(Serialize)]
struct ManyMessages<'a, T> {
    messages: Vec<ChannelMessage<'a, T>>,
}

impl ApiChannels<'_> {
    /// Publishes a message. Returns how many subscriptions on the server's node received it. `data` is sent as it serializes: give a
    /// [`RawValue`](serde_json::value::RawValue) to send JSON byte for byte.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// let receivers = api.channels().publish("game#1", "hello").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish(&self, channel: &str, data: impl Serialize) -> Result<u64, Error> {
        let path = ["channels", channel, "messages"];
        let published: MessagePublished =
            self.api.call(ApiRequest::new("POST", &path).body(&NewMessage { data })?).await?;
        Ok(published.receivers)
    }

    /// Who is in a channel, all pages.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// for member in api.channels().presence("game#1").await?.users {
    ///     println!("{:?} with {} clients", member.user, member.clients.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn presence(&self, channel: &str) -> Result<Members, Error> {
        let path = ["channels", channel, "presence"];
        let page = || ApiRequest::new("GET", &path).query("limit", PAGE);
        let mut members: Members = self.api.call(page()).await?;
        while let Some(after) = members.next.take() {
            members.append(self.api.call(page().query("after", after)).await?);
        }
        Ok(members)
    }

    /// A part of the history of a channel. Scope `admin`.
    pub async fn history(&self, channel: &str, query: HistoryQuery) -> Result<PastMessages, Error> {
        let path = ["channels", channel, "history"];
        let mut request = ApiRequest::new("GET", &path);
        let given = [("after", query.after), ("before", query.before), ("limit", query.limit)];
        for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            request = request.query(name, value);
        }
        self.api.call(request).await
    }

    /// Removes the history of a channel. Scope `admin`.
    pub async fn clear_history(&self, channel: &str) -> Result<(), Error> {
        let _: serde_json::Value =
            self.api.call(ApiRequest::new("DELETE", &["channels", channel, "history"])).await?;
        Ok(())
    }

    /// Publishes the same data to several channels, at most 1000. The results are in their order.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// for result in api.channels().broadcast(&["game#1", "game#2"], "server restarts at noon").await? {
    ///     println!("{}: {:?}", result.channel, result.receivers);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn broadcast(&self, channels: &[&str], data: impl Serialize) -> Result<Vec<Published>, Error> {
        let request = ApiRequest::new("POST", &["broadcast"]).body(&Broadcast { channels, data })?;
        self.api.call(request).await.map(|many: ManyPublished| many.results)
    }

    /// Publishes several messages, at most 1000. The results are in their order.
    pub async fn publish_many<T: Serialize>(&self, messages: &[(&str, T)]) -> Result<Vec<Published>, Error> {
        let messages = messages.iter().map(|(channel, data)| ChannelMessage { channel, data }).collect();
        let request = ApiRequest::new("POST", &["publish"]).body(&ManyMessages { messages })?;
        self.api.call(request).await.map(|many: ManyPublished| many.results)
    }
}
