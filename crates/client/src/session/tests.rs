//! A client against a server that does what a test says: every call ends, whatever fails.

use crate::fake_server::{FakeConnection, FakeServer};
use crate::{Auth, Builder, Client, ConnectionState, Error, Event, Events, RefusalCode, Transport, fault};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// The limit within which every call must end when a part of the client fails.
const FAIL_LIMIT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(10);

async fn soon<T>(what: &str, waited: impl Future<Output = T>) -> T {
    timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

async fn fails_soon<T>(what: &str, call: impl Future<Output = Result<T, Error>>) {
    let ended = timeout(FAIL_LIMIT, call).await.unwrap_or_else(|_| panic!("{what} hangs"));
    let Err(Error::Failed(cause)) = ended else { panic!("{what} ended with {:?}", ended.err()) };
    assert!(cause.contains("injected into"), "{cause}");
}

fn token(left: Duration) -> String {
    let ends = (SystemTime::now() + left).duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(json!({"exp": ends}).to_string()))
}

fn builder(server: &FakeServer) -> Builder {
    Client::builder(&*server.url).auth(Auth::User("ann".into())).transports([Transport::WebSocket])
}

async fn connected(hello: Value) -> (Client, Events, FakeServer, FakeConnection) {
    let mut server = FakeServer::start(json!({"ok": hello})).await;
    let client = builder(&server).build().expect("a client");
    let events = client.events();
    soon("connecting", client.open()).await.expect("a session");
    let connection = soon("the connection", server.connection()).await;
    (client, events, server, connection)
}

async fn until(events: &mut Events, wanted: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = soon("an event", events.next()).await.expect("the client lives").expect("no overflow");
        if wanted(&event) {
            return event;
        }
    }
}

