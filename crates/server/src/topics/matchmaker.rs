//! The matchmaker's callback: a subscription to the topic of parties, kept in sync with the configuration. It is
//! delivered, retried and shown like any other. Must hold: soon after the start of any node, the subscription is as
//! configured.

use super::{SERVER_OWNER, TopicsApi, policy, settings};
use crate::webhook::SigningSecret;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::topic::PARTIES;
use tavern_hub::topics::{SubscriptionChange, TopicCaller, TopicCommand};
use tavern_wire::error::{Code, Refusal};

const NAME: &str = "matchmaker";
/// The first backoff after the store did not answer; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Creates, changes or deletes the subscription, until it is as configured.
pub async fn arrange(api: Arc<TopicsApi>) {
    let mut pause = PAUSE;
    loop {
        match settle(&api).await {
            Ok(()) => return,
            Err(refusal) if !refusal.code.retry() => {
                return tracing::error!(%refusal, "cannot use parties.matchmaker_url");
            }
            Err(refusal) => tracing::warn!(%refusal, "cannot update the matchmaker subscription; retrying"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

async fn settle(api: &TopicsApi) -> Result<(), Refusal> {
    let parties = &api.config.parties;
    let caller = TopicCaller { id: SERVER_OWNER.into(), admin: false };
    let Some(url) = &parties.matchmaker_url else {
        let delete = TopicCommand::DeleteSubscription { name: NAME.into() };
        return match api.run(&caller, delete).await {
            // There is none, or another key owns a subscription of this name.
            Err(refusal) if matches!(refusal.code, Code::NotFound | Code::NotAllowed) => Ok(()),
            outcome => outcome.map(drop),
        };
    };
    let change = SubscriptionChange {
        topics: Some(vec![PARTIES.into()]),
        callback: Some(url.as_str().into()),
        // Players wait for every ticket: send it at once.
        timeout_ms: Some(0),
        max_events: Some(100),
        secret: parties.matchmaker_secret.as_ref().map(|secret| secret.expose().to_owned()),
        spare_secret: SigningSecret::generate().expose(),
        ..SubscriptionChange::default()
    };
    settings::check(&change, &policy(&api.config))?;
    let put = TopicCommand::PutSubscription { name: NAME.into(), change: Box::new(change) };
    api.run(&caller, put).await.map(drop)
}
