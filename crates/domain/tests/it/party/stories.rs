//! Invites, members and leaders, as scripted scenarios.

use super::script::{check, check_by};
use super::world::RULES;
use tavern_domain::party::PartyLimits;

const TWO: PartyLimits = PartyLimits { max_members: 2, ..RULES };

#[test]
fn the_first_invite_creates_a_party() {
    check("ann invites bob", "bob: invite ann, ann: invited ann bob | 1 v1 forming: ann +bob");
    check("ann invites bob; bob accepts", "ann: accept bob | 1 v2 idle: ann bob");
}

#[test]
fn members_are_notified_of_invites_and_joins() {
    check(
        "ann invites bob; bob accepts; ann invites cid",
        "cid: invite ann, ann+bob: invited ann cid | 1 v3 idle: ann bob +cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts",
        "ann: accept cid, bob: join cid | 1 v4 idle: ann bob cid",
    );
}

#[test]
fn a_repeated_invite_is_acknowledged_even_when_the_party_is_full() {
    check("ann invites bob; ann invites bob", "nothing | 1 v1 forming: ann +bob");
    check_by(TWO, "ann invites bob; ann invites bob", "nothing | 1 v1 forming: ann +bob");
    check("ann invites bob; bob is lost; ann invites bob", "nothing | 1 v1 forming: ann +bob");
}

#[test]
fn a_user_alone_in_a_party_can_accept_and_their_party_ends() {
    check(
        "bob invites cid; ann invites bob",
        "bob: invite ann, ann: invited ann bob | 1 v1 forming: bob +cid, 2 v1 forming: ann +bob",
    );
    check(
        "bob invites cid; ann invites bob; bob accepts",
        "ann: accept bob, cid: invite_cancel bob joined_other_party, bob: decline cid joined_other_party, bob: disband bob empty | 2 v2 idle: ann bob",
    );
}

#[test]
fn accepting_declines_the_other_invites() {
    check(
        "ann invites bob; cid invites bob; dan invites eve; dan invites bob; bob accepts 3",
        "dan: accept bob, bob: invite_cancel ann joined_other_party, ann: decline bob joined_other_party, bob: invite_cancel cid joined_other_party, cid: decline bob joined_other_party, ann: disband ann empty, cid: disband cid empty | 3 v3 idle: dan bob +eve",
    );
}

#[test]
fn two_users_who_invite_each_other_join_with_the_first_accept() {
    check(
        "ann invites bob; bob invites ann; bob accepts",
        "ann: accept bob, ann: invite_cancel bob joined_other_party, bob: decline ann joined_other_party, bob: disband bob empty | 1 v2 idle: ann bob",
    );
    check(
        "ann invites bob; bob invites ann; bob accepts; ann accepts 2",
        "no_such_party | 1 v2 idle: ann bob",
    );
    check(
        "ann invites bob; bob accepts; cid invites dan; ann accepts 2",
        "user_in_party | 1 v2 idle: ann bob, 2 v1 forming: cid +dan",
    );
}

#[test]
fn cancelling_notifies_the_invitee_and_ends_an_empty_party() {
    check(
        "ann invites bob; bob accepts; ann invites cid; ann cancels cid",
        "cid: invite_cancel ann cancelled, ann+bob: uninvited cid cancelled | 1 v4 idle: ann bob",
    );
    check(
        "ann invites bob; ann cancels bob",
        "bob: invite_cancel ann cancelled, ann: uninvited bob cancelled, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; ann promotes bob; bob cancels cid",
        "cid: invite_cancel bob cancelled, bob: uninvited cid cancelled, ann: decline cid cancelled | 1 v5 idle: bob ann",
    );
}

#[test]
fn declining_notifies_the_inviter_or_else_the_leader() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid declines saying no",
        "ann: decline cid declined saying no, bob: uninvited cid declined | 1 v4 idle: ann bob",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; ann leaves; cid declines",
        "bob: decline cid declined, bob: disband bob empty |",
    );
    check("ann invites bob; bob declines", "ann: decline bob declined, ann: disband ann empty |");
}

#[test]
fn accepting_notifies_the_inviter_or_else_the_leader() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann invites dan; ann leaves; dan accepts",
        "bob: accept dan, cid: join dan | 1 v8 idle: bob cid dan",
    );
}

