//! Topics and their subscriptions through the shards of nodes, with a store in memory and virtual time: administration,
//! pulling, replay, dead letters, retention and budgets.

mod cluster;
mod queues;
mod races;

use cluster::{Cluster, HOUR_MS, pulled, rules, seqs};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{BatchReason, DeliveryOutcome, DeliveryProgress, DisabledReason, LastAttempt};
use tavern_hub::topics::{
    AttemptFilter, BrowseFrom, DeadLetterChoice, PublishResult, ReplayFrom, SubscriptionChange, TopicCommand,
    TopicReply,
};
use tavern_hub::{LivenessTask, RetentionRules, ShardEvent};
use tavern_store::Clock;
use tavern_wire::error::Code;
use tavern_wire::json::event::PublishedEvent;
use tavern_wire::record::{self, ATTEMPT, AttemptRecord, DEAD, DELIVERY, DeadLetterRecord, KeyedPublish};

#[test]
fn subscription_is_created_changed_and_deleted_by_its_owner() {
    let mut cluster = Cluster::new(1, None);
    let TopicReply::Put { created, secret, .. } = cluster.put("ann", "s", pulled(&["a"])).unwrap() else {
        panic!("put")
    };
    assert_eq!((created, secret.as_deref()), (true, Some("whsec_spare")));
    assert_eq!(cluster.put("bob", "s", pulled(&["a"])).unwrap_err().code, Code::NotAllowed);
    let TopicReply::Put { created, secret, .. } = cluster.put("admin", "s", pulled(&["a", "b"])).unwrap()
    else {
        panic!("put")
    };
    assert_eq!((created, secret), (false, None));
    let topics = match cluster.run("ann", TopicCommand::ListTopics { after: String::new(), limit: 10 }) {
        Ok(TopicReply::Topics { topics, next: None }) => topics,
        other => panic!("{other:?}"),
    };
    let shown: Vec<(&str, u64)> = topics.iter().map(|topic| (&*topic.name, topic.subscriptions)).collect();
    assert_eq!(shown, [("a", 1), ("b", 1)]);
    let delete = || TopicCommand::DeleteSubscription { name: "s".into() };
    assert_eq!(cluster.refused("bob", delete()), Code::NotAllowed);
    assert_eq!(cluster.run("ann", delete()).unwrap(), TopicReply::Done);
    assert_eq!(cluster.refused("ann", delete()), Code::NotFound);
    assert!(cluster.document(DELIVERY, "s").is_none());
}

#[test]
fn list_shows_own_subscriptions_in_pages() {
    let mut cluster = Cluster::new(1, None);
    for at in 0..250 {
        let key = if at % 2 == 0 { "ann" } else { "bob" };
        cluster.put(key, &format!("s{at:03}"), pulled(&["a"])).unwrap();
    }
    let mut list = |key: &str, after: &str, limit| {
        let reply = cluster.run(key, TopicCommand::ListSubscriptions { after: after.into(), limit });
        let Ok(TopicReply::Subscriptions { subscriptions, next }) = reply else { panic!("{reply:?}") };
        (subscriptions.len(), next)
    };
    assert_eq!(list("ann", "", 100), (100, Some("s198".into())));
    assert_eq!(list("ann", "s198", 100), (25, None));
    assert_eq!(list("admin", "", 1_000), (250, None));
    assert_eq!(list("eve", "", 10), (0, None));
}

#[test]
fn pull_acknowledges_and_returns_unacknowledged_events_again() {
    let mut cluster = Cluster::new(1, None);
    cluster.subscribe("s", &["a"]);
    cluster.publish(0, "a", 5);
    assert_eq!(seqs(&cluster.pull("s", None, 2)), (2, 1, 2));
    assert_eq!(seqs(&cluster.pull("s", None, 2)), (2, 1, 2), "not acknowledged");
    assert_eq!(seqs(&cluster.pull("s", Some(2), 2)), (2, 3, 4));
    assert_eq!(seqs(&cluster.pull("s", Some(1), 9)), (1, 2, 2), "again, up to what was acknowledged");
    assert_eq!(seqs(&cluster.pull("s", Some(4), 9)), (1, 5, 5));
    assert_eq!(seqs(&cluster.pull("s", Some(5), 9)), (0, 0, 5));
    let ahead = TopicCommand::Pull { name: "s".into(), after: Some(9), limit: 1, wait_ms: 0 };
    assert_eq!(cluster.refused("ann", ahead), Code::BadRequest);
}

