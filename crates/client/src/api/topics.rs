//! Topics: publish durable events, list topics. Scopes `events` and `subscriptions`.

use super::{ApiRequest, ApiTopics};
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An event to publish.
///
/// ```
/// let event = tavern_client::NewEvent::new("create").about("https://shop.example/orders/7").id("order-7");
/// assert_eq!(
///     serde_json::to_string(&event).unwrap(),
///     r#"{"type":"create","url":"https://shop.example/orders/7","id":"order-7"}"#
/// );
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct NewEvent {
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

impl NewEvent {
    /// An event of this type, such as `create`.
    pub fn new(kind: impl Into<String>) -> NewEvent {
        NewEvent { r#type: kind.into(), url: None, id: None, data: None }
    }

    /// The URL of the object that the event is about.
    pub fn about(mut self, url: impl Into<String>) -> NewEvent {
        self.url = Some(url.into());
        self
    }

    /// The publisher's id of the event: events with the same id are accepted once (dedupe).
    pub fn id(mut self, id: impl Into<String>) -> NewEvent {
        self.id = Some(id.into());
        self
    }

    /// Any JSON, sent as it serializes.
    pub fn data(mut self, data: impl Serialize) -> Result<NewEvent, Error> {
        let data = serde_json::value::to_raw_value(&data);
        self.data = Some(data.map_err(Error::unsendable)?);
        Ok(self)
    }
}

/// The result of publishing events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsPublished {
    /// The topic.
    pub topic: String,
    /// The numbers of the events in the topic.
    pub first_seq: u64,
    /// The number of the last event.
    pub last_seq: u64,
    /// Events that were accepted.
    pub accepted: u64,
    /// Duplicates: events whose id was already in the topic.
    pub duplicates: u64,
}

/// A topic in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topic {
    /// The topic.
    pub topic: String,
    /// The id of the API key that may publish to it.
    pub publisher: Option<String>,
    /// Events published so far.
    pub events: u64,
    /// Subscriptions to it.
    pub subscriptions: u64,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ApiTopics<'_> {
    /// Publishes one event to a topic; it is stored when this returns.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// use tavern_client::NewEvent;
    ///
    /// let event = NewEvent::new("create").id("order-7").data(serde_json::json!({"total": 5}))?;
    /// let published = api.topics().publish("orders", &event).await?;
    /// println!("number {} of the topic", published.last_seq);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish(&self, topic: &str, event: &NewEvent) -> Result<EventsPublished, Error> {
        self.api.call(ApiRequest::new("POST", &["topics", topic, "events"]).body(event)?).await
    }

    /// All topics.
    pub async fn list(&self) -> Result<Vec<Topic>, Error> {
        self.api.list(&["topics"], "topics").await
    }

    /// The stored events of a topic, the oldest first. `after` is the `seq` of the last known event, or 0.
    /// Returns the events as the server wrote them, and the `after` of the next page.
    pub async fn browse(
        &self,
        topic: &str,
        after: u64,
        limit: u64,
    ) -> Result<(Vec<Box<RawValue>>, Option<u64>), Error> {
        #[derive(Deserialize)]
        struct BrowsedEvents {
            events: Vec<Box<RawValue>>,
            next: Option<String>,
        }
        let path = ["topics", topic, "events"];
        let request = ApiRequest::new("GET", &path).query("after", after).query("limit", limit);
        let page: BrowsedEvents = self.api.call(request).await?;
        Ok((page.events, page.next.and_then(|next| next.parse().ok())))
    }

    /// Deletes a topic that this key publishes to.
    pub async fn delete(&self, topic: &str) -> Result<(), Error> {
        self.api.call::<Value>(ApiRequest::new("DELETE", &["topics", topic])).await.map(drop)
    }
}
