//! The demo at `/demo`: a small game lobby, its files part of the program and served as they are in `demo/`, and what its page
//! needs besides them: grace periods, and the events that a service would get.
//! Must hold: outside dev mode and from other machines only a page that explains this is served.

use super::api::HttpApi;
use super::asset;
use super::body::{HttpResponse, refusal, typed};
use super::request::Query;
use super::server::HttpConnection;
use crate::config::ServerMode;
use crate::practice::{self, Practice};
use crate::topics::commands::PULL_WAIT_MS_MAX;
use crate::webhook::SigningSecret;
use http::request::Parts;
use std::time::Duration;
use tavern_domain::topic::{PARTIES, PRESENCE};
use tavern_hub::topics::{SubscriptionChange, TopicCaller, TopicCommand};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::DemoSettings;

/// The subscription that the page reads, and its owner: no key can have such an id.
const SUBSCRIPTION: &str = "demo";
const OWNER: &str = "tavern";
/// Events in one answer.
const PULLED: u32 = 100;
/// The kind of channel that the page is in.
const LOBBY: &str = "demo";

pub async fn answer(connection: &HttpConnection, parts: &Parts) -> HttpResponse {
    let here = connection.api.config.mode == ServerMode::Dev && connection.peer.ip().is_loopback();
    match parts.uri.path() {
        "/demo" | "/demo/" => file(if here { "index.html" } else { "serve.html" }, parts),
        "/demo/settings.json" if here => settings(&connection.api),
        "/demo/events" if here => {
            events(&connection.api, parts).await.unwrap_or_else(|refused| refusal(&refused))
        }
        path => {
            let name = path.strip_prefix("/demo/").unwrap_or_default();
            let known = asset::DEMO.iter().any(|file| file.name == name) && !name.ends_with(".html");
            if known { file(name, parts) } else { missing(path) }
        }
    }
}

/// One of the files that both the demo and the documents use.
pub fn file(name: &str, parts: &Parts) -> HttpResponse {
    match asset::DEMO.iter().find(|file| file.name == name) {
        Some(file) => asset::give(asset::kind(name), file, &parts.headers),
        None => missing(name),
    }
}

fn missing(path: &str) -> HttpResponse {
    refusal(&Refusal::new(Code::NotFound, format!("not found: {path}")))
}

/// What the page needs to know about the server. Also starts the practice partners.
fn settings(api: &HttpApi) -> HttpResponse {
    let config = &api.config;
    let practice = Practice::is_available(config);
    if practice {
        api.practice.start();
    }
    typed(&DemoSettings {
        bot: practice.then_some(practice::BOT),
        grace_ms: config.kind(LOBBY).grace_ms,
        matchmaker: practice || config.parties.matchmaker_url.is_some(),
        resume_ms: config.sessions.resume_ms,
    })
}

/// The next events of the page's own subscription, as a service would pull them. Events that one window has
/// acknowledged can still be read by another.
async fn events(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let query = Query::of(parts)?;
    let wait = Duration::from_millis(query.number("wait_ms", 0..=PULL_WAIT_MS_MAX)?.unwrap_or(0));
    let (after, topics) = (query.number("after", 0..=u64::MAX)?, &api.topics);
    let caller = TopicCaller { id: OWNER.into(), admin: false };
    // The page has no key that could be revoked.
    let check = || std::future::ready(Ok(()));
    let pulled = match topics.pull(&caller, SUBSCRIPTION, after, PULLED, wait, check).await {
        Err(refused) if refused.code == Code::NotFound => {
            let change = Box::new(SubscriptionChange {
                topics: Some(vec![PRESENCE.into(), PARTIES.into()]),
                pull: Some(true),
                spare_secret: SigningSecret::generate().expose(),
                ..SubscriptionChange::default()
            });
            topics.run(&caller, TopicCommand::PutSubscription { name: SUBSCRIPTION.into(), change }).await?;
            topics.pull(&caller, SUBSCRIPTION, None, PULLED, wait, check).await?
        }
        pulled => pulled?,
    };
    Ok(super::topics::pulled(&pulled))
}

#[cfg(test)]
mod tests {
    use super::asset::DEMO as FILES;

    /// Uncompressed, all files together.
    const MAX_BYTES: usize = 100 * 1024;

    #[test]
    fn every_file_of_the_folder_is_served_and_they_are_small() {
        let known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        assert!(["index.html", "serve.html", "app.js", "docs.css"].iter().all(|name| known.contains(name)));
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    }

    #[test]
    fn no_file_holds_inline_script_or_style_or_writes_markup() {
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for banned in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                " style=",
                "onclick=",
            ] {
                assert!(!text.contains(banned), "{} holds {banned}", file.name);
            }
        }
    }
}
