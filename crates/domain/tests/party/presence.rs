//! Members and guests who are lost, come back or say goodbye, in words.

use crate::words::{check, tell};
use crate::world::{RULES, World};
use tavern_domain::Time;
use tavern_domain::party::Away;

#[test]
fn who_is_lost_keeps_his_seat() {
    check("ann invites bob; bob accepts; bob is lost", "ann+bob: offline bob | 1 v3 idle: ann ~bob");
    check("ann invites bob; bob accepts; bob is lost; 44s: wake", "nothing | 1 v3 idle: ann ~bob");
    check(
        "ann invites bob; bob accepts; bob is lost; 44s: bob is back",
        "ann+bob: online bob | 1 v4 idle: ann bob",
    );
    check("ann invites bob; bob accepts; bob is lost; bob is lost", "nothing | 1 v3 idle: ann ~bob");
    check("ann invites bob; bob accepts; bob is lost; 15s: bob is absent", "nothing | 1 v3 idle: ann ~bob");
}

#[test]
fn and_loses_it_when_his_time_is_over() {
    check(
        "ann invites bob; bob accepts; bob is lost; 45s: wake",
        "bob+ann: leave bob timeout, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann is lost; 45s: wake",
        "ann+bob+cid: leave ann timeout, bob+cid: leader bob | 1 v7 idle: bob cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann is lost; 45s: wake; ann is back",
        "nothing | 1 v7 idle: bob cid",
    );
    check("ann invites bob; bob accepts; bob is absent; 29s: wake", "nothing | 1 v3 idle: ann ~bob");
    check(
        "ann invites bob; bob accepts; bob is absent; 30s: wake",
        "bob+ann: leave bob timeout, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob is lost; 45s: ann sets {}",
        "bob+ann+cid: leave bob timeout, ann+cid: data ann {} | 1 v7 idle: ann cid",
    );
}

#[test]
fn who_is_back_or_lost_anew_when_his_time_is_over_stays() {
    check(
        "ann invites bob; bob accepts; bob is lost; 44s: bob is back unchecked; 45s: wake",
        "ann+bob: online bob | 1 v4 idle: ann bob",
    );
    check(
        "ann invites bob; bob accepts; bob is lost; 20s: bob is back unchecked; 21s: bob is lost unchecked; 45s: wake",
        "ann+bob: online bob, ann+bob: offline bob | 1 v5 idle: ann ~bob",
    );
    check(
        "ann invites bob; bob accepts; bob is lost; 20s: bob is back unchecked; 21s: bob is lost",
        "ann+bob: online bob, ann+bob: offline bob | 1 v5 idle: ann ~bob",
    );
    check(
        "ann invites bob; bob accepts; bob is lost; 20s: bob is back unchecked; 21s: bob is lost unchecked; 45s: wake; 65s: wake",
        "nothing | 1 v5 idle: ann ~bob",
    );
    check(
        "ann invites bob; bob accepts; bob is lost; 20s: bob is back unchecked; 21s: bob is lost unchecked; 45s: wake; 66s: wake",
        "bob+ann: leave bob timeout, ann: disband ann empty |",
    );
}

#[test]
fn a_loss_that_is_heard_of_late_counts_from_when_it_was() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob is lost unchecked; 45s: check bob",
        "ann+bob+cid: offline bob, bob+ann+cid: leave bob timeout | 1 v6 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob is lost unchecked; 44s: check bob; 45s: wake",
        "bob+ann+cid: leave bob timeout | 1 v6 idle: ann cid",
    );
}

#[test]
fn a_leader_in_his_grace_leads() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann is lost; bob promotes cid",
        "not_leader | 1 v5 idle: ~ann bob cid",
    );
    check("ann invites bob; ann is lost; bob accepts", "ann: accept bob | 1 v3 idle: ~ann bob");
}