#[test]
fn waiting_pull_is_answered_when_something_is_published() {
    let mut cluster = Cluster::new(2, None);
    cluster.subscribe("s", &["a"]);
    let wait = |wait_ms| TopicCommand::Pull { name: "s".into(), after: None, limit: 9, wait_ms };
    let here = cluster.ask(0, "ann", wait(10_000));
    cluster.pass(1_000);
    assert!(cluster.reply(here).is_none());
    cluster.publish(0, "a", 1);
    cluster.pass(5);
    assert!(matches!(cluster.reply(here), Some(Ok(TopicReply::Pulled(pulled))) if pulled.count == 1));
    // Published on another node: found at the next check.
    let after = TopicCommand::Pull { name: "s".into(), after: Some(1), limit: 9, wait_ms: 10_000 };
    let elsewhere = cluster.ask(0, "ann", after);
    cluster.publish(1, "a", 1);
    cluster.pass(500);
    assert!(matches!(cluster.reply(elsewhere), Some(Ok(TopicReply::Pulled(pulled))) if pulled.count == 1));
    let empty = TopicCommand::Pull { name: "s".into(), after: Some(2), limit: 9, wait_ms: 700 };
    let empty = cluster.ask(0, "ann", empty);
    cluster.pass(699);
    assert!(cluster.reply(empty).is_none(), "its time is not over");
    cluster.pass(1);
    assert!(matches!(cluster.reply(empty), Some(Ok(TopicReply::Pulled(pulled))) if pulled.count == 0));
}

#[test]
fn waiting_pull_does_not_read_when_other_topics_grow() {
    let mut cluster = Cluster::new(1, None);
    cluster.subscribe("s", &["quiet"]);
    let wait = TopicCommand::Pull { name: "s".into(), after: None, limit: 9, wait_ms: 10_000 };
    cluster.ask(0, "ann", wait);
    cluster.publish(0, "busy", 1);
    let before = cluster.works;
    for _ in 0..400 {
        cluster.publish(0, "busy", 1);
        cluster.pass(1);
    }
    assert_eq!(cluster.works - before, 400, "one commit each, and no look before half a second is over");
}

#[test]
fn disabled_subscription_is_not_pulled_and_loses_nothing() {
    let mut cluster = Cluster::new(1, None);
    cluster.subscribe("s", &["a"]);
    let switch = |on| TopicCommand::SwitchSubscription { name: "s".into(), on };
    assert_eq!(cluster.run("ann", switch(false)).unwrap(), TopicReply::Done);
    assert_eq!(cluster.show("s").progress.disabled, Some(DisabledReason::Asked));
    cluster.publish(0, "a", 1);
    let pull = TopicCommand::Pull { name: "s".into(), after: None, limit: 1, wait_ms: 0 };
    assert_eq!(cluster.refused("ann", pull), Code::Conflict);
    cluster.run("ann", switch(true)).unwrap();
    assert_eq!(seqs(&cluster.pull("s", None, 9)), (1, 1, 1));
}

#[test]
fn replay_goes_back_by_number_and_by_time() {
    let mut cluster = Cluster::new(1, None);
    cluster.subscribe("s", &["a"]);
    cluster.publish(0, "a", 3);
    cluster.pass(1_000);
    let later = cluster.clock.now();
    cluster.publish(0, "a", 3);
    cluster.pull("s", None, 9);
    cluster.pull("s", Some(6), 9);
    assert_eq!(cluster.replay("s", ReplayFrom::Seq(2)), Ok((2, true)));
    assert_eq!(seqs(&cluster.pull("s", None, 9)), (5, 2, 6));
    cluster.pull("s", Some(6), 9);
    assert_eq!(cluster.replay("s", ReplayFrom::Time(later.ms())), Ok((4, true)));
    assert_eq!(seqs(&cluster.pull("s", None, 9)), (3, 4, 6));
    assert_eq!(cluster.replay("s", ReplayFrom::Seq(7)), Ok((7, false)), "it comes next anyway");
    assert_eq!(cluster.replay("s", ReplayFrom::Seq(8)), Err(Code::BadRequest));
}

