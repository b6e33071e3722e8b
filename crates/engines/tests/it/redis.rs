//! What only the Redis engine promises: keys that an operator can read, and what happens when a server forgets, stops, is full
//! or cuts connections.

use crate::fixture::*;
use crate::server;
use crate::server::authority::Authority;
use crate::server::{PATIENCE, Server};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tavern_store::{
    CloseProof, Commit, Found, NodeChange, PresenceKey, Read, StoreAnswer, StoreError, Work, Writer,
};

static SHARED: LazyLock<Server> = LazyLock::new(Server::redis);

/// A prefix of its own on the server that these tests share.
fn fresh() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{}?prefix=t{}", SHARED.url(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn prefix(url: &str) -> &str {
    url.split_once("prefix=").unwrap().1
}

fn is_unavailable(answer: &StoreAnswer) -> bool {
    matches!(answer, StoreAnswer::Failed(StoreError::Unavailable { .. }))
}

fn cause(error: &StoreError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

#[test]
fn every_key_is_documented() {
    let url = fresh();
    let client = open(&url).unwrap();
    let raised = client.commit(arrive("game#A", "ann")).unwrap().raised[0].version;
    let cli = |command: &str, table: &str, field: &str| {
        SHARED.cli(&[command, &format!("{{{}}}:{table}", prefix(&url)), field])
    };
    let channel = cli("HGET", "channels", "game#A");
    assert!(channel.starts_with(&format!(r#"{{"version":{raised},"users":1,"updated":"#)), "{channel}");
    assert_eq!(cli("HGET", "clock", "version"), "1");
    let keys = SHARED.cli(&["KEYS", &format!("{{{}}}:*", prefix(&url))]);
    let written = include_str!("../../../../docs/deploy/redis.md");
    for key in keys.lines() {
        let table = key.rsplit(':').next().unwrap();
        assert!(written.contains(&format!("| `{table}` |")), "{table} is not in docs/deploy/redis.md");
    }
}

#[test]
fn a_server_that_lost_everything_fences_its_nodes() {
    let server = Server::redis();
    let client = open(&server.url()).unwrap();
    let node = open_node(&client, "n1");
    let by_it = || Commit { writer: Some(node.clone()), ..put("a") };
    client.commit(by_it()).unwrap();
    server.cli(&["FLUSHALL"]);
    assert!(matches!(client.commit(by_it()), Err(StoreError::Fenced { .. })));
    let again = open_node(&client, "n1");
    assert!(again.epoch > node.epoch);
    client.commit(Commit { writer: Some(again), ..put("a") }).unwrap();
    open(&server.url()).expect("the schema version is written again");
}

#[test]
fn a_server_that_lost_its_scripts_gets_them_again() {
    let server = Server::redis();
    let client = open(&server.url()).unwrap();
    for n in 0..20 {
        client.commit(put(&format!("d{n}"))).unwrap();
        server.cli(&["SCRIPT", "FLUSH"]);
        assert!(matches!(client.read(Read::Keys { after: None, limit: 1 }), Ok(Found::Keys(_))));
        server.cli(&["SCRIPT", "FLUSH"]);
    }
}

#[test]
fn a_killed_server_is_reached_again() {
    let server = Server::redis();
    let client = open(&server.url()).unwrap();
    client.commit(put("a")).unwrap();
    server.kill();
    let begin = Instant::now();
    let answers = client.run(vec![Work::Commit(put("b")), Work::Read(Read::Time)]);
    assert!(answers.iter().all(is_unavailable), "{answers:?}");
    assert!(begin.elapsed() < Duration::from_secs(10), "work is answered soon without a server");
    server.start();
    let begin = Instant::now();
    while client.commit(put("c")).is_err() {
        assert!(begin.elapsed() < PATIENCE, "it does not come back");
    }
    while client.read(Read::Time).is_err() {
        assert!(begin.elapsed() < PATIENCE, "reading does not come back");
    }
}

#[test]
fn cut_connection_reconnects_without_loss() {
    let server = Server::redis();
    let client = open(&server.url()).unwrap();
    let made = make_through_cuts(&client, 3000, || drop(server.cli(&["CLIENT", "KILL", "TYPE", "normal"])));
    assert_eq!(server.cli(&["HLEN", "{tavern}:documents"]), made.to_string());
    assert!(version(&client, "d0") > 0, "reading goes on too");
}

#[test]
fn a_full_server_refuses_commits_until_there_is_room() {
    let server = Server::redis();
    let client = open(&server.url()).unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = client.commit(put("a")).unwrap_err();
    assert!(cause(&error).contains("OOM"), "{error:?}");
    assert_eq!(version(&client, "a"), 0);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    client.commit(put("a")).unwrap();
}

#[test]
fn an_epoch_that_ends_inside_a_batch_writes_nothing_after_it() {
    let client = open(&fresh()).unwrap();
    let node = open_node(&client, "n1");
    let by_it = |name: &str| Commit { writer: Some(node.clone()), ..put(name) };
    let close = NodeChange::Close { node: node.clone(), proof: CloseProof::ProcessGone };
    let close = Commit { node: Some(close), ..Commit::default() };
    let batch = [by_it("before"), close, by_it("after"), put("by another writer")];
    let answers = client.run(batch.into_iter().map(Work::Commit).collect());
    let fenced = |answer: &StoreAnswer| matches!(answer, StoreAnswer::Failed(StoreError::Fenced { .. }));
    assert_eq!(answers.iter().map(fenced).collect::<Vec<_>>(), [false, false, true, false]);
    assert!(version(&client, "before") > 0 && version(&client, "after") == 0);
}

#[test]
fn of_a_name_that_many_open_one_epoch_stays_open() {
    let url = fresh();
    let stores: Vec<_> = (0..4).map(|_| open(&url).unwrap()).collect();
    let mut epochs: Vec<Writer> = thread::scope(|scope| {
        let open = |store| (0..15).map(|_| open_node(store, "n1")).collect::<Vec<_>>();
        let opening: Vec<_> = stores.iter().map(|store| scope.spawn(move || open(store))).collect();
        opening.into_iter().flat_map(|opening| opening.join().unwrap()).collect()
    });
    epochs.sort();
    epochs.dedup();
    assert_eq!(epochs.len(), 60, "an epoch is given once");
    let by = |writer: &Writer| Commit { writer: Some(writer.clone()), ..put("a") };
    let last = epochs.pop().unwrap();
    stores[0].commit(by(&last)).unwrap();
    for closed in &epochs {
        assert!(matches!(stores[0].commit(by(closed)), Err(StoreError::Fenced { .. })));
    }
}

#[test]
fn concurrent_joins_of_one_channel_are_counted() {
    const EACH: usize = 200;
    let url = fresh();
    let crowd = |n: usize| {
        let client = open(&url).unwrap();
        let works = (0..EACH).map(|user| Work::Commit(arrive("game#A", &format!("{n}/{user}")))).collect();
        let raised = |answer| match answer {
            StoreAnswer::Committed(receipt) => receipt.raised[0].version,
            other => panic!("{other:?}"),
        };
        client.run(works).into_iter().map(raised).collect::<Vec<_>>()
    };
    let crowd = &crowd;
    let mut raised: Vec<u64> = thread::scope(|scope| {
        let crowds: Vec<_> = (0..3).map(|n| scope.spawn(move || crowd(n))).collect();
        crowds.into_iter().flat_map(|crowd| crowd.join().unwrap()).collect()
    });
    raised.sort_unstable();
    assert_eq!(raised.len(), 3 * EACH);
    assert!(raised.windows(2).all(|pair| pair[1] == pair[0] + 2));
    let last = *raised.last().unwrap();
    assert_eq!(roster(&open(&url).unwrap(), "game#A"), (last, 3 * EACH as u64));
}

#[test]
fn a_store_of_another_version_is_refused() {
    let url = fresh();
    drop(open(&url).unwrap());
    let clock = format!("{{{}}}:clock", prefix(&url));
    for found in [0, 2] {
        SHARED.cli(&["HSET", &clock, "version", &found.to_string()]);
        match open(&url).err() {
            Some(StoreError::SchemaVersion { found: seen, known: 1 }) => assert_eq!(seen, found),
            other => panic!("{other:?}"),
        }
        assert_eq!(SHARED.cli(&["HGET", &clock, "version"]), found.to_string());
    }
}

#[test]
fn a_damaged_row_is_reported() {
    let url = fresh();
    let client = open(&url).unwrap();
    client.commit(put("a")).unwrap();
    SHARED.cli(&["HSET", &format!("{{{}}}:documents", prefix(&url)), "not ours", "x"]);
    SHARED.cli(&["ZADD", &format!("{{{}}}:document-ids", prefix(&url)), "0", "not ours"]);
    let read = Read::Rows { kind: tavern_store::RowKind::Document, after: None, limit: 10 };
    assert!(matches!(client.read(read), Err(StoreError::Corrupt { .. })));
    assert!(version(&client, "a") > 0);
}

#[test]
fn time_is_the_servers() {
    let client = open(&fresh()).unwrap();
    let receipt = client.commit(put("a")).unwrap();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(receipt.time.0.abs_diff(wall) < 60_000);
    assert!(matches!(client.read(Read::Time), Ok(Found::Time(time)) if time >= receipt.time));
}

#[test]
fn databases_of_one_server_are_apart() {
    let (one, two) = (format!("{}/1", SHARED.url()), format!("{}/2", SHARED.url()));
    open(&one).unwrap().commit(put("a")).unwrap();
    assert_eq!(version(&open(&two).unwrap(), "a"), 0);
    assert!(version(&open(&one).unwrap(), "a") > 0);
}

#[test]
fn a_commit_that_too_few_replicas_confirm_fails() {
    let master = Server::redis();
    let url = format!("{}?wait=1", master.url());
    let replica = Server::redis_with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    let client = open(&url).unwrap();
    let begin = Instant::now();
    while client.commit(put("a")).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the replica does not follow");
    }
    replica.kill();
    let error = client.commit(put("b")).unwrap_err();
    assert!(cause(&error).contains("0 of 1 replicas"), "{error:?}");
    assert!(version(&client, "b") > 0, "the outcome was unknown");
    let disk = open(&format!("{}?wait=aof", master.url())).unwrap();
    assert!(matches!(disk.commit(put("c")), Err(StoreError::Unavailable { .. })), "nothing is kept on disk");
}

#[test]
fn a_replica_is_refused_as_a_store() {
    let master = Server::redis();
    let replica = Server::redis_with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    assert!(matches!(open(&replica.url()).err(), Some(StoreError::Unavailable { .. })));
}

#[test]
fn a_user_with_minimal_rights_can_use_the_store_over_tls() {
    let authority = Authority::new();
    let (cert, private, ca) =
        (authority.file("cert.pem"), authority.file("key.pem"), authority.file("ca.pem"));
    let port = server::free_port();
    let text = port.to_string();
    let tls = ["--tls-port", &text, "--tls-cert-file", &cert, "--tls-key-file", &private];
    let options = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"];
    let server = Server::redis_with(&[&tls[..], &options].concat());
    server::await_port(port);
    let rights = ["~{few}:*", "resetchannels", "+@all", "-@admin", "-@dangerous"];
    server.cli(&[&["ACL", "SETUSER", "ann", "on", ">s p"][..], &rights].concat());
    let url = |password: &str| format!("rediss://ann:{password}@localhost:{port}?prefix=few&ca={ca}");
    let client = open(&url("s%20p")).unwrap();
    let node = open_node(&client, "n1");
    client.commit(Commit { writer: Some(node), ..arrive("game#A", "ann") }).unwrap();
    assert_eq!(roster(&client, "game#A").1, 1);
    let presence = client.read(Read::Presence(PresenceKey::new("game#A", "ann")));
    assert!(matches!(presence, Ok(Found::Presence(Some(_)))));
    let error = open(&url("other")).err().unwrap();
    assert!(cause(&error).contains("WRONGPASS"), "{error:?}");
    let elsewhere = open(&url("s%20p").replace("prefix=few", "prefix=many")).err().unwrap();
    assert!(cause(&elsewhere).contains("NOPERM"), "{elsewhere:?}");
}

#[test]
fn a_server_that_is_not_redis_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            thread::spawn(move || {
                let mut input = [0; 4096];
                // A valid reply first, then one that announces more elements than it has.
                while socket.read(&mut input).is_ok_and(|read| read > 0) {
                    let hello = input.windows(5).any(|part| part == b"HELLO");
                    let reply: &[u8] = if hello { b"+OK\r\n" } else { b"*99999999\r\n" };
                    if socket.write_all(reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let begin = Instant::now();
    assert!(open(&format!("redis://127.0.0.1:{port}")).is_err());
    assert!(begin.elapsed() < Duration::from_secs(20));
}
