//! Work and answers: every work is answered once; limits; unknown rows; stopping.

use super::fixture::*;
use super::{presence, social};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};

/// Counts the answers to each ticket.
#[derive(Default)]
struct AnswerCounts {
    answers: Mutex<BTreeMap<u64, Vec<StoreAnswer>>>,
    arrived: Condvar,
}

impl AnswerReceiver for AnswerCounts {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        let mut counts = self.answers.lock().unwrap();
        for (ticket, answer) in answers {
            counts.entry(ticket.0).or_default().push(answer);
        }
        self.arrived.notify_all();
    }
}

pub(super) fn unknown_rows_are_not_found(world: &dyn StoreUnderTest) {
    let client = client(world);
    let none = |read: Read| client.read(read).unwrap();
    assert_eq!(none(Read::Document(key("nothing"))), Found::Document(None));
    assert_eq!(none(Read::Session(ClientId::from_random(1))), Found::Session(None));
    assert_eq!(none(Read::KeyByHash([0; 32])), Found::Key(None));
    let deletes = vec![
        RowKey::Document(key("nothing")),
        RowKey::Session(ClientId::from_random(1)),
        RowKey::Key("nobody".into()),
        Deadline::new(Time(1), "grace", "x").key(),
    ];
    client.commit(Commit { deletes, ..Commit::default() }).expect("deleting nothing is no error");
    client.commit(Commit::default()).expect("an empty commit is one");
    let missing = (RowKey::Key("nobody".into()), 1, 0);
    let expects = vec![Expect { key: missing.0.clone(), version: 1 }];
    assert_conflict(client.commit(Commit { expects, ..Commit::default() }), missing);
}

pub(super) fn bounds_are_the_same_everywhere(world: &dyn StoreUnderTest) {
    let client = client(world);
    let body = |bytes| "x".repeat(bytes);
    client.commit(put("largest", &body(limits::BODY_BYTES - "thing".len() - "largest".len()))).unwrap();
    client.commit(put(&body(limits::NAME_BYTES), "x")).unwrap();
    let max = (0..limits::COMMIT_ITEMS).map(|n| row(&n.to_string(), ""));
    client.commit(Commit { puts: max.collect(), ..Commit::default() }).unwrap();
    let long_lease = NodeChange::Open { name: "n1".into(), lease_ms: limits::LEASE_MS + 1 };
    let long_name = NodeChange::Open { name: body(65).into(), lease_ms: 1 };
    let large = body(limits::BODY_BYTES - 100);
    for (what, commit) in [
        ("body", put("toolarge", &body(limits::BODY_BYTES))),
        ("name", put(&body(limits::NAME_BYTES + 1), "x")),
        ("items", Commit { expects: vec![expect("a", 0); limits::COMMIT_ITEMS], ..put("toolarge", "x") }),
        ("bytes", Commit { puts: vec![row("toolarge", &large); 5], ..Commit::default() }),
        ("lease", Commit { node: Some(long_lease), ..Commit::default() }),
        ("node", Commit { node: Some(long_name), ..Commit::default() }),
    ] {
        let outcome = client.commit(commit);
        assert!(matches!(outcome, Err(StoreError::TooLarge { .. })), "{what}: {outcome:?}");
    }
    assert_eq!(version(&client, "toolarge"), 0);
    match client.read(Read::Keys { after: None, limit: u32::MAX }) {
        Ok(Found::Keys(page)) => assert_eq!(page.rows, []),
        other => panic!("{other:?}"),
    }
}

pub(super) fn a_zero_byte_in_a_text_is_refused(world: &dyn StoreUnderTest) {
    let client = client(world);
    let hold = |channel: &str, held_with: &str| {
        Row::Hold(PresenceHold {
            key: PresenceKey::new(channel, "ann"),
            held_with: Some(held_with.into()),
            until: None,
        })
    };
    let key = |key: RowKey| Commit { deletes: vec![key], ..Commit::default() };
    let follow = |follower: &str, followee: &str| {
        key(RowKey::Follow { follower: follower.into(), followee: followee.into() })
    };
    let seen = LastSeenUpdate { user: "a\0".into(), at: Time(1) };
    let raise = ChannelVersionBump { channel: "a\0b".into(), by: 1 };
    let named = NodeChange::Open { name: "n\0".into(), lease_ms: 1 };
    for (what, commit) in [
        ("document", put("zero\0", "x")),
        ("expectation", Commit { expects: vec![expect("zero\0", 0)], ..Commit::default() }),
        ("key", key(RowKey::Key("\0".into()))),
        ("presence", presence::arrive("game#\0", "ann")),
        ("user of a presence", presence::arrive("game#A", "a\0nn")),
        ("hold", Commit { puts: vec![hold("a\0", "b")], ..Commit::default() }),
        ("held_with", Commit { puts: vec![hold("a", "b\0")], ..Commit::default() }),
        ("follower", follow("a\0", "b")),
        ("followee", follow("a", "b\0")),
        ("deadline", Commit { deadlines: vec![Deadline::new(Time(1), "grace", "\0")], ..Commit::default() }),
        ("seen", Commit { seen: vec![seen], ..Commit::default() }),
        ("raise", Commit { raises: vec![raise], ..Commit::default() }),
        ("node", Commit { node: Some(named), ..Commit::default() }),
    ] {
        let outcome = client.commit(commit);
        assert!(matches!(outcome, Err(StoreError::TooLarge { .. })), "{what}: {outcome:?}");
    }
    client.commit(put("body", "a\0b")).unwrap();
    assert_eq!(text(&client, "body").as_deref(), Some("a\0b"), "a body is no text");
}

