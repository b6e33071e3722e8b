//! Deadlines: ordered by time, settled once.

use super::fixture::*;

pub(super) fn deadlines(client: &BlockingStore, by: Time) -> Page<Deadline> {
    deadlines_after(client, by, None, 100)
}

fn deadlines_after(client: &BlockingStore, by: Time, after: Option<Deadline>, limit: u32) -> Page<Deadline> {
    match client.read(Read::DueDeadlines { by, after, limit }) {
        Ok(Found::Deadlines(page)) => page,
        other => panic!("no deadlines but {other:?}"),
    }
}

fn set(deadlines: &[(u64, &str, &str)]) -> Commit {
    let deadline = |&(due, kind, name): &(u64, &str, &str)| Deadline::new(Time(due), kind, name);
    Commit { deadlines: deadlines.iter().map(deadline).collect(), ..Commit::default() }
}

fn settle(key: RowKey, due: Time) -> Commit {
    let expects = vec![Expect { key: key.clone(), version: due.0 }];
    Commit { expects, deletes: vec![key], ..Commit::default() }
}

pub(super) fn deadlines_come_in_order_of_time(world: &dyn StoreUnderTest) {
    let client = client(world);
    client
        .commit(set(&[(30, "grace", "c"), (10, "invite", "a"), (20, "grace", "b"), (10, "grace", "z")]))
        .unwrap();
    let names =
        |by| deadlines(&client, Time(by)).rows.iter().map(|one| one.name.to_string()).collect::<String>();
    assert_eq!(names(9), "");
    assert_eq!(names(10), "za", "at its time it has passed");
    assert_eq!(names(29), "zab");
    assert_eq!(names(u64::MAX), "zabc");
}

pub(super) fn setting_a_deadline_again_moves_it(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(set(&[(10, "grace", "a")])).unwrap();
    client.commit(set(&[(20, "grace", "a"), (15, "invite", "a")])).unwrap();
    let rows = deadlines(&client, Time::NEVER).rows;
    assert_eq!(rows, [Deadline::new(Time(15), "invite", "a"), Deadline::new(Time(20), "grace", "a")]);
    assert_eq!(deadlines(&client, Time(14)).rows, []);
}

pub(super) fn a_deadline_that_moved_is_not_settled(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(set(&[(10, "grace", "a")])).unwrap();
    let seen = deadlines(&client, Time(10)).rows.remove(0);
    client.commit(set(&[(20, "grace", "a")])).unwrap();
    assert_conflict(client.commit(settle(seen.key(), seen.due)), (seen.key(), 10, 20));
    client.commit(settle(seen.key(), Time(20))).unwrap();
    assert_eq!(deadlines(&client, Time::NEVER).rows, []);
    assert_conflict(client.commit(settle(seen.key(), Time(20))), (seen.key(), 20, 0));
}

pub(super) fn deadlines_come_in_pages(world: &dyn StoreUnderTest) {
    let client = client(world);
    client
        .commit(set(&[(10, "b", "x"), (10, "a", "y"), (10, "a", "x"), (20, "a", "z"), (30, "a", "w")]))
        .unwrap();
    let mut listed = Vec::new();
    loop {
        let page = deadlines_after(&client, Time(20), listed.last().cloned(), 3);
        listed.extend(page.rows);
        if !page.more {
            break;
        }
    }
    let wanted = [(10, "a", "x"), (10, "a", "y"), (10, "b", "x"), (20, "a", "z")];
    assert_eq!(listed, wanted.map(|(due, kind, name)| Deadline::new(Time(due), kind, name)));
}
