//! Commands against a real hub: one shard, several connections, no sockets.

use super::*;
use crate::auth::{AuthError, Authenticator, HelloTokens, Keyring, TokenClaims, Verifier, sign};
use crate::config::{Config, Flag, SecretText, ServerMode, Sources};
use crate::connections::Connections;
use crate::resp::clients::{ClientInfo, Clients};
use crate::resp::{OtherShards, RespServer};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tavern_domain::{Identity, Time};
use tavern_hub::core::authorize;
use tavern_hub::{AuthorizeAnswer, AuthorizeQuery, LinkId, Node, RandomSource, Scratch, Settings, Shard};
use tavern_store::ManualClock;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const ADMIN: &str = "the-key-of-the-operator";

struct Counting(u128);

impl RandomSource for Counting {
    fn next(&mut self) -> u128 {
        self.0 += 1;
        self.0
    }
}

/// The connections that other shards were asked to close.
#[derive(Default)]
struct Killed(Mutex<Vec<(usize, LinkId, u64)>>);

impl OtherShards for Killed {
    fn log_in(&self, _: usize, _: LinkId, _: u64, _: Result<Identity, AuthError>) {}

    fn kill(&self, shard: usize, link: LinkId, client: u64) {
        self.0.lock().unwrap().push((shard, link, client));
    }
}

struct World {
    now: Time,
    hub: Shard,
    scratch: Scratch,
    server: Arc<RespServer>,
    killed: Arc<Killed>,
    ranges: Vec<std::ops::Range<usize>>,
    peers: Vec<RedisPeer>,
    // Lives as long as the server that uses it.
    _runtime: tokio::runtime::Runtime,
}

const NOW: Time = Time(1_800_000_000_000);

fn world(mode: ServerMode, settings: Settings) -> World {
    let flag = |key: &str, text: &str| Flag { flag: format!("--{key}"), key: key.into(), text: text.into() };
    let sources = Sources {
        mode,
        file: None,
        environment: Vec::new(),
        flags: vec![flag("secret", SECRET), flag("limits.message_bytes", "2048")],
        for_server: true,
    };
    let loaded = Config::load(sources);
    let config = Arc::new(loaded.config);
    let verifier = Verifier::from_secret(&SecretText::new(SECRET));
    let keyring = Keyring::without_store(Some(SecretText::new(ADMIN)));
    let authenticator = Arc::new(Authenticator::new(mode, verifier, keyring, Arc::new(ManualClock::at(NOW))));
    let node = Node::new(settings, Box::new(HelloTokens(authenticator.clone())));
    authenticator.refuse_blocked(&node);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let killed = Arc::new(Killed::default());
    let server = Arc::new(RespServer {
        config,
        authenticator,
        clients: Clients::default(),
        connections: Connections::new(100, 100),
        shards: killed.clone(),
        runtime: runtime.handle().clone(),
        started: Instant::now(),
    });
    let now = NOW;
    World {
        now,
        hub: Shard::new(node, 0, Box::new(Counting(0)), now),
        scratch: Scratch::default(),
        server,
        killed,
        ranges: Vec::new(),
        peers: Vec::new(),
        _runtime: runtime,
    }
}

fn dev() -> World {
    world(ServerMode::Dev, Settings::default())
}

impl World {
    fn join(&mut self) -> usize {
        let link = LinkId(self.peers.len() as u32);
        let info: Arc<ClientInfo> = self.server.clients.register(
            0,
            link,
            ([127, 0, 0, 1], 50_000).into(),
            ([127, 0, 0, 1], 7401).into(),
            self.now,
        );
        let identity: Option<Identity> = self.server.authenticator.admit_unnamed().ok();
        self.peers.push(RedisPeer::new(link, identity, info));
        self.peers.len() - 1
    }

    /// Runs the bytes of a connection. Returns how many were used.
    fn receive(&mut self, who: usize, input: &[u8]) -> (String, usize, RedisNext) {
        let mut out = Vec::new();
        let World { now, hub, scratch, server, ranges, peers, .. } = self;
        let mut context = RedisContext { now: *now, hub, scratch, server, ranges, unread_bytes: usize::MAX };
        let (taken, next) = crate::resp::consume(&mut out, &mut peers[who], &mut context, input);
        (String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_string(), taken, next)
    }

