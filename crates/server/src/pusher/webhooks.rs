//! The webhooks of the apps. Each is a subscription of the server's own with a topic of its own, so that its events are stored,
//! ordered and retried as those of every topic. Members and channels in use are appended in the commit of the presence that
//! causes them; everything else by `WebhookQueue`.
//! Must hold: a topic gets only what its webhook wants; the secret of an app is not stored.

use crate::config::PusherAppTable;
use crate::random::random_bits;
use crate::topics::{BodySigner, SERVER_OWNER, TopicsApi, policy, settings};
use crate::webhook::SigningSecret;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_domain::topic::PUSHER;
use tavern_hub::PresenceObserver;
use tavern_hub::topics::{SubscriptionChange, TopicCaller, TopicCommand, TopicReply};
use tavern_pusher::{
    PusherApp, WEBHOOK_KEY, WEBHOOK_SIGNATURE, WebhookEvent, WebhookFilter, WebhookKind, md5_hex,
};
use tavern_store::{Append, Clock, Commit, PresenceKey};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{BatchFormat, stored};
use tokio::sync::mpsc;

/// Events are collected for this long before they are posted together.
const BATCH_MS: u64 = 300;
const BATCH_EVENTS: u64 = 100;
/// Events that wait for their commit; who has more waits.
const QUEUE: usize = 1_024;
/// Events of one commit.
const COMMIT: usize = 100;
/// The backoff while the store does not answer; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
const PAGE: u32 = 100;

/// The apps with their webhooks, by the ids of the apps.
pub struct AppWebhooks(BTreeMap<Box<str>, (Arc<PusherApp>, Vec<AppWebhook>)>);

struct AppWebhook {
    /// The name of the subscription.
    name: Arc<str>,
    topic: Arc<str>,
    url: Arc<str>,
    filter: WebhookFilter,
}

impl AppWebhooks {
    pub fn new(apps: &[Arc<PusherApp>], tables: &[PusherAppTable]) -> Arc<AppWebhooks> {
        let of_app = |(app, table): (&Arc<PusherApp>, &PusherAppTable)| {
            let webhooks = table.webhooks.iter().map(|webhook| {
                // The same address is the same subscription, wherever it is in the configuration.
                let digest = &md5_hex(webhook.url.as_bytes())[..12];
                AppWebhook {
                    name: format!("pusher-{}-{digest}", app.id).into(),
                    topic: format!("{PUSHER}{}.{digest}", app.id).into(),
                    url: webhook.url.as_str().into(),
                    filter: WebhookFilter {
                        kinds: webhook.events.iter().filter_map(|name| WebhookKind::parse(name)).collect(),
                        channel_prefix: webhook.channel_prefix.as_str().into(),
                    },
                }
            });
            (app.id.clone(), (app.clone(), webhooks.collect()))
        };
        Arc::new(AppWebhooks(apps.iter().zip(tables).map(of_app).collect()))
    }

    pub fn wants(&self, app: &PusherApp, kind: WebhookKind, channel: &str) -> bool {
        self.of(app).iter().any(|webhook| webhook.filter.wants(kind, channel))
    }

    fn of(&self, app: &PusherApp) -> &[AppWebhook] {
        self.0.get(&app.id).map_or(&[], |(_, webhooks)| webhooks)
    }

    /// The app of a channel in Tavern, if it has webhooks.
    fn app_of(&self, channel: &str) -> Option<&(Arc<PusherApp>, Vec<AppWebhook>)> {
        let kind = channel.split_once('#')?.0.strip_prefix("pusher-")?;
        let id = kind.split_once('-').map_or(kind, |(id, _)| id);
        self.0.get(id).filter(|(_, webhooks)| !webhooks.is_empty())
    }

    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    fn all(&self) -> impl Iterator<Item = &AppWebhook> {
        self.0.values().flat_map(|(_, webhooks)| webhooks)
    }

    fn appends(&self, app: &PusherApp, event: &WebhookEvent<'_>, now: Time) -> Vec<Append> {
        let wanted = self.of(app).iter().filter(|webhook| webhook.filter.wants(event.name, &event.channel));
        let append = |webhook: &AppWebhook| Append {
            topic: webhook.topic.clone(),
            id: None,
            body: stored(event.name.as_str(), None, now.ms(), &event.write()).into(),
        };
        wanted.map(append).collect()
    }
}

/// What the hub and the sender of batches see of the webhooks.
pub struct WebhookView(pub Arc<AppWebhooks>);

impl PresenceObserver for WebhookView {
    fn appends(&self, key: &PresenceKey, online: bool, now: Time) -> Vec<Append> {
        let Some((app, _)) = self.0.app_of(&key.channel) else { return Vec::new() };
        let event = WebhookEvent::of_presence(app, &key.channel, &key.user, online);
        event.map_or_else(Vec::new, |event| self.0.appends(app, &event, now))
    }

    fn topics(&self, channel: &str) -> Vec<Arc<str>> {
        let webhooks = self.0.app_of(channel).map_or(&[][..], |(_, webhooks)| webhooks);
        webhooks.iter().map(|webhook| webhook.topic.clone()).collect()
    }
}

