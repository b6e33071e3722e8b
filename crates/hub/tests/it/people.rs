//! Follows, statuses and last seen over two nodes in virtual time, with times to the millisecond.

use crate::harness::cluster::TestCluster;
use crate::harness::code;
use crate::harness::people::{GRACE, HOLD, PeopleFixture, RESUME, settings, shown, summary};
use serde_json::{Value, json};
use tavern_domain::Time;
use tavern_domain::presence::Visibility;
use tavern_hub::{Caller, Flow, Settings};
use tavern_hub::{LivenessTask, ServiceCommand, ShardEvent};
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Found, Read, Row, Work};

#[test]
fn follower_gets_the_status_at_once_and_every_change_on_every_tab() {
    let mut scene = PeopleFixture::new();
    let (mut bob, bobs_other) = (scene.client(0, "bob"), scene.client(1, "bob"));
    scene.follow(0, &mut bob, "ann");
    for (at, tab) in [(0, &bob), (1, &bobs_other)] {
        scene.check(at, tab, "ann offline none");
    }
    let mut ann = scene.client(1, "ann");
    scene.join(1, &mut ann, "game#A");
    scene.join(1, &mut ann, "game#A");
    scene.send(1, &mut ann, r#"{"op":"update","channel":"game#A","state":{"x":1}}"#);
    scene.join(1, &mut ann, "activegame#A");
    scene.send(1, &mut ann, r#"{"op":"leave","channel":"activegame#A"}"#);
    let expected = "ann online none user#ann; ann online [game#A] in_game_channel game#A; \
        ann online [activegame#A,game#A] started_game activegame#A; \
        ann online [game#A] ended_game activegame#A";
    for (at, tab) in [(0, &bob), (1, &bobs_other)] {
        scene.check(at, tab, expected);
    }
    scene.check(1, &ann, "");
}

#[test]
fn second_tab_causes_no_change_and_a_status_is_complete() {
    let mut scene = PeopleFixture::new();
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(0, "ann"));
    scene.join(0, &mut ann, "game#A");
    scene.follow(0, &mut bob, "ann");
    let received = scene.events(0, &bob);
    assert_eq!(shown(&received[0]["status"]), "ann online [game#A]");
    assert_eq!(received[0]["status"]["activities"][0]["activity"], "in_game_channel");
    let mut other = scene.client(1, "ann");
    scene.join(1, &mut other, "game#A");
    scene.send(0, &mut ann, r#"{"op":"bye"}"#);
    scene.cluster.live(HOLD * 3);
    scene.check(0, &bob, "");
}

#[test]
fn disconnect_is_sent_a_second_later_and_a_loss_after_its_grace_period() {
    let mut scene = PeopleFixture::new();
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    scene.join(1, &mut ann, "game#A");
    scene.follow(0, &mut bob, "ann");
    scene.events(0, &bob);
    scene.send(1, &mut ann, r#"{"op":"bye"}"#);
    scene.cluster.live(HOLD - 1);
    scene.check(0, &bob, "");
    scene.cluster.live(1);
    scene.check(0, &bob, "ann offline disconnected");

    let ann = scene.client(1, "ann");
    scene.check(0, &bob, "ann online none user#ann");
    scene.lose(1, &ann);
    scene.cluster.live(RESUME - 1);
    scene.check(0, &bob, "");
    scene.cluster.live(1);
    scene.check(0, &bob, "ann leaving none user#ann");
    scene.cluster.live(GRACE - RESUME + HOLD - 1);
    scene.check(0, &bob, "");
    scene.cluster.live(1);
    scene.check(0, &bob, "ann offline disconnected");
}

#[test]
fn page_switch_between_nodes_shows_no_disconnect() {
    for bye_first in [true, false] {
        let mut scene = PeopleFixture::new();
        let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
        scene.join(1, &mut ann, "game#A");
        scene.follow(0, &mut bob, "ann");
        scene.events(0, &bob);
        let mut page;
        if bye_first {
            scene.send(1, &mut ann, r#"{"op":"bye"}"#);
            scene.cluster.live(HOLD / 2);
            page = scene.client(0, "ann");
        } else {
            page = scene.client(0, "ann");
            scene.send(1, &mut ann, r#"{"op":"bye"}"#);
        }
        scene.join(0, &mut page, "game#B");
        scene.cluster.live(HOLD * 5);
        let received: Vec<Value> = scene.events(0, &bob);
        assert!(received.iter().all(|event| event["status"]["online"] == true), "{received:?}");
        assert_eq!(shown(&received.last().unwrap()["status"]), "ann online [game#B]");
    }
}

#[test]
fn unfollow_ends_the_updates() {
    let mut scene = PeopleFixture::new();
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    let other = scene.client(1, "bob");
    scene.follow(0, &mut bob, "ann");
    scene.send(0, &mut bob, r#"{"op":"unfollow","user":"ann"}"#);
    for (at, tab) in [(0, &bob), (1, &other)] {
        scene.check(at, tab, "ann online none");
    }
    scene.join(1, &mut ann, "game#A");
    for (at, tab) in [(0, &bob), (1, &other)] {
        scene.check(at, tab, "");
    }
    assert_eq!(scene.ask(0, &mut bob, r#"{"op":"following"}"#)["users"], serde_json::json!([]));
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online [game#A] none");
    scene.send(0, &mut bob, r#"{"op":"follow","user":"ann"}"#);
    scene.check(0, &bob, "");
}

#[test]
fn hello_sends_the_status_of_every_followee() {
    let mut scene = PeopleFixture::new();
    let mut bob = scene.client(0, "bob");
    let mut ann = scene.client(1, "ann");
    scene.join(1, &mut ann, "game#A");
    for whom in ["ann", "cid"] {
        scene.follow(0, &mut bob, whom);
    }
    let reads = scene.cluster.reads();
    let mut fresh = scene.cluster.node(1).socket();
    scene.send(1, &mut fresh, r#"{"op":"hello","token":"bob","status":true}"#);
    scene.cluster.settle();
    let received = scene.events(1, &fresh);
    assert_eq!(received.len(), 1, "{received:?}");
    let statuses: Vec<String> = received[0]["statuses"].as_array().unwrap().iter().map(shown).collect();
    assert_eq!(statuses, ["ann online [game#A]", "cid offline"]);
    let expected = 7;
    assert_eq!(
        scene.cluster.reads() - reads,
        expected,
        "the party twice, the inbox, the user, their own channel, the follow list, the followees"
    );
    // All followees are loaded by now: the next one reads only the party.
    let reads = scene.cluster.reads();
    scene.send(1, &mut fresh, r#"{"op":"hello","status":true}"#);
    assert_eq!(scene.events(1, &fresh)[0]["statuses"].as_array().unwrap().len(), 2);
    assert_eq!(scene.cluster.reads(), reads + 1);
    let mut anonymous = scene.cluster.node(0).socket();
    scene.send(0, &mut anonymous, r#"{"op":"hello","token":"nobody","status":true}"#);
    scene.check(0, &anonymous, "statuses []");
}

#[test]
fn lists_are_paged_and_status_can_be_queried() {
    let mut scene = PeopleFixture::new();
    let mut bob = scene.client(0, "bob");
    for whom in ["ann", "cid", "dan"] {
        scene.follow(0, &mut bob, whom);
    }
    let part = scene.ask(0, &mut bob, r#"{"op":"following","limit":2}"#);
    assert_eq!(part, serde_json::json!({"users": ["ann", "cid"], "next": "cid"}));
    let part = scene.ask(0, &mut bob, r#"{"op":"following","limit":2,"after":"cid"}"#);
    assert_eq!(part, serde_json::json!({"users": ["dan"]}));
    let mut ann = scene.client(1, "ann");
    assert_eq!(scene.ask(1, &mut ann, r#"{"op":"followers"}"#), serde_json::json!({"users": ["bob"]}));
    let reply = scene.ask(0, &mut bob, r#"{"op":"status","users":["ann","zoe"]}"#);
    let statuses: Vec<String> = reply["statuses"].as_array().unwrap().iter().map(shown).collect();
    assert_eq!(statuses, ["ann online", "zoe offline"]);
}

#[test]
fn invalid_commands_are_refused() {
    let settings = Settings { following: 2, ..settings() };
    let mut scene = PeopleFixture { cluster: TestCluster::with(Some(0), None, &settings) };
    let (mut bob, mut anonymous) = (scene.client(0, "bob"), scene.client(0, "nobody"));
    let mut check = |who: &mut Caller, frame: &str, expected: &str| {
        let reply = scene.cluster.send(0, who, frame);
        assert_eq!(code(&reply), expected, "{frame}: {reply}");
    };
    check(&mut bob, r#"{"op":"follow","user":"bob"}"#, "bad_request");
    check(&mut bob, r#"{"op":"follow","user":""}"#, "bad_request");
    check(&mut bob, r#"{"op":"follow","user":"a\u0007"}"#, "bad_request");
    check(&mut bob, &format!(r#"{{"op":"follow","user":"{}"}}"#, "x".repeat(129)), "bad_request");
    for op in [
        r#"{"op":"follow","user":"ann"}"#,
        r#"{"op":"following"}"#,
        r#"{"op":"visibility","value":"nobody"}"#,
        r#"{"op":"status","users":[]}"#,
    ] {
        check(&mut anonymous, op, "not_allowed");
    }
    let many: Vec<String> = (0..101).map(|n| format!("u{n}")).collect();
    check(&mut bob, &serde_json::json!({"op": "status", "users": many}).to_string(), "too_large");
    check(&mut bob, r#"{"op":"follow","user":"a"}"#, "ok");
    check(&mut bob, r#"{"op":"follow","user":"b"}"#, "ok");
    check(&mut bob, r#"{"op":"follow","user":"c"}"#, "too_large");
    check(&mut bob, r#"{"op":"follow","user":"b"}"#, "ok");
    check(&mut bob, r#"{"op":"join","channel":"user#bob"}"#, "not_allowed");
    check(&mut bob, r#"{"op":"leave","channel":"user#bob"}"#, "not_allowed");
}

#[test]
fn change_costs_one_bus_message_however_many_follow() {
    let mut scene = PeopleFixture::new();
    let mut ann = scene.client(1, "ann");
    let mut followers: Vec<Caller> = (0..50).map(|n| scene.client(0, &format!("f{n}"))).collect();
    for caller in &mut followers {
        scene.follow(0, caller, "ann");
    }
    let (reads, carried) = (scene.cluster.reads(), scene.cluster.carried());
    let before = (scene.count(1, "user_updates"), scene.count(0, "statuses"));
    scene.join(1, &mut ann, "game#A");
    assert_eq!(scene.count(1, "user_updates") - before.0, 1);
    assert_eq!(scene.count(0, "statuses") - before.1, 50);
    assert_eq!(scene.cluster.reads(), reads, "followers are not looked up");
    assert_eq!(scene.cluster.carried() - carried, 1, "one bus message");
}

#[test]
fn lost_update_is_found_at_the_heartbeat() {
    let mut scene = PeopleFixture { cluster: TestCluster::with(Some(0), Some(1), &settings()) };
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online none");
    scene.join(1, &mut ann, "game#A");
    scene.check(0, &bob, "");
    scene.cluster.node(0).handle(ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.settle();
    scene.check(0, &bob, "ann online [game#A] none");

    // So is a follow, an unfollow and a change of visibility.
    let mut tab = scene.client(1, "bob");
    scene.events(1, &tab);
    scene.send(0, &mut bob, r#"{"op":"unfollow","user":"ann"}"#);
    scene.follow(0, &mut bob, "cid");
    scene.cluster.node(1).handle(ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.settle();
    scene.events(1, &tab);
    let _cid = scene.client(1, "cid");
    scene.join(1, &mut ann, "game#B");
    scene.check(1, &tab, "cid online none user#cid");
    let mut anns_tab = scene.client(0, "ann");
    scene.send(1, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    scene.cluster.node(0).handle(ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.settle();
    scene.join(0, &mut anns_tab, "game#C");
    let who = scene.ask(1, &mut tab, r#"{"op":"who","channel":"game#C"}"#);
    assert_eq!(who["users"][0]["user"], Value::Null);
}

/// When ann was last seen, as a session is told.
fn last_seen(scene: &mut PeopleFixture, at: usize, asker: &mut Caller) -> Option<u64> {
    let reply = scene.ask(at, asker, r#"{"op":"status","users":["ann"]}"#);
    reply["statuses"][0]["last_seen"].as_u64()
}

#[test]
fn last_seen_is_recorded_on_departure_and_nothing_is_written_before() {
    let mut scene = PeopleFixture::new();
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    let _anonymous = scene.client(1, "nobody");
    scene.cluster.live(1_000);
    let commits = scene.cluster.commits();
    scene.cluster.live(150_000);
    assert_eq!(scene.cluster.commits(), commits, "users who do nothing");
    assert_eq!(last_seen(&mut scene, 0, &mut bob), None, "online");
    let left = scene.cluster.now().ms();
    scene.send(1, &mut ann, r#"{"op":"bye"}"#);
    assert_eq!(last_seen(&mut scene, 0, &mut bob), Some(left));
    let mut again = scene.client(1, "ann");
    assert_eq!(last_seen(&mut scene, 0, &mut bob), None, "online again");
    assert_eq!(last_seen(&mut scene, 1, &mut again), Some(left), "the end of her own last visit");
}

#[test]
fn hidden_visit_leaves_last_seen_as_it_was() {
    let mut scene = PeopleFixture::new();
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    scene.follow(0, &mut bob, "ann");
    let left = scene.cluster.now().ms();
    scene.send(1, &mut ann, r#"{"op":"bye"}"#);
    scene.cluster.live(2_000);
    let mut ann = scene.client(1, "ann");
    scene.send(1, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    scene.cluster.live(5_000);
    let hidden_until = scene.cluster.now();
    scene.send(1, &mut ann, r#"{"op":"bye"}"#);
    scene.cluster.live(2_000);
    scene.events(0, &bob);
    let order = ServiceCommand::SetVisibility { user: "ann".into(), value: Visibility::Everyone };
    scene.cluster.node(0).handle(ShardEvent::Service { number: 1, order });
    scene.cluster.settle();
    assert_eq!(last_seen(&mut scene, 0, &mut bob), Some(left));
    let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 10 };
    let Found::Deadlines(due) = scene.cluster.stored(read) else { panic!("no page") };
    let inbox = due.rows.iter().find(|deadline| &*deadline.kind == "inbox").expect("a time for her inbox");
    assert_eq!(inbox.due, hidden_until + settings().inbox.keep_ms, "counts from the hidden visit");
    let told = scene.events(0, &bob);
    assert!(told.iter().all(|event| event["status"]["last_seen"] == left), "{told:?}");
}

/// Resumes a session on another node.
fn move_to(scene: &mut PeopleFixture, at: usize, user: &str, session: &str, seq: u64) -> Caller {
    let mut caller = scene.cluster.node(at).socket();
    let hello = format!(r#"{{"op":"hello","token":"{user}","session":"{session}","seq":{seq}}}"#);
    let reply = scene.ask(at, &mut caller, &hello);
    assert_eq!(reply["resumed"], true, "{reply}");
    caller
}

#[test]
fn follower_that_moves_between_nodes_gets_only_what_it_missed() {
    let mut scene = PeopleFixture { cluster: TestCluster::of(3) };
    let (mut bob, hello) = scene.cluster.client(0, "bob");
    scene.cluster.settle();
    let session = hello["session"].as_str().unwrap().to_owned();
    let (mut ann, mut cid) = (scene.client(2, "ann"), scene.client(2, "cid"));
    for whom in ["ann", "cid"] {
        scene.follow(0, &mut bob, whom);
    }
    let seq = scene.events(0, &bob).last().unwrap()["seq"].as_u64().unwrap();
    let bob = move_to(&mut scene, 1, "bob", &session, seq);
    scene.cluster.live(100);
    scene.check(1, &bob, "");
    scene.join(2, &mut ann, "game#A");
    scene.check(1, &bob, "ann online [game#A] none game#A");
    // Node two receives no more updates: bob gets the changes from the node that the session moves to next.
    scene.cluster.set_fate(|_, to, packet| match packet.subject.kind() == "_people" && to == "two" {
        true => vec![],
        false => vec![0],
    });
    scene.send(2, &mut ann, r#"{"op":"leave","channel":"game#A"}"#);
    scene.join(2, &mut cid, "game#B");
    scene.check(1, &bob, "");
    scene.cluster.heal();
    let bob = move_to(&mut scene, 0, "bob", &session, seq + 1);
    scene.cluster.live(100);
    let mut received: Vec<String> = scene.events(0, &bob).iter().map(summary).collect();
    received.sort();
    assert_eq!(received, ["ann online none", "cid online [game#B] none"]);
}

#[test]
fn change_needs_no_follower_lookup_with_ten_thousand_followers() {
    let mut scene = PeopleFixture::new();
    let users: Vec<String> = (0..10_000).map(|n| format!("f{n}")).collect();
    scene.cluster.follow_all(&users, "ann");
    let _followers: Vec<Caller> = (0..50).map(|n| scene.client(0, &users[n * 7])).collect();
    let mut ann = scene.client(1, "ann");
    let (reads, carried) = (scene.cluster.reads(), scene.cluster.carried());
    let before = (scene.count(1, "user_updates"), scene.count(0, "statuses"));
    scene.join(1, &mut ann, "game#A");
    assert_eq!((scene.count(1, "user_updates") - before.0, scene.count(0, "statuses") - before.1), (1, 50));
    assert_eq!((scene.cluster.reads(), scene.cluster.carried()), (reads, carried + 1));
}

/// The next follow happens and its answer is lost; from then on the store fails if `down` is set.
fn lose_the_answer_to_a_follow(scene: &mut PeopleFixture, down: bool) {
    let mut lost = false;
    scene.cluster.set_work_fate(move |_, work| {
        let follows = matches!(work, Work::Commit(commit) if matches!(commit.puts[..], [Row::Follow(_)]));
        let outcome = match (follows, lost) {
            (true, false) => WorkOutcome::FailAfter,
            (_, true) if down => WorkOutcome::FailBefore,
            _ => WorkOutcome::Perform,
        };
        lost |= follows;
        WorkFault { outcome, ..WorkFault::NONE }
    });
}

#[test]
fn follow_with_an_unknown_outcome_sends_the_status() {
    let mut scene = PeopleFixture::new();
    let (mut bob, _ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    lose_the_answer_to_a_follow(&mut scene, false);
    let reply = scene.cluster.send(0, &mut bob, r#"{"op":"follow","user":"ann"}"#);
    assert_eq!(code(&reply), "unavailable");
    scene.cluster.live(10);
    scene.check(0, &bob, "ann online none");
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "");
}

#[test]
fn repeated_follow_sends_the_status_after_an_unknown_outcome() {
    let mut scene = PeopleFixture::new();
    let (mut bob, _ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    lose_the_answer_to_a_follow(&mut scene, true);
    let reply = scene.cluster.send(0, &mut bob, r#"{"op":"follow","user":"ann"}"#);
    assert_eq!(code(&reply), "unavailable");
    scene.check(0, &bob, "");
    scene.cluster.heal();
    // Before the follow list is read again.
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online none");
    scene.cluster.live(1_000);
    scene.check(0, &bob, "");
}

#[test]
fn followed_users_are_read_when_the_bus_refuses_to_carry_their_updates() {
    let mut cluster = TestCluster::new(None);
    cluster.follow_all(&["ann".into()], "bob");
    let mut ann = cluster.node(0).socket();
    let hello = r#"{"op":"hello","token":"ann","status":true}"#;
    while cluster.node(0).run(0, &mut ann, hello).0 == Flow::Wait {
        assert!(cluster.settles_within(2_000), "the bus is not asked without end");
    }
    assert!(cluster.settles_within(2_000), "the bus is not asked without end");
    let received = cluster.node(0).events(&ann);
    assert_eq!(
        (&received[0]["event"], &received[0]["statuses"][0]["user"]),
        (&json!("statuses"), &json!("bob"))
    );
}

/// Ann's change is stored, and other nodes hear nothing of it.
fn send_unheard(scene: &mut PeopleFixture, ann: &mut Caller, frame: &str) {
    scene.cluster.set_fate(|_, _, _| vec![]);
    scene.send(0, ann, frame);
    scene.cluster.set_fate(|_, _, _| vec![0]);
}

#[test]
fn follow_back_reveals_nobody_who_hides_when_the_news_of_hiding_is_lost() {
    const MUTUAL: &str = r#"{"op":"visibility","value":"followers_i_follow"}"#;
    const NOBODY: &str = r#"{"op":"visibility","value":"nobody"}"#;
    const UNFOLLOW: &str = r#"{"op":"unfollow","user":"bob"}"#;
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob) = (scene.client(0, "ann"), scene.client(1, "bob"));
    scene.send(0, &mut ann, MUTUAL);
    scene.follow(1, &mut bob, "ann");
    scene.check(1, &bob, "ann offline none");
    send_unheard(&mut scene, &mut ann, NOBODY);
    scene.follow(0, &mut ann, "bob");
    scene.check(1, &bob, "");
    scene.send(0, &mut ann, MUTUAL);
    scene.check(1, &bob, "ann online none");

    // The other way round: it is not heard that she has stopped following.
    scene.send(0, &mut ann, NOBODY);
    scene.check(1, &bob, "ann offline disconnected");
    send_unheard(&mut scene, &mut ann, UNFOLLOW);
    scene.send(0, &mut ann, MUTUAL);
    scene.check(1, &bob, "");
    scene.follow(0, &mut ann, "bob");
    scene.check(1, &bob, "ann online none");
}

#[test]
fn second_follower_on_a_node_does_not_see_who_hides_from_them() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut cid) = (scene.client(0, "ann"), scene.client(1, "cid"));
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    scene.follow(1, &mut cid, "ann");
    let mut bob = scene.client(0, "bob");
    scene.follow(0, &mut bob, "ann");
    scene.send(0, &mut bob, r#"{"op":"bye"}"#);
    send_unheard(&mut scene, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    scene.follow(0, &mut ann, "bob");
    let mut bob = scene.cluster.node(1).socket();
    let hello = r#"{"op":"hello","token":"bob","status":true}"#;
    while scene.cluster.node(1).run(0, &mut bob, hello).0 == Flow::Wait {
        scene.cluster.settle();
    }
    scene.cluster.settle();
    let received = scene.events(1, &bob);
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(shown(&received[0]["statuses"][0]), "ann offline");
}

#[test]
fn follower_no_longer_followed_back_stops_seeing_even_if_the_bus_lost_the_update() {
    let mut scene = PeopleFixture { cluster: TestCluster::with(Some(0), Some(1), &settings()) };
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    scene.follow(1, &mut ann, "bob");
    scene.send(1, &mut ann, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online none");
    let compare = |scene: &mut PeopleFixture| {
        scene.cluster.node(0).handle(ShardEvent::Liveness(LivenessTask::Compare));
        scene.cluster.settle();
    };
    scene.send(1, &mut ann, r#"{"op":"unfollow","user":"bob"}"#);
    compare(&mut scene);
    scene.check(0, &bob, "ann offline disconnected");
    scene.follow(1, &mut ann, "bob");
    compare(&mut scene);
    scene.check(0, &bob, "ann online none");
}
