//! Races between the store and the bus: answers about people arrive out of order, and a read is older than the updates
//! received meanwhile. Followers get the current status, once.

use crate::harness::people::PeopleFixture;
use tavern_hub::{LivenessTask, ShardEvent};
use tavern_store::memory::WorkFault;
use tavern_store::{Read, Work};

const SOON: u64 = 10;
const LATE: u64 = 50;

/// The list of followees is read after this long and comes back after that long; commits are answered after a time too.
fn delay_lists(scene: &mut PeopleFixture, before_ms: u64, after_ms: u64, commit_ms: u64) {
    scene.cluster.set_work_fate(move |_, work| match work {
        Work::Read(Read::Following { .. }) => WorkFault { before_ms, after_ms, ..WorkFault::NONE },
        Work::Commit(_) => WorkFault { after_ms: commit_ms, ..WorkFault::NONE },
        Work::Read(_) => WorkFault::NONE,
    });
}

#[test]
fn follow_found_in_the_list_before_its_commit_is_answered_sends_the_status() {
    let mut scene = PeopleFixture::new();
    let _ann = scene.client(1, "ann");
    delay_lists(&mut scene, SOON, 0, LATE);
    let mut bob = scene.client(0, "bob");
    scene.follow(0, &mut bob, "ann");
    scene.cluster.live(LATE * 2);
    scene.check(0, &bob, "ann online none");
}

#[test]
fn follow_survives_a_list_that_was_read_before_it() {
    let mut scene = PeopleFixture::new();
    let mut ann = scene.client(1, "ann");
    delay_lists(&mut scene, 0, LATE, SOON);
    let mut bob = scene.client(0, "bob");
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online none");
    scene.cluster.live(LATE * 2);
    scene.join(1, &mut ann, "game#A");
    scene.cluster.live(LATE * 2);
    scene.check(0, &bob, "ann online [game#A] in_game_channel game#A");
}

#[test]
fn follow_whose_update_was_lost_sends_the_status_to_the_other_tab_when_found() {
    let mut scene = PeopleFixture::new();
    let _ann = scene.client(1, "ann");
    let (mut bob, tab) = (scene.client(0, "bob"), scene.client(1, "bob"));
    scene.cluster.set_fate(|_, _, _| Vec::new());
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online none");
    scene.check(1, &tab, "");
    scene.cluster.heal();
    scene.cluster.node(1).handle(ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.settle();
    scene.check(1, &tab, "ann online none");
    scene.cluster.node(1).handle(ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.settle();
    scene.check(1, &tab, "");
}

#[test]
fn read_older_than_received_updates_undoes_nothing() {
    let mut scene = PeopleFixture::new();
    let (mut bob, mut ann) = (scene.client(0, "bob"), scene.client(1, "ann"));
    scene.follow(0, &mut bob, "ann");
    scene.check(0, &bob, "ann online none");
    scene.cluster.set_work_fate(|_, work| match work {
        Work::Read(Read::People { .. }) => WorkFault { after_ms: LATE, ..WorkFault::NONE },
        _ => WorkFault::NONE,
    });
    // Two reads at once: the second one must keep the updates received during both.
    for _ in 0..2 {
        scene.cluster.node(0).handle(ShardEvent::BusLost(None));
        scene.cluster.live(SOON);
    }
    scene.join(1, &mut ann, "game#A");
    scene.cluster.live(LATE * 2);
    scene.check(0, &bob, "ann online [game#A] in_game_channel game#A");
}

#[test]
fn unfollow_during_a_move_ends_the_updates() {
    let mut scene = PeopleFixture::new();
    let (mut ann, mut bob, mut cid) =
        (scene.client(0, "ann"), scene.client(0, "bob"), scene.client(1, "cid"));
    scene.follow(0, &mut bob, "ann");
    scene.follow(1, &mut cid, "ann");
    scene.check(0, &bob, "ann online none");
    let session = scene.ask(0, &mut bob, r#"{"op":"hello"}"#)["session"].as_str().unwrap().to_owned();
    // The new node takes a while to load the follow list; meanwhile ann joins a channel.
    delay_lists(&mut scene, LATE, LATE, 0);
    let mut back = scene.cluster.node(1).socket();
    let hello = format!(r#"{{"op":"hello","token":"bob","session":"{session}","seq":1}}"#);
    assert_eq!(scene.ask(1, &mut back, &hello)["resumed"], true);
    scene.join(0, &mut ann, "game#A");
    scene.send(1, &mut back, r#"{"op":"unfollow","user":"ann"}"#);
    scene.events(1, &back);
    scene.cluster.live(LATE * 5);
    scene.check(1, &back, "");
}