impl BodySigner for WebhookView {
    fn headers(&self, subscription: &str, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
        let is_its = |webhook: &AppWebhook| *webhook.name == *subscription;
        let own = self.0.0.values().find(|(_, webhooks)| webhooks.iter().any(is_its));
        let Some((app, _)) = own else { return Vec::new() };
        let signature = app.sign(&String::from_utf8_lossy(body));
        let header = |name, value: String| {
            let value = HeaderValue::from_maybe_shared(Bytes::from(value)).ok()?;
            Some((HeaderName::from_static(name), value))
        };
        [header(WEBHOOK_KEY, app.key.to_string()), header(WEBHOOK_SIGNATURE, signature)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Events that no presence causes, on their way into the log.
pub struct WebhookQueue {
    webhooks: Arc<AppWebhooks>,
    topics: Arc<TopicsApi>,
    events: mpsc::Sender<Append>,
}

impl WebhookQueue {
    pub fn new(webhooks: Arc<AppWebhooks>, topics: Arc<TopicsApi>) -> (WebhookQueue, mpsc::Receiver<Append>) {
        let (events, waiting) = mpsc::channel(QUEUE);
        (WebhookQueue { webhooks, topics, events }, waiting)
    }

    /// Waits while the queue is full.
    pub async fn put(&self, app: &PusherApp, event: &WebhookEvent<'_>) {
        for append in self.webhooks.appends(app, event, self.topics.clock.now()) {
            // A commit that is tried again adds it once.
            let id = Some(format!("{:032x}", random_bits()).into());
            // Without a receiver the server has stopped.
            let _ = self.events.send(Append { id, ..append }).await;
        }
    }

    pub fn wants(&self, app: &PusherApp, kind: WebhookKind, channel: &str) -> bool {
        self.webhooks.wants(app, kind, channel)
    }
}

/// Commits what is in the queue, in order, however long the store takes.
pub async fn commit(mut waiting: mpsc::Receiver<Append>, topics: Arc<TopicsApi>) {
    let mut appends = Vec::new();
    while waiting.recv_many(&mut appends, COMMIT).await > 0 {
        let grown: BTreeSet<Arc<str>> = appends.iter().map(|append| append.topic.clone()).collect();
        let mut pause = PAUSE;
        while let Err(error) =
            topics.store.commit(Commit { appends: appends.clone(), ..Commit::default() }).await
        {
            tracing::warn!(%error, events = appends.len(), "cannot store webhook events; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
        appends.clear();
        grown.into_iter().for_each(|topic| topics.wakeups.published(topic));
    }
    // A task of the supervisor must not end.
    std::future::pending().await
}

/// Creates, changes and deletes the subscriptions, until they are as configured.
pub async fn arrange(webhooks: Arc<AppWebhooks>, topics: Arc<TopicsApi>) {
    let mut pause = PAUSE;
    loop {
        match settle(&webhooks, &topics).await {
            Ok(()) => return,
            Err(refusal) if !refusal.code.retry() => {
                return tracing::error!(%refusal, "cannot use the webhooks of [[pusher.apps]]");
            }
            Err(refusal) => tracing::warn!(%refusal, "cannot update the webhook subscriptions; retrying"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

async fn settle(webhooks: &AppWebhooks, topics: &TopicsApi) -> Result<(), Refusal> {
    let caller = TopicCaller { id: SERVER_OWNER.into(), admin: false };
    for webhook in webhooks.all() {
        let change = SubscriptionChange {
            topics: Some(vec![webhook.topic.clone()]),
            callback: Some(webhook.url.clone()),
            timeout_ms: Some(BATCH_MS),
            max_events: Some(BATCH_EVENTS),
            format: Some(BatchFormat::Pusher),
            spare_secret: SigningSecret::generate().expose(),
            ..SubscriptionChange::default()
        };
        settings::check(&change, &policy(&topics.config))?;
        let put = TopicCommand::PutSubscription { name: webhook.name.clone(), change: Box::new(change) };
        topics.run(&caller, put).await?;
    }
    for name in former(webhooks, topics, &caller).await? {
        let delete = TopicCommand::DeleteSubscription { name };
        match topics.run(&caller, delete).await {
            // Another server has deleted it.
            Err(refusal) if refusal.code == Code::NotFound => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

/// The subscriptions of webhooks that are no longer configured.
async fn former(
    webhooks: &AppWebhooks,
    topics: &TopicsApi,
    caller: &TopicCaller,
) -> Result<Vec<Arc<str>>, Refusal> {
    let configured: BTreeSet<&str> = webhooks.all().map(|webhook| &*webhook.name).collect();
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let list = TopicCommand::ListSubscriptions { after, limit: PAGE };
        let TopicReply::Subscriptions { subscriptions, next } = topics.run(caller, list).await? else {
            return Ok(found);
        };
        let own = subscriptions.iter().map(|state| &state.subscription);
        let own = own.filter(|own| own.format == BatchFormat::Pusher && !configured.contains(&*own.name));
        found.extend(own.map(|own| own.name.clone()));
        match next {
            Some(next) => after = next.to_string(),
            None => return Ok(found),
        }
    }
}
