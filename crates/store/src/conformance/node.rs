//! Nodes: epochs, leases, take-over and the fencing of every commit.

use super::fixture::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn change(change: NodeChange) -> Commit {
    Commit { node: Some(change), ..Commit::default() }
}

fn close(node: &Writer, proof: CloseProof) -> Commit {
    change(NodeChange::Close { node: node.clone(), proof })
}

fn by(writer: &Writer, commit: Commit) -> Commit {
    Commit { writer: Some(writer.clone()), ..commit }
}

fn nodes(client: &BlockingStore, after: Option<Writer>, limit: u32) -> Page<NodeRow> {
    match client.read(Read::Nodes { after, limit }) {
        Ok(Found::Nodes(page)) => page,
        other => panic!("no nodes but {other:?}"),
    }
}

fn node(client: &BlockingStore, writer: &Writer) -> Option<NodeRow> {
    nodes(client, None, 100).rows.into_iter().find(|node| node.writer == *writer)
}

pub(super) fn epochs_grow(world: &dyn StoreUnderTest) {
    let client = client(world);
    let first = open_node(&client, "n1");
    assert_eq!(first.epoch.0, now(&client).0 * 1000, "an epoch begins at the time");
    let second = open_node(&client, "n1");
    assert_eq!(second.epoch.0, first.epoch.0 + 1, "the clock stood still");
    world.clock().advance(1000);
    assert_eq!(open_node(&client, "n1").epoch.0, now(&client).0 * 1000);
}

pub(super) fn opening_again_closes_the_earlier_epoch(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (other, first) = (open_node(&client, "n2"), open_node(&client, "n1"));
    world.clock().advance(5);
    let second = open_node(&client, "n1");
    assert_fenced(client.commit(by(&first, put("a", "old"))), &first);
    client.commit(by(&second, put("a", "new"))).unwrap();
    client.commit(by(&other, put("b", "new"))).unwrap();
    let found = node(&client, &first).unwrap();
    assert_eq!((found.closed_at, found.clean), (Some(now(&client)), false));
}

pub(super) fn a_closed_epoch_writes_nothing(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (dead, alive) = (open_node(&client, "n1"), open_node(&client, "n2"));
    client.commit(by(&dead, put("a", "1"))).unwrap();
    world.clock().advance(LEASE_MS);
    client.commit(by(&alive, close(&dead, CloseProof::LeaseEnded))).unwrap();
    assert_fenced(client.commit(by(&dead, put("a", "2"))), &dead);
    assert_fenced(client.commit(by(&dead, delete("a"))), &dead);
    let renew = NodeChange::Renew { node: dead.clone(), lease_ms: LEASE_MS };
    assert_fenced(client.commit(change(renew)), &dead);
    assert_fenced(client.commit(change(NodeChange::Stop { node: dead.clone() })), &dead);
    let fenced_closer = by(&dead, close(&alive, CloseProof::ProcessGone));
    assert_fenced(client.commit(fenced_closer), &dead);
    assert_eq!(text(&client, "a").as_deref(), Some("1"));
    client.commit(by(&alive, put("a", "3"))).unwrap();
}

pub(super) fn a_take_over_can_be_repeated(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (dead, one, two) = (open_node(&client, "n1"), open_node(&client, "n2"), open_node(&client, "n3"));
    world.clock().advance(LEASE_MS);
    let first = client.commit(by(&one, close(&dead, CloseProof::LeaseEnded))).unwrap();
    assert_eq!(first.closed_at, Some(first.time));
    world.clock().advance(500);
    let second = client.commit(by(&two, close(&dead, CloseProof::LeaseEnded))).unwrap();
    assert_eq!(second.closed_at, first.closed_at, "the moment of loss is the first one");
    assert_eq!(node(&client, &dead).unwrap().closed_at, first.closed_at);
}

pub(super) fn a_node_with_a_lease_is_not_closed(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (one, two) = (open_node(&client, "n1"), open_node(&client, "n2"));
    world.clock().advance(LEASE_MS - 1);
    match client.commit(by(&two, Commit { puts: vec![row("a", "x")], ..close(&one, CloseProof::LeaseEnded) }))
    {
        Err(StoreError::Leased { node, until }) => assert_eq!((node, until), (one.clone(), now(&client) + 1)),
        other => panic!("closed: {other:?}"),
    }
    assert_eq!(text(&client, "a"), None, "refused as a whole");
    client.commit(by(&one, put("a", "1"))).unwrap();
    world.clock().advance(1);
    client.commit(by(&two, close(&one, CloseProof::LeaseEnded))).unwrap();
}

pub(super) fn a_process_known_to_be_gone_is_closed_at_once(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (one, two) = (open_node(&client, "n1"), open_node(&client, "n2"));
    client.commit(by(&two, close(&one, CloseProof::ProcessGone))).unwrap();
    assert_fenced(client.commit(by(&one, put("a", "1"))), &one);
}

pub(super) fn renewing_extends_the_lease_and_never_shortens_it(world: &dyn StoreUnderTest) {
    let client = client(world);
    let writer = open_node(&client, "n1");
    let start = now(&client);
    let renew = |lease_ms| by(&writer, change(NodeChange::Renew { node: writer.clone(), lease_ms }));
    let until = || node(&client, &writer).unwrap().lease_until;
    assert_eq!(until(), start + LEASE_MS);
    client.commit(renew(1)).unwrap();
    assert_eq!(until(), start + LEASE_MS);
    world.clock().advance(LEASE_MS * 2);
    client.commit(renew(LEASE_MS)).unwrap();
    assert_eq!(until(), start + LEASE_MS * 3, "no node had closed it");
}

