//! The Rust client as an actor of the shared scenarios (clients/scenarios): JSON lines in, JSON lines out. Decides nothing.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_client::{
    Auth, Client, Error, Event, HistoryQuery, PresenceMap, SubscribeFrom, Transport, Visibility,
};
use tokio::sync::{Semaphore, mpsc, oneshot};

const AT_ONCE: usize = 64;

type Asked = Arc<Mutex<HashMap<u64, oneshot::Sender<Result<String, String>>>>>;

#[derive(Default, Clone)]
struct Driver {
    client: Arc<Mutex<Option<Client>>>,
    asked: Asked,
    number: Arc<AtomicU64>,
}

fn say(line: &Value) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // The runner has ended, and stdin ends next.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn tell(kind: &str, mut members: Value) {
    members["type"] = json!(kind);
    say(&json!({"event": members}));
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let driver = Driver::default();
    let (read, mut lines) = mpsc::channel(AT_ONCE);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| read.blocking_send(line))
    });
    while let Some(line) = lines.recv().await {
        let Ok(command) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(number) = command["answer"].as_u64() {
            let waiting = driver.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            if let Some(waiting) = waiting {
                let text = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
                let given =
                    if command.get("error").is_some() { Err(text("error")) } else { Ok(text("token")) };
                let _ = waiting.send(given);
            }
            continue;
        }
        // Started in the order of the lines: a task runs up to its first await before the next line is read.
        let driver = driver.clone();
        tokio::spawn(async move {
            let id = command["id"].clone();
            match driver.carry_out(command).await {
                Ok(ok) => say(&json!({"id": id, "ok": ok})),
                Err(error) => {
                    say(&json!({"id": id, "error": {"code": error.code(), "message": error.message()}}))
                }
            }
        });
        tokio::task::yield_now().await;
    }
    // At once, without closing the session.
    std::process::exit(0);
}

impl Driver {
    fn client(&self) -> Result<Client, Error> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.ok_or(Error::Closed("not connected".into()))
    }

    async fn carry_out(&self, command: Value) -> Result<Value, Error> {
        if command["do"] == "connect" && command.get("url").is_some() {
            self.begin(&command)?;
        }
        let client = self.client()?;
        let text = |name: &str| command[name].as_str().unwrap_or_default();
        let channel = client.channel(text("channel"));
        let done = |()| json!({});
        match text("do") {
            "connect" => client.open().await.map(done),
            "suspend" => {
                client.suspend().await;
                Ok(json!({}))
            }
            "close" => {
                client.close().await;
                Ok(json!({}))
            }
            "ticket" => {
                let ticket = client.ticket();
                Ok(ticket.map_or(json!({}), |(session, seq)| json!({"session": session, "seq": seq})))
            }
            "state" => Ok(json!({
                "state": client.state().as_str(), "transport": client.transport().map(Transport::as_str),
                "user": client.me().user(), "client": client.me().client(), "node": client.node(),
            })),
            "subscribe" if command["pattern"].is_string() => {
                client.pattern(text("pattern")).subscribe().await.map(done)
            }
            "unsubscribe" if command["pattern"].is_string() => {
                client.pattern(text("pattern")).unsubscribe().await.map(done)
            }
            "subscribe" if command["presence"] == true => channel.presence().await.map(|_| json!({})),
            "subscribe" => match subscribe_from(&command) {
                Some(from) => channel.subscribe_from(from).await.map(done),
                None => channel.subscribe().await.map(done),
            },
            "publish" if command.get("message_id").is_some() => {
                let receipt = channel.publish_once(text("message_id"), &command["data"]).await?;
                Ok(json!({
                    "receivers": receipt.receivers, "duplicate": receipt.duplicate,
                    "epoch": receipt.position.map(|at| at.epoch), "offset": receipt.position.map(|at| at.offset),
                }))
            }
            "history" => {
                let number = |name: &str| command[name].as_u64();
                let (after, before, limit) = (number("after"), number("before"), number("limit"));
                channel.history(HistoryQuery { after, before, limit }).await.map(|page| json!(page))
            }
            "position" => Ok(channel.position().map_or(json!({}), |position| json!(position))),
            "unsubscribe" => channel.unsubscribe().await.map(done),
            "publish" => {
                channel.publish(&command["data"]).await.map(|receivers| json!({"receivers": receivers}))
            }
            "burst" => burst(&client, &command).await,
            "join" => channel.join(&command["state"]).await.map(done),
            "update" => channel.update(&command["state"]).await.map(done),
            "leave" => channel.leave().await.map(done),
            "who" => channel.who().await.map(|members| json!(members)),
            "presence" => channel.presence().await.map(|there| there.look(shown)),
            "status" => {
                let users = command["users"].as_array().into_iter().flatten().filter_map(Value::as_str);
                client.me().status(users).await.map(|statuses| json!({"statuses": statuses}))
            }
            "follow" => client.me().follow(text("user")).await.map(done),
            "unfollow" => client.me().unfollow(text("user")).await.map(done),
            "following" => client.me().following().await.map(|users| json!({"users": users})),
            "followers" => client.me().followers().await.map(|users| json!({"users": users})),
            "visibility" => {
                let all = [Visibility::Everyone, Visibility::FollowersIFollow, Visibility::Nobody];
                let value = all.into_iter().find(|value| value.as_str() == text("value"));
                client.me().visibility(value.unwrap_or(Visibility::Everyone)).await.map(done)
            }
            "party" => {
                let mut members = command.clone();
                if let Some(members) = members.as_object_mut() {
                    members.retain(|name, _| !["id", "do", "cmd"].contains(&name.as_str()));
                }
                client.party().command(text("cmd"), members).await
            }
            "party_current" => Ok(json!({"party": client.party().current()})),
            other => Err(Error::Invalid(format!("no command {other}"))),
        }
    }

    fn begin(&self, command: &Value) -> Result<(), Error> {
        let mut builder = Client::builder(command["url"].as_str().unwrap_or_default());
        if let Some(user) = command["user"].as_str() {
            builder = builder.auth(Auth::User(user.to_owned()));
        }
        if command["tokens"] == true {
            let driver = self.clone();
            builder = builder.auth(Auth::source(move || driver.clone().token()));
        }
        if let Some(names) = command["transports"].as_array() {
            let chosen =
                names.iter().filter_map(|name| Transport::ALL.into_iter().find(|one| name == one.as_str()));
            builder = builder.transports(chosen);
        }
        if let Some(session) = command["resume"]["session"].as_str() {
            builder = builder.resume(session, command["resume"]["seq"].as_u64().unwrap_or(0));
        }
        let options = &command["options"];
        if options["echo"] == false {
            builder = builder.no_echo();
        }
        if let Some(limit) = options["command_timeout_ms"].as_u64() {
            builder = builder.command_timeout(Duration::from_millis(limit));
        }
        if let Some(limit) = options["connect_timeout_ms"].as_u64() {
            builder = builder.connect_timeout(Duration::from_millis(limit));
        }
        if std::env::var_os("TAVERN_DEBUG").is_some() {
            builder = builder.debug(|line| eprintln!("{line}"));
        }
        let client = builder.build()?;
        let mut events = client.events();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => show(event),
                    Err(error) => eprintln!("{error}"),
                }
            }
        });
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        Ok(())
    }

    async fn token(self) -> Result<String, String> {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let (given, answer) = oneshot::channel();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(number, given);
        say(&json!({"ask": "token", "n": number}));
        answer.await.map_err(|_| "no token was given".to_owned())?
    }
}

