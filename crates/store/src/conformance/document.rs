//! Expectations, conflicts and versions, tested on documents. They hold for every kind of row.

use super::deadline;
use super::fixture::*;
use crate::clock::Clock;
use std::sync::Barrier;
use tavern_domain::Scopes;

pub(super) fn a_met_expectation_raises_the_version_by_one(world: &dyn StoreUnderTest) {
    let client = client(world);
    let first = client.commit(put("a", "1")).unwrap().put[0].version;
    let second = client.commit(Commit { expects: vec![expect("a", first)], ..put("a", "2") }).unwrap();
    assert_eq!(versions(&second.put), [first + 1]);
    assert_eq!(version(&client, "a"), first + 1);
    assert_eq!(text(&client, "a").as_deref(), Some("2"));
}

pub(super) fn a_conflict_reports_the_version_found(world: &dyn StoreUnderTest) {
    let client = client(world);
    let found = client.commit(put("a", "1")).unwrap().put[0].version;
    let key = RowKey::Document(key("a"));
    for expected in [0, found - 1, found + 1, u64::MAX] {
        let outcome = client.commit(Commit { expects: vec![expect("a", expected)], ..put("a", "2") });
        assert_conflict(outcome, (key.clone(), expected, found));
    }
    assert_eq!(text(&client, "a").as_deref(), Some("1"));
}

pub(super) fn version_zero_means_absent(world: &dyn StoreUnderTest) {
    let client = client(world);
    let create = || Commit { expects: vec![expect("a", 0)], ..put("a", "1") };
    let version = client.commit(create()).unwrap().put[0].version;
    assert_conflict(client.commit(create()), (RowKey::Document(key("a")), 0, version));
    let outcome = client.commit(Commit { expects: vec![expect("b", 7)], ..put("b", "1") });
    assert_conflict(outcome, (RowKey::Document(key("b")), 7, 0));
}

pub(super) fn one_unmet_expectation_refuses_the_whole_commit(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(put("old", "stays")).unwrap();
    let a = client.commit(put("a", "1")).unwrap().put[0].version;
    let api_key = ApiKey {
        id: "k".into(),
        name: "k".into(),
        hash: [1; 32],
        scopes: Scopes::ALL,
        created_at: Time(1),
        revoked_at: None,
        expires_at: None,
        last_used_at: None,
    };
    let mut commit = Commit {
        expects: vec![expect("a", a), expect("b", 7)],
        puts: vec![row("a", "2"), row("b", "1"), Row::Key(api_key)],
        deletes: vec![RowKey::Document(key("old"))],
        deadlines: vec![Deadline::new(Time(1), "grace", "a")],
        ..Commit::default()
    };
    assert_conflict(client.commit(commit.clone()), (RowKey::Document(key("b")), 7, 0));
    assert_eq!(text(&client, "a").as_deref(), Some("1"));
    assert_eq!(text(&client, "b"), None);
    assert_eq!(text(&client, "old").as_deref(), Some("stays"));
    assert!(matches!(client.read(Read::KeyByHash([1; 32])), Ok(Found::Key(None))));
    assert_eq!(deadline::deadlines(&client, Time::NEVER).rows, []);

    commit.expects[1].version = 0;
    let receipt = client.commit(commit).unwrap();
    assert_eq!(receipt.put[0].version, a + 1);
    assert_eq!((text(&client, "b").as_deref(), text(&client, "old")), (Some("1"), None));
    assert_eq!(deadline::deadlines(&client, Time::NEVER).rows.len(), 1);
}

pub(super) fn a_put_without_expectation_writes(world: &dyn StoreUnderTest) {
    let client = client(world);
    let first = client.commit(put("a", "1")).unwrap().put[0].version;
    let twice = Commit { puts: vec![row("a", "2"), row("a", "3")], ..Commit::default() };
    assert_eq!(versions(&client.commit(twice).unwrap().put), [first + 1, first + 2]);
    assert_eq!(text(&client, "a").as_deref(), Some("3"));
}

