//! The Redis engine on several servers: a cluster whose slots move, sentinels that promote another primary.

use crate::fixture::*;
use crate::server;
use crate::server::authority::Authority;
use crate::server::cluster::Cluster;
use crate::server::{PATIENCE, Server};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tavern_store::blocking::BlockingStore;
use tavern_store::{
    BusError, BusLoss, BusPacket, BusReceiver, Commit, Expect, Found, Read, RowKey, StoreError, Subject,
    Ticket,
};

/// The hash slot of the prefix `tavern`.
const SLOT: u16 = 1_684;

fn sum(client: &BlockingStore) -> Option<(u64, u64)> {
    match client.read(Read::Document(key("sum"))) {
        Ok(Found::Document(found)) => {
            let found = found?;
            Some((found.version, std::str::from_utf8(&found.row.body).unwrap().parse().unwrap()))
        }
        Err(StoreError::Unavailable { .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// Adds one, with retries. Returns how often the outcome was unknown.
fn add(client: &BlockingStore) -> u64 {
    let (begin, mut unknown) = (Instant::now(), 0);
    loop {
        assert!(begin.elapsed() < PATIENCE, "it does not come back");
        let Some((version, before)) = sum(client) else { continue };
        let expects = vec![Expect { key: RowKey::Document(key("sum")), version }];
        let puts = vec![document("sum", &(before + 1).to_string())];
        match client.commit(Commit { expects, puts, ..Commit::default() }) {
            Ok(_) => return unknown,
            Err(StoreError::Conflict { .. }) => {}
            Err(StoreError::Unavailable { .. }) => unknown += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_slot_moves_while_it_is_written() {
    let cluster = Cluster::new();
    let clients = [0, 1].map(|first| open(&cluster.url(first)).unwrap());
    clients[0].commit(Commit { puts: vec![document("sum", "0")], ..Commit::default() }).unwrap();
    clients[0].commit(arrive("game#A", "ann")).unwrap();
    let done = AtomicBool::new(false);
    let count = |client: &BlockingStore| {
        let (mut added, mut unknown) = (0, 0);
        while !done.load(Ordering::SeqCst) {
            unknown += add(client);
            added += 1;
        }
        (added, unknown)
    };
    let count = &count;
    let added: Vec<(u64, u64)> = thread::scope(|scope| {
        let counting: Vec<_> = clients.iter().map(|client| scope.spawn(move || count(client))).collect();
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            cluster.move_slot(SLOT, from, to, || thread::sleep(Duration::from_millis(5)));
        }
        done.store(true, Ordering::SeqCst);
        counting.into_iter().map(|counting| counting.join().unwrap()).collect()
    });
    let (least, unknown) = added.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let (_, found) = sum(&clients[0]).unwrap();
    assert!((least..=least + unknown).contains(&found), "{least} and perhaps {unknown} more, but {found}");
    assert!(least > 10, "hardly anything was written: {least}");
    assert_eq!(roster(&clients[1], "game#A").1, 1, "nothing was left behind");
}

#[test]
fn a_cluster_is_found_through_any_live_server() {
    let cluster = Cluster::new();
    let unused = server::free_port();
    let url = cluster.url(1).replace("redis-cluster://", &format!("redis-cluster://127.0.0.1:{unused},"));
    open(&url).unwrap().commit(put("a")).unwrap();
    assert!(version(&open(&cluster.url(0)).unwrap(), "a") > 0);
    let other = open(&format!("redis://127.0.0.1:{}", cluster.masters[1].port)).err();
    assert!(matches!(other, Some(StoreError::Unavailable { .. })), "one server of a cluster is no store");
}

struct ReportingReceiver(mpsc::Sender<&'static str>);

impl BusReceiver for ReportingReceiver {
    fn confirmed(&self, _: Ticket, outcome: Result<(), BusError>) {
        let _ = self.0.send(if outcome.is_ok() { "confirmed" } else { "refused" });
    }

    fn messages(&self, _: Vec<BusPacket>) {
        let _ = self.0.send("messages");
    }

    fn lost(&self, _: BusLoss) {
        let _ = self.0.send("lost");
    }
}

#[test]
fn after_a_failover_the_new_primary_is_used() {
    let master = Server::redis();
    let replica = Server::redis_with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    let sentinel = Server::sentinel(master.port, "");
    let url = format!("redis-sentinel://127.0.0.1:{}?service=mymaster", sentinel.port);
    let wrong = format!("redis-sentinel://127.0.0.1:{}?service=other", sentinel.port);
    assert!(matches!(open(&wrong).err(), Some(StoreError::Unavailable { .. })));
    let client = open(&format!("{url}&wait=1")).unwrap();
    let begin = Instant::now();
    while client.commit(put("before")).is_err()
        || !sentinel.cli(&["SENTINEL", "REPLICAS", "mymaster"]).contains("port")
    {
        assert!(begin.elapsed() < PATIENCE, "the replica does not follow");
    }
    drop(client);
    let client = open(&url).unwrap();
    let (sender, reports) = mpsc::channel();
    let bus = server::open(&url, "p", "n1", Arc::new(ReportingReceiver(sender))).unwrap();
    assert!(!bus.subscribe(vec![Subject::new("p", "game", b"A").unwrap().into()], Ticket(1)));
    assert_eq!(reports.recv_timeout(PATIENCE), Ok("confirmed"));

    master.kill();
    let begin = Instant::now();
    while client.commit(put("after")).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the next master is not found");
    }
    assert!(version(&client, "before") > 0, "what two servers had is not lost");
    assert_eq!(replica.cli(&["HLEN", "{tavern}:documents"]), "2");
    assert_eq!(reports.recv_timeout(PATIENCE), Ok("lost"), "the bus reconnects too, and reports the loss");
    bus.stop();
}

#[test]
fn sentinels_may_have_the_password_of_the_servers() {
    let master = Server::redis_with(&["--requirepass", "pw"]);
    let sentinel = Server::sentinel(master.port, "requirepass pw\nsentinel auth-pass mymaster pw");
    let url = |login: &str| format!("redis-sentinel://{login}127.0.0.1:{}", sentinel.port);
    open(&url(":pw@")).unwrap().commit(put("a")).unwrap();
    assert!(open(&url("")).is_err());
}

#[test]
fn a_cluster_works_over_tls() {
    let authority = Authority::new();
    let file = |option: &str, name: &str| [option.to_owned(), authority.file(name)];
    let files = [
        file("--tls-cert-file", "cert.pem"),
        file("--tls-key-file", "key.pem"),
        file("--tls-ca-cert-file", "ca.pem"),
    ];
    let cluster = Cluster::with_tls(&files.concat());
    let url = cluster.url(0).replace("redis-cluster", "rediss-cluster");
    open(&format!("{url}?ca={}", authority.file("ca.pem"))).unwrap().commit(put("a")).unwrap();
    assert!(matches!(open(&url).err(), Some(StoreError::Unavailable { .. })), "the authority is not public");
}
