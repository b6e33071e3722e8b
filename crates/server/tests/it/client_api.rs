//! The server API of `tavern-client` against a running server: every call once.

use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tavern_client::{
    Api, Auth, Client, NewEvent, ReplayFrom, SubscriptionSettings, TicketResult, Visibility,
};

/// `tavern dev` in a folder of its own, ended with the test.
struct Server {
    child: Child,
    url: String,
    key: String,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--resp", "off"]).current_dir(folder.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TAVERN_"))
        {
            command.env_remove(name);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // The banner names the address and the key when the server is ready. Its pipe stays open and is read to the end.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let found = lines.find_map(|line| {
            let (url, rest) = line.split_once("Dashboard")?.1.trim().split_once("/#key=")?;
            Some((url.to_owned(), rest.split_whitespace().next()?.to_owned()))
        });
        std::thread::spawn(move || lines.for_each(drop));
        let (url, key) = found.expect("the banner");
        Server { child, url, key, _folder: folder }
    }

    fn api(&self) -> Api {
        Api::new(&self.url, Auth::Key(self.key.clone())).unwrap()
    }

    async fn client(&self, user: &str) -> Client {
        Client::connect(&self.url, Auth::User(user.into())).await.unwrap()
    }
}

fn dev(folder: &tempfile::TempDir, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
    command.args(["dev", "--listen", listen, "--resp", "off"]).current_dir(folder.path());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TAVERN_")) {
        command.env_remove(name);
    }
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn channels_and_users_work() {
    let server = Server::start();
    let api = server.api();
    assert_eq!(api.ready().await.unwrap(), "ready");
    let ann = server.client("ann").await;
    let game = ann.channel("game#1");
    game.join(json!({"seat": 1})).await.unwrap();
    game.subscribe().await.unwrap();
    assert_eq!(api.publish("game#1", "hello").await.unwrap(), 1);
    let there = api.presence("game#1").await.unwrap();
    assert_eq!((there.count, there.users[0].user.as_deref()), (1, Some("ann")));
    assert_eq!(there.users[0].clients[0].state, json!({"seat": 1}));
    assert_eq!(game.who().await.unwrap().users.len(), 1);

    assert!(api.users("an", None).await.unwrap().users.iter().any(|user| user.user == "ann" && user.online));
    let report = api.user("ann").await.unwrap();
    assert!(report.online && report.channels.iter().any(|channel| channel.channel == "game#1"), "{report:?}");
    api.follow("bob", "ann").await.unwrap();
    assert_eq!(api.following("bob").await.unwrap(), ["ann"]);
    assert_eq!(api.followers("ann").await.unwrap(), ["bob"]);
    api.unfollow("bob", "ann").await.unwrap();
    assert!(api.following("bob").await.unwrap().is_empty());
    api.set_visibility("ann", Visibility::Nobody).await.unwrap();
    assert_eq!(api.user("ann").await.unwrap().visibility, "nobody");
    api.send_to_inbox("ann", json!({"gift": 5})).await.unwrap();
    ann.close().await;

    let refused = api.publish("party#1", 1).await.unwrap_err();
    assert_eq!(refused.code, "not_allowed");
    let stranger = Api::new(&server.url, Auth::Key("tvk_no_such".into())).unwrap();
    assert_eq!(stranger.presence("game#1").await.unwrap_err().code, "unauthenticated");
}

#[tokio::test]
async fn topics_and_subscriptions_work() {
    let server = Server::start();
    let api = server.api();
    let settings = SubscriptionSettings {
        topics: Some(vec!["orders".into()]),
        pull: Some(true),
        ..SubscriptionSettings::default()
    };
    assert!(api.put_subscription("mail", &settings).await.unwrap().created);
    assert!(!api.put_subscription("mail", &settings).await.unwrap().created);
    let event = NewEvent::new("create").id("one").data(json!({"a": 1})).unwrap();
    let published = api.publish_event("orders", &event).await.unwrap();
    assert_eq!((published.accepted, published.last_seq), (1, 1));
    assert_eq!(api.publish_event("orders", &event).await.unwrap().duplicates, 1);
    assert_eq!(api.topics().await.unwrap()[0].topic, "orders");

    let pulled = api.pull("mail", None, Duration::from_secs(5), 10).await.unwrap();
    assert!(pulled.events[0].get().contains(r#""data":{"a":1}"#), "{}", pulled.events[0]);
    assert!(api.pull("mail", Some(pulled.next_after), Duration::ZERO, 10).await.unwrap().events.is_empty());
    assert_eq!(api.replay("mail", &ReplayFrom::Seq(1)).await.unwrap().from_seq, 1);
    let subscriptions = api.subscriptions().await.unwrap();
    assert_eq!(
        (&*subscriptions[0].name, &*subscriptions[0].health, subscriptions[0].queued),
        ("mail", "healthy", 1)
    );
    assert_eq!(api.enable("mail", false).await.unwrap().health, "disabled");
    assert_eq!(api.enable("mail", true).await.unwrap().health, "healthy");
    assert!(api.dead_letters("mail").await.unwrap().is_empty());
    assert_eq!(api.retry_dead_letters("mail", &[]).await.unwrap(), 0);
    api.delete_subscription("mail").await.unwrap();
    assert_eq!(api.subscription("mail").await.unwrap_err().code, "not_found");
    api.delete_topic("orders").await.unwrap();
    assert!(api.topics().await.unwrap().iter().all(|topic| topic.topic != "orders"));
}

#[tokio::test]
async fn parties_work() {
    let server = Server::start();
    let api = server.api();
    let (ann, bob) = (server.client("ann").await, server.client("bob").await);
    assert_eq!(api.party_of("ann").await.unwrap(), None);
    api.party_command("ann", "invite", json!({"user": "bob"})).await.unwrap();
    let party = api.party_of("ann").await.unwrap().expect("a party");
    let id = party["party_id"].as_u64().unwrap();
    let own = Api::new(&server.url, Auth::User("bob".into())).unwrap();
    own.own_party_command("accept", json!({"party_id": id})).await.unwrap();
    assert_eq!(api.party(id).await.unwrap().unwrap()["members"].as_array().unwrap().len(), 2);
    assert_eq!(api.parties().await.unwrap().len(), 1);
    let refused = own.own_party_command("accept", json!({"party_id": id + 1})).await.unwrap_err();
    assert_eq!(refused.code, "no_such_party");
    assert_eq!(api.own_party_command("get", json!({})).await.unwrap_err().code, "not_allowed");

    api.party_command("ann", "go", json!({})).await.unwrap();
    let go_id = api.party(id).await.unwrap().unwrap()["go_id"].as_u64().expect("a ticket");
    api.answer_go(id, go_id, TicketResult::Matched, json!({"server": "eu-1"})).await.unwrap();
    assert_eq!(api.party(id).await.unwrap().unwrap()["state"], "idle");
    let late = api.answer_go(id, go_id, TicketResult::Failed, json!({})).await.unwrap_err();
    assert!(!late.message.is_empty());
    ann.close().await;
    bob.close().await;
}

#[tokio::test]
async fn server_survives_a_closed_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = dev(&folder, &format!("127.0.0.1:{port}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    // The last line of the log at the start comes after the banner.
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(log.any(|line| line.contains("ready")), "the server ended at its start");
    std::thread::spawn(move || log.for_each(drop));
    let url = format!("http://127.0.0.1:{port}");
    let server = Server { child, url, key: String::new(), _folder: folder };
    let api = Api::new(&server.url, Auth::User("ann".into())).unwrap();
    assert_eq!(api.ready().await.unwrap(), "ready");
}
