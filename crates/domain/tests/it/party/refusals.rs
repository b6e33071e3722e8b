//! Every refusal of every command. Where two apply, the earlier in the order of `PartyRefusal` wins.

use super::script::{check_by, read};
use super::world::{RULES, World, call, server, user};
use std::sync::Arc;
use tavern_domain::party::{PartyCommand, PartyLimits, PartyRefusal, PartyReply, PartyRequest};

const TWO: PartyLimits = PartyLimits { max_members: 2, ..RULES };
const NONE: PartyLimits = PartyLimits { invites_per_minute: 0, ..RULES };
/// Ann leads bob.
const PAIR: &str = "ann invites bob; bob accepts; ";
const AND_QUEUED: &str = "ann invites bob; bob accepts; ann goes; ";

/// The last step is refused for this reason.
#[track_caller]
fn refused(rules: PartyLimits, before: &str, last: &str, why: PartyRefusal) {
    let mut world = World::new(rules);
    for step in before.split(';').map(str::trim).filter(|step| !step.is_empty()) {
        super::script::run_story(&mut world, step);
    }
    let call = read(&world, &last.split(' ').collect::<Vec<_>>());
    let stored = world.clone();
    let (reply, changes) = world.act(&call);
    let PartyReply::Refused { why: answered, party, .. } = reply else { panic!("{last}: {reply:?}") };
    assert_eq!(answered, why, "{before}{last}");
    assert!(changes.is_empty(), "a refused command changes nothing");
    let own = call.user.and_then(|user| stored.membership(&user).party).map(|id| stored.parties[&id].clone());
    assert_eq!(party.map(|party| *party), own, "a refusal shows the caller's party");
}

#[test]
fn the_order_of_refusals_is_that_of_the_list() {
    let listed = "bad_request, rate_limited, no_such_party, not_member, not_leader, version_conflict, no_such_go, \
        busy, self_target, no_such_user, target_not_member, user_not_logged, already_member, user_in_party, \
        no_invite, party_full";
    assert_eq!(PartyRefusal::ALL.map(PartyRefusal::as_str).join(", "), listed);
    assert!(PartyRefusal::ALL.is_sorted());
    assert!(
        PartyRefusal::ALL.into_iter().all(|refusal| PartyRefusal::parse(refusal.as_str()) == Some(refusal))
    );
}

#[test]
fn inviting_is_checked_in_order() {
    refused(NONE, "", "ann invites ", PartyRefusal::BadRequest);
    refused(NONE, "", "ann invites bob of 9", PartyRefusal::RateLimited);
    refused(RULES, "", "ann invites bob of 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "bob invites cid of 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "cid invites dan of 1 seen 9", PartyRefusal::NotMember);
    refused(
        RULES,
        "ann invites bob; bob accepts; cid invites dan; ",
        "bob invites eve of 2",
        PartyRefusal::NotMember,
    );
    refused(RULES, PAIR, "bob invites cid seen 9", PartyRefusal::NotLeader);
    refused(RULES, AND_QUEUED, "bob invites bob", PartyRefusal::NotLeader);
    refused(RULES, AND_QUEUED, "ann invites ann seen 9", PartyRefusal::VersionConflict);
    refused(RULES, "", "ann invites bob seen 3", PartyRefusal::VersionConflict);
    refused(RULES, AND_QUEUED, "ann invites ann", PartyRefusal::Busy);
    refused(RULES, AND_QUEUED, "ann invites zoe", PartyRefusal::Busy);
    refused(RULES, PAIR, "ann invites ann", PartyRefusal::SelfTarget);
    refused(TWO, PAIR, "ann invites zoe", PartyRefusal::NoSuchUser);
    refused(TWO, PAIR, "ann invites old", PartyRefusal::UserNotLogged);
    let lost_member = "ann invites bob; bob accepts; bob is lost; ";
    refused(RULES, lost_member, "ann invites bob", PartyRefusal::UserNotLogged);
    let lost_elsewhere = "cid invites dan; dan accepts; dan is lost; ";
    refused(RULES, lost_elsewhere, "ann invites dan", PartyRefusal::UserNotLogged);
    refused(TWO, PAIR, "ann invites bob", PartyRefusal::AlreadyMember);
    refused(
        TWO,
        "cid invites dan; dan accepts; ann invites bob; ",
        "ann invites dan",
        PartyRefusal::UserInParty,
    );
    refused(RULES, "cid invites dan; dan accepts; ", "ann invites dan", PartyRefusal::UserInParty);
    refused(TWO, "ann invites bob; ", "ann invites cid", PartyRefusal::PartyFull);
}