pub(super) fn versions_begin_at_the_stores_time(world: &dyn StoreUnderTest) {
    let client = client(world);
    let receipt = client.commit(put("a", "1")).unwrap();
    assert_eq!(versions(&receipt.put), [receipt.time.0 * 1000]);
    world.clock().advance(5);
    let later = client.commit(put("b", "1")).unwrap();
    assert_eq!(later.time, receipt.time + 5);
    assert_eq!(versions(&later.put), [receipt.put[0].version + 5000]);
    let again = client.commit(put("a", "2")).unwrap();
    assert_eq!(versions(&again.put), [receipt.put[0].version + 1], "only the beginning follows the clock");
}

pub(super) fn versions_grow_through_deletion(world: &dyn StoreUnderTest) {
    // The clock stops and then goes back: the hardest case for a version that is derived from the time.
    let client = client(world);
    let mut last = 0;
    for round in 0..3 {
        for _ in 0..3 {
            let version = client.commit(put("a", "x")).unwrap().put[0].version;
            assert!(version > last, "round {round}: {version} after {last}");
            last = version;
        }
        let deleted = client.commit(delete("a")).unwrap().deleted[0].version;
        assert_eq!(deleted, last + 1, "deleting is a change");
        last = deleted;
        assert_eq!(version(&client, "a"), 0);
        world.clock().set(world.clock().now() - 1000);
    }
}

pub(super) fn a_row_deleted_and_put_in_one_commit_is_new(world: &dyn StoreUnderTest) {
    let client = client(world);
    let first = client.commit(put("a", "1")).unwrap().put[0].version;
    let receipt = client.commit(Commit { puts: vec![row("a", "2")], ..delete("a") }).unwrap();
    assert_eq!((versions(&receipt.deleted), versions(&receipt.put)), (vec![first + 1], vec![first + 2]));
    assert_eq!(receipt.version(&receipt.deleted[0].key), Some(first + 2), "it is put last");
    assert_eq!(text(&client, "a").as_deref(), Some("2"));
}

pub(super) fn a_refusal_concerns_only_its_own_commit(world: &dyn StoreUnderTest) {
    let client = client(world);
    let works = (0..30).map(|n| {
        let expects = if n % 3 == 1 { vec![expect("missing", 7)] } else { Vec::new() };
        Work::Commit(Commit { expects, ..put(&format!("d{n}"), "x") })
    });
    for (n, answer) in client.run(works.collect()).into_iter().enumerate() {
        let refused = matches!(answer, StoreAnswer::Failed(StoreError::Conflict { .. }));
        assert_eq!(refused, n % 3 == 1, "{n}: {answer:?}");
        assert_eq!(version(&client, &format!("d{n}")) == 0, refused, "{n}");
    }
}

pub(super) fn of_two_racing_commits_exactly_one_wins(world: &dyn StoreUnderTest) {
    let clients = [client(world), client(world)];
    let start = Barrier::new(clients.len());
    for round in 0..40 {
        let name = format!("r{round}");
        let race = |client: &BlockingStore| {
            start.wait();
            client.commit(Commit { expects: vec![expect(&name, 0)], ..put(&name, "x") })
        };
        let race = &race;
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = clients.iter().map(|client| scope.spawn(move || race(client))).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        let lost = outcomes.into_iter().find(Result::is_err).unwrap();
        assert_conflict(lost, (RowKey::Document(key(&name)), 0, version(&clients[0], &name)));
    }
}

pub(super) fn concurrent_increments_are_not_lost(world: &dyn StoreUnderTest) {
    const EACH: u64 = 25;
    let clients = [client(world), client(world), client(world)];
    let first = clients[0].commit(put("sum", "0")).unwrap().put[0].version;
    let count = |client: &BlockingStore| {
        for _ in 0..EACH {
            loop {
                let found = read(client, "sum").unwrap();
                let sum: u64 = std::str::from_utf8(&found.row.body).unwrap().parse().unwrap();
                let expects = vec![expect("sum", found.version)];
                match client.commit(Commit { expects, ..put("sum", &(sum + 1).to_string()) }) {
                    Ok(_) => break,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let count = &count;
    std::thread::scope(|scope| clients.iter().for_each(|client| drop(scope.spawn(move || count(client)))));
    let all = EACH * clients.len() as u64;
    assert_eq!(text(&clients[0], "sum"), Some(all.to_string()));
    assert_eq!(version(&clients[0], "sum"), first + all);
}
