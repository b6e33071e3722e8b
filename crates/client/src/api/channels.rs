//! Channels for a service: publish a message, read who is present. Scopes `publish` and `presence`.

use super::{Api, ApiRequest, PAGE};
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

impl Api {
    /// Publishes a message. Returns how many subscriptions on the server's node received it. `data` is sent as it serializes: give a
    /// [`RawValue`](serde_json::value::RawValue) to send JSON byte for byte.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// let receivers = api.publish("game#1", "hello").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish(&self, channel: &str, data: impl Serialize) -> Result<u64, Error> {
        let path = ["channels", channel, "messages"];
        let published: MessagePublished =
            self.call(ApiRequest::new("POST", &path).body(&NewMessage { data })?).await?;
        Ok(published.receivers)
    }

    /// A part of the history of a channel. Scope `admin`.
    pub async fn history(&self, channel: &str, query: HistoryQuery) -> Result<PastMessages, Error> {
        let path = ["channels", channel, "history"];
        let mut request = ApiRequest::new("GET", &path);
        let given = [("after", query.after), ("before", query.before), ("limit", query.limit)];
        for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            request = request.query(name, value);
        }
        self.call(request).await
    }

    /// Removes the history of a channel. Scope `admin`.
    pub async fn clear_history(&self, channel: &str) -> Result<(), Error> {
        let _: serde_json::Value =
            self.call(ApiRequest::new("DELETE", &["channels", channel, "history"])).await?;
        Ok(())
    }

    /// Who is in a channel, all pages.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// for member in api.presence("game#1").await?.users {
    ///     println!("{:?} with {} clients", member.user, member.clients.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn presence(&self, channel: &str) -> Result<Members, Error> {
        let path = ["channels", channel, "presence"];
        let page = || ApiRequest::new("GET", &path).query("limit", PAGE);
        let mut members: Members = self.call(page()).await?;
        while let Some(after) = members.next.take() {
            members.append(self.call(page().query("after", after)).await?);
        }
        Ok(members)
    }
}