#[test]
fn goodbye_ends_membership_at_once() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob says bye",
        "ann+cid: leave bob logout | 1 v5 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann says bye",
        "bob+cid: leave ann logout, bob+cid: leader bob | 1 v6 idle: bob cid",
    );
    check("ann invites bob; bob accepts; bob says bye", "ann: leave bob logout, ann: disband ann empty |");
    check(
        "ann invites bob; ann says bye",
        "bob: invite_cancel ann disbanded, ann: decline bob disbanded, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; bob is lost; bob says bye unchecked; 45s: wake",
        "ann: leave bob logout, ann: disband ann empty |",
    );
}

#[test]
fn goodbye_counts_even_if_he_is_back() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob says bye unchecked; bob is back",
        "ann+cid: leave bob logout | 1 v5 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob says bye unchecked; bob is back unchecked; bob invites dan",
        "ann+cid: leave bob logout, dan: invite bob, bob: invited bob dan | 1 v5 idle: ann cid, 2 v1 forming: bob +dan",
    );
    check(
        "ann invites bob; bob accepts; bob says bye unchecked; bob is back unchecked; ann invites bob",
        "ann: leave bob logout, ann: disband ann empty, bob: invite ann, ann: invited ann bob | 2 v1 forming: ann +bob",
    );
    check(
        "ann invites bob; bob says bye unchecked; bob is back unchecked; bob accepts 1",
        "no_such_party | 1 v1 forming: ann +bob",
    );
}

#[test]
fn goodbye_is_said_once() {
    check(
        "ann invites bob; bob accepts; bob says bye; bob is back; bob invites cid; cid accepts; bob sets {}",
        "bob+cid: data bob {} | 2 v3 idle: bob cid",
    );
}

#[test]
fn who_is_invited_and_goes_is_declined_for() {
    check(
        "ann invites bob; bob says bye",
        "bob: invite_cancel ann logout, ann: decline bob logout, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid says bye",
        "cid: invite_cancel ann logout, ann: decline cid logout, bob: uninvited cid logout | 1 v4 idle: ann bob",
    );
    check("ann invites bob; bob is lost", "nothing | 1 v1 forming: ann +bob");
    check(
        "ann invites bob; bob is lost; bob is absent",
        "bob: invite_cancel ann logout, ann: decline bob logout, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob is lost; bob accepts",
        "ann: accept bob, ann+bob: offline bob | 1 v3 idle: ann ~bob",
    );
    check(
        "bob invites eve; cid invites bob; bob is lost; bob says bye unchecked; bob is back unchecked; 45s: wake; check bob",
        "bob: invite_cancel cid logout, cid: decline bob logout, cid: disband cid empty |",
    );
}

#[test]
fn who_was_lost_while_his_command_was_under_way_is_lost() {
    check(
        "ann invites bob; ann is back; bob is lost unchecked; bob accepts",
        "ann: accept bob, ann+bob: offline bob | 1 v3 idle: ann ~bob",
    );
    check(
        "ann is absent; ann invites bob",
        "bob: invite ann, ann: invited ann bob, ann: offline ann | 1 v2 forming: ~ann +bob",
    );
    check(
        "ann is absent; ann invites bob; 30s: wake",
        "bob: invite_cancel ann disbanded, ann: decline bob disbanded, ann: disband ann empty |",
    );
}

#[test]
fn whom_no_party_knows_is_nobody() {
    check("bob is lost", "nothing |");
    check("bob says bye", "nothing |");
    check("wake", "nothing |");
}

#[test]
fn a_seat_is_kept_from_the_loss_to_the_end_of_both_graces() {
    let mut world = World::new(RULES);
    tell(&mut world, "ann invites bob; bob accepts; 5s: bob is lost unchecked; 9s: check bob");
    let away = Some(Away { since: Time(5_000), until: Time(50_000) });
    assert_eq!(world.parties[&1].members[1].away, away);
    assert_eq!(world.parties[&1].next_wake(), Some(Time(50_000)));
}