pub(super) fn the_queued_commits_of_a_paused_node_fail(world: &dyn StoreUnderTest) {
    let (paused, other) = (client(world), client(world));
    let (sleeper, alive) = (open_node(&paused, "n1"), open_node(&other, "n2"));
    world.clock().advance(LEASE_MS);
    other.commit(by(&alive, close(&sleeper, CloseProof::LeaseEnded))).unwrap();
    let works = (0..20).map(|n| Work::Commit(by(&sleeper, put(&format!("d{n}"), "late"))));
    for answer in paused.run(works.collect()) {
        assert!(matches!(answer, StoreAnswer::Failed(StoreError::Fenced { .. })), "{answer:?}");
    }
    let again = open_node(&paused, "n1");
    assert!(again.epoch > sleeper.epoch);
    paused.commit(by(&again, put("d0", "alive"))).unwrap();
}

pub(super) fn an_unknown_node_is_not_a_dead_node(world: &dyn StoreUnderTest) {
    let client = client(world);
    let alive = open_node(&client, "n1");
    let unknown = Writer::new("n9", alive.epoch);
    assert_fenced(client.commit(by(&unknown, put("a", "1"))), &unknown);
    match client.commit(by(&alive, close(&unknown, CloseProof::ProcessGone))) {
        Err(StoreError::UnknownNode { node }) => assert_eq!(node, unknown),
        other => panic!("closed: {other:?}"),
    }
    let forget = NodeChange::Forget { node: unknown };
    client.commit(change(forget)).expect("there is nothing to forget");
}

pub(super) fn a_clean_stop_closes_the_epoch(world: &dyn StoreUnderTest) {
    let client = client(world);
    let writer = open_node(&client, "n1");
    world.clock().advance(3);
    let stop = Commit { puts: vec![row("a", "last")], ..change(NodeChange::Stop { node: writer.clone() }) };
    let receipt = client.commit(by(&writer, stop)).unwrap();
    assert_eq!(receipt.closed_at, Some(receipt.time));
    assert_eq!(text(&client, "a").as_deref(), Some("last"), "the commit that stops the node is applied");
    assert_fenced(client.commit(by(&writer, put("a", "later"))), &writer);
    let found = node(&client, &writer).unwrap();
    assert_eq!((found.closed_at, found.clean), (Some(receipt.time), true));
}

pub(super) fn a_forgotten_epoch_stays_closed(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (dead, alive) = (open_node(&client, "n1"), open_node(&client, "n2"));
    let forget = || by(&alive, change(NodeChange::Forget { node: dead.clone() }));
    assert!(matches!(client.commit(forget()), Err(StoreError::Leased { .. })), "it is open");
    client.commit(by(&alive, close(&dead, CloseProof::ProcessGone))).unwrap();
    client.commit(forget()).unwrap();
    client.commit(forget()).expect("forgetting twice is no error");
    assert_eq!(node(&client, &dead), None);
    assert_fenced(client.commit(by(&dead, put("a", "1"))), &dead);
    assert!(open_node(&client, "n1").epoch > dead.epoch, "although the clock stood still");
}

pub(super) fn nodes_come_in_pages(world: &dyn StoreUnderTest) {
    let client = client(world);
    let mut opened: Vec<Writer> = ["b", "a", "c", "a"].map(|name| open_node(&client, name)).into();
    opened.sort();
    let first = nodes(&client, None, 3);
    assert!(first.more);
    let second = nodes(&client, first.rows.last().map(|node| node.writer.clone()), 3);
    assert!(!second.more);
    let listed: Vec<Writer> = first.rows.into_iter().chain(second.rows).map(|node| node.writer).collect();
    assert_eq!(listed, opened);
}

pub(super) fn after_a_close_was_answered_nothing_is_written(world: &dyn StoreUnderTest) {
    let (writing, closing) = (client(world), client(world));
    let (dead, alive) = (open_node(&writing, "n1"), open_node(&closing, "n2"));
    writing.commit(by(&dead, put("a", "x"))).unwrap();
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            let begin = Instant::now();
            loop {
                assert!(begin.elapsed() < PATIENCE, "the closed epoch still writes");
                match writing.commit(by(&dead, put("a", "x"))) {
                    Ok(receipt) => written = receipt.put[0].version,
                    Err(StoreError::Fenced { .. }) => return written,
                    Err(error) => panic!("{error}"),
                }
                begun.store(true, Ordering::SeqCst);
            }
        });
        while !begun.load(Ordering::SeqCst) && !writer.is_finished() {
            std::thread::yield_now();
        }
        closing.commit(by(&alive, close(&dead, CloseProof::ProcessGone))).unwrap();
        let left = version(&closing, "a");
        assert_eq!(writer.join().unwrap(), left);
        assert_eq!(version(&closing, "a"), left);
    });
}

pub(super) fn time_never_goes_back(world: &dyn StoreUnderTest) {
    let first = client(world);
    let time = first.commit(put("a", "1")).unwrap().time;
    world.clock().set(Time(time.0 - 5000));
    assert_eq!(first.commit(put("a", "2")).unwrap().time, time);
    assert_eq!(now(&first), time);
    assert_eq!(now(&client(world)), time, "for every handle");
    world.clock().set(time + 7);
    assert_eq!(now(&first), time + 7);
}
