//! Dev mode's practice partners, so that one person can try a party: a bot that accepts every invite, and a matchmaker
//! that answers tickets whose params are `{"mode":"practice"}`. Both are ordinary clients of this server.
//! Must hold: neither connects before the demo page was opened; outside dev mode neither exists.

use crate::config::{Config, ServerMode};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;
use tavern_client::{
    Api, Auth, Channel, Client, Error, Event, PartyEvent, PartyState, SubscriptionSettings, TicketResult,
    Transport,
};
use tavern_domain::topic::PARTIES;
use tokio::sync::Notify;

/// The user id of the bot.
pub const BOT: &str = "practice-bot";
/// The subscription of the matchmaker.
const SUBSCRIPTION: &str = "practice-matchmaker";
/// The mode in the params of a ticket that the matchmaker answers.
const MODE: &str = "practice";
/// How long a party stays queued, so that people see the state.
const QUEUED: Duration = Duration::from_millis(1_500);
/// How long one pull waits for events.
const WAIT: Duration = Duration::from_secs(20);
const PULLED_EVENTS: u64 = 100;
/// The pause after an error.
const RETRY: Duration = Duration::from_secs(2);

/// Starts the practice partners when they are first needed.
#[derive(Debug, Default)]
pub struct Practice {
    demo_opened: Notify,
}

impl Practice {
    /// They reach the server by plain HTTP on loopback, so a dev server with TLS has none.
    pub fn is_available(config: &Config) -> bool {
        config.mode == ServerMode::Dev && config.tls.is_none()
    }

    /// Called by the demo page.
    pub fn start(&self) {
        self.demo_opened.notify_one();
    }

    /// Runs until the server stops. A configured matchmaker replaces the one of practice.
    pub async fn run(&self, config: &Config) {
        self.demo_opened.notified().await;
        let url = format!("http://{}", config.listen);
        match (&config.parties.matchmaker_url, &config.admin_key) {
            (None, Some(key)) => {
                let key = Auth::Key(key.expose().to_owned());
                tokio::join!(keep_bot(&url), keep_matchmaker(&url, key));
            }
            _ => keep_bot(&url).await,
        }
    }
}

async fn keep_bot(url: &str) {
    loop {
        if let Err(error) = run_bot(url).await {
            tracing::debug!(%error, "practice bot failed; retrying");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn run_bot(url: &str) -> Result<(), Error> {
    let client = Client::builder(url)
        .auth(Auth::User(BOT.to_owned()))
        .transports([Transport::WebSocket])
        .attempts(1)
        .build()?;
    let mut events = client.events();
    client.open().await?;
    let mut game = None;
    while let Some(event) = events.next().await {
        match event? {
            // The party may have ended since: a refusal is normal.
            Event::Party(event) => {
                if let Err(error) = take_part(&client, &event, &mut game).await {
                    tracing::debug!(%error, "practice bot was refused");
                }
            }
            Event::Closed(error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The bot's reaction to one party event. `game` is the channel of the match that it is in.
async fn take_part(client: &Client, event: &PartyEvent, game: &mut Option<Channel>) -> Result<(), Error> {
    let party = client.party();
    match event.cmd.as_str() {
        "invite" => party.accept(event.party_id).await,
        "party_go" if event.state == Some(PartyState::Gathering) => {
            party.ready(event.go_id.unwrap_or(0)).await
        }
        "party_matched" => {
            let Some(name) = event.other.get("match").and_then(Value::as_str) else { return Ok(()) };
            leave_game(game).await?;
            let channel = client.channel(format!("game#{name}"));
            channel.join(Value::Null).await?;
            *game = Some(channel);
            Ok(())
        }
        "kick" | "disband" | "leave" if party.current().is_none() => leave_game(game).await,
        _ => Ok(()),
    }
}

async fn leave_game(game: &mut Option<Channel>) -> Result<(), Error> {
    match game.take() {
        Some(channel) => channel.leave().await.map(drop),
        None => Ok(()),
    }
}

async fn keep_matchmaker(url: &str, key: Auth) {
    let Ok(api) = Api::new(url, key) else { return };
    let mut matches = 0;
    loop {
        if let Err(error) = run_matchmaker(&api, &mut matches).await {
            tracing::debug!(%error, "practice matchmaker failed; retrying");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn run_matchmaker(api: &Api, matches: &mut u64) -> Result<(), Error> {
    let settings = SubscriptionSettings {
        topics: Some(vec![PARTIES.to_owned()]),
        pull: Some(true),
        ..SubscriptionSettings::default()
    };
    api.subscriptions().put(SUBSCRIPTION, &settings).await?;
    let mut after = None;
    loop {
        let pulled = api.subscriptions().pull(SUBSCRIPTION, after, WAIT, PULLED_EVENTS).await?;
        let tickets: Vec<PracticeTicket> =
            pulled.events.iter().filter_map(|event| ticket(event.get())).collect();
        if !tickets.is_empty() {
            tokio::time::sleep(QUEUED).await;
        }
        for PracticeTicket { party_id, go_id, .. } in tickets {
            *matches += 1;
            let details = Map::from_iter([
                ("match".to_owned(), Value::String(format!("practice-{matches}"))),
                ("against".to_owned(), Value::Array(Vec::new())),
            ]);
            let answered =
                api.parties().answer_go(party_id, go_id, TicketResult::Matched, Value::Object(details)).await;
            if let Err(error) = answered {
                // no_such_go: the party has cancelled.
                tracing::debug!(party_id, go_id, %error, "practice ticket not answered");
            }
        }
        after = Some(pulled.next_after);
    }
}

/// A ticket of the topic `tavern.parties`.
#[derive(Debug, PartialEq, Deserialize)]
struct PracticeTicket {
    party_id: u64,
    go_id: u64,
    #[serde(default)]
    params: Value,
}

/// The ticket in an event, if it is for the practice matchmaker.
fn ticket(event: &str) -> Option<PracticeTicket> {
    #[derive(Deserialize)]
    struct TopicEvent {
        r#type: String,
        data: Value,
    }
    let event: TopicEvent =
        serde_json::from_str(event).ok().filter(|event: &TopicEvent| event.r#type == "party.go")?;
    serde_json::from_value(event.data).ok().filter(|ticket: &PracticeTicket| ticket.params["mode"] == MODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tickets_for_practice_are_taken() {
        let event = |kind: &str, params: &str| {
            format!(
                r#"{{"seq":1,"type":"{kind}","data":{{"party_id":5,"go_id":7,"members":["ann"],"params":{params}}}}}"#
            )
        };
        let taken = ticket(&event("party.go", r#"{"mode":"practice"}"#)).unwrap();
        assert_eq!((taken.party_id, taken.go_id), (5, 7));
        assert_eq!(ticket(&event("party.go", r#"{"mode":"duel"}"#)), None);
        assert_eq!(ticket(&event("party.go", "null")), None);
        assert_eq!(ticket(&event("party.left", r#"{"mode":"practice"}"#)), None);
        assert_eq!(ticket(r#"{"seq":1,"type":"tavern.gap","data":{"first_seq":1,"last_seq":2}}"#), None);
    }
}