    fn try_say(&mut self, who: usize, line: &str) -> (String, RedisNext) {
        let args: Vec<Vec<u8>> = line.split(' ').map(|arg| arg.as_bytes().to_vec()).collect();
        let mut out = Vec::new();
        let World { now, hub, scratch, server, ranges, peers, .. } = self;
        let mut context = RedisContext { now: *now, hub, scratch, server, ranges, unread_bytes: usize::MAX };
        let next = run(&mut out, &mut peers[who], &mut context, &Args::Owned(&args));
        (String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_string(), next)
    }

    /// The bytes that a connection reads after each of these lines, line breaks shown as spaces.
    fn send(&mut self, who: usize, line: &str) -> String {
        let (out, next) = self.try_say(who, line);
        assert_eq!(next, RedisNext::Go, "{line}");
        out
    }

    /// The messages pushed at the end of the turn.
    fn received(&mut self, who: usize) -> String {
        let mut out = Vec::new();
        append_messages(&mut out, &self.peers[who], &mut self.hub, &mut self.scratch);
        String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_string()
    }

    fn token(&self, allow: &[(&str, &[&str])], ttl_ms: u64) -> String {
        let allow = allow.iter().map(|(pattern, verbs)| {
            (pattern.to_string(), verbs.iter().map(|verb| verb.to_string()).collect())
        });
        let claims = TokenClaims {
            sub: Some("ann".into()),
            name: None,
            exp: Some(((self.now.ms() + ttl_ms) / 1000).into()),
            nbf: None,
            iat: None,
            allow: Some(allow.collect()),
        };
        sign(&SecretText::new(SECRET), &claims).unwrap()
    }
}

