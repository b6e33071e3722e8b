//! Leases: one holder at a time, and a version that fences earlier holders.

use super::fixture::*;

const WORK_MS: u64 = 30_000;

fn take(writer: &Writer, name: &str) -> Commit {
    let takes = vec![TakeLease { name: name.into(), lease_ms: WORK_MS }];
    Commit { writer: Some(writer.clone()), takes, ..Commit::default() }
}

fn lease(client: &BlockingStore, name: &str) -> Option<Versioned<Lease>> {
    match client.read(Read::Lease(name.into())) {
        Ok(Found::Lease(found)) => found,
        other => panic!("no lease but {other:?}"),
    }
}

fn held_by(number: u64, name: &str) -> Expect {
    Expect { key: RowKey::Lease(name.into()), version: number }
}

#[track_caller]
fn assert_taken(outcome: Result<Receipt, StoreError>, by: &Writer) {
    assert!(matches!(&outcome, Err(StoreError::LeaseHeld { by: holder, .. }) if holder == by), "{outcome:?}");
}

pub(super) fn a_lease_has_one_holder(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (one, two) = (open_node(&client, "n1"), open_node(&client, "n2"));
    let receipt = client.commit(take(&one, "mail")).unwrap();
    let wanted = Lease { name: "mail".into(), holder: one.clone(), until: receipt.time + WORK_MS };
    assert_eq!(lease(&client, "mail"), Some(Versioned { version: receipt.taken[0], row: wanted }));
    assert_taken(client.commit(Commit { puts: vec![row("a", "1")], ..take(&two, "mail") }), &one);
    assert_eq!(text(&client, "a"), None, "all or nothing");
    client.commit(take(&two, "other")).unwrap();
}

pub(super) fn extending_a_lease_keeps_its_version(world: &dyn StoreUnderTest) {
    let client = client(world);
    let one = open_node(&client, "n1");
    let first = client.commit(take(&one, "mail")).unwrap();
    world.clock().advance(1_000);
    let again = client.commit(take(&one, "mail")).unwrap();
    assert_eq!(again.taken, first.taken);
    assert_eq!(lease(&client, "mail").unwrap().row.until, again.time + WORK_MS);
}

pub(super) fn an_ended_lease_is_taken_with_a_higher_version(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (one, two) = (open_node(&client, "n1"), open_node(&client, "n2"));
    let first = client.commit(take(&one, "mail")).unwrap().taken[0];
    world.clock().advance(WORK_MS - 1);
    assert_taken(client.commit(take(&two, "mail")), &one);
    world.clock().advance(1);
    let expects = vec![held_by(first, "mail")];
    let late = Commit { writer: Some(one), expects, ..put("a", "1") };
    client.commit(late.clone()).expect("no other node has taken it");
    let second = client.commit(take(&two, "mail")).unwrap().taken[0];
    assert!(second > first);
    assert_conflict(client.commit(late), (RowKey::Lease("mail".into()), first, second));
}

pub(super) fn the_leases_of_a_closed_epoch_are_free(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (one, two) = (open_node(&client, "n1"), open_node(&client, "n2"));
    let first = client.commit(take(&one, "mail")).unwrap().taken[0];
    let close = NodeChange::Stop { node: one };
    client.commit(Commit { node: Some(close), ..Commit::default() }).unwrap();
    assert!(client.commit(take(&two, "mail")).unwrap().taken[0] > first);
}

pub(super) fn a_deleted_lease_is_free_and_its_version_grows(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (one, two) = (open_node(&client, "n1"), open_node(&client, "n2"));
    let first = client.commit(take(&one, "mail")).unwrap().taken[0];
    let back = Commit {
        writer: Some(one),
        expects: vec![held_by(first, "mail")],
        deletes: vec![RowKey::Lease("mail".into())],
        ..Commit::default()
    };
    client.commit(back).unwrap();
    assert_eq!(lease(&client, "mail"), None);
    assert!(client.commit(take(&two, "mail")).unwrap().taken[0] > first);
}
