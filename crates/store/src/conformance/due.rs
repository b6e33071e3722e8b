//! Deadlines and errands: in the order of their time, settled once.

use super::*;
use crate::row::{Deadline, Errand, ErrandId, NewErrand, Page};

pub(super) fn deadlines(client: &Client, by: Time) -> Page<Deadline> {
    deadlines_after(client, by, None, 100)
}

fn deadlines_after(client: &Client, by: Time, after: Option<Deadline>, limit: u32) -> Page<Deadline> {
    match client.read(Read::DueDeadlines { by, after, limit }) {
        Ok(Found::Deadlines(page)) => page,
        other => panic!("no deadlines but {other:?}"),
    }
}

pub(super) fn errands(client: &Client, by: Time) -> Page<Errand> {
    errands_after(client, by, None, 100)
}

fn errands_after(client: &Client, by: Time, after: Option<(Time, ErrandId)>, limit: u32) -> Page<Errand> {
    match client.read(Read::DueErrands { by, after, limit }) {
        Ok(Found::Errands(page)) => page,
        other => panic!("no errands but {other:?}"),
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

fn errand(of: &str, due: u64, body: &str) -> NewErrand {
    NewErrand { of: RowKey::Document(key(of)), due: Time(due), body: body.as_bytes().into() }
}

pub(super) fn deadlines_come_in_the_order_of_their_time(world: &dyn World) {
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

pub(super) fn setting_a_deadline_again_moves_it(world: &dyn World) {
    let client = client(world);
    client.commit(set(&[(10, "grace", "a")])).unwrap();
    client.commit(set(&[(20, "grace", "a"), (15, "invite", "a")])).unwrap();
    let rows = deadlines(&client, Time::NEVER).rows;
    assert_eq!(rows, [Deadline::new(Time(15), "invite", "a"), Deadline::new(Time(20), "grace", "a")]);
    assert_eq!(deadlines(&client, Time(14)).rows, []);
}

pub(super) fn a_deadline_that_moved_is_not_settled(world: &dyn World) {
    let client = client(world);
    client.commit(set(&[(10, "grace", "a")])).unwrap();
    let seen = deadlines(&client, Time(10)).rows.remove(0);
    client.commit(set(&[(20, "grace", "a")])).unwrap();
    assert_conflict(client.commit(settle(seen.key(), seen.due)), (seen.key(), 10, 20));
    client.commit(settle(seen.key(), Time(20))).unwrap();
    assert_eq!(deadlines(&client, Time::NEVER).rows, []);
    assert_conflict(client.commit(settle(seen.key(), Time(20))), (seen.key(), 20, 0));
}

pub(super) fn deadlines_come_in_pages(world: &dyn World) {
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

pub(super) fn errands_are_named_by_their_cause(world: &dyn World) {
    let client = client(world);
    let errands_of = vec![errand("a", 10, "1"), errand("b", 10, "2"), errand("a", 20, "3")];
    let puts = vec![row("a", "x"), row("b", "x")];
    let receipt = client.commit(Commit { puts, errands: errands_of, ..Commit::default() }).unwrap();
    let id = |source: &str, version, n| ErrandId { source: source.into(), version, n };
    let wanted = [
        id("document:thing/a", receipt.put[0], 0),
        id("document:thing/b", receipt.put[1], 0),
        id("document:thing/a", receipt.put[0], 1),
    ];
    assert_eq!(receipt.errands, wanted);
    let found = errands(&client, Time::NEVER).rows;
    let found: Vec<_> = found.iter().map(|one| (one.id.clone(), one.due.0, one.body[0])).collect();
    let [a0, b0, a1] = wanted;
    assert_eq!(found, [(a0, 10, b'1'), (b0, 10, b'2'), (a1, 20, b'3')]);
}

pub(super) fn overdue_errands_are_found_and_settled_once(world: &dyn World) {
    let client = client(world);
    let caused = Commit { errands: vec![errand("a", 10, "now"), errand("a", 99, "later")], ..put("a", "x") };
    client.commit(caused).unwrap();
    assert_eq!(errands(&client, Time(9)).rows, []);
    let overdue = errands(&client, Time(10)).rows;
    assert_eq!(overdue.len(), 1);
    let key = RowKey::Errand(overdue[0].id.clone());
    let run = || Commit { puts: vec![row("told", "once")], ..settle(key.clone(), overdue[0].due) };
    let told = client.commit(run()).unwrap().put[0];
    assert_conflict(client.commit(run()), (key.clone(), 10, 0));
    assert_eq!(version(&client, "told"), told);
    assert_eq!(errands(&client, Time(98)).rows, []);
    assert_eq!(errands(&client, Time(99)).rows.len(), 1);
}

pub(super) fn a_deletion_can_cause_errands(world: &dyn World) {
    let client = client(world);
    let first = client.commit(put("a", "x")).unwrap().put[0];
    let gone = client.commit(Commit { errands: vec![errand("a", 10, "gone")], ..delete("a") }).unwrap();
    assert_eq!((gone.deleted[0], gone.errands[0].version), (first + 1, first + 1));
    let again = client.commit(Commit { errands: vec![errand("a", 10, "back")], ..put("a", "y") }).unwrap();
    assert!(again.errands[0].version > gone.errands[0].version, "ids are never used twice");
    assert_eq!(errands(&client, Time(10)).rows.len(), 2);
}

pub(super) fn errands_come_in_pages(world: &dyn World) {
    let client = client(world);
    let five = (0..5).map(|n| errand("a", 10 + n / 2, &n.to_string())).collect();
    client.commit(Commit { errands: five, ..put("a", "x") }).unwrap();
    let mut listed: Vec<Errand> = Vec::new();
    loop {
        let after = listed.last().map(|last| (last.due, last.id.clone()));
        let page = errands_after(&client, Time(11), after, 3);
        listed.extend(page.rows);
        if !page.more {
            break;
        }
    }
    assert_eq!(listed.iter().map(|one| one.id.n).collect::<Vec<_>>(), [0, 1, 2, 3]);
}
