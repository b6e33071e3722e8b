//! Subscriptions to topics: create and change them, read their health, pull, replay, retry dead letters. Scope `subscriptions`.

use super::{ApiRequest, ApiSubscriptions};
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of a subscription. Members that are None keep their value, or get the server's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SubscriptionSettings {
    /// The topics it subscribes to; they replace the earlier ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// Where batches are posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// No callback: events are read with [`ApiSubscriptions::pull`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<bool>,
    /// How long an event may wait for others of its batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The maximum number of events in a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// The maximum size of a batch in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Bytes that may be queued; above that the oldest events become a gap. 0: no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backlog_bytes: Option<u64>,
    /// `standard` or `routemaster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Signs batches; the server generates one if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The user name of the routemaster format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Additional headers of every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Batches in flight at once; with more than 1 the order is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
}

/// A subscription as its owner sees it: settings, queue and health.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subscription {
    /// Its name.
    pub name: String,
    /// The topics it subscribes to.
    pub topics: Vec<String>,
    /// Where batches are posted.
    pub callback: Option<String>,
    /// Whether events are pulled instead of posted.
    pub pull: bool,
    /// The number of its last event.
    pub seq: u64,
    /// Events up to this number are acknowledged or dead letters.
    pub acknowledged: u64,
    /// Events that wait for delivery.
    pub queued: u64,
    /// `healthy`, `throttled`, `failing` or `disabled`.
    pub health: String,
    /// Why it is disabled.
    pub why: Option<String>,
    /// Its last attempt: time, cause and outcome.
    pub last: Option<Value>,
    /// Why the last failed attempt failed: `at` and `error`.
    pub last_error: Option<Value>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The result of [`ApiSubscriptions::put`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SubscriptionPut {
    /// False: it existed and was changed.
    pub created: bool,
    /// A secret that the server generated; it is not shown again.
    pub secret: Option<String>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Events that were pulled, as the server wrote them.
#[derive(Clone, Debug, Deserialize)]
pub struct Pulled {
    /// The events in order, each as JSON.
    pub events: Vec<Box<RawValue>>,
    /// Pass this to the next pull; it acknowledges these events.
    pub next_after: u64,
}

/// An event that an endpoint refused for good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadLetter {
    /// The number of the event for this subscription.
    pub seq: u64,
    /// The id of the event.
    pub id: String,
    /// The topic.
    pub topic: String,
    /// Milliseconds since 1970.
    pub parked_at: u64,
    /// Why delivery was given up.
    pub reason: String,
    /// The event.
    pub event: Value,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An attempt to deliver a batch to an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryAttempt {
    /// Attempts of a subscription are numbered from 1; 0: a test.
    pub number: u64,
    /// When it started, in milliseconds since 1970.
    pub at: u64,
    /// How long it took.
    pub duration_ms: u64,
    /// Scheme, host and path of the callback.
    pub url: String,
    /// `delivered`, `partly`, `gone`, `too_large`, `throttled`, `refused` or `failed`.
    pub outcome: String,
    /// The status of the response; None: there was no response.
    pub status: Option<u16>,
    /// Why it failed: `connection refused`, `timeout after 20 s`, `500 Internal Server Error`.
    pub error: Option<String>,
    /// The number of the batch.
    pub batch: u64,
    /// Events in the batch.
    pub events: u64,
    /// The number of its first event.
    pub first_seq: u64,
    /// The number of its last event.
    pub last_seq: u64,
    /// Some headers of the response.
    pub headers: BTreeMap<String, String>,
    /// The first 2 KiB of the response.
    pub body: String,
    /// What was sent.
    pub request: SentRequest,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The request of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentRequest {
    /// Its headers; values that may be credentials are hidden.
    pub headers: BTreeMap<String, String>,
    /// The size of the body.
    pub bytes: u64,
    /// The first 16 KiB of the body. None: in a list, or when its events are no longer in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Where a replay starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    /// The number of the first event.
    Seq(u64),
    /// Milliseconds since 1970.
    TimeMs(u64),
    /// A time as text: `2026-11-15T10:00:00Z`.
    Time(String),
}

/// The result of [`ApiSubscriptions::replay`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replayed {
    /// The first event that is sent again.
    pub from_seq: u64,
    /// False: there was nothing to send again.
    pub rewound: bool,
    /// Members that this version of the client does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ApiSubscriptions<'_> {
    /// All subscriptions of this key; those of all keys with the scope `admin`.
    pub async fn list(&self) -> Result<Vec<Subscription>, Error> {
        self.api.list(&["subscriptions"], "subscriptions").await
    }

    /// One subscription; the error `not_found` if it does not exist.
    pub async fn get(&self, name: &str) -> Result<Subscription, Error> {
        self.api.call(ApiRequest::new("GET", &["subscriptions", name])).await
    }

    /// Creates a subscription, or changes the given settings.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// use tavern_client::SubscriptionSettings;
    ///
    /// let settings = SubscriptionSettings {
    ///     topics: Some(vec!["orders".into()]),
    ///     callback: Some("https://mail.example/hook".into()),
    ///     pull: Some(false),
    ///     ..SubscriptionSettings::default()
    /// };
    /// if let Some(secret) = api.subscriptions().put("mail", &settings).await?.secret {
    ///     println!("check signatures with {secret}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put(&self, name: &str, settings: &SubscriptionSettings) -> Result<SubscriptionPut, Error> {
        self.api.call(ApiRequest::new("PUT", &["subscriptions", name]).body(settings)?).await
    }

    /// Deletes a subscription and its queued events.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        self.api.call::<Value>(ApiRequest::new("DELETE", &["subscriptions", name])).await.map(drop)
    }

    /// The next events of a subscription. `after` acknowledges everything through that number; without it the answer starts
    /// after the last acknowledged event. Waits up to `wait` for the first event.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// use std::time::Duration;
    ///
    /// let mut after = None;
    /// loop {
    ///     let pulled = api.subscriptions().pull("mail", after, Duration::from_secs(20), 100).await?;
    ///     for event in &pulled.events {
    ///         println!("{event}");
    ///     }
    ///     after = Some(pulled.next_after);
    /// }
    /// # }
    /// ```
    pub async fn pull(
        &self,
        name: &str,
        after: Option<u64>,
        wait: Duration,
        limit: u64,
    ) -> Result<Pulled, Error> {
        let path = ["subscriptions", name, "events"];
        let mut request =
            ApiRequest::new("GET", &path).query("wait_ms", wait.as_millis()).query("limit", limit);
        if let Some(after) = after {
            request = request.query("after", after);
        }
        request.wait = wait;
        self.api.call(request).await
    }

    /// Delivers earlier events to a subscription again.
    pub async fn replay(&self, name: &str, from: &ReplayFrom) -> Result<Replayed, Error> {
        let from = match from {
            ReplayFrom::Seq(seq) => json!({"from_seq": seq}),
            ReplayFrom::TimeMs(ms) => json!({"from_time": ms}),
            ReplayFrom::Time(text) => json!({"from_time": text}),
        };
        self.api.call(ApiRequest::new("POST", &["subscriptions", name, "replay"]).body(&from)?).await
    }

    /// Starts or stops a subscription.
    pub async fn enable(&self, name: &str, enabled: bool) -> Result<Subscription, Error> {
        let order = if enabled { "enable" } else { "disable" };
        self.api.call(ApiRequest::new("POST", &["subscriptions", name, order])).await
    }

    /// The dead letters of a subscription, all pages.
    pub async fn dead_letters(&self, name: &str) -> Result<Vec<DeadLetter>, Error> {
        self.api.list(&["subscriptions", name, "dead-letters"], "dead_letters").await
    }

    /// The last attempts to deliver to a subscription, the newest first.
    pub async fn attempts(
        &self,
        name: &str,
        failed_only: bool,
        limit: u64,
    ) -> Result<Vec<DeliveryAttempt>, Error> {
        #[derive(Deserialize)]
        struct Attempts {
            attempts: Vec<DeliveryAttempt>,
        }
        let path = ["subscriptions", name, "attempts"];
        let request = ApiRequest::new("GET", &path).query("limit", limit).query("failed", failed_only);
        self.api.call::<Attempts>(request).await.map(|found| found.attempts)
    }

    /// One of the last attempts, with the request that was sent.
    pub async fn attempt(&self, name: &str, number: u64) -> Result<DeliveryAttempt, Error> {
        let path = ["subscriptions", name, "attempts", &number.to_string()];
        self.api.call(ApiRequest::new("GET", &path)).await
    }

    /// Sends a test event to the callback of a subscription and returns what the endpoint answered.
    pub async fn test(&self, name: &str) -> Result<DeliveryAttempt, Error> {
        let path = ["subscriptions", name, "test"];
        let mut request = ApiRequest::new("POST", &path);
        // The server waits for the endpoint.
        request.wait = Duration::from_secs(60);
        self.api.call(request).await
    }

    /// Replaces the secret of a subscription and returns the new one. The old one still signs for a while.
    pub async fn rotate_secret(&self, name: &str) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Rotated {
            secret: String,
        }
        let path = ["subscriptions", name, "rotate"];
        let request = ApiRequest::new("POST", &path).body(&json!({}))?;
        self.api.call::<Rotated>(request).await.map(|rotated| rotated.secret)
    }

    /// Retries dead letters: those with these ids, or all. Returns how many.
    pub async fn retry_dead_letters(&self, name: &str, ids: &[String]) -> Result<u64, Error> {
        #[derive(Deserialize)]
        struct Retried {
            retried: u64,
            more: bool,
        }
        let path = ["subscriptions", name, "dead-letters", "retry"];
        let body = if ids.is_empty() { json!({}) } else { json!({"ids": ids}) };
        let mut total = 0;
        loop {
            let Retried { retried, more } =
                self.api.call(ApiRequest::new("POST", &path).body(&body)?).await?;
            total += retried;
            if !more || retried == 0 {
                return Ok(total);
            }
        }
    }
}