/// The numbers go out in order, so many at a time.
async fn burst(client: &Client, command: &Value) -> Result<Value, Error> {
    let (from, count) = (command["from"].as_i64().unwrap_or(0), command["count"].as_i64().unwrap_or(0));
    let channel = client.channel(command["channel"].as_str().unwrap_or_default());
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut publishing = tokio::task::JoinSet::new();
    for number in from..from + count {
        let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
        let channel = channel.clone();
        publishing.spawn(async move {
            let _permit = permit;
            channel.publish(number).await
        });
    }
    while let Some(published) = publishing.join_next().await {
        published.expect("no publish panics")?;
    }
    Ok(json!({}))
}

fn subscribe_from(command: &Value) -> Option<SubscribeFrom> {
    let last = command["last"].as_u64().map(SubscribeFrom::Last);
    last.or_else(|| serde_json::from_value(command["since"].clone()).ok().map(SubscribeFrom::Since))
}

fn shown(map: &PresenceMap) -> Value {
    let users: serde_json::Map<String, Value> = map
        .users
        .iter()
        .map(|(name, user)| {
            let clients: serde_json::Map<String, Value> = user
                .clients
                .iter()
                .map(|(client, membership)| (client.clone(), membership.state.clone()))
                .collect();
            (name.clone(), json!({"name": user.name, "clients": clients}))
        })
        .collect();
    json!({"users": users, "count": map.count, "mode": map.mode.as_str()})
}

fn show(event: Event) {
    match event {
        Event::Open => tell("open", json!({})),
        Event::Reconnecting { .. } => tell("reconnecting", json!({})),
        Event::Resumed => tell("resumed", json!({})),
        Event::Reset { failed } => {
            for refused in &failed {
                eprintln!("not restored: {refused:?}");
            }
            tell("reset", json!({}));
        }
        Event::Revoked(revoked) => tell(
            "revoked",
            json!({"verb": revoked.verb, "channel": revoked.channel, "pattern": revoked.pattern}),
        ),
        Event::Gap(gap) => {
            tell(
                "gap",
                json!({"channel": gap.channel, "pattern": gap.pattern, "from": gap.from, "to": gap.to}),
            );
        }
        Event::Closing { .. } => tell("closing", json!({})),
        Event::Superseded => tell("superseded", json!({})),
        Event::Closed(Error::Closed(_)) => tell("closed", json!({})),
        Event::Closed(error) => tell("closed", json!({"code": error.code()})),
        Event::Message(message) => tell(
            "message",
            json!({
                "channel": message.channel, "data": message.data,
                "from": {"user": message.user, "client": message.client},
            }),
        ),
        Event::Recovered { channel, recovered } => {
            tell("recovered", json!({"channel": channel, "recovered": recovered}));
        }
        Event::Presence { channel } => tell("presence", json!({"channel": channel})),
        Event::Status(update) => tell("status", json!(update)),
        Event::Inbox { message_id, data } => tell("inbox", json!({"message_id": message_id, "data": data})),
        Event::Party(event) => tell("party", json!(event)),
        Event::PartyMessage(message) => {
            tell("party", json!({"cmd": "say", "data": message.data, "from": {"user": message.user}}))
        }
        Event::Error { error, .. } => tell("error", json!({"code": error.code()})),
        _ => {}
    }
}
