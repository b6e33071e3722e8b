//! Members and invitees who disconnect, come back or log out, as scripted scenarios.

use super::script::{check, run_story};
use super::world::{RULES, World};
use tavern_domain::Time;
use tavern_domain::party::MemberDisconnect;

#[test]
fn a_disconnected_member_keeps_their_seat() {
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
fn a_disconnected_member_leaves_when_their_time_is_over() {
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
fn a_member_who_is_back_or_lost_again_at_the_deadline_stays() {
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
fn a_loss_noticed_late_counts_from_when_it_happened() {
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
fn a_leader_in_their_grace_period_still_leads() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann is lost; bob promotes cid",
        "not_leader | 1 v5 idle: ~ann bob cid",
    );
    check("ann invites bob; ann is lost; bob accepts", "ann: accept bob | 1 v3 idle: ~ann bob");
}

#[test]
fn a_logout_ends_the_membership_at_once() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob logs out",
        "bob+ann+cid: leave bob logout | 1 v5 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann logs out",
        "ann+bob+cid: leave ann logout, bob+cid: leader bob | 1 v6 idle: bob cid",
    );
    check(
        "ann invites bob; bob accepts; bob logs out",
        "bob+ann: leave bob logout, ann: disband ann empty |",
    );
    check(
        "ann invites bob; ann logs out",
        "bob: invite_cancel ann disbanded, ann: decline bob disbanded, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; bob is lost; bob logs out unchecked; 45s: wake",
        "bob+ann: leave bob logout, ann: disband ann empty |",
    );
}

#[test]
fn a_logout_counts_even_if_the_user_is_back() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob logs out unchecked; bob is back",
        "bob+ann+cid: leave bob logout | 1 v5 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob logs out unchecked; bob is back unchecked; bob invites dan",
        "bob+ann+cid: leave bob logout, dan: invite bob, bob: invited bob dan | 1 v5 idle: ann cid, 2 v1 forming: bob +dan",
    );
    check(
        "ann invites bob; bob accepts; bob logs out unchecked; bob is back unchecked; ann invites bob",
        "bob+ann: leave bob logout, ann: disband ann empty, bob: invite ann, ann: invited ann bob | 2 v1 forming: ann +bob",
    );
    check(
        "ann invites bob; bob logs out unchecked; bob is back unchecked; bob accepts 1",
        "no_such_party | 1 v1 forming: ann +bob",
    );
}

#[test]
fn a_logout_is_applied_once() {
    check(
        "ann invites bob; bob accepts; bob logs out; bob is back; bob invites cid; cid accepts; bob sets {}",
        "bob+cid: data bob {} | 2 v3 idle: bob cid",
    );
}

#[test]
fn a_logout_declines_open_invites() {
    check(
        "ann invites bob; bob logs out",
        "bob: invite_cancel ann logout, ann: decline bob logout, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid logs out",
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
        "bob invites eve; cid invites bob; bob is lost; bob logs out unchecked; bob is back unchecked; 45s: wake; check bob",
        "bob: invite_cancel cid logout, cid: decline bob logout, cid: disband cid empty |",
    );
}

#[test]
fn a_user_lost_during_their_command_is_away_afterwards() {
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
fn presence_of_a_user_without_a_party_changes_nothing() {
    check("bob is lost", "nothing |");
    check("bob logs out", "nothing |");
    check("wake", "nothing |");
}

#[test]
fn a_seat_is_kept_until_both_grace_periods_end() {
    let mut world = World::new(RULES);
    run_story(&mut world, "ann invites bob; bob accepts; 5s: bob is lost unchecked; 9s: check bob");
    let away = Some(MemberDisconnect { since: Time(5_000), until: Time(50_000) });
    assert_eq!(world.parties[&1].members[1].away, away);
    assert_eq!(world.parties[&1].next_wake(), Some(Time(50_000)));
}