/// Lets a task of a client with a pending call fail; every call must end.
async fn check_failure(task: &'static str, transport: Transport) {
    let mut server = FakeServer::start(json!({})).await;
    let source = Auth::source(|| async { Ok(token(Duration::from_millis(1_500))) });
    let client = builder(&server).auth(source).transports([transport]).build().expect("a client");
    let mut events = client.events();
    soon("connecting", client.open()).await.expect("a session");
    let connection = soon("the connection", server.connection()).await;
    let who = tokio::spawn({
        let channel = client.channel("game#1");
        async move { channel.who().await }
    });
    if task == "command" {
        // It waits for the reply to one command at a time, so the first one is its last.
        fault::arm(task);
    }
    tokio::task::yield_now().await;
    fault::arm(task);
    // Every part of the client has something to do.
    connection.send(r#"{"event":"message","channel":"a","data":1}"#);
    let join = tokio::spawn({
        let channel = client.channel("game#1");
        async move { channel.join(1).await }
    });
    if task == "connect" {
        connection.close(1012);
    }
    fails_soon("the pending call", async { who.await.expect("no panic of a caller") }).await;
    fails_soon("the other call", async { join.await.expect("no panic of a caller") }).await;
    let closed = until(&mut events, |event| matches!(event, Event::Closed(_))).await;
    assert!(matches!(closed, Event::Closed(Error::Failed(_))), "{closed:?}");
    fails_soon("a later call", client.channel("game#1").publish("x")).await;
    fails_soon("connecting again", client.open()).await;
    soon("closing", client.close()).await;
    assert_eq!(client.state(), ConnectionState::Closed);
}

#[tokio::test]
async fn calls_end_when_the_session_fails() {
    check_failure("session", Transport::WebSocket).await;
}

#[tokio::test]
async fn calls_end_when_reconnecting_fails() {
    check_failure("connect", Transport::WebSocket).await;
}

#[tokio::test]
async fn calls_end_when_the_reader_fails() {
    check_failure("read", Transport::WebSocket).await;
}

#[tokio::test]
async fn calls_end_when_the_writer_fails() {
    check_failure("write", Transport::WebSocket).await;
}

#[tokio::test]
async fn calls_end_when_renewing_the_token_fails() {
    check_failure("renew", Transport::WebSocket).await;
}

#[tokio::test]
async fn calls_end_when_the_event_stream_fails() {
    check_failure("stream", Transport::Sse).await;
}

#[tokio::test]
async fn calls_end_when_the_commands_of_a_stream_fail() {
    check_failure("command", Transport::Sse).await;
}

#[tokio::test]
async fn calls_end_when_polling_fails() {
    check_failure("poll", Transport::Poll).await;
}

#[tokio::test]
async fn calls_end_when_the_commands_of_polls_fail() {
    check_failure("command", Transport::Poll).await;
}

#[tokio::test]
async fn connecting_ends_when_it_fails() {
    for task in ["connect", "read", "write"] {
        fault::arm("");
        let server = FakeServer::start(json!({})).await;
        let client = builder(&server).build().expect("a client");
        fault::arm(task);
        fails_soon(task, client.open()).await;
    }
}

#[tokio::test]
async fn a_hostile_server_does_no_harm() {
    let (client, _events, mut server, mut connection) = connected(json!({"heartbeat_ms": u64::MAX})).await;
    let presence = tokio::spawn({
        let channel = client.channel("game#1");
        async move { channel.presence().await }
    });
    connection
        .answer("subscribe", json!({"members": {"version": "x", "users": [7, {"clients": [{}]}]}}))
        .await;
    soon("presence", presence).await.expect("no panic").expect("a map");
    for text in [
        // No frames: the client connects again.
        "",
        "[]",
        &"[".repeat(5_000),
        r#"{"event":7}"#,
        r#"{"id":{},"ok":1}"#,
        r#"{"id":99,"ok":{}}"#,
        r#"{"id":1,"error":"no"}"#,
        r#"{"event":"message","channel":7,"from":"x","seq":"y"}"#,
        r#"{"event":"status","status":[]}"#,
        r#"{"event":"statuses","statuses":7}"#,
        r#"{"event":"party","cmd":[],"party_id":-1}"#,
        r#"{"party":"x"}"#,
        r#"{"event":"user_online","channel":"game#1","version":-1}"#,
        r#"{"event":"presence","channel":"game#1","left":7}"#,
        r#"{"event":"presence_mode","channel":"game#1","mode":7,"version":99}"#,
        r#"{"event":"gap","from":"x"}"#,
        r#"{"event":"revoked"}"#,
        r#"{"event":"inbox","message_id":"x"}"#,
        r#"{"event":"something_new"}"#,
    ] {
        connection.send(text);
        let call = client.command("follow", json!({"user": "bob"}), true);
        tokio::pin!(call);
        // A connection on which something else than frames arrived is replaced.
        let answered = async {
            loop {
                tokio::select! {
                    ended = &mut call => return ended,
                    Some(command) = connection.commands.recv() => {
                        connection.send(&json!({"id": command["id"], "ok": {}}).to_string());
                    }
                    next = server.connection() => connection = next,
                }
            }
        };
        assert_eq!(soon(text, answered).await, Ok(json!({})), "{text}");
    }
    assert_eq!(client.state(), ConnectionState::Open);
}

#[tokio::test]
async fn a_wrong_address_says_what_answered() {
    let nowhere = Client::builder("http://127.0.0.1:1").attempts(1).connect().await.err();
    assert!(matches!(nowhere, Some(Error::Unreachable(_))), "{nowhere:?}");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            let page = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
            let _ = stream.write_all(page.as_bytes()).await;
        }
    });
    for transport in Transport::ALL {
        let refused =
            soon("an answer", Client::builder(&*url).transports([transport]).attempts(1).connect()).await;
        let Some(Error::Unreachable(why)) = refused.err() else { panic!("{transport:?}") };
        assert!(
            why.contains("Tavern") || why.contains("the stream ended") || why.contains("handshake"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn the_wait_that_a_refused_hello_asks_for_is_obeyed() {
    let server =
        FakeServer::start(json!({"error": {"code": "busy", "message": "later", "retry_after_ms": 400}}))
            .await;
    let client = builder(&server).build().expect("a client");
    let mut events = client.events();
    let (began, opening) = (Instant::now(), tokio::spawn(async move { client.open().await }));
    for attempt in 1..=2 {
        let event = until(&mut events, |event| matches!(event, Event::Error { .. })).await;
        let Event::Error { error: Error::Refused(refusal), retry_in: Some(wait) } = event else {
            panic!("{event:?}")
        };
        assert_eq!(refusal.code, RefusalCode::Busy);
        assert!(
            wait >= Duration::from_millis(400)
                && began.elapsed() >= Duration::from_millis(400) * (attempt - 1)
        );
    }
    opening.abort();
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_leaves_the_session_open() {
    let mut server = FakeServer::start(json!({})).await;
    let works = Arc::new(AtomicBool::new(true));
    let source = Auth::source({
        let works = works.clone();
        move || {
            let works = works.load(Ordering::Relaxed);
            async move {
                if works { Ok(token(Duration::from_millis(900))) } else { Err("no database".to_owned()) }
            }
        }
    });
    let client = builder(&server).auth(source).build().expect("a client");
    let mut events = client.events();
    soon("connecting", client.open()).await.expect("a session");
    works.store(false, Ordering::Relaxed);
    let mut connection = soon("the connection", server.connection()).await;
    for _ in 0..2 {
        let event = until(&mut events, |event| matches!(event, Event::Error { .. })).await;
        assert_eq!(event, Event::Error { error: Error::NoToken("no database".into()), retry_in: None });
    }
    works.store(true, Ordering::Relaxed);
    let hello = soon("the new token", connection.next("hello")).await;
    assert!(hello["token"].is_string());
    assert_eq!(client.state(), ConnectionState::Open);
}

#[tokio::test]
async fn a_call_ends_with_its_limit_and_says_whether_it_was_sent() {
    let mut server = FakeServer::start(json!({})).await;
    let client = builder(&server).command_timeout(Duration::from_millis(100)).build().expect("a client");
    soon("connecting", client.open()).await.expect("a session");
    let _connection = server.connection().await;
    let published = client.channel("game#1").publish(1).await;
    assert!(matches!(published, Err(Error::UnknownOutcome(_))), "{published:?}");
    assert!(matches!(client.channel("game#1").join(1).await, Err(Error::Timeout(_))));
}

#[tokio::test]
async fn too_many_waiting_commands_are_refused() {
    let (client, _events, _server, _connection) = connected(json!({})).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..=crate::bounds::WAITING {
        let channel = client.channel("game#1");
        calls.spawn(async move { channel.leave().await });
    }
    let refused = soon("a refusal", calls.join_next()).await.expect("a call").expect("no panic");
    assert_eq!(refused, Err(Error::Busy));
}

#[tokio::test]
async fn closing_says_which_commands_may_have_been_executed() {
    let (client, _events, _server, mut connection) = connected(json!({})).await;
    let call = |repeatable: bool| {
        let client = client.clone();
        tokio::spawn(async move { client.command("something", json!({}), repeatable).await })
    };
    let (unsafe_call, safe_call) = (call(false), call(true));
    for _ in 0..2 {
        connection.next("something").await;
    }
    connection.close(4003);
    assert!(matches!(soon("it", unsafe_call).await.expect("no panic"), Err(Error::UnknownOutcome(_))));
    let gone = soon("it", safe_call).await.expect("no panic").expect_err("the end");
    assert_eq!(gone.code(), "gone");
}

#[tokio::test]
async fn a_user_who_comes_or_goes_is_one_change() {
    let (client, _events, _server, mut connection) = connected(json!({})).await;
    let asked = tokio::spawn({
        let channel = client.channel("game#1");
        async move { channel.presence().await }
    });
    connection.answer("subscribe", json!({"members": {"version": 1, "count": 0, "users": []}})).await;
    let mut map = soon("presence", asked).await.expect("no panic").expect("a map");
    let mut events = client.events();
    let change = |kind: &str, version: u64, explicit: bool| {
        let event = json!({
            "event": kind, "channel": "game#1", "version": version, "user": "bob", "name": null, "client": "b1",
            "state": 7, "explicit": explicit,
        });
        connection.send(&event.to_string());
    };
    change("user_online", 2, false);
    change("client_online", 3, false);
    assert!(soon("a change", map.changed()).await);
    assert_eq!(map.look(|map| map.users["bob"].clients["b1"].state::<u8>()), Ok(7));
    change("client_offline", 4, true);
    change("user_offline", 5, false);
    // The other half of the last change does not come.
    change("user_online", 6, false);
    let mut changes = 0;
    while map.look(|map| map.version) < 6 || changes < 3 {
        until(&mut events, |event| matches!(event, Event::Presence { .. })).await;
        changes += 1;
    }
    assert_eq!(changes, 3);
}

#[tokio::test]
async fn own_messages_are_left_out_on_request() {
    let mut server = FakeServer::start(json!({})).await;
    let client = builder(&server).no_echo().build().expect("a client");
    soon("connecting", client.open()).await.expect("a session");
    let mut connection = server.connection().await;
    let channel = client.channel("game#1");
    let mut messages = channel.messages();
    let subscribed = tokio::spawn(async move { channel.subscribe().await });
    connection.answer("subscribe", json!({})).await;
    soon("subscribing", subscribed).await.expect("no panic").expect("a grant");
    for (client, data) in [("c1", 1), ("b1", 2)] {
        let from = json!({"user": "ann", "client": client});
        connection
            .send(&json!({"event": "message", "channel": "game#1", "from": from, "data": data}).to_string());
    }
    let first = soon("a message", messages.next()).await.expect("a message").expect("no overflow");
    assert_eq!(first.data::<u8>(), Ok(2));
    assert!(first.data::<String>().is_err());
}

#[tokio::test]
async fn a_reset_names_what_was_not_restored() {
    let (client, mut events, mut server, mut connection) = connected(json!({})).await;
    let channel = client.channel("game#1");
    let joined = tokio::spawn(async move { channel.join(1).await });
    connection.answer("join", json!({})).await;
    soon("joining", joined).await.expect("no panic").expect("a grant");
    connection.close(1012);
    let mut next = soon("the next connection", server.connection()).await;
    let id = soon("join", next.next("join")).await["id"].clone();
    next.send(&json!({"id": id, "error": {"code": "not_allowed", "message": "no more"}}).to_string());
    let event = until(&mut events, |event| matches!(event, Event::Reset { .. })).await;
    let Event::Reset { failed } = event else { unreachable!() };
    assert_eq!((failed[0].verb.as_str(), failed[0].channel.as_deref()), ("join", Some("game#1")));
    assert_eq!((failed.len(), failed[0].error.code()), (1, "not_allowed"));
}

#[tokio::test]
async fn a_server_that_hangs_is_left_for_the_next_one() {
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", hanging.local_addr().expect("an address"));
    let server = FakeServer::start(json!({})).await;
    let client = Client::builder(url).or_url(&*server.url).transports([Transport::WebSocket]);
    soon("connecting", client.connect_timeout(Duration::from_millis(50)).connect()).await.expect("a session");
}