#[test]
fn an_invite_expires_at_its_deadline() {
    check("ann invites bob; 59s: wake", "nothing | 1 v1 forming: ann +bob");
    check(
        "ann invites bob; 60s: wake",
        "bob: invite_cancel ann expired, ann: decline bob expired, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; 60s: wake",
        "cid: invite_cancel ann expired, ann: decline cid expired, bob: uninvited cid expired | 1 v4 idle: ann bob",
    );
    check("ann invites bob; 60s: bob accepts 1", "no_such_party | 1 v1 forming: ann +bob");
    check(
        "ann invites bob; bob accepts; ann invites cid; 60s: cid accepts 1",
        "no_invite | 1 v3 idle: ann bob +cid",
    );
    check("ann invites bob; 59s: bob accepts", "ann: accept bob | 1 v2 idle: ann bob");
    check(
        "ann invites bob; 60s: ann invites cid",
        "bob: invite_cancel ann expired, ann: decline bob expired, ann: disband ann empty, cid: invite ann, ann: invited ann cid | 2 v1 forming: ann +cid",
    );
}

#[test]
fn a_kicked_member_and_the_others_are_notified() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann kicks bob saying go",
        "bob: kick ann saying go, ann+cid: leave bob kicked by ann saying go | 1 v5 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann kicks bob",
        "bob: kick ann, ann: leave bob kicked by ann, ann: disband ann empty |",
    );
}

#[test]
fn when_the_leader_leaves_the_next_online_member_leads() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann leaves saying bye",
        "bob+cid: leave ann left saying bye, bob+cid: leader bob | 1 v6 idle: bob cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob is lost; ann leaves",
        "bob+cid: leave ann left, cid+bob: leader cid | 1 v7 idle: cid ~bob",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob is lost; cid is lost; ann leaves",
        "bob+cid: leave ann left, bob+cid: leader bob | 1 v8 idle: ~bob ~cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; bob leaves",
        "ann+cid: leave bob left | 1 v5 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann leaves",
        "bob: leave ann left, bob: leader bob, bob: disband bob empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; ann leaves",
        "bob: leave ann left, bob: leader bob | 1 v5 forming: bob +cid",
    );
    check(
        "ann invites bob; ann invites cid; ann leaves",
        "bob: invite_cancel ann disbanded, ann: decline bob disbanded, cid: invite_cancel ann disbanded, ann: decline cid disbanded, ann: disband ann empty |",
    );
}

#[test]
fn a_leader_can_promote_another_member() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann promotes cid",
        "cid+ann+bob: leader cid by ann | 1 v5 idle: cid ann bob",
    );
}

#[test]
fn disbanding_ends_invites_and_the_party() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann invites dan; ann disbands saying so",
        "dan: invite_cancel ann disbanded, ann: decline dan disbanded, bob+cid: uninvited dan disbanded, ann+bob+cid: disband ann disbanded saying so |",
    );
    check(
        "ann invites bob; ann disbands",
        "bob: invite_cancel ann disbanded, ann: decline bob disbanded, ann: disband ann disbanded |",
    );
}

#[test]
fn data_is_replaced_and_the_same_is_no_change() {
    check("ann invites bob; bob accepts; ann sets {}", "ann+bob: data ann {} | 1 v3 idle: ann bob");
    check("ann invites bob; bob accepts; ann sets {}; ann sets {}", "nothing | 1 v3 idle: ann bob");
}

#[test]
fn a_blocked_invite_looks_sent_and_is_never_delivered() {
    check("bob blocks ann; ann invites bob", "ann: invited ann bob | 1 v1 forming: ann -bob");
    check("bob blocks ann; ann invites bob; bob accepts 1", "no_invite | 1 v1 forming: ann -bob");
    check("bob blocks ann; ann invites bob; 60s: wake", "ann: decline bob expired, ann: disband ann empty |");
    check(
        "bob blocks ann; ann invites bob; ann cancels bob",
        "ann: uninvited bob cancelled, ann: disband ann empty |",
    );
    check("bob blocks ann; ann invites bob; ann invites bob", "nothing | 1 v1 forming: ann -bob");
    check(
        "bob blocks ann; bob unblocks ann; ann invites bob",
        "bob: invite ann, ann: invited ann bob | 1 v1 forming: ann +bob",
    );
    check_by(TWO, "bob blocks ann; ann invites bob; ann invites cid", "party_full | 1 v1 forming: ann -bob");
    check(
        "bob blocks ann; ann invites bob; cid invites bob; bob accepts",
        "cid: accept bob | 1 v1 forming: ann -bob, 2 v2 idle: cid bob",
    );
}

#[test]
fn get_applies_deadlines_and_nothing_else() {
    check("ann invites bob; bob accepts; bob gets", "nothing | 1 v2 idle: ann bob");
    check("ann gets", "nothing |");
    check(
        "ann invites bob; bob accepts; ann invites cid; 60s: bob gets",
        "cid: invite_cancel ann expired, ann: decline cid expired, bob: uninvited cid expired | 1 v4 idle: ann bob",
    );
    check("ann invites bob; bob accepts; bob gets of 1", "nothing | 1 v2 idle: ann bob");
}
