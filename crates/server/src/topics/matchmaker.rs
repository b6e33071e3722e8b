//! The matchmaker's callback: a subscription to the topic of parties that the configuration keeps. It is delivered, retried
//! and shown like any other. Must hold: what the configuration says is so soon after the start, on whichever node it starts.

use super::{TopicsApi, policy, settings};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::topic::PARTIES;
use tavern_hub::topics::{TopicCaller, TopicCommand};
use tavern_wire::error::{Code, Refusal};

/// Its name, and its owner: no key can have such an id.
const NAME: &str = "matchmaker";
const OWNER: &str = "tavern";
/// The first pause after the store did not answer; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Makes, changes or removes the subscription, until it is as the configuration says.
pub async fn arrange(api: Arc<TopicsApi>) {
    let mut pause = PAUSE;
    loop {
        match settle(&api).await {
            Ok(()) => return,
            Err(refusal) if !refusal.code.retry() => {
                return tracing::error!(%refusal, "parties.matchmaker_url cannot be used");
            }
            Err(refusal) => tracing::warn!(%refusal, "the matchmaker is not subscribed yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

async fn settle(api: &TopicsApi) -> Result<(), Refusal> {
    let parties = &api.config.parties;
    let caller = TopicCaller { id: OWNER.into(), admin: false };
    let Some(url) = &parties.matchmaker_url else {
        let delete = TopicCommand::DeleteSubscription { name: NAME.into() };
        return match api.run(&caller, delete).await {
            // There is none, or somebody else has one of this name.
            Err(refusal) if matches!(refusal.code, Code::NotFound | Code::NotAllowed) => Ok(()),
            outcome => outcome.map(drop),
        };
    };
    // A ticket that waits for others is a player who waits.
    let mut body = json!({"topics": [PARTIES], "callback": url, "timeout_ms": 0, "max_events": 100});
    if let Some(secret) = &parties.matchmaker_secret {
        body["secret"] = json!(secret.expose());
    }
    let change = Box::new(settings::parse(body.to_string().as_bytes(), &policy(&api.config))?);
    api.run(&caller, TopicCommand::PutSubscription { name: NAME.into(), change }).await.map(drop)
}
