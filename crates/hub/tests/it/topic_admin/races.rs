//! Retention while others use the log: its requests are slow, and the log changes in the meantime.

use super::cluster::{Cluster, HOUR_MS, SLOW_MS, pulled, rules, seqs};
use tavern_domain::delivery::{DeliveryProgress, LogMark};
use tavern_hub::RetentionRules;
use tavern_hub::topics::{DeadLetterChoice, ReplayFrom, SubscriptionChange, TopicCommand, TopicReply};
use tavern_store::{Read, Work};
use tavern_wire::json::event::PublishedEvent;
use tavern_wire::record::{self, COPY, DEAD, DELIVERY, DeadLetterRecord};

/// The second node drops nothing.
fn two_nodes(retention: RetentionRules) -> Cluster {
    let mut cluster = Cluster::new(1, Some(retention));
    cluster.open(1, None);
    cluster
}

fn is_trim(node: &str, work: &Work) -> bool {
    node == "n0" && matches!(work, Work::Commit(commit) if commit.trim.is_some())
}

#[test]
fn event_that_is_published_during_a_trim_is_not_lost() {
    let mut cluster = two_nodes(rules());
    cluster.subscribe("both", &["a", "b"]);
    cluster.subscribe("one", &["a"]);
    cluster.publish(1, "a", 4);
    cluster.pass(HOUR_MS);
    // The topic has no newer event when the first subscription is checked, and one when the second is.
    cluster.pass_until_slow(|node, work| match work {
        Work::Read(Read::Topics { names, .. }) => node == "n0" && names.len() == 1,
        _ => false,
    });
    cluster.publish(1, "a", 1);
    cluster.pass(2 * SLOW_MS);
    cluster.lost.sort();
    assert_eq!(cluster.lost, [("both".to_owned(), 1, 4), ("one".to_owned(), 1, 4)]);
    assert_eq!(seqs(&cluster.pull("one", None, 9)), (2, 1, 5), "a gap and the event after it");
}

fn publish_large(cluster: &mut Cluster, events: usize) {
    let event = || PublishedEvent { id: None, body: vec![b' '; 2_500] };
    let events = (0..events).map(|_| event()).collect();
    let command = TopicCommand::Publish { topic: "a".into(), once: None, events };
    let number = cluster.ask(0, "ann", command);
    assert!(matches!(cluster.reply(number), Some(Ok(TopicReply::Published(_)))));
}

#[test]
fn two_nodes_that_trim_the_log_at_once_drop_no_more_than_one() {
    let rules = RetentionRules { max_bytes: 20_000, low_bytes: 10_000, ..rules() };
    let mut cluster = Cluster::new(2, Some(rules));
    cluster.subscribe("s", &["a"]);
    cluster.pass(10_000);
    publish_large(&mut cluster, 10);
    // It knows how large the log is, and not yet what is in it. The other node trims the log.
    cluster.pass_until_slow(|node, work| node == "n0" && matches!(work, Work::Read(Read::Log { .. })));
    cluster.pass(3 * SLOW_MS);
    assert_eq!(cluster.lost, [("s".to_owned(), 1, 6)], "10,000 bytes are kept");
}

#[test]
fn dead_letter_that_is_retried_during_a_trim_is_copied() {
    let mut cluster = two_nodes(rules());
    let change = SubscriptionChange { callback: Some("https://x/".into()), pull: None, ..pulled(&["a"]) };
    cluster.put("ann", "s", change).unwrap();
    cluster.publish(1, "a", 1);
    let progress = DeliveryProgress::starting(LogMark { seq: 1, position: 1 });
    cluster.write(DELIVERY, "s", record::write_progress(&progress));
    let letter = DeadLetterRecord {
        seq: 1,
        gap_through: None,
        after: (0, 0),
        id: "e1".into(),
        topic: "a".into(),
        parked_at: 5,
        reason: "refused".into(),
        event: "{}".into(),
    };
    cluster.write(DEAD, &record::dead_name("s", 1), record::write(&letter));
    cluster.pass(HOUR_MS);
    cluster.pass_until_slow(is_trim);
    let retry = TopicCommand::RetryDeadLetters { name: "s".into(), choice: DeadLetterChoice::All };
    let number = cluster.ask(1, "ann", retry);
    assert!(matches!(cluster.reply(number), Some(Ok(TopicReply::Retried { retried: 1, .. }))));
    cluster.pass(2 * SLOW_MS + 60_000);
    assert!(cluster.document(COPY, &record::copy_name("s", 1)).is_some(), "the log has dropped the event");
}