pub(super) fn the_channel_that_a_hold_follows_is_bounded(world: &dyn StoreUnderTest) {
    let client = client(world);
    let hold = |bytes: usize| {
        let (key, held_with) = (PresenceKey::new("active#1", "ann"), Some("c".repeat(bytes).into()));
        Commit { puts: vec![Row::Hold(PresenceHold { key, held_with, until: None })], ..Commit::default() }
    };
    let max = limits::NAME_BYTES - "ann".len();
    client.commit(hold(max)).unwrap();
    assert!(matches!(client.commit(hold(max + 1)), Err(StoreError::TooLarge { .. })));
}

fn mixed(count: u64) -> Vec<(Ticket, Work)> {
    let work = |n: u64| match n % 4 {
        0 => Work::Commit(put(&format!("d{n}"), "x")),
        1 => Work::Read(Read::Document(key("d0"))),
        2 => Work::Commit(Commit { expects: vec![expect("no", 9)], ..Commit::default() }),
        _ => Work::Commit(put("toolarge", &"x".repeat(limits::BODY_BYTES))),
    };
    (0..count).map(|n| (Ticket(n), work(n))).collect()
}

pub(super) fn every_work_is_answered_once(world: &dyn StoreUnderTest) {
    let counts = Arc::new(AnswerCounts::default());
    let store = world.open(counts.clone());
    for batch in mixed(80).chunks(9) {
        store.submit(batch.to_vec());
    }
    store.submit(Vec::new());
    let answers = counts.answers.lock().unwrap();
    let waiting = |answers: &mut BTreeMap<u64, Vec<StoreAnswer>>| answers.len() < 80;
    let (answers, waited) = counts.arrived.wait_timeout_while(answers, PATIENCE, waiting).unwrap();
    assert!(!waited.timed_out(), "only {} answers", answers.len());
    for (n, answers) in answers.iter() {
        let right = matches!(
            (n % 4, &answers[..]),
            (0, [StoreAnswer::Committed(_)])
                | (1, [StoreAnswer::Read(_)])
                | (2, [StoreAnswer::Failed(StoreError::Conflict { .. })])
                | (3, [StoreAnswer::Failed(StoreError::TooLarge { .. })])
        );
        assert!(right, "{n}: {answers:?}");
    }
    drop(answers);
    store.stop();
}

pub(super) fn stopping_finishes_what_was_submitted(world: &dyn StoreUnderTest) {
    let counts = Arc::new(AnswerCounts::default());
    let store = world.open(counts.clone());
    store.submit(mixed(80));
    store.stop();
    store.stop();
    assert_eq!(counts.answers.lock().unwrap().len(), 80);
    let client = client(world);
    (0..80).step_by(4).for_each(|n| assert_ne!(version(&client, &format!("d{n}")), 0));
}

pub(super) fn a_stopped_store_is_unavailable(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.store().stop();
    for answer in client.run(vec![Work::Commit(put("a", "x")), Work::Read(Read::Time)]) {
        assert!(matches!(answer, StoreAnswer::Failed(StoreError::Unavailable { .. })), "{answer:?}");
    }
}

pub(super) fn another_handle_sees_committed_rows(world: &dyn StoreUnderTest) {
    let (one, two) = (client(world), client(world));
    for n in 0..20 {
        let (writing, reading) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let put = writing.commit(put("a", &n.to_string())).unwrap().put[0].version;
        assert_eq!(version(reading, "a"), put);
        assert_eq!(text(writing, "a"), Some(n.to_string()));
    }
}

pub(super) fn reads_of_one_batch_are_answered_as_if_alone(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (channel, user) in [("game#1", "ann"), ("game#1", "bob"), ("lobby", "ann")] {
        client.commit(presence::arrive(channel, user)).unwrap();
    }
    for (follower, followee) in [("ann", "bob"), ("bob", "ann"), ("ann", "cid")] {
        client.commit(social::follow(follower, followee, 1)).unwrap();
    }
    let presence = |channel, user| Read::Presence(PresenceKey::new(channel, user));
    let people = |names: &[&str]| Read::People {
        users: names.iter().map(|name| Arc::from(*name)).collect(),
        viewer: None,
    };
    let following = |user: &str, limit| Read::Following { user: user.into(), after: None, limit };
    let reads = [
        presence("game#1", "ann"),
        presence("game#1", "nobody"),
        presence("game#1", "bob"),
        presence("lobby", "ann"),
        presence("game#1", "ann"),
        Read::Session(ClientId::from_random(1)),
        people(&["bob", "ann"]),
        people(&["ann"]),
        people(&["nobody", "ann", "bob"]),
        people(&[]),
        following("ann", limits::PAGE_ROWS),
        following("bob", limits::PAGE_ROWS),
        following("nobody", limits::PAGE_ROWS),
        following("ann", 1),
        following("ann", limits::PAGE_ROWS),
    ];
    let alone: Vec<Found> = reads.iter().map(|read| client.read(read.clone()).unwrap()).collect();
    let together = client.run(reads.into_iter().map(Work::Read).collect());
    for (at, (alone, together)) in alone.into_iter().zip(together).enumerate() {
        match together {
            StoreAnswer::Read(found) => assert_eq!(found, alone, "the read at {at}"),
            other => panic!("the read at {at} was answered with {other:?}"),
        }
    }
}