#[test]
fn deleted_topic_leaves_its_subscriptions_which_still_get_its_events() {
    let mut cluster = Cluster::new(1, None);
    // More than fit in one commit.
    for at in 0..230 {
        cluster.subscribe(&format!("s{at}"), &["a", "b"]);
    }
    cluster.publish(0, "a", 2);
    let delete = || TopicCommand::DeleteTopic { topic: "a".into() };
    assert_eq!(cluster.refused("bob", delete()), Code::NotAllowed);
    assert_eq!(cluster.run("ann", delete()).unwrap(), TopicReply::Done);
    assert_eq!(cluster.refused("ann", TopicCommand::ShowTopic { topic: "a".into() }), Code::NotFound);
    cluster.publish(0, "b", 1);
    for at in [0, 99, 100, 229] {
        let name = format!("s{at}");
        assert_eq!(cluster.show(&name).subscription.topics, ["b".into()]);
        assert_eq!(seqs(&cluster.pull(&name, None, 9)), (3, 1, 3), "{name}");
    }
}

fn event(id: &str) -> PublishedEvent {
    PublishedEvent { id: (!id.is_empty()).then(|| id.into()), body: b"{}".to_vec() }
}

/// Publishes events with these ids; an empty one means no id.
fn publish(cluster: &mut Cluster, at: usize, once: Option<&str>, ids: &[&str]) -> PublishResult {
    let events = ids.iter().map(|id| event(id)).collect();
    let command = TopicCommand::Publish { topic: "a".into(), once: once.map(Into::into), events };
    let number = cluster.ask(at, "ann", command);
    match cluster.reply(number) {
        Some(Ok(TopicReply::Published(published))) => published,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ids_of_a_deleted_topic_do_not_deduplicate_in_a_new_one() {
    let mut cluster = Cluster::new(1, None);
    let counts = |published: PublishResult| (published.accepted, published.duplicates);
    publish(&mut cluster, 0, Some("k"), &["x", ""]);
    for created_by_subscription in [false, true] {
        cluster.run("ann", TopicCommand::DeleteTopic { topic: "a".into() }).unwrap();
        if created_by_subscription {
            cluster.subscribe("s", &["a"]);
        }
        assert_eq!(counts(publish(&mut cluster, 0, None, &["x"])), (1, 0), "another topic");
        assert_eq!(counts(publish(&mut cluster, 0, None, &["x"])), (0, 1), "the same topic");
        assert_eq!(counts(publish(&mut cluster, 0, Some("k"), &[""])), (1, 0), "also with the same key");
    }
    let page = cluster.pull("s", None, 9);
    assert!(
        String::from_utf8(page.entries).unwrap().starts_with("{\"seq\":1,\"id\":\"x\","),
        "as it was given"
    );
}

#[test]
fn events_of_a_new_topic_are_numbered_from_the_beginning() {
    let mut cluster = Cluster::new(1, None);
    publish(&mut cluster, 0, None, &["x", "y", "z"]);
    cluster.run("ann", TopicCommand::DeleteTopic { topic: "a".into() }).unwrap();
    let first = publish(&mut cluster, 0, None, &["x", "y"]);
    assert_eq!((first.first_seq, first.last_seq), (1, 2));
    assert_eq!(publish(&mut cluster, 0, Some("k"), &["y", "q"]).last_seq, 3);
    let TopicReply::Topic(topic) = cluster.run("ann", TopicCommand::ShowTopic { topic: "a".into() }).unwrap()
    else {
        panic!("shown")
    };
    assert_eq!(topic.events, 3);
    let (entries, next) = browse(&mut cluster, 0, 2);
    assert_eq!((entries, next), (vec![1, 2], Some(2)), "the old events are not shown");
}

/// The numbers of the events in one page of topic `a`, and where the next one begins.
fn browse(cluster: &mut Cluster, after: u64, limit: u32) -> (Vec<u64>, Option<u64>) {
    browse_from(cluster, BrowseFrom::After(after), limit)
}

fn browse_from(cluster: &mut Cluster, from: BrowseFrom, limit: u32) -> (Vec<u64>, Option<u64>) {
    let browse = TopicCommand::BrowseTopic { topic: "a".into(), from, limit };
    let TopicReply::Browsed { entries, next } = cluster.run("ann", browse).unwrap() else {
        panic!("browsed")
    };
    // The events of these tests have no body.
    let entries = String::from_utf8(entries).unwrap();
    let numbers = entries.split("\"seq\":").skip(1);
    (numbers.map(|number| number.split(',').next().unwrap().parse().unwrap()).collect(), next)
}

#[test]
fn page_of_a_topic_begins_after_the_number_of_an_event() {
    let mut cluster = Cluster::new(1, None);
    publish(&mut cluster, 0, None, &["old", "older"]);
    cluster.run("ann", TopicCommand::DeleteTopic { topic: "a".into() }).unwrap();
    for n in 0..7 {
        // Events of another topic are in between: positions in the log are no numbers of the topic.
        let events = vec![event(&format!("b{n}")), event(&format!("c{n}"))];
        cluster.run("ann", TopicCommand::Publish { topic: "b".into(), once: None, events }).unwrap();
        publish(&mut cluster, 0, None, &[&format!("a{n}")]);
    }
    for after in 0..7 {
        let rest: Vec<u64> = (after + 1..=7).take(3).collect();
        let next = (after + 3 < 7).then_some(after + 3);
        assert_eq!(browse(&mut cluster, after, 3), (rest, next), "after {after}");
    }
    assert_eq!(browse(&mut cluster, 7, 3), (vec![], None));
    for before in 1..=9 {
        let last = (before - 1).min(7);
        let rest: Vec<u64> = (1..=last).rev().take(3).collect();
        let next = (last > 3).then(|| last - 2);
        assert_eq!(browse_from(&mut cluster, BrowseFrom::Before(before), 3), (rest, next), "before {before}");
    }
    assert_eq!(browse(&mut cluster, u64::MAX, 3), (vec![], None));
}

#[test]
fn request_with_an_idempotency_key_is_answered_as_the_first_time_on_every_node() {
    let mut cluster = Cluster::new(2, None);
    publish(&mut cluster, 0, None, &["known"]);
    let first = publish(&mut cluster, 0, Some("k"), &["known", "new", ""]);
    let expected = PublishResult { first_seq: 2, last_seq: 3, accepted: 2, duplicates: 1 };
    assert_eq!(first, expected);
    for (at, ids) in [(1, &["known", "new", ""][..]), (1, &["other"]), (0, &["", "", "", "", ""])] {
        assert_eq!(publish(&mut cluster, at, Some("k"), ids), first, "{ids:?}");
    }
    let next = publish(&mut cluster, 1, None, &[""]);
    assert_eq!(next.first_seq, 4, "nothing was added");
    // After a day it is a new request.
    cluster.pass(24 * HOUR_MS);
    let deadlines = cluster.overdue();
    assert_eq!(deadlines.len(), 1);
    for deadline in deadlines {
        cluster.handle(1, ShardEvent::Liveness(LivenessTask::Overdue(deadline)));
    }
    assert_eq!(publish(&mut cluster, 1, Some("k"), &["other"]).first_seq, 5);
}

#[test]
fn key_whose_reply_was_not_stored_adds_nothing() {
    let mut cluster = Cluster::new(1, None);
    publish(&mut cluster, 0, Some("k"), &["x", ""]);
    // The node ended before it stored the reply.
    let kept = KeyedPublish { past_events: 0, ids: vec![Some("x".into()), None], reply: None };
    cluster.write("publish", "a/ann/k", record::write(&kept));
    let other = vec![event("y")];
    let other = TopicCommand::Publish { topic: "a".into(), once: Some("k".into()), events: other };
    assert_eq!(cluster.refused("ann", other), Code::Conflict);
    let again = publish(&mut cluster, 0, Some("k"), &["x", "", "y"]);
    assert_eq!(again, PublishResult { first_seq: 1, last_seq: 2, accepted: 2, duplicates: 0 });
    assert_eq!(publish(&mut cluster, 0, Some("k"), &["y"]), again, "its reply is stored now");
    assert_eq!(publish(&mut cluster, 0, None, &[""]).first_seq, 3);
}

#[test]
fn dead_letters_are_listed_and_retried_once() {
    let mut cluster = Cluster::new(1, None);
    let change = SubscriptionChange { callback: Some("https://x/".into()), pull: None, ..pulled(&["a"]) };
    cluster.put("ann", "s", change).unwrap();
    for seq in 1..=3 {
        let letter = DeadLetterRecord {
            seq,
            gap_through: None,
            after: (seq - 1, seq),
            id: format!("e{seq}").into(),
            topic: "a".into(),
            parked_at: 5,
            reason: "refused".into(),
            event: "{}".into(),
        };
        cluster.write(DEAD, &record::dead_name("s", seq), record::write(&letter));
    }
    let list = |cluster: &mut Cluster, after| {
        let command = TopicCommand::ListDeadLetters { name: "s".into(), after, limit: 2 };
        match cluster.run("ann", command).unwrap() {
            TopicReply::DeadLetters { letters, next } => {
                (letters.iter().map(|letter| letter.seq).collect::<Vec<_>>(), next)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list(&mut cluster, None), (vec![1, 2], Some(2)));
    assert_eq!(list(&mut cluster, Some(2)), (vec![3], None));
    let choice = DeadLetterChoice::Some { seqs: vec![3], ids: vec!["e1".into()] };
    let retry = |choice| TopicCommand::RetryDeadLetters { name: "s".into(), choice };
    let retried = TopicReply::Retried { retried: 2, more: false };
    assert_eq!(cluster.run("ann", retry(choice)).unwrap(), retried);
    assert_eq!(list(&mut cluster, None), (vec![2], None));
    let state = cluster.show("s");
    assert_eq!(state.dead_letters, Some(1));
    assert_eq!(state.progress.batches.iter().map(|batch| batch.entries()).sum::<u64>(), 2);
}

#[test]
fn attempts_are_listed_newest_first_and_deleted_with_the_subscription() {
    let mut cluster = Cluster::new(1, None);
    let change = || SubscriptionChange { callback: Some("https://x/".into()), pull: None, ..pulled(&["a"]) };
    cluster.put("ann", "s", change()).unwrap();
    let mut progress = cluster.show("s").progress;
    let outcome = DeliveryOutcome::Failed;
    progress.last = Some(LastAttempt { number: 203, at: Time(5), reason: BatchReason::Age, outcome });
    cluster.write(DELIVERY, "s", record::write_progress(&progress));
    // The second is older than the last 200: more were kept once.
    for (number, outcome) in [(201, "delivered"), (2, "failed"), (203, "failed"), (202, "failed")] {
        let attempt = AttemptRecord { number, outcome: outcome.into(), ..AttemptRecord::default() };
        cluster.write(ATTEMPT, &record::attempt_name("s", number), record::write(&attempt));
    }
    let list = |cluster: &mut Cluster, filter| {
        let command = TopicCommand::ListAttempts { name: "s".into(), filter };
        match cluster.run("ann", command).unwrap() {
            TopicReply::Attempts { attempts, next } => {
                (attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), next)
            }
            other => panic!("{other:?}"),
        }
    };
    let all = AttemptFilter { limit: 9, ..AttemptFilter::default() };
    assert_eq!(list(&mut cluster, all.clone()), (vec![203, 202, 201], None));
    assert_eq!(list(&mut cluster, AttemptFilter { failed: true, ..all.clone() }), (vec![203, 202], None));
    assert_eq!(list(&mut cluster, AttemptFilter { limit: 2, ..all.clone() }), (vec![203, 202], Some(202)));
    assert_eq!(list(&mut cluster, AttemptFilter { before: Some(202), ..all.clone() }), (vec![201], None));
    let other = TopicCommand::ListAttempts { name: "s".into(), filter: all.clone() };
    assert_eq!(cluster.run("bob", other).unwrap_err().code, Code::NotAllowed);
    cluster.run("ann", TopicCommand::DeleteSubscription { name: "s".into() }).unwrap();
    cluster.put("ann", "s", change()).unwrap();
    assert_eq!(list(&mut cluster, all), (vec![], None));
}

#[test]
fn old_events_become_a_gap_for_subscriptions_that_had_not_received_them() {
    let mut cluster = Cluster::new(2, Some(rules()));
    cluster.subscribe("slow", &["a"]);
    cluster.subscribe("quick", &["a"]);
    cluster.publish(0, "a", 4);
    cluster.pull("quick", None, 9);
    cluster.pull("quick", Some(4), 9);
    cluster.pass(HOUR_MS);
    cluster.publish(0, "a", 1);
    cluster.pass(2 * 60_000);
    assert_eq!(cluster.lost, [("slow".to_owned(), 1, 4)], "reported once, by one node");
    let page = cluster.pull("slow", None, 9);
    assert_eq!(seqs(&page), (2, 1, 5), "a gap and the event after it");
    assert!(String::from_utf8(page.entries).unwrap().contains("tavern.gap"));
    assert_eq!(seqs(&cluster.pull("quick", Some(4), 9)), (1, 5, 5));
    assert_eq!(cluster.replay("quick", ReplayFrom::Seq(2)), Err(Code::BadRequest), "not kept any more");
}

#[test]
fn nothing_is_deleted_by_age_before_the_clock_is_confirmed() {
    let mut cluster = Cluster::new(1, Some(rules()));
    let deletion_lag = |cluster: &Cluster, lag_ms| {
        cluster.nodes[0].shard.core.node().set_deletion_lag(lag_ms);
    };
    cluster.subscribe("slow", &["a"]);
    cluster.publish(0, "a", 4);
    deletion_lag(&cluster, None);
    cluster.pass(3 * HOUR_MS);
    assert_eq!(cluster.lost, []);
    // The clock was ahead by two and a half hours: the events are half an hour old.
    deletion_lag(&cluster, Some(5 * HOUR_MS / 2));
    cluster.pass(5 * 60_000);
    assert_eq!(cluster.lost, []);
    cluster.pass(30 * 60_000);
    assert_eq!(cluster.lost, [("slow".to_owned(), 1, 4)]);
}

#[test]
fn log_is_kept_within_its_bytes() {
    let rules = RetentionRules { max_bytes: 20_000, low_bytes: 10_000, ..rules() };
    let mut cluster = Cluster::new(1, Some(rules));
    cluster.subscribe("s", &["a"]);
    for _ in 0..3 {
        cluster.publish(0, "a", 1_000);
    }
    cluster.pass(5_000);
    let progress = cluster.show("s").progress;
    let shed = progress.dropped.expect("the oldest were dropped");
    assert!((1_500..2_500).contains(&shed.through.seq), "{shed:?}");
    assert_eq!(cluster.lost, [("s".to_owned(), 1, shed.through.seq)]);
}

#[test]
fn subscription_is_kept_within_its_own_budget() {
    let mut cluster = Cluster::new(2, Some(rules()));
    cluster.nodes[1].shard.core.node().set_other_nodes(vec!["n0".into()]);
    let change = SubscriptionChange { max_backlog_bytes: Some(65_536), ..pulled(&["a"]) };
    cluster.put("ann", "bounded", change).unwrap();
    cluster.subscribe("unbounded", &["a"]);
    for _ in 0..10 {
        cluster.publish(0, "a", 1_000);
    }
    cluster.pass(5_000);
    let shed = cluster.show("bounded").progress.dropped.expect("the oldest were dropped");
    assert_eq!(cluster.lost, [("bounded".to_owned(), 1, shed.through.seq)]);
    assert_eq!(cluster.show("unbounded").progress.dropped, None);
    assert_eq!(seqs(&cluster.pull("bounded", None, 1)), (1, 1, shed.through.seq));
}

#[test]
fn every_command_gets_one_reply_for_every_store_failure() {
    let mut cluster = Cluster::with_luck(2, Some(rules()), true);
    let mut asked = Vec::new();
    for round in 0..200_u64 {
        let at = (round % 2) as usize;
        let name: Arc<str> = format!("s{}", round % 3).into();
        let command = match round % 8 {
            0 => TopicCommand::PutSubscription { name, change: Box::new(pulled(&["a"])) },
            1 => TopicCommand::Replay { name, from: ReplayFrom::Seq(1) },
            2 => TopicCommand::Pull { name, after: None, limit: 5, wait_ms: 300 },
            3 => TopicCommand::SwitchSubscription { name, on: round % 16 == 3 },
            4 => TopicCommand::DeleteSubscription { name },
            5 => TopicCommand::ListSubscriptions { after: String::new(), limit: 10 },
            6 => TopicCommand::ShowSubscription { name },
            _ => {
                let events = vec![PublishedEvent { id: None, body: b"{}".to_vec() }];
                TopicCommand::Publish { topic: "a".into(), once: None, events }
            }
        };
        asked.push(cluster.ask(at, "ann", command));
        cluster.pass(50);
    }
    cluster.pass(10_000);
    for number in asked {
        assert!(cluster.reply(number).is_some(), "command {number}");
    }
    assert!(cluster.replies.is_empty(), "one reply each");
    for at in 0..2 {
        assert!(!cluster.nodes[at].shard.core.node().has_pulls(0));
    }
    let progress = cluster.document(DELIVERY, "s0").map(|found| record::read_progress(&found.body).unwrap());
    assert!(progress.is_none_or(|progress: DeliveryProgress| progress.batches.is_empty()));
}