/// Puts a subscription while the log is trimmed: it has read the end of the log, and is not stored yet.
fn put_during_a_trim(cluster: &mut Cluster) {
    cluster.publish(1, "a", 1);
    cluster.pass(10_000);
    cluster.slow_down(|node, work| match work {
        Work::Commit(commit) => node == "n1" && commit.puts.len() > 2,
        Work::Read(_) => false,
    });
    let (name, change) = ("s".into(), Box::new(pulled(&["a"])));
    let number = cluster.ask(1, "ann", TopicCommand::PutSubscription { name, change });
    publish_large(cluster, 10);
    cluster.pass(3 * SLOW_MS);
    assert!(matches!(cluster.reply(number), Some(Ok(TopicReply::Put { .. }))));
    cluster.publish(1, "a", 1);
    let page = cluster.pull("s", None, 9);
    assert_eq!(page.last_seq, cluster.show("s").seq, "the number of the last event");
}

#[test]
fn subscription_created_during_a_trim_counts_every_event() {
    put_during_a_trim(&mut two_nodes(RetentionRules { max_bytes: 20_000, low_bytes: 0, ..rules() }));
}

#[test]
fn topic_added_during_a_trim_counts_every_event() {
    let mut cluster = two_nodes(RetentionRules { max_bytes: 20_000, low_bytes: 0, ..rules() });
    cluster.subscribe("s", &["b"]);
    put_during_a_trim(&mut cluster);
}

