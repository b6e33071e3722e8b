//! Visibility, and the events that watchers of a large channel get about users they follow, over two nodes in virtual
//! time.

use crate::harness::cluster::TestCluster;
use crate::harness::code;
use crate::harness::migration::MigrationFixture;
use crate::harness::people::{GRACE, PeopleFixture, RESUME, presence_words, settings, shown, summary};
use crate::migration_drain::{adopt, disconnect_before_the_stop, stop_without_offers};
use serde_json::Value;
use tavern_domain::presence::{Thresholds, Visibility};
use tavern_hub::{Caller, Flow, Settings};
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Found, PresenceKey, Read, Row, Work};

#[test]
fn hidden_user_is_offline_and_has_no_name_in_a_channel() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob, mut cid) =
        (scene.client(0, "ann"), scene.client(1, "bob"), scene.client(1, "cid"));
    for (at, caller) in [(1, &mut bob), (1, &mut cid)] {
        scene.follow(at, caller, "ann");
    }
    scene.follow(0, &mut ann, "cid");
    scene.join(0, &mut ann, "game#A");
    for caller in [&mut bob, &mut cid] {
        scene.send(1, caller, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
        scene.events(1, caller);
    }
    scene.events(0, &ann);
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    assert!(received.contains(&"ann offline disconnected".to_owned()), "{received:?}");
    assert!(received.contains(&r#"presence [{"user":null}] [{"user":"ann"}] 1"#.to_owned()), "{received:?}");
    let received: Vec<String> = scene.events(1, &cid).iter().map(summary).collect();
    assert_eq!(received, ["presence [] [] 1"], "a mutual follower sees no difference");
    let reply = scene.ask(1, &mut bob, r#"{"op":"who","channel":"game#A"}"#);
    assert_eq!(
        (&reply["users"][0]["user"], &reply["users"][0]["clients"]),
        (&Value::Null, &serde_json::json!([]))
    );
    let reply = scene.ask(1, &mut cid, r#"{"op":"who","channel":"game#A"}"#);
    assert_eq!(reply["users"][0]["user"], "ann");
    let reply = scene.ask(1, &mut bob, r#"{"op":"status","users":["ann"]}"#);
    assert_eq!(shown(&reply["statuses"][0]), "ann offline");
    assert_eq!(reply["statuses"][0]["last_seen"], Value::Null);
    let reply = scene.ask(1, &mut cid, r#"{"op":"status","users":["ann"]}"#);
    assert_eq!(shown(&reply["statuses"][0]), "ann online [game#A]");

    // Only mutual followers receive ann's changes now.
    scene.join(0, &mut ann, "game#B");
    scene.send(0, &mut ann, r#"{"op":"leave","channel":"game#A"}"#);
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    assert_eq!(received, ["client_offline null", "user_offline null"]);
    let received: Vec<String> = scene.events(1, &cid).iter().map(summary).collect();
    assert_eq!(received[0], "ann online [game#A,game#B] in_game_channel game#B");
    let left: Vec<&String> = received.iter().filter(|summary| summary.contains("_offline")).collect();
    assert_eq!(left, ["client_offline ann", "user_offline ann"]);

    // Ann joins while hidden, then is visible again.
    scene.join(0, &mut ann, "game#A");
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    assert_eq!(received, ["user_online null", "client_online null"]);
    scene.events(1, &cid);
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"everyone"}"#);
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    assert!(received.contains(&"ann online [game#A,game#B] none".to_owned()), "{received:?}");
    let shown = received.iter().find(|summary| summary.starts_with("presence")).unwrap();
    assert!(shown.contains(r#""user":"ann""#) && shown.ends_with(r#"[{"user":null}] 1"#), "{shown}");
    let reply = scene.ask(1, &mut bob, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    assert_eq!(reply["members"]["users"][0]["user"], "ann");
}

#[test]
fn own_channel_of_a_hidden_user_is_empty_to_those_they_exclude() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob, mut cid) =
        (scene.client(0, "ann"), scene.client(1, "bob"), scene.client(1, "cid"));
    scene.follow(1, &mut cid, "ann");
    scene.follow(0, &mut ann, "cid");
    const WATCH: &str = r#"{"op":"subscribe","channel":"user#ann","presence":true}"#;
    for caller in [&mut bob, &mut cid] {
        let reply = scene.ask(1, caller, WATCH);
        assert_eq!(reply["members"]["count"], 1, "{reply}");
        scene.events(1, caller);
    }
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    assert_eq!(received, [r#"presence [] [{"user":"ann"}] 0"#]);
    let received: Vec<String> = scene.events(1, &cid).iter().map(summary).collect();
    assert_eq!(received, ["presence [] [] 1"], "a mutual follower sees no difference");
    for who in
        [r#"{"op":"who","channel":"user#ann"}"#, r#"{"op":"who","channel":"user#ann","counts_only":true}"#]
    {
        let reply = scene.ask(1, &mut bob, who);
        assert_eq!((&reply["count"], &reply["version"]), (&0.into(), &0.into()), "as if offline");
        assert_eq!(scene.ask(1, &mut cid, who)["count"], 1);
    }
    let mut dan = scene.client(1, "dan");
    let reply = scene.ask(1, &mut dan, WATCH);
    assert_eq!((&reply["members"]["count"], &reply["members"]["users"]), (&0.into(), &serde_json::json!([])));

    // Neither a second session nor the end of the first is noticed.
    let mut tab = scene.client(0, "ann");
    scene.send(0, &mut ann, r#"{"op":"bye"}"#);
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    assert!(received.is_empty(), "{received:?}");
    scene.events(1, &cid);
    scene.send(0, &mut tab, r#"{"op":"visibility","value":"everyone"}"#);
    let received: Vec<String> = scene.events(1, &bob).iter().map(summary).collect();
    let shown = received.iter().find(|one| one.starts_with("presence")).unwrap();
    assert!(shown.contains(r#""user":"ann""#) && shown.ends_with("[] 1"), "{shown}");
}

#[test]
fn hidden_user_cannot_be_invited_by_those_they_exclude() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob, mut cid) =
        (scene.client(0, "ann"), scene.client(1, "bob"), scene.client(1, "cid"));
    scene.follow(1, &mut cid, "ann");
    scene.follow(0, &mut ann, "cid");
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    const INVITE: &str = r#"{"op":"party.invite","user":"ann"}"#;
    let reply = scene.cluster.send(1, &mut bob, INVITE);
    assert_eq!(code(&reply), "user_not_logged", "{reply}");
    let reply = scene.cluster.send(1, &mut cid, INVITE);
    assert_eq!(code(&reply), "ok", "{reply}");
}

#[test]
fn follow_back_shows_and_hides_a_user() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob) = (scene.client(0, "ann"), scene.client(1, "bob"));
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    scene.follow(1, &mut bob, "ann");
    scene.check(1, &bob, "ann offline none");
    scene.follow(0, &mut ann, "bob");
    scene.check(1, &bob, "ann online none");
    scene.send(0, &mut ann, r#"{"op":"unfollow","user":"bob"}"#);
    scene.check(1, &bob, "ann offline disconnected");
    scene.events(0, &ann);
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    scene.follow(0, &mut ann, "bob");
    scene.check(1, &bob, "");
}

#[test]
fn watcher_of_a_large_channel_gets_changes_of_followed_users() {
    let settings = Settings { crowds: Thresholds { coalesce_at: 1, counts_at: 2 }, ..settings() };
    let mut scene = PeopleFixture { cluster: TestCluster::with(Some(0), None, &settings) };
    let (mut bob, mut cid) = (scene.client(0, "bob"), scene.client(0, "cid"));
    scene.follow(0, &mut bob, "ann");
    for n in 0..5 {
        let mut client = scene.client(1, &format!("u{n}"));
        scene.join(1, &mut client, "game#A");
    }
    for caller in [&mut bob, &mut cid] {
        let reply = scene.ask(0, caller, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
        assert_eq!((reply["members"]["count"].as_u64(), reply["members"].get("users")), (Some(5), None));
        scene.events(0, caller);
    }
    let mut ann = scene.client(1, "ann");
    scene.join(1, &mut ann, "game#A");
    scene.cluster.live(250);
    let last = |scene: &mut PeopleFixture, caller: &Caller| {
        let received = scene.events(0, caller);
        let presence = received.iter().rfind(|event| event["event"] == "presence").map(presence_words);
        presence.unwrap()
    };
    assert!(last(&mut scene, &bob).contains(r#""user":"ann""#));
    assert_eq!(last(&mut scene, &cid), "presence 6");
    let reply = scene.ask(0, &mut bob, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    assert_eq!(reply["members"]["users"][0]["user"], "ann");
    scene.send(1, &mut ann, r#"{"op":"leave","channel":"game#A"}"#);
    scene.cluster.live(250);
    assert_eq!(last(&mut scene, &bob), r#"presence [] [{"user":"ann"}] 5"#);
}

fn sets_visibility(work: &Work) -> bool {
    matches!(work, Work::Commit(commit) if commit.puts.iter().any(|row| matches!(row, Row::User(_))))
}

fn stored_visibility(scene: &PeopleFixture, user: &str) -> Visibility {
    let read = Read::People { users: vec![user.into()], viewer: None };
    let Found::People(people) = scene.cluster.stored(read) else { panic!("no answer about {user}") };
    people[0].known.as_ref().unwrap().row.visibility
}

#[test]
fn visibility_change_that_conflicts_is_decided_again() {
    const LATE: u64 = 50;
    let mut scene = PeopleFixture::new();
    let (mut ann, mut other_tab, mut bob) =
        (scene.client(0, "ann"), scene.client(1, "ann"), scene.client(1, "bob"));
    scene.follow(1, &mut bob, "ann");
    scene.check(1, &bob, "ann online none");
    let (attempt, attempts) = std::sync::mpsc::channel();
    scene.cluster.set_work_fate(move |node, work| match node == "one" && sets_visibility(work) {
        true => {
            attempt.send(()).unwrap();
            WorkFault { before_ms: LATE, ..WorkFault::NONE }
        }
        false => WorkFault::NONE,
    });
    let hide = r#"{"op":"visibility","value":"nobody"}"#;
    assert_eq!(scene.cluster.node(0).run(0, &mut ann, hide).0, Flow::Wait);
    scene.cluster.settle();
    scene.send(1, &mut other_tab, r#"{"op":"visibility","value":"followers_i_follow"}"#);
    assert_eq!(stored_visibility(&scene, "ann"), Visibility::FollowersIFollow);
    scene.cluster.live(LATE * 3);
    scene.send(0, &mut ann, hide);
    assert_eq!(attempts.try_iter().count(), 2);
    assert_eq!(stored_visibility(&scene, "ann"), Visibility::Nobody);
    scene.check(1, &bob, "ann offline disconnected");
}

#[test]
fn visibility_change_with_an_unknown_outcome_is_published_when_the_store_answers() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob) = (scene.client(0, "ann"), scene.client(1, "bob"));
    scene.join(0, &mut ann, "game#A");
    scene.follow(1, &mut bob, "ann");
    scene.check(1, &bob, "ann online [game#A] none");
    let mut down = false;
    scene.cluster.set_work_fate(move |_, work| {
        down |= sets_visibility(work);
        let outcome = match down {
            true if sets_visibility(work) => WorkOutcome::FailAfter,
            true => WorkOutcome::FailBefore,
            false => WorkOutcome::Perform,
        };
        WorkFault { outcome, ..WorkFault::NONE }
    });
    let reply = scene.cluster.send(0, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    assert_eq!(code(&reply), "unavailable");
    scene.cluster.live(1_000);
    scene.check(1, &bob, "");
    scene.cluster.heal();
    scene.cluster.live(1_000);
    scene.check(1, &bob, "ann offline disconnected");
    let who = scene.ask(1, &mut bob, r#"{"op":"who","channel":"game#A"}"#);
    assert_eq!(who["users"][0]["user"], Value::Null);
}

fn writes_presence(work: &Work) -> bool {
    matches!(work, Work::Commit(commit) if commit.puts.iter().any(|row| matches!(row, Row::Presence(_))))
}

fn shown_to(scene: &PeopleFixture, channel: &str, user: &str) -> Visibility {
    let key = PresenceKey { channel: channel.into(), user: user.into() };
    let Found::Presence(row) = scene.cluster.stored(Read::Presence(key)) else { panic!("no answer") };
    row.unwrap().row.visibility
}

#[test]
fn user_who_hides_while_a_grace_period_ends_stays_hidden() {
    const LATE: u64 = 120;
    let mut scene = PeopleFixture::new();
    let (mut ann, mut tab, mut bob) =
        (scene.client(0, "ann"), scene.client(1, "ann"), scene.client(0, "bob"));
    scene.join(0, &mut ann, "game#A");
    scene.join(1, &mut tab, "game#A");
    scene.cluster.node(1).detach(&tab);
    scene.cluster.live(RESUME + 1_000);
    let (attempt, attempts) = std::sync::mpsc::channel();
    scene.cluster.set_work_fate(move |node, work| match node != "one" && writes_presence(work) {
        true => {
            attempt.send(()).unwrap();
            WorkFault { before_ms: LATE, ..WorkFault::NONE }
        }
        false => WorkFault::NONE,
    });
    let ends = (0..GRACE).any(|_| {
        scene.cluster.live(1);
        attempts.try_recv().is_ok()
    });
    assert!(ends, "the slow node ends the grace period");
    // The slow node hears of it late.
    scene.cluster.set_fate(|_, _, _| Vec::new());
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    scene.cluster.live(LATE * 6);
    for channel in ["user#ann", "game#A"] {
        assert_eq!(shown_to(&scene, channel, "ann"), Visibility::Nobody, "{channel}");
    }
    let who = scene.ask(0, &mut bob, r#"{"op":"who","channel":"game#A"}"#);
    assert_eq!(who["users"][0]["user"], Value::Null);
}

#[test]
fn last_of_two_visibilities_counts_in_every_channel() {
    const LATE: u64 = 120;
    let mut scene = PeopleFixture::new();
    let (mut ann, mut tab) = (scene.client(0, "ann"), scene.client(1, "ann"));
    scene.join(0, &mut ann, "game#A");
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    // What the first node writes after the change is late: the second change is written before.
    scene.cluster.set_work_fate(|node, work| match node == "one" && writes_presence(work) {
        true => WorkFault { before_ms: LATE, ..WorkFault::NONE },
        false => WorkFault::NONE,
    });
    scene.cluster.set_fate(|_, _, _| Vec::new());
    scene.send(0, &mut ann, r#"{"op":"visibility","value":"everyone"}"#);
    scene.send(1, &mut tab, r#"{"op":"visibility","value":"nobody"}"#);
    scene.cluster.live(LATE * 6);
    for channel in ["user#ann", "game#A"] {
        assert_eq!(shown_to(&scene, channel, "ann"), Visibility::Nobody, "{channel}");
    }
}

#[test]
fn hidden_user_whose_session_is_adopted_and_lost_was_not_seen() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"visibility","value":"nobody"}"#);
    disconnect_before_the_stop(&mut scene);
    let packed = stop_without_offers(&mut scene);
    // The node learns only after the loss that she hides.
    scene.cluster.set_work_fate(|_, work| match work {
        Work::Read(Read::People { .. }) => WorkFault { before_ms: 60_000, ..WorkFault::NONE },
        _ => WorkFault::NONE,
    });
    adopt(&mut scene, 1, &packed[0]);
    scene.cluster.live(30_000);
    scene.cluster.heal();
    let read = Read::People { users: vec!["ann".into()], viewer: None };
    let Found::People(people) = scene.cluster.stored(read) else { panic!("no answer about ann") };
    assert!(people[0].presences.is_empty(), "she is offline");
    assert_eq!(people[0].known.as_ref().unwrap().row.last_seen, None);
}
