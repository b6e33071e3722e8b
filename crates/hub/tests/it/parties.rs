//! Parties on several nodes in virtual time: answers that are lost, requests that are repeated, nodes that die,
//! logouts that cross an invite, a store that fails.

use crate::harness::code;
use crate::harness::party_cluster::{GRACE, INVITE, OWN_GRACE, PartyCluster, RESUME, settings};
use std::sync::{Arc, Mutex};
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Commit, Deadline, Found, PresenceHold, PresenceKey, Read, Row, RowKey, Work};

fn user(name: &str) -> String {
    format!(r#""user":"{name}""#)
}

fn number(id: u64) -> String {
    format!(r#""party_id":{id}"#)
}

/// Whether a commit writes a party.
fn writes_party(work: &Work) -> bool {
    let party = |row: &Row| matches!(row, Row::Document(document) if document.key.kind() == "party");
    matches!(work, Work::Commit(commit) if commit.puts.iter().any(party))
}

fn deletes_party(work: &Work) -> bool {
    let party = |key: &RowKey| matches!(key, RowKey::Document(key) if key.kind() == "party");
    matches!(work, Work::Commit(commit) if commit.deletes.iter().any(party))
}

/// Whether a commit is the logout of a user: it removes the presence in their own channel.
fn is_close(work: &Work) -> bool {
    let own = |commit: &Commit| {
        let key = |key: &RowKey| matches!(key, RowKey::Presence(key) if key.channel.starts_with("user#"));
        commit.deletes.iter().any(key)
    };
    matches!(work, Work::Commit(commit) if own(commit))
}

fn ann_and_bob(nodes: usize) -> (PartyCluster, usize, usize) {
    let mut parties = PartyCluster::new(nodes, &settings());
    let ann = parties.client(0, "ann");
    let bob = parties.client(1, "bob");
    (parties, ann, bob)
}

#[test]
fn invite_and_accept_on_two_nodes_make_one_party() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    let id = parties.join(ann, bob);
    assert_eq!(parties.inbox_summaries("ann"), ["bob accept"]);
    assert_eq!(parties.inbox_summaries("bob"), ["ann invite"]);
    assert_eq!(parties.party(id).unwrap().members.len(), 2);
    parties.check().unwrap();
}

/// A shard keeps memberships decoded: one that another node has changed since must not be written back.
#[test]
fn block_on_another_node_survives_the_next_command() {
    let mut parties = PartyCluster::new(2, &settings());
    let (here, there) = (parties.client(0, "ann"), parties.client(1, "ann"));
    parties.client(0, "bob");
    for op in ["party.invite", "party.cancel_invite"] {
        parties.ok(here, op, &user("bob"));
    }
    parties.ok(there, "party.block", &user("bob"));
    parties.ok(here, "party.invite", &user("bob"));
    let blocks = parties.stored_parties().memberships["ann"].blocks.clone();
    assert_eq!(blocks, ["bob".into()]);
}

#[test]
fn concurrent_mutual_accepts_make_one_party_in_either_order() {
    for (slow_ann, slow_bob) in [(0, 0), (0, 3), (3, 0), (2, 2)] {
        let (mut parties, ann, bob) = ann_and_bob(2);
        let (by_ann, by_bob) = (parties.invite(ann, bob), parties.invite(bob, ann));
        parties.cluster.set_work_fate(move |node, _| {
            let before_ms = if node == "one" { slow_ann } else { slow_bob };
            WorkFault { before_ms, ..WorkFault::NONE }
        });
        parties.begin(ann, "party.accept", &number(by_bob));
        parties.begin(bob, "party.accept", &number(by_ann));
        let replies = [parties.answer(ann), parties.answer(bob)];
        parties.live(20);
        let won: Vec<usize> = (0..2).filter(|at| code(&replies[*at]) == "ok").collect();
        assert_eq!(won.len(), 1, "{replies:?}");
        let (party, shown) = (&replies[won[0]]["ok"]["party"], &replies[1 - won[0]]["error"]["party"]);
        assert_eq!(party, shown, "the crossing accept shows them together");
        let kept = parties.stored_parties();
        assert_eq!(kept.parties.len(), 1);
        assert_eq!(kept.parties.values().next().unwrap().members.len(), 2);
        parties.check().unwrap();
    }
}

#[test]
fn repeated_request_after_a_lost_answer_is_done_once() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    // The commit happens, and the caller gets an answer that the store is unavailable.
    let hit = Arc::new(Mutex::new(false));
    let once = hit.clone();
    parties.cluster.set_work_fate(move |_, work| {
        let first = writes_party(work) && !std::mem::replace(&mut *once.lock().unwrap(), writes_party(work));
        let outcome = if first { WorkOutcome::FailAfter } else { WorkOutcome::Perform };
        WorkFault { outcome, ..WorkFault::NONE }
    });
    let more = format!(r#"{},"rid":"r1""#, user("bob"));
    assert_eq!(code(&parties.say(ann, "party.invite", &more)), "unavailable");
    parties.cluster.heal();
    let window = parties.client(1, "ann");
    let id = parties.ok(window, "party.invite", &more)["party_id"].as_u64().unwrap();
    assert_eq!(parties.party(id).unwrap().version, 1);
    assert_eq!(parties.inbox_summaries("bob"), ["ann invite"]);
    parties.check_events(bob);
    assert_eq!(parties.sessions[bob].numbers.len(), 1);
    // Without a request id the stored state decides: an open invite is acknowledged.
    assert_eq!(parties.invite(window, bob), id);
    assert_eq!(parties.inbox_summaries("bob").len(), 1);
}

#[test]
fn request_repeated_after_its_node_died_is_done_once() {
    let (mut parties, ann, bob) = ann_and_bob(3);
    let id = parties.join(ann, bob);
    parties.cluster.set_work_fate(|node, work| match node == "one" && writes_party(work) {
        true => WorkFault { after_ms: 60_000, ..WorkFault::NONE },
        false => WorkFault::NONE,
    });
    parties.begin(ann, "party.go", r#""rid":"g","params":{"m":1}"#);
    parties.live(5);
    assert!(parties.is_busy(ann));
    let queued = parties.party(id).unwrap();
    assert!(queued.go.is_some(), "the commit has happened");
    parties.crash(0);
    parties.cluster.heal();
    // Ann is on the third node before any node has noticed, and sends the request again.
    let again = parties.client(2, "ann");
    assert_eq!(
        parties.ok(again, "party.go", r#""rid":"g","params":{"m":1}"#)["go_id"],
        queued.go.unwrap().id
    );
    assert_eq!(parties.inbox_summaries("bob"), ["ann invite", "ann party_go"]);
    parties.check_events(again);
    parties.take_over(0, 1);
    parties.live(OWN_GRACE + GRACE + 100);
    parties.look_after(1);
    parties.live(10);
    assert_eq!(parties.party(id).unwrap().members.len(), 2, "her other session keeps her");
    assert!(parties.party(id).unwrap().go.is_some());
    parties.check().unwrap();
}

#[test]
fn members_of_a_dead_node_time_out_and_a_new_leader_follows() {
    let mut parties = PartyCluster::new(3, &settings());
    let (ann, bob, cid) = (parties.client(0, "ann"), parties.client(0, "bob"), parties.client(1, "cid"));
    let id = parties.join(ann, bob);
    parties.join(ann, cid);
    parties.ok(ann, "party.go", "");
    parties.crash(0);
    parties.take_over(0, 2);
    let party = parties.party(id).unwrap();
    assert!(party.go.is_none(), "no ticket has a lost member");
    let away: Vec<bool> = party.members.iter().map(|member| member.away.is_some()).collect();
    assert_eq!(away, [true, true, false]);
    assert_eq!(&*party.leader().user, "ann", "a leader in grace keeps the lead");
    // The second one is back in time; the deadline of the other one is settled by a node that never had their session.
    parties.live(OWN_GRACE);
    let back = parties.client(1, "bob");
    parties.live(GRACE + 100);
    parties.look_after(1);
    parties.live(10);
    let party = parties.party(id).unwrap();
    let members: Vec<&str> = party.members.iter().map(|member| &*member.user).collect();
    assert_eq!(members, ["bob", "cid"]);
    let received = parties.inbox_summaries("cid");
    assert_eq!(received[received.len() - 3..], ["bob online", "ann leave timeout", "bob leader"]);
    assert_eq!(received.iter().filter(|text| text.contains("go_cancel")).count(), 1);
    assert_eq!(parties.ok(back, "party.get", "")["party"]["members"][0]["user"], "bob");
    parties.check().unwrap();
}

#[test]
fn invite_of_a_dead_node_is_expired_by_another_node() {
    let (mut parties, ann, bob) = ann_and_bob(3);
    let id = parties.invite(ann, bob);
    parties.crash(0);
    let again = parties.client(2, "ann");
    parties.live(INVITE - 100);
    parties.look_after(1);
    parties.live(5);
    assert!(parties.party(id).is_some(), "not before its time");
    parties.live(200);
    parties.look_after(1);
    parties.look_after(2);
    parties.live(5);
    assert!(parties.party(id).is_none());
    assert_eq!(parties.inbox_summaries("ann"), ["bob decline expired", "ann disband empty"]);
    assert_eq!(
        parties.inbox_summaries("bob"),
        ["ann invite", "bob invite_cancel expired"].map(|text| text.replace("bob i", "ann i"))
    );
    parties.check_events(again);
    assert_eq!(parties.sessions[again].numbers.len(), 2);
    parties.check().unwrap();
}

/// A logout and an invite at the same time. In every order the invite ends, and both sides get the message.
#[test]
fn logout_during_an_invite_never_leaves_it_open() {
    let mut orders = [0, 0];
    for (goodbye_ms, invite_ms) in [(0, 4), (4, 0), (0, 0), (1, 2), (2, 1), (8, 1), (1, 8)] {
        let (mut parties, ann, bob) = ann_and_bob(2);
        parties.cluster.set_work_fate(move |_, work| {
            let before_ms = match work {
                work if is_close(work) => goodbye_ms,
                work if writes_party(work) => invite_ms,
                _ => 0,
            };
            WorkFault { before_ms, ..WorkFault::NONE }
        });
        parties.begin(bob, "bye", "");
        parties.begin(ann, "party.invite", &user("bob"));
        let reply = parties.answer(ann);
        parties.cluster.heal();
        parties.live(1_000);
        let kept = parties.stored_parties();
        assert!(kept.parties.is_empty(), "{goodbye_ms} against {invite_ms}: {kept:?} after {reply}");
        match code(&reply) {
            "ok" => {
                orders[0] += 1;
                assert_eq!(parties.inbox_summaries("ann"), ["bob decline logout", "ann disband empty"]);
                assert_eq!(parties.inbox_summaries("bob"), ["ann invite", "ann invite_cancel logout"]);
            }
            refused => {
                orders[1] += 1;
                assert_eq!(refused, "user_not_logged");
                assert!(
                    parties.inbox_summaries("ann").is_empty() && parties.inbox_summaries("bob").is_empty()
                );
            }
        }
        parties.check().unwrap();
    }
    assert!(orders.iter().all(|count| *count > 0), "both orders were seen: {orders:?}");
}

/// The same with a member: whatever they did last, no user is a member after their logout.
#[test]
fn logout_during_an_accept_ends_the_membership() {
    for (goodbye_ms, accept_ms) in [(0, 4), (4, 0), (0, 0), (1, 2), (2, 1)] {
        let (mut parties, ann, bob) = ann_and_bob(2);
        let id = parties.invite(ann, bob);
        parties.cluster.set_work_fate(move |_, work| {
            let before_ms = match work {
                work if is_close(work) => goodbye_ms,
                work if writes_party(work) => accept_ms,
                _ => 0,
            };
            WorkFault { before_ms, ..WorkFault::NONE }
        });
        // Both over connections of their own, as a client that polls does.
        parties.begin(bob, "party.accept", &number(id));
        let mut other = parties.cluster.node(1).socket();
        other.passing = true;
        other.listener = parties.sessions[bob].caller.listener;
        parties.cluster.node(1).run(0, &mut other, r#"{"op":"bye"}"#);
        parties.live(20);
        parties.cluster.heal();
        parties.live(RESUME + OWN_GRACE + GRACE + 1_000);
        parties.look_after(0);
        parties.live(10);
        assert!(
            parties.stored_parties().parties.is_empty(),
            "{goodbye_ms} against {accept_ms}: {:?}",
            parties.stored_parties()
        );
        parties.check().unwrap();
    }
}

/// The user connects again before their party has handled their logout: they are not a member, and the reply shows no
/// party.
#[test]
fn user_who_reconnects_right_after_logout_has_no_party() {
    let (mut parties, ann, bob) = ann_and_bob(3);
    let id = parties.join(ann, bob);
    parties.cluster.set_work_fate(|_, work| match writes_party(work) || deletes_party(work) {
        true => WorkFault { before_ms: 500, ..WorkFault::NONE },
        false => WorkFault::NONE,
    });
    parties.begin(bob, "bye", "");
    parties.live(5);
    let again = parties.client(2, "bob");
    let hello = &parties.sessions[again].hello;
    assert!(hello["party"].is_null() && hello.get("party").is_some(), "{hello}");
    assert!(parties.party(id).is_some(), "their party does not know it yet");
    parties.live(1_000);
    assert!(parties.party(id).is_none());
    assert_eq!(parties.inbox_summaries("ann"), ["bob accept", "bob leave logout", "ann disband empty"]);
    parties.check().unwrap();
}

#[test]
fn command_during_a_store_failure_is_refused_and_changes_nothing() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    let id = parties.join(ann, bob);
    let before = parties.party(id);
    for what in ["reads", "commits"] {
        parties.cluster.set_work_fate(move |_, work| {
            match matches!(work, Work::Read(_)) == (what == "reads") {
                true => WorkFault { outcome: WorkOutcome::FailBefore, ..WorkFault::NONE },
                false => WorkFault::NONE,
            }
        });
        for (op, more) in [("party.leave", ""), ("party.kick", r#""user":"bob""#), ("party.go", "")] {
            let reply = parties.say(ann, op, more);
            assert_eq!(code(&reply), "unavailable", "{op}");
            assert_eq!(reply["error"]["party"]["party_id"], id, "the party as it is known is in the refusal");
        }
        parties.cluster.heal();
        assert_eq!(parties.party(id), before);
    }
    assert_eq!(parties.inbox_summaries("bob"), ["ann invite"]);
    parties.ok(ann, "party.go", "");
}

#[test]
fn session_that_moves_to_another_node_gets_each_inbox_message_once() {
    let (mut parties, ann, bob) = ann_and_bob(3);
    let id = parties.join(ann, bob);
    parties.check_events(bob);
    for data in 0..3 {
        parties.ok(ann, "party.set_data", &format!(r#""data":{{"n":{data}}}"#));
    }
    parties.check_events(bob);
    let (numbers, session) =
        (parties.sessions[bob].numbers.clone(), parties.sessions[bob].replies[0]["ok"]["session"].clone());
    assert_eq!(numbers.len(), 4);
    // Two more that it did not see, then it resumes on the third node with five events, numbered from 1.
    parties.ok(ann, "party.set_data", r#""data":{"n":7}"#);
    parties.lose(bob);
    parties.ok(ann, "party.set_data", r#""data":{"n":8}"#);
    let all: Vec<u64> = parties.inbox("bob").iter().map(|(n, _)| *n).collect();
    let more = format!(r#","session":{session},"seq":{}"#, numbers.len());
    let moved = parties.connect(2, "bob", &more);
    let reply = parties.sessions[moved].replies[0].clone();
    assert_eq!(reply["ok"]["resumed"], true, "{reply}");
    assert_eq!(reply["ok"]["party"]["data"]["n"], 8);
    parties.live(5);
    parties.check_events(moved);
    assert_eq!([numbers, parties.sessions[moved].numbers.clone()].concat(), all, "each once, none left out");
    // It continues to receive.
    parties.ok(ann, "party.kick", &user("bob"));
    parties.live(5);
    parties.check_events(moved);
    assert_eq!(parties.inbox_summaries("bob").last().unwrap(), "ann kick kicked");
    assert_eq!(parties.sessions[moved].numbers.last(), parties.inbox("bob").last().map(|(n, _)| *n).as_ref());
    assert!(parties.party(id).is_none());
}

#[test]
fn short_lived_records_of_a_user_are_deleted_when_they_expire() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    let id = parties.invite(ann, bob);
    parties.ok(bob, "party.decline", &number(id));
    let kept = parties.stored_parties();
    assert!(
        kept.parties.is_empty() && kept.memberships.contains_key("ann"),
        "whom she invited, and who declined"
    );
    parties.live(61_000);
    parties.look_after(1);
    parties.live(10);
    assert!(parties.stored_parties().memberships.is_empty(), "{:?}", parties.stored_parties().memberships);
}

#[test]
fn new_member_may_send_to_the_party_at_once() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    let id = parties.invite(ann, bob);
    // Reads are delayed: the member is known from their own commit.
    let joined = Arc::new(Mutex::new(false));
    parties.cluster.set_work_fate(move |_, work| {
        let mut joined = joined.lock().unwrap();
        *joined |= writes_party(work);
        let reads = matches!(work, Work::Read(tavern_store::Read::Document(_)));
        WorkFault { after_ms: if *joined && reads { 1_000 } else { 0 }, ..WorkFault::NONE }
    });
    parties.ok(bob, "party.accept", &number(id));
    assert_eq!(code(&parties.say(bob, "party.say", r#""data":1"#)), "ok");
}

#[test]
fn session_opened_during_an_inbox_read_gets_older_messages_first() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    parties.join(ann, bob);
    parties.cluster.set_work_fate(|_, work| {
        let slow = matches!(work, Work::Read(Read::Inbox { .. }));
        WorkFault { before_ms: if slow { 100 } else { 0 }, ..WorkFault::NONE }
    });
    parties.ok(ann, "party.set_data", r#""data":{"n":1}"#);
    parties.live(10);
    let second = parties.client(1, "bob");
    parties.live(500);
    parties.check_events(second);
    let all: Vec<u64> = parties.inbox("bob").iter().map(|(n, _)| *n).collect();
    assert_eq!((all.len(), &parties.sessions[second].numbers), (2, &all));
}

#[test]
fn member_whose_command_finds_an_invite_expired_gets_the_event_too() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    parties.join(ann, bob);
    let cid = parties.client(1, "cid");
    parties.invite(ann, cid);
    // No other command checks the party at the deadline.
    parties.crash(0);
    parties.live(INVITE + 10);
    parties.ok(bob, "party.get", "");
    assert_eq!(parties.inbox_summaries("bob").last().map(String::as_str), Some("cid uninvited expired"));
}

#[test]
fn member_who_comes_back_before_the_end_of_their_hold_leaves_no_deadline_behind() {
    let (mut parties, ann, bob) = ann_and_bob(2);
    let cid = parties.client(0, "cid");
    let id = parties.join(ann, bob);
    parties.join(ann, cid);
    parties.ok(bob, "party.leave", "");
    parties.live(200);
    // Earlier versions ended the hold of a member after the party's commit: a node may have died in between.
    let (key, until) = (PresenceKey::new(&format!("party#{id}"), "bob"), parties.cluster.now());
    let deadline = Deadline::new(until, "hold", &key.to_string());
    let hold = PresenceHold { key, held_with: Some("user#bob".into()), until: Some(until) };
    parties.cluster.write(Commit {
        puts: vec![Row::Hold(hold)],
        deadlines: vec![deadline],
        ..Commit::default()
    });
    assert_eq!(parties.join(ann, bob), id);
    parties.live(1_000);
    parties.look_after(0);
    parties.live(10);
    let read = Read::DueDeadlines { by: parties.cluster.now(), after: None, limit: 10 };
    let Found::Deadlines(overdue) = parties.cluster.stored(read) else { panic!("no page") };
    assert_eq!(overdue.rows, []);
    assert_eq!(parties.party(id).unwrap().members.len(), 3);
}
