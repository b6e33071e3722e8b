//! The server API of `tavern-client` against a running server: every call once.

use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tavern_client::{
    Api, Auth, Client, NewEvent, PartyState, RefusalCode, ReplayFrom, SubscriptionSettings, TicketResult,
    Visibility,
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
    assert_eq!(api.channels().publish("game#1", "hello").await.unwrap(), 1);
    let there = api.channels().presence("game#1").await.unwrap();
    assert_eq!((there.count, there.users[0].user.as_deref()), (1, Some("ann")));
    assert_eq!(there.users[0].clients[0].state, json!({"seat": 1}));
    assert_eq!(game.who().await.unwrap().users.len(), 1);

    assert!(
        api.users()
            .list("an", None)
            .await
            .unwrap()
            .users
            .iter()
            .any(|user| user.user == "ann" && user.online)
    );
    let report = api.users().get("ann").await.unwrap();
    assert!(report.online && report.channels.iter().any(|channel| channel.channel == "game#1"), "{report:?}");
    api.users().follow("bob", "ann").await.unwrap();
    assert_eq!(api.users().following("bob").await.unwrap(), ["ann"]);
    assert_eq!(api.users().followers("ann").await.unwrap(), ["bob"]);
    api.users().unfollow("bob", "ann").await.unwrap();
    assert!(api.users().following("bob").await.unwrap().is_empty());
    api.users().set_visibility("ann", Visibility::Nobody).await.unwrap();
    assert_eq!(api.users().get("ann").await.unwrap().visibility, "nobody");
    api.users().send_to_inbox("ann", json!({"gift": 5})).await.unwrap();
    ann.close().await;

    let refused = api.channels().publish("party#1", 1).await.unwrap_err();
    assert_eq!(refused.code(), "not_allowed");
    let stranger = Api::new(&server.url, Auth::Key("tvk_no_such".into())).unwrap();
    assert_eq!(stranger.channels().presence("game#1").await.unwrap_err().code(), "unauthenticated");
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
    assert!(api.subscriptions().put("mail", &settings).await.unwrap().created);
    assert!(!api.subscriptions().put("mail", &settings).await.unwrap().created);
    let event = NewEvent::new("create").id("one").data(json!({"a": 1})).unwrap();
    let published = api.topics().publish("orders", &event).await.unwrap();
    assert_eq!((published.accepted, published.last_seq), (1, 1));
    assert_eq!(api.topics().publish("orders", &event).await.unwrap().duplicates, 1);
    assert_eq!(api.topics().list().await.unwrap()[0].topic, "orders");

    let pulled = api.subscriptions().pull("mail", None, Duration::from_secs(5), 10).await.unwrap();
    assert!(pulled.events[0].get().contains(r#""data":{"a":1}"#), "{}", pulled.events[0]);
    assert!(
        api.subscriptions()
            .pull("mail", Some(pulled.next_after), Duration::ZERO, 10)
            .await
            .unwrap()
            .events
            .is_empty()
    );
    assert_eq!(api.subscriptions().replay("mail", &ReplayFrom::Seq(1)).await.unwrap().from_seq, 1);
    let subscriptions = api.subscriptions().list().await.unwrap();
    assert_eq!(
        (&*subscriptions[0].name, &*subscriptions[0].health, subscriptions[0].queued),
        ("mail", "healthy", 1)
    );
    assert_eq!(api.subscriptions().enable("mail", false).await.unwrap().health, "disabled");
    assert_eq!(api.subscriptions().enable("mail", true).await.unwrap().health, "healthy");
    assert!(api.subscriptions().dead_letters("mail").await.unwrap().is_empty());
    assert_eq!(api.subscriptions().retry_dead_letters("mail", &[]).await.unwrap(), 0);
    api.subscriptions().delete("mail").await.unwrap();
    assert_eq!(api.subscriptions().get("mail").await.unwrap_err().code(), "not_found");
    api.topics().delete("orders").await.unwrap();
    assert!(api.topics().list().await.unwrap().iter().all(|topic| topic.topic != "orders"));
}

#[tokio::test]
async fn parties_work() {
    let server = Server::start();
    let api = server.api();
    let (ann, bob) = (server.client("ann").await, server.client("bob").await);
    assert_eq!(api.parties().of("ann").await.unwrap(), None);
    api.parties().command("ann", "invite", json!({"user": "bob"})).await.unwrap();
    let party = api.parties().of("ann").await.unwrap().expect("a party");
    let id = party.party_id;
    let own = Api::new(&server.url, Auth::User("bob".into())).unwrap();
    own.parties().own_command("accept", json!({"party_id": id})).await.unwrap();
    assert_eq!(api.parties().get(id).await.unwrap().unwrap().members.len(), 2);
    assert_eq!(api.parties().list().await.unwrap().len(), 1);
    let refused = own.parties().own_command("accept", json!({"party_id": id + 1})).await.unwrap_err();
    assert_eq!(refused.code(), "no_such_party");
    assert_eq!(api.parties().own_command("get", json!({})).await.unwrap_err().code(), "bad_request");

    api.parties().command("ann", "go", json!({})).await.unwrap();
    let go_id = api.parties().get(id).await.unwrap().unwrap().go_id.expect("a ticket");
    api.parties().answer_go(id, go_id, TicketResult::Matched, json!({"server": "eu-1"})).await.unwrap();
    assert_eq!(api.parties().get(id).await.unwrap().unwrap().state, PartyState::Idle);
    let late = api.parties().answer_go(id, go_id, TicketResult::Failed, json!({})).await.unwrap_err();
    assert!(!late.message().is_empty());
    ann.close().await;
    bob.close().await;
}

#[test]
fn every_code_of_the_server_is_known_to_the_client() {
    for code in tavern_wire::error::Code::ALL {
        let known = RefusalCode::from(code.as_str());
        assert!(!matches!(known, RefusalCode::Other(_)) && known.as_str() == code.as_str(), "{code:?}");
    }
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