#[test]
fn pull_during_a_trim_is_not_refused() {
    let mut cluster = two_nodes(rules());
    cluster.subscribe("s", &["a"]);
    cluster.publish(1, "a", 3);
    assert_eq!(seqs(&cluster.pull("s", None, 9)), (3, 1, 3));
    cluster.pass(HOUR_MS);
    cluster.pass_until_slow(is_trim);
    // Its progress is read before the trim, the log after it.
    let slow = |node: &str, work: &Work| match work {
        Work::Read(Read::Document(key)) => node == "n1" && key.kind() == "subscription",
        _ => false,
    };
    cluster.slow_down(slow);
    let pull = TopicCommand::Pull { name: "s".into(), after: Some(3), limit: 9, wait_ms: 0 };
    let number = cluster.ask(1, "ann", pull);
    cluster.pass(3 * SLOW_MS);
    match cluster.reply(number) {
        Some(Ok(TopicReply::Pulled(pulled))) => assert_eq!(seqs(&pulled), (0, 0, 3)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn backlog_limit_holds_when_only_other_events_were_dropped() {
    let mut cluster = Cluster::new(1, Some(rules()));
    let change = SubscriptionChange { max_backlog_bytes: Some(65_536), ..pulled(&["a"]) };
    cluster.put("ann", "bounded", change).unwrap();
    cluster.publish(0, "b", 3);
    cluster.pass(HOUR_MS + 2 * 60_000);
    publish_large(&mut cluster, 40);
    cluster.pass(5_000);
    assert!(cluster.show("bounded").progress.dropped.is_some(), "100,000 bytes wait");
}

#[test]
fn backlog_limit_that_was_removed_drops_nothing() {
    let mut cluster = two_nodes(rules());
    let limit = |max_backlog_bytes| SubscriptionChange {
        max_backlog_bytes: Some(max_backlog_bytes),
        ..pulled(&["a"])
    };
    cluster.put("ann", "s", limit(65_536)).unwrap();
    cluster.pass(10_000);
    cluster.pass_until_slow(|node, work| match work {
        Work::Read(Read::Document(key)) => node == "n0" && key.kind() == DELIVERY,
        _ => false,
    });
    cluster.put("ann", "s", limit(0)).unwrap();
    publish_large(&mut cluster, 40);
    cluster.pass(2 * SLOW_MS);
    assert_eq!(cluster.lost, []);
}

#[test]
fn id_is_known_for_a_day_although_its_event_was_dropped() {
    let mut cluster = Cluster::new(1, Some(rules()));
    let publish = |cluster: &mut Cluster| {
        let events = vec![PublishedEvent { id: Some("x".into()), body: b"{}".to_vec() }];
        let command = TopicCommand::Publish { topic: "a".into(), once: None, events };
        match cluster.run("ann", command) {
            Ok(TopicReply::Published(published)) => published.accepted,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(publish(&mut cluster), 1);
    cluster.pass(23 * HOUR_MS);
    assert_eq!(publish(&mut cluster), 0, "a duplicate, 22 hours after its event was dropped");
    cluster.pass(3 * HOUR_MS);
    assert_eq!(publish(&mut cluster), 1, "after a day it is new");
}

#[test]
fn topic_that_was_created_and_deleted_in_between_counts_from_one() {
    let mut cluster = Cluster::new(2, None);
    let delete = || TopicCommand::DeleteTopic { topic: "a".into() };
    cluster.publish(0, "a", 3);
    assert_eq!(cluster.run("ann", delete()).unwrap(), TopicReply::Done);
    // It has counted the events of the deleted topic, and is not stored yet.
    cluster.slow_down(|node, work| node == "n1" && matches!(work, Work::Commit(_)));
    let events = vec![PublishedEvent { id: None, body: b"{}".to_vec() }];
    let publish = TopicCommand::Publish { topic: "a".into(), once: None, events };
    let number = cluster.ask(1, "ann", publish);
    cluster.publish(0, "a", 2);
    assert_eq!(cluster.run("ann", delete()).unwrap(), TopicReply::Done);
    cluster.pass(3 * SLOW_MS);
    match cluster.reply(number) {
        Some(Ok(TopicReply::Published(published))) => assert_eq!(published.first_seq, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn replay_during_a_trim_is_not_refused() {
    let mut cluster = two_nodes(rules());
    cluster.subscribe("s", &["a"]);
    cluster.publish(1, "a", 3);
    cluster.pass(HOUR_MS / 2);
    cluster.publish(1, "a", 3);
    assert_eq!(seqs(&cluster.pull("s", None, 9)), (6, 1, 6));
    assert_eq!(seqs(&cluster.pull("s", Some(6), 9)), (0, 0, 6));
    cluster.pass(HOUR_MS / 2);
    cluster.pass_until_slow(is_trim);
    // It has read where the log begins before the trim, and counts its events after it.
    cluster.slow_down(|node, work| node == "n1" && matches!(work, Work::Read(Read::Log { .. })));
    let replay = TopicCommand::Replay { name: "s".into(), from: ReplayFrom::Seq(5) };
    let number = cluster.ask(1, "ann", replay);
    cluster.pass(6 * SLOW_MS);
    match cluster.reply(number) {
        Some(Ok(TopicReply::Replayed { from_seq: 5, rewound: true })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn copy_of_a_settled_batch_is_deleted() {
    let mut cluster = Cluster::new(1, Some(rules()));
    cluster.subscribe("s", &["a"]);
    let name = record::copy_name("s", 7);
    cluster.write(COPY, &name, b"[]".to_vec());
    assert!(cluster.document(COPY, &name).is_some());
    cluster.pass(HOUR_MS);
    assert!(cluster.document(COPY, &name).is_none(), "the subscription has no such batch");
}