#[test]
fn accepting_and_declining_are_checked_in_order() {
    refused(RULES, PAIR, "ann accepts 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "ann accepts 1", PartyRefusal::AlreadyMember);
    refused(RULES, "ann invites bob; ", "ann accepts 1", PartyRefusal::AlreadyMember);
    refused(
        RULES,
        "ann invites bob; bob accepts; cid invites dan; ",
        "ann accepts 2",
        PartyRefusal::UserInParty,
    );
    let invited_and_in_another = "ann invites bob; cid invites bob; bob accepts 1; ";
    refused(RULES, invited_and_in_another, "bob accepts 2", PartyRefusal::NoSuchParty);
    refused(RULES, "ann invites bob; ", "cid accepts 1", PartyRefusal::NoInvite);
    refused(RULES, PAIR, "ann declines 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "ann declines 1", PartyRefusal::AlreadyMember);
    refused(RULES, "ann invites bob; ", "cid declines 1", PartyRefusal::NoInvite);
    refused(
        RULES,
        "ann invites bob; bob accepts; cid invites dan; ",
        "ann declines 2",
        PartyRefusal::NoInvite,
    );
    refused(RULES, "ann invites bob; ", "bob declines saying \u{7}", PartyRefusal::BadRequest);
}

#[test]
fn cancelling_an_invite_is_checked_in_order() {
    refused(RULES, "", "ann cancels  of 9", PartyRefusal::BadRequest);
    refused(RULES, "", "ann cancels bob of 9", PartyRefusal::NoSuchParty);
    refused(RULES, "", "ann cancels bob", PartyRefusal::NotMember);
    refused(RULES, PAIR, "bob cancels cid seen 9", PartyRefusal::NotLeader);
    refused(RULES, PAIR, "ann cancels ann seen 9", PartyRefusal::VersionConflict);
    refused(RULES, PAIR, "ann cancels ann", PartyRefusal::SelfTarget);
    refused(RULES, PAIR, "ann cancels zoe", PartyRefusal::NoSuchUser);
    refused(RULES, PAIR, "ann cancels cid", PartyRefusal::NoInvite);
    refused(RULES, PAIR, "ann cancels bob", PartyRefusal::NoInvite);
}

#[test]
fn kicking_and_promoting_are_checked_in_order() {
    refused(RULES, "", "ann kicks bob saying \u{7} of 9", PartyRefusal::BadRequest);
    for what in ["kicks", "promotes"] {
        refused(RULES, "", &format!("ann {what} bob of 9"), PartyRefusal::NoSuchParty);
        refused(RULES, PAIR, &format!("cid {what} bob of 1 seen 9"), PartyRefusal::NotMember);
        refused(RULES, "", &format!("ann {what} bob"), PartyRefusal::NotMember);
        refused(RULES, PAIR, &format!("bob {what} bob seen 9"), PartyRefusal::NotLeader);
        refused(RULES, AND_QUEUED, &format!("ann {what} ann seen 9"), PartyRefusal::VersionConflict);
        refused(RULES, PAIR, &format!("ann {what} ann"), PartyRefusal::SelfTarget);
        refused(RULES, PAIR, &format!("ann {what} zoe"), PartyRefusal::NoSuchUser);
        refused(RULES, PAIR, &format!("ann {what} old"), PartyRefusal::TargetNotMember);
        let invited = "ann invites bob; bob accepts; ann invites cid; ";
        refused(RULES, invited, &format!("ann {what} cid"), PartyRefusal::TargetNotMember);
    }
    refused(RULES, AND_QUEUED, "ann promotes ann", PartyRefusal::Busy);
    refused(RULES, AND_QUEUED, "ann promotes zoe", PartyRefusal::Busy);
}

#[test]
fn leaving_disbanding_and_data_are_checked_in_order() {
    refused(RULES, "", "ann leaves saying \u{7} of 9", PartyRefusal::BadRequest);
    refused(RULES, "", "ann leaves of 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "cid leaves of 1", PartyRefusal::NotMember);
    refused(RULES, "", "ann leaves", PartyRefusal::NotMember);
    refused(RULES, PAIR, "bob gets of 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "cid gets of 1", PartyRefusal::NotMember);
    refused(RULES, "", "ann disbands saying \u{7} of 9", PartyRefusal::BadRequest);
    for what in ["disbands", "sets {}"] {
        refused(RULES, "", &format!("ann {what} of 9"), PartyRefusal::NoSuchParty);
        refused(RULES, "", &format!("ann {what} seen 9"), PartyRefusal::NotMember);
        refused(RULES, PAIR, &format!("cid {what} of 1"), PartyRefusal::NotMember);
        refused(RULES, PAIR, &format!("bob {what} seen 9"), PartyRefusal::NotLeader);
        refused(RULES, PAIR, &format!("ann {what} seen 1"), PartyRefusal::VersionConflict);
    }
}

#[test]
fn going_is_checked_in_order() {
    refused(RULES, "", "ann goes of 9", PartyRefusal::NoSuchParty);
    refused(RULES, PAIR, "cid goes of 1", PartyRefusal::NotMember);
    refused(RULES, AND_QUEUED, "bob goes seen 9", PartyRefusal::NotLeader);
    refused(RULES, AND_QUEUED, "ann goes seen 9", PartyRefusal::VersionConflict);
    refused(RULES, AND_QUEUED, "ann goes", PartyRefusal::Busy);
    refused(RULES, "ann invites bob; ", "ann goes", PartyRefusal::Busy);
    refused(RULES, "", "ann stops of 9", PartyRefusal::NoSuchParty);
    refused(RULES, "", "ann stops", PartyRefusal::NotMember);
    refused(RULES, PAIR, "bob stops seen 9", PartyRefusal::NotLeader);
    refused(RULES, PAIR, "ann stops seen 9", PartyRefusal::VersionConflict);
    refused(RULES, PAIR, "ann stops", PartyRefusal::NoSuchGo);
    refused(RULES, "", "ann is ready 3 of 9", PartyRefusal::NoSuchParty);
    refused(RULES, AND_QUEUED, "cid is ready 3 of 1", PartyRefusal::NotMember);
    refused(RULES, AND_QUEUED, "cid is ready 3", PartyRefusal::NotMember);
    refused(RULES, AND_QUEUED, "bob is ready 2", PartyRefusal::NoSuchGo);
    refused(RULES, PAIR, "bob is ready 2", PartyRefusal::NoSuchGo);
}

#[test]
fn blocking_is_checked_in_order() {
    refused(RULES, "", "ann blocks ", PartyRefusal::BadRequest);
    refused(RULES, "", "ann blocks ann", PartyRefusal::SelfTarget);
    refused(RULES, "", "ann blocks zoe", PartyRefusal::NoSuchUser);
    refused(RULES, "", "ann unblocks ", PartyRefusal::BadRequest);
    check_by(RULES, "ann unblocks zoe", "nothing |");
}

#[test]
fn users_and_the_server_have_commands_of_their_own() {
    let mut world = World::new(RULES);
    let of_the_server = [
        PartyCommand::Wake { party: 1 },
        PartyCommand::Check { user: user("bob") },
        PartyCommand::Answer { party: 1, go_id: 1, matched: true, details: None },
    ];
    let of_users = [
        PartyCommand::Leave { message: None },
        PartyCommand::Invite { user: user("bob") },
        PartyCommand::Get,
    ];
    let calls = of_the_server.map(|command| call("ann", command)).into_iter().chain(of_users.map(server));
    for call in calls {
        let bad = PartyReply::Refused { why: PartyRefusal::BadRequest, retry_after_ms: None, party: None };
        assert_eq!(world.act(&call).0, bad, "{call:?}");
    }
}

#[test]
fn an_app_reads_any_party() {
    let mut world = World::new(RULES);
    super::script::run_story(&mut world, "ann invites bob; bob accepts");
    let get = |party| PartyRequest { party: Some(party), ..server(PartyCommand::Get) };
    assert_eq!(world.act(&get(1)).0, PartyReply::Party(Some(Box::new(world.parties[&1].clone()))));
    assert!(matches!(world.act(&get(2)).0, PartyReply::Refused { why: PartyRefusal::NoSuchParty, .. }));
}

#[test]
fn the_parts_of_a_request_are_bounded() {
    let text = |bytes: usize| -> Arc<str> { "x".repeat(bytes).into() };
    let leave = |message| PartyCommand::Leave { message: Some(message) };
    let bounded: [(&dyn Fn(usize) -> PartyCommand, usize); 8] = [
        (&|bytes| leave(text(bytes)), 256),
        (&|bytes| PartyCommand::Disband { message: Some(text(bytes)) }, 256),
        (&|bytes| PartyCommand::Kick { user: user("bob"), message: Some(text(bytes)) }, 256),
        (&|bytes| PartyCommand::Decline { party_id: 1, message: Some(text(bytes)) }, 256),
        (&|bytes| PartyCommand::SetData { data: text(bytes) }, 4096),
        (&|bytes| PartyCommand::Go { params: Some(text(bytes)) }, 4096),
        (&|bytes| PartyCommand::Invite { user: text(bytes) }, 128),
        (&|bytes| PartyCommand::CancelInvite { user: text(bytes) }, 128),
    ];
    let world = World::new(RULES);
    for (command, max) in bounded {
        let is_bad = |bytes| {
            let (reply, ..) = world.decide(&call("ann", command(bytes)));
            matches!(reply, PartyReply::Refused { why: PartyRefusal::BadRequest, .. })
        };
        assert!(!is_bad(max) && is_bad(max + 1), "{:?}", command(3));
    }
    for rid in ["".into(), text(65)] {
        let (reply, ..) = world.decide(&PartyRequest { rid: Some(rid), ..call("ann", leave(text(1))) });
        assert!(matches!(reply, PartyReply::Refused { why: PartyRefusal::BadRequest, .. }));
    }
}

#[test]
fn commands_about_another_user_name_them() {
    let (bob, message) = (user("bob"), None);
    for command in [
        PartyCommand::Invite { user: bob.clone() },
        PartyCommand::CancelInvite { user: bob.clone() },
        PartyCommand::Kick { user: bob.clone(), message: message.clone() },
        PartyCommand::Promote { user: bob.clone() },
        PartyCommand::Block { user: bob.clone() },
        PartyCommand::Unblock { user: bob.clone() },
        PartyCommand::Check { user: bob.clone() },
    ] {
        assert_eq!(command.target(), Some(&bob), "{command:?}");
    }
    assert_eq!(PartyCommand::Leave { message }.target(), None);
    assert_eq!(PartyCommand::Get.target(), None);
}
