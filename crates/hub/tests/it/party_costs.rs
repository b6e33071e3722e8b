//! What party commands cost: requests to the store, party ids and timers.

use crate::harness::code;
use crate::harness::party_cluster::{INVITE, PartyCluster, settings};
use std::sync::{Arc, Mutex};
use tavern_store::memory::WorkFault;
use tavern_store::{DocumentKey, Read, Row, Work};

fn user(name: &str) -> String {
    format!(r#""user":"{name}""#)
}

/// The party, the memberships and the presences of local users are known, the sessions here know the party and get their
/// messages from the commit, and who enters or leaves the party's channel is part of it.
#[test]
fn command_causes_few_requests_to_the_store() {
    let mut parties = PartyCluster::new(1, &settings());
    let (ann, _bob) = (parties.client(0, "ann"), parties.client(0, "bob"));
    let counts = Arc::new(Mutex::new((0, 0)));
    let requests = counts.clone();
    parties.cluster.set_work_fate(move |_, work| {
        let mut counts = requests.lock().unwrap();
        match work {
            Work::Read(_) => counts.0 += 1,
            Work::Commit(_) => counts.1 += 1,
        }
        WorkFault::NONE
    });
    let mut count = |op: &str| {
        *counts.lock().unwrap() = (0, 0);
        parties.ok(ann, op, &user("bob"));
        parties.cluster.settle();
        *counts.lock().unwrap()
    };
    for op in ["party.invite", "party.cancel_invite"] {
        count(op);
    }
    assert_eq!(count("party.invite"), (0, 1), "reads and commits");
    assert_eq!(count("party.cancel_invite"), (0, 1), "reads and commits");
}

/// A shard reserves ids before it has used up the last block, and an invite that is refused uses none.
#[test]
fn parties_get_the_ids_that_are_reserved_one_after_the_other() {
    let mut parties = PartyCluster::new(1, &settings());
    let (ann, bob) = (parties.client(0, "ann"), parties.client(0, "bob"));
    let blocks = Arc::new(Mutex::new(0));
    let counted = blocks.clone();
    parties.cluster.set_work_fate(move |_, work| {
        let next = |row: &Row| matches!(row, Row::Document(document) if document.key.kind() == "parties");
        let reserves = matches!(work, Work::Commit(commit) if commit.puts.iter().any(next));
        *counted.lock().unwrap() += u32::from(reserves);
        WorkFault::NONE
    });
    let first = parties.invite(ann, bob);
    parties.ok(ann, "party.cancel_invite", &user("bob"));
    for _ in 0..3 {
        parties.begin(ann, "party.invite", &user("ann"));
        assert_eq!(code(&parties.answer(ann)), "self_target");
    }
    assert_eq!(parties.invite(ann, bob), first + 1, "no id is lost");
    parties.ok(ann, "party.cancel_invite", &user("bob"));
    assert_eq!(*blocks.lock().unwrap(), 1, "one block is reserved");
    let mut ids = vec![first, first + 1];
    while ids.len() < 1_100 {
        ids.push(parties.invite(ann, bob));
        parties.ok(ann, "party.cancel_invite", &user("bob"));
        let expected = if ids.len() <= 500 { 1 } else { 2 };
        assert_eq!(*blocks.lock().unwrap(), expected, "after {} ids", ids.len());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1_100, "an id is used once");
}

#[test]
fn cancelled_invites_leave_no_timers() {
    let mut parties = PartyCluster::new(1, &settings());
    let (ann, _bob) = (parties.client(0, "ann"), parties.client(0, "bob"));
    for op in ["party.invite", "party.cancel_invite"].repeat(20) {
        parties.ok(ann, op, &user("bob"));
    }
    parties.cluster.settle();
    let requests = Arc::new(Mutex::new(0));
    let counted = requests.clone();
    parties.cluster.set_work_fate(move |_, work| {
        let party = |key: &DocumentKey| key.kind() == "party";
        *counted.lock().unwrap() += u32::from(matches!(work, Work::Read(Read::Document(key)) if party(key)));
        WorkFault::NONE
    });
    parties.live(INVITE + 1_000);
    assert_eq!(*requests.lock().unwrap(), 0, "parties that have ended are not read");
}