#[test]
fn confirmations_are_counted_over_channels_and_patterns_together() {
    let mut world = dev();
    let ann = world.join();
    assert_eq!(world.send(ann, "SUBSCRIBE a a"), "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 a :1");
    assert_eq!(world.send(ann, "PSUBSCRIBE b*"), "*3 $10 psubscribe $2 b* :2");
    assert_eq!(world.send(ann, "SSUBSCRIBE a"), "*3 $10 ssubscribe $1 a :1");
    assert_eq!(world.send(ann, "UNSUBSCRIBE x"), "*3 $11 unsubscribe $1 x :2");
    assert_eq!(world.send(ann, "UNSUBSCRIBE"), "*3 $11 unsubscribe $1 a :1");
    assert_eq!(world.send(ann, "UNSUBSCRIBE"), "*3 $11 unsubscribe $-1 :1");
    assert_eq!(world.send(ann, "SUNSUBSCRIBE"), "*3 $12 sunsubscribe $1 a :0");
    assert!(world.send(ann, "ECHO x").starts_with("-ERR Can't execute 'echo': only (P|S)SUBSCRIBE"));
    assert!(world.send(ann, "GET x").starts_with("-ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
    assert!(world.send(ann, "FOO x").starts_with("-ERR unknown command 'FOO'"));
    assert_eq!(world.send(ann, "PING"), "*2 $4 pong $0");
    assert_eq!(world.send(ann, "PUNSUBSCRIBE"), "*3 $12 punsubscribe $2 b* :0");
    assert_eq!(world.send(ann, "PING"), "+PONG");
    assert_eq!(world.send(ann, "PUNSUBSCRIBE"), "*3 $12 punsubscribe $-1 :0");
}

#[test]
fn a_publisher_subscribed_to_its_own_channel_gets_the_reply_first() {
    let mut world = dev();
    let (ann, bob) = (world.join(), world.join());
    world.send(ann, "HELLO 3");
    world.send(ann, "SUBSCRIBE a");
    assert_eq!(world.send(bob, "publish a early"), ":1");
    assert_eq!(world.send(ann, "PUBLISH a x"), ">3 $7 message $1 a $5 early :1");
    assert_eq!(world.received(ann), ">3 $7 message $1 a $1 x");
    assert_eq!(world.send(ann, "PUBSUB NUMSUB a b"), "*4 $1 a :1 $1 b :0");
    assert_eq!(world.send(bob, "PUBSUB CHANNELS"), "*1 $1 a");
    assert_eq!(world.send(bob, "PUBSUB CHANNELS b*"), "*0");
    assert_eq!(world.send(bob, "PUBLISH user#ann x"), "-NOPERM No permissions to access a channel");
    let long = "n".repeat(513);
    assert_eq!(
        world.send(bob, &format!("PUBLISH {long} x")),
        "-ERR a channel or pattern has at most 512 bytes"
    );
    let large = "x".repeat(2049);
    let refusal = world.send(bob, &format!("PUBLISH a {large}"));
    assert_eq!(refusal, "-ERR the message has 2049 bytes; at most 2048 are allowed (limits.message_bytes)");
}

#[test]
fn a_transaction_answers_as_one_and_messages_follow_it() {
    let mut world = dev();
    let ann = world.join();
    world.send(ann, "HELLO 3");
    assert_eq!(world.send(ann, "MULTI"), "+OK");
    for line in ["SUBSCRIBE a", "PUBLISH a x", "UNSUBSCRIBE a", "PING def"] {
        assert_eq!(world.send(ann, line), "+QUEUED");
    }
    let answer = "*4 >3 $9 subscribe $1 a :1 :1 >3 $11 unsubscribe $1 a :0 $3 def";
    assert_eq!(world.send(ann, "EXEC"), answer);
    assert_eq!(world.received(ann), ">3 $7 message $1 a $1 x");
    assert_eq!(world.send(ann, "EXEC"), "-ERR EXEC without MULTI");
    world.send(ann, "MULTI");
    assert_eq!(world.send(ann, "MULTI"), "-ERR MULTI calls can not be nested");
    assert_eq!(world.send(ann, "EXEC"), "*0");
    world.send(ann, "MULTI");
    assert!(world.send(ann, "FOO").starts_with("-ERR unknown command 'FOO'"));
    assert_eq!(world.send(ann, "EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    let reason = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    assert_eq!(world.send(ann, "EXEC x"), reason);
    world.send(ann, "MULTI");
    assert_eq!(world.send(ann, "DISCARD"), "+OK");
    assert_eq!(world.send(ann, "DISCARD"), "-ERR DISCARD without MULTI");
}

#[test]
fn client_reply_off_does_not_drop_pushed_messages() {
    let mut world = dev();
    let ann = world.join();
    world.send(ann, "HELLO 3");
    assert_eq!(world.send(ann, "CLIENT REPLY OFF"), "");
    assert_eq!(world.send(ann, "PING"), "");
    assert_eq!(world.send(ann, "SUBSCRIBE"), "");
    assert_eq!(world.send(ann, "SUBSCRIBE a"), ">3 $9 subscribe $1 a :1");
    assert_eq!(world.send(ann, "PUBLISH a x"), "");
    assert_eq!(world.send(ann, "PING"), ">3 $7 message $1 a $1 x");
    assert_eq!(world.send(ann, "CLIENT REPLY ON"), "+OK");
    assert_eq!(world.send(ann, "CLIENT REPLY SKIP"), "");
    assert_eq!(world.send(ann, "CLIENT REPLY SKIP"), "");
    assert_eq!(world.send(ann, "PING"), "");
    assert_eq!(world.send(ann, "PING"), "+PONG");
    world.send(ann, "MULTI");
    for line in ["PING", "CLIENT REPLY OFF", "PING"] {
        world.send(ann, line);
    }
    assert_eq!(world.send(ann, "EXEC"), "*3 +PONG");
    assert_eq!(world.send(ann, "RESET"), "+RESET");
    assert_eq!(world.send(ann, "PING"), "+PONG");
}

#[test]
fn in_poll_mode_messages_are_taken_not_pushed() {
    let mut world = dev();
    let (ann, bob) = (world.join(), world.join());
    assert_eq!(
        world.send(ann, "TAVERN.POLL"),
        "-ERR the connection is in push mode; send TAVERN.MODE poll first"
    );
    assert_eq!(world.send(ann, "TAVERN.MODE poll"), "+OK");
    assert_eq!(world.send(ann, "TAVERN.POLL"), "*0");
    assert!(world.send(ann, "TAVERN.WAIT 10").starts_with("-ERR the connection has no subscription"));
    world.send(ann, "SUBSCRIBE a");
    for text in ["x", "y", "z"] {
        world.send(bob, &format!("PUBLISH a {text}"));
    }
    assert_eq!(world.received(ann), "");
    assert_eq!(world.send(ann, "PING"), "+PONG");
    assert_eq!(world.send(ann, "TAVERN.POLL 1"), "*1 *3 $7 message $1 a $1 x");
    assert_eq!(world.send(ann, "TAVERN.WAIT 0 1"), "*1 *3 $7 message $1 a $1 y");
    assert_eq!(world.send(ann, "TAVERN.POLL 0"), "-ERR value is out of range, must be positive");
    assert_eq!(world.send(ann, "TAVERN.WAIT -1"), "-ERR timeout is negative");
    assert_eq!(world.send(ann, "TAVERN.MODE push"), "+OK");
    assert_eq!(world.received(ann), "*3 $7 message $1 a $1 z");
}

#[test]
fn a_wait_ends_with_a_message_or_with_its_time() {
    let mut world = dev();
    let (ann, bob) = (world.join(), world.join());
    world.send(ann, "TAVERN.MODE poll");
    world.send(ann, "SUBSCRIBE a");
    assert_eq!(world.try_say(ann, "TAVERN.WAIT 50"), (String::new(), RedisNext::Stall));
    assert_eq!(world.peers[ann].waiting_until, Some(world.now + 50));
    world.send(bob, "PUBLISH a x");
    assert_eq!(world.hub.core.effects.dirty.len(), 1, "the loop is notified");
    assert_eq!(world.send(ann, "TAVERN.WAIT 50"), "*1 *3 $7 message $1 a $1 x");
    assert_eq!(world.peers[ann].waiting_until, None);
    assert_eq!(world.try_say(ann, "TAVERN.WAIT 50").1, RedisNext::Stall);
    world.now = world.now + 49;
    assert_eq!(world.try_say(ann, "TAVERN.WAIT 50").1, RedisNext::Stall);
    world.now = world.now + 1;
    assert_eq!(world.send(ann, "TAVERN.WAIT 50"), "*0");
}

#[test]
fn an_unfinished_command_holds_only_its_bytes() {
    let mut world = dev();
    let ann = world.join();
    let mut input = b"*1001\r\n$4\r\nECHO\r\n".to_vec();
    input.extend(b"$1\r\nx\r\n".repeat(999));
    assert_eq!(world.receive(ann, &input), (String::new(), 0, RedisNext::Go));
    assert_eq!(world.peers[ann].held_bytes(), 0);
    input.extend(b"$1\r\nx\r\n");
    let (replies, taken, _) = world.receive(ann, &input);
    assert_eq!(taken, input.len());
    assert!(replies.contains("wrong number of arguments"), "{replies}");
}

#[test]
fn a_command_that_waits_is_parsed_once() {
    let mut world = dev();
    let (ann, bob) = (world.join(), world.join());
    world.send(ann, "TAVERN.MODE poll");
    world.send(ann, "SUBSCRIBE a");
    let mut input = b"*2\r\n$11\r\nTAVERN.WAIT\r\n$2\r\n50\r\nPING\r\n".to_vec();
    for _ in 0..2 {
        assert_eq!(world.receive(ann, &input), (String::new(), 0, RedisNext::Stall));
    }
    let held = world.peers[ann].held_bytes();
    assert_eq!(held, 2 * size_of::<std::ops::Range<usize>>(), "its two arguments");
    // If it were parsed again, this would be a protocol error.
    input[..9].copy_from_slice(b"*x\r\n$11\r\n");
    world.send(bob, "PUBLISH a x");
    let (replies, taken, next) = world.receive(ann, &input);
    assert_eq!((taken, next), (input.len(), RedisNext::Go));
    assert_eq!(replies, "*1 *3 $7 message $1 a $1 x +PONG");
    assert_eq!(world.peers[ann].held_bytes(), 0);

    // The same for a plain line whose arguments are not ranges of it.
    let line = b"\"TAVERN.WAIT\" 50\r\n";
    assert_eq!(world.receive(ann, line), (String::new(), 0, RedisNext::Stall));
    assert!(world.peers[ann].held_bytes() > 0);
    world.now = world.now + 50;
    assert_eq!(world.receive(ann, &b"x".repeat(line.len())), ("*0".into(), line.len(), RedisNext::Go));
}

#[test]
fn commands_before_login_are_refused() {
    let mut world = world(ServerMode::Serve, Settings::default());
    let ann = world.join();
    assert_eq!(world.send(ann, "PING"), "-NOAUTH Authentication required.");
    assert_eq!(world.send(ann, "PUBLISH a x"), "-NOAUTH Authentication required.");
    assert!(world.send(ann, "HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(world.send(ann, "AUTH nonsense").starts_with("-WRONGPASS invalid username-password pair"));
    let token = world.token(&[("game#*", &["subscribe"])], 60_000);
    assert!(world.send(ann, &format!("HELLO 3 AUTH default {token}")).starts_with("%7 $6 server $5 redis"));
    assert_eq!(world.send(ann, "SUBSCRIBE game#1"), ">3 $9 subscribe $6 game#1 :1");
    assert_eq!(world.send(ann, "SUBSCRIBE game#2 lobby"), "-NOPERM No permissions to access a channel");
    assert_eq!(
        world.send(ann, "PUBSUB NUMSUB game#1 game#2"),
        "*4 $6 game#1 :1 $6 game#2 :0",
        "nothing changed"
    );
    assert_eq!(world.send(ann, "PUBLISH game#1 x"), "-NOPERM No permissions to access a channel");
    assert_eq!(world.send(ann, "PSUBSCRIBE game#1*"), ">3 $10 psubscribe $7 game#1* :2");
    assert_eq!(world.send(ann, "PSUBSCRIBE *"), "-NOPERM No permissions to access a channel");
    let refusal = world.send(ann, "CLIENT LIST");
    assert_eq!(refusal, "-NOPERM User ann has no permissions to run the 'client|list' command");
    assert_eq!(world.send(ann, "RESET"), "+RESET");
    assert_eq!(world.send(ann, "PING"), "-NOAUTH Authentication required.");
    assert_eq!(world.send(ann, &format!("AUTH {ADMIN}")), "+OK");
    assert!(world.send(ann, "CLIENT LIST").contains("cmd=client|list user=default "));
}

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn an_expired_token_ends_the_connection() {
    let mut world = world(ServerMode::Serve, Settings::default());
    let ann = world.join();
    let token = world.token(&[("*", &["publish"])], 5_000);
    assert_eq!(world.send(ann, &format!("AUTH {token}")), "+OK");
    assert_eq!(world.send(ann, "PUBLISH a x"), ":0");
    world.now = world.now + 6_000;
    let closed = ("-NOAUTH Authentication required.".to_string(), RedisNext::Close);
    assert_eq!(world.try_say(ann, "PUBLISH a x"), closed);
}

#[test]
fn a_session_has_a_rate_and_a_number_of_channels() {
    let settings = Settings { commands_per_second: 1, channels_per_session: 2, ..Settings::default() };
    let mut world = world(ServerMode::Serve, settings);
    let ann = world.join();
    let token = world.token(&[("*", &["publish", "subscribe"])], 60_000);
    world.send(ann, &format!("HELLO 3 AUTH x {token}"));
    let refusal = "-ERR a connection may have at most 2 subscriptions (limits.channels_per_session)";
    assert_eq!(world.send(ann, "SUBSCRIBE a b c"), refusal);
    let confirmed = ">3 $9 subscribe $1 a :1 >3 $9 subscribe $1 b :2 >3 $9 subscribe $1 a :2";
    assert_eq!(world.send(ann, "SUBSCRIBE a b a"), confirmed);
    let limited = world.send(ann, "PUBLISH a x");
    assert!(limited.starts_with("-ERR rate limited: ") && limited.ends_with("retry in 1000 ms"), "{limited}");
    world.now = world.now + 1_000;
    assert_eq!(world.send(ann, "PUBLISH a x"), ":1");
}

#[test]
fn the_authorize_hook_answers_before_anything_changes() {
    let rules = tavern_hub::AuthorizeRules { cache_ms: 5_000 };
    let settings = Settings { authorize: Some(rules), commands_per_second: 1, ..Settings::default() };
    let mut world = world(ServerMode::Serve, settings);
    let ann = world.join();
    let token = world.token(&[], 60_000);
    world.send(ann, &format!("AUTH {token}"));
    assert_eq!(world.try_say(ann, "SUBSCRIBE game#1 game#2").1, RedisNext::Stall);
    let questions: Vec<AuthorizeQuery> = std::mem::take(&mut world.hub.core.effects.authorize_queries);
    assert_eq!(questions.len(), 2, "all of them at once");
    let replies = [AuthorizeAnswer::Allow, AuthorizeAnswer::Instead("gametv#2".into())];
    for (question, reply) in questions.into_iter().zip(replies) {
        assert_eq!(world.try_say(ann, "SUBSCRIBE game#1 game#2").1, RedisNext::Stall);
        authorize::answer(&mut world.hub.core, question, reply);
    }
    let confirmed = "*3 $9 subscribe $6 game#1 :1 *3 $9 subscribe $8 gametv#2 :2";
    assert_eq!(world.send(ann, "SUBSCRIBE game#1 game#2"), confirmed, "counted once, however often it ran");
    assert!(world.hub.core.effects.ready.contains(&LinkId(0)));
}

#[test]
fn clients_see_and_close_each_other() {
    let mut world = dev();
    let (ann, bob) = (world.join(), world.join());
    assert_eq!(world.send(ann, "CLIENT ID"), ":1");
    assert_eq!(world.send(ann, "CLIENT SETNAME worker"), "+OK");
    assert_eq!(world.send(ann, "CLIENT SETINFO lib-name redis-py"), "+OK");
    assert_eq!(world.send(ann, "CLIENT SETINFO foo x"), "-ERR Unrecognized option 'foo'");
    world.send(bob, "SUBSCRIBE a");
    world.send(bob, "UNSUBSCRIBE");
    let list = world.send(ann, "CLIENT LIST");
    assert!(list.contains("id=1 ") && list.contains(" name=worker ") && list.contains(" lib-name=redis-py "));
    assert!(list.contains(" cmd=unsubscribe ") && list.contains(" cmd=client|list "));
    assert_eq!(world.send(ann, "CLIENT KILL ID 2"), ":1");
    assert!(!world.send(ann, "CLIENT LIST").contains("id=2 "));
    assert_eq!(*world.killed.0.lock().unwrap(), [(0, LinkId(1), 2)]);
    assert_eq!(world.send(ann, "CLIENT KILL 1.2.3.4:5"), "-ERR No such client");
    assert_eq!(world.send(ann, "CLIENT KILL USER nobody"), "-ERR No such user 'nobody'");
    assert_eq!(world.try_say(ann, "CLIENT KILL ID 1 SKIPME no"), (":1".to_string(), RedisNext::Close));
}

#[test]
fn small_commands_reply_as_redis() {
    let mut world = dev();
    let ann = world.join();
    for (line, expected) in [
        ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
        ("ECHO a", "$1 a"),
        ("SELECT 9", "+OK"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("AUTH default x", "+OK"),
        ("AUTH a b", WRONG),
        ("AUTH a b c", "-ERR syntax error"),
        ("DBSIZE", ":0"),
        ("FLUSHALL", "+OK"),
        ("FLUSHALL foo", "-ERR syntax error"),
        ("FLUSHDB ASYNC", "+OK"),
        ("FUNCTION FLUSH", "+OK"),
        ("FUNCTION FLUSH x", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        ("CONFIG RESETSTAT", "+OK"),
        ("CONFIG GET save", "*2 $4 save $0"),
        ("COMMAND INFO foo", "*1 $-1"),
        ("COMMAND DOCS foo", "*0"),
        (
            "PUBSUB CHANNELS a b",
            "-ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
        ),
        ("DEBUG LOG hello", "+OK"),
        ("DEBUG SLEEP 0", "+OK"),
        ("DEBUG SLEEP 0.5", "-ERR DEBUG SLEEP is not supported: it would stop other connections too"),
        ("DEBUG FOO", "-ERR unknown subcommand or wrong number of arguments for 'FOO'. Try DEBUG HELP."),
        ("WATCH a", "-ERR unknown command 'WATCH', with args beginning with: 'a' "),
        ("INFO foo", "$0"),
    ] {
        assert_eq!(world.send(ann, line), expected.trim_end(), "{line}");
    }
    assert!(world.send(ann, "INFO").contains("redis_version:7.2.4"));
    let (answer, next) = world.try_say(ann, "POST / HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("this port speaks the Redis protocol"));
    assert_eq!(next, RedisNext::Close);
    assert_eq!(world.try_say(ann, "QUIT"), ("+OK".to_string(), RedisNext::Close));
}
