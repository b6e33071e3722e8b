//! The queues of subscriptions in a list, and what their attempts sent.

use super::cluster::{Cluster, HOUR_MS, rules};
use tavern_domain::Time;
use tavern_domain::delivery::{EntryRange, LogMark};
use tavern_hub::topics::{TopicCommand, TopicReply};
use tavern_wire::error::Code;
use tavern_wire::record::{self, ATTEMPT, AttemptRecord, SentRequest, StoredRange};

#[test]
fn list_tells_how_long_the_oldest_event_waits() {
    let mut cluster = Cluster::new(1, None);
    cluster.subscribe("s", &["a"]);
    cluster.subscribe("t", &["a", "b"]);
    let oldest = |cluster: &mut Cluster| {
        let list = TopicCommand::ListSubscriptions { after: String::new(), limit: 9 };
        let Ok(TopicReply::Subscriptions { subscriptions, .. }) = cluster.run("ann", list) else { panic!() };
        subscriptions.iter().map(|one| one.oldest.map(Time::ms)).collect::<Vec<_>>()
    };
    assert_eq!(oldest(&mut cluster), [None, None]);
    cluster.publish(0, "b", 1);
    let first = oldest(&mut cluster)[1].unwrap();
    cluster.pass(1_000);
    cluster.publish(0, "a", 1);
    let second = oldest(&mut cluster)[0].unwrap();
    assert!(second >= first + 1_000);
    assert_eq!(oldest(&mut cluster), [Some(second), Some(first)]);
    cluster.pull("t", None, 1);
    cluster.pull("t", Some(1), 1);
    assert_eq!(oldest(&mut cluster), [Some(second), Some(second)], "the first is acknowledged");
}

#[test]
fn the_body_of_an_attempt_is_made_from_the_log_while_it_is_there() {
    let mut cluster = Cluster::new(1, Some(rules()));
    cluster.subscribe("s", &["a"]);
    let after = cluster.show("s").progress.sealed;
    cluster.publish(0, "b", 2);
    cluster.publish(0, "a", 3);
    let gap_after = LogMark { seq: 8, position: 99 };
    let ranges = [
        EntryRange { after, first: 2, last: 3, gap: false },
        EntryRange { after: gap_after, first: 9, last: 9, gap: true },
    ];
    let ranges = ranges.iter().map(StoredRange::of).collect();
    let request = SentRequest { bytes: 7, ranges, ..SentRequest::default() };
    let attempt = AttemptRecord { number: 1, request, ..AttemptRecord::default() };
    cluster.write(ATTEMPT, &record::attempt_name("s", 1), record::write(&attempt));
    let show = |number| TopicCommand::ShowAttempt { name: "s".into(), number };
    let body = |cluster: &mut Cluster| match cluster.run("ann", show(1)).unwrap() {
        TopicReply::Attempt(shown) if shown.request.ranges.is_empty() => shown.request.body,
        other => panic!("{other:?}"),
    };
    let sent = body(&mut cluster).unwrap();
    assert!(
        sent.starts_with(r#"{"subscription":"s","first_seq":2,"last_seq":9,"events":[{"seq":2,"#),
        "{sent}"
    );
    assert!(
        sent.contains(r#""n":1}"#) && sent.contains(r#""n":2}"#) && sent.contains("tavern.gap"),
        "{sent}"
    );
    assert_eq!(cluster.refused("ann", show(2)), Code::NotFound);
    assert_eq!(cluster.refused("bob", show(1)), Code::NotAllowed);
    cluster.pass(HOUR_MS);
    cluster.publish(0, "a", 1);
    cluster.pass(2 * 60_000);
    assert_eq!(body(&mut cluster), None, "retention removed the events");
}
