//! The whole group goes into a match, as scripted scenarios.

use super::script::{check, check_by};
use super::world::RULES;
use tavern_domain::party::PartyLimits;

const READY: PartyLimits = PartyLimits { require_ready: true, ..RULES };

#[test]
fn go_queues_a_ticket_at_once() {
    check(
        "ann invites bob; bob accepts; ann goes",
        "ann+bob: party_go ann 3 ann+bob, go 3 | 1 v3 queued: ann bob",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; ann goes",
        "cid: invite_cancel ann party_queued, ann: decline cid party_queued, bob: uninvited cid party_queued, ann+bob: party_go ann 5 ann+bob, go 5 | 1 v5 queued: ann bob",
    );
}

#[test]
fn go_fails_at_once_if_a_member_is_offline() {
    check(
        "ann invites bob; bob accepts; ann invites cid; bob is lost unchecked; ann goes",
        "ann+bob: go_failed ann missing bob, go 4 | 1 v4 idle: ann bob +cid",
    );
    check(
        "ann invites bob; bob accepts; bob is lost unchecked; ann goes; bob is back unchecked; ann goes",
        "ann+bob: party_go ann 4 ann+bob, go 4 | 1 v4 queued: ann bob",
    );
}

#[test]
fn with_require_ready_every_member_must_be_ready() {
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes",
        "ann+bob: party_go ann 3 ann+bob, go 3 | 1 v3 gathering: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is ready",
        "ann+bob: ready bob 3 | 1 v4 gathering: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is ready; bob is ready",
        "nothing | 1 v4 gathering: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is ready; ann is ready",
        "ann+bob: ready ann 3 queued | 1 v5 queued: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is ready; ann is ready; bob is ready",
        "nothing | 1 v5 queued: ann bob",
    );
}

#[test]
fn a_gathering_fails_at_its_deadline() {
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; ann is ready; 9s: wake",
        "nothing | 1 v4 gathering: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; ann is ready; 10s: wake",
        "ann+bob: go_failed ann missing bob | 1 v5 idle: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; 10s: bob is ready 3",
        "no_such_go | 1 v3 gathering: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; 10s: ann goes",
        "ann+bob: go_failed ann missing ann+bob, ann+bob: party_go ann 5 ann+bob, go 5 | 1 v5 gathering: ann bob",
    );
}

#[test]
fn a_gathering_fails_with_the_server_of_a_member() {
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; ann is ready; bob is down",
        "ann+bob: go_failed ann missing bob, ann+bob: offline bob | 1 v6 idle: ann ~bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is ready; bob is down",
        "ann+bob: go_failed ann missing ann+bob, ann+bob: offline bob | 1 v6 idle: ann ~bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is down; ann is down",
        "ann+bob: offline ann | 1 v6 idle: ~ann ~bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob is lost",
        "ann+bob: go_cancel bob offline, ann+bob: offline bob | 1 v5 idle: ann ~bob",
    );
    check(
        "ann invites bob; bob accepts; ann goes; bob is down",
        "ann+bob: go_cancel bob offline, ann+bob: offline bob | 1 v5 idle: ann ~bob",
    );
}

#[test]
fn the_leader_can_cancel_a_ticket() {
    check(
        "ann invites bob; bob accepts; ann goes; ann stops",
        "ann+bob: go_cancel ann cancelled | 1 v4 idle: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; ann stops",
        "ann+bob: go_cancel ann cancelled | 1 v4 idle: ann bob",
    );
}

#[test]
fn a_departure_cancels_the_ticket_first() {
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann goes; bob leaves",
        "ann+bob+cid: go_cancel bob left, ann+cid: leave bob left | 1 v7 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann goes; ann kicks bob",
        "ann+bob+cid: go_cancel bob kicked, bob: kick ann, ann+cid: leave bob kicked by ann | 1 v7 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann goes; ann leaves",
        "ann+bob+cid: go_cancel ann left, bob+cid: leave ann left, bob+cid: leader bob | 1 v8 idle: bob cid",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; bob leaves",
        "ann+bob: go_cancel bob left, ann: leave bob left, ann: disband ann empty |",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann goes; bob is lost",
        "ann+bob+cid: go_cancel bob offline, ann+bob+cid: offline bob | 1 v7 idle: ann ~bob cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann goes; bob logs out",
        "ann+bob+cid: go_cancel bob logout, bob+ann+cid: leave bob logout | 1 v7 idle: ann cid",
    );
    check(
        "ann invites bob; bob accepts; ann invites cid; cid accepts; ann goes; ann disbands",
        "ann+bob+cid: go_cancel ann disbanded, ann+bob+cid: disband ann disbanded |",
    );
}

#[test]
fn a_ticket_is_answered_once() {
    check(
        "ann invites bob; bob accepts; ann goes; matched 1 3",
        "ann+bob: party_matched ann | 1 v4 idle: ann bob",
    );
    check(
        "ann invites bob; bob accepts; ann goes; failed 1 3",
        "ann+bob: go_failed ann missing  | 1 v4 idle: ann bob",
    );
    check(
        "ann invites bob; bob accepts; ann goes; matched 1 3; matched 1 3",
        "no_such_go | 1 v4 idle: ann bob",
    );
    check("ann invites bob; bob accepts; ann goes; matched 1 2", "no_such_go | 1 v3 queued: ann bob");
    check(
        "ann invites bob; bob accepts; ann goes; ann stops; ann goes; matched 1 3",
        "no_such_go | 1 v5 queued: ann bob",
    );
    check_by(
        READY,
        "ann invites bob; bob accepts; ann goes; matched 1 3",
        "no_such_go | 1 v3 gathering: ann bob",
    );
    check("matched 7 1", "no_such_party |");
}

#[test]
fn every_ticket_has_its_own_id() {
    check(
        "ann invites bob; bob accepts; ann goes; ann stops; ann goes",
        "ann+bob: party_go ann 5 ann+bob, go 5 | 1 v5 queued: ann bob",
    );
}
