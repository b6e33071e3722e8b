//! Every refusal of every command. Where two apply, the earlier in the order of `Refusal` wins.

use crate::script::{check_by, read};
use crate::world::{RULES, World, call, server, user};
use std::sync::Arc;
use tavern_domain::party::{Call, Command, Refusal, Reply, Rules};

const TWO: Rules = Rules { max_members: 2, ..RULES };
const NONE: Rules = Rules { invites_per_minute: 0, ..RULES };
/// Ann leads bob.
const PAIR: &str = "ann invites bob; bob accepts; ";
const AND_QUEUED: &str = "ann invites bob; bob accepts; ann goes; ";

/// The last step is refused for this reason.
#[track_caller]
fn refused(rules: Rules, before: &str, last: &str, why: Refusal) {
    let mut world = World::new(rules);
    for words in before.split(';').map(str::trim).filter(|words| !words.is_empty()) {
        crate::script::tell(&mut world, words);
    }
    let call = read(&world, &last.split(' ').collect::<Vec<_>>());
    let stored = world.clone();
    let (reply, changes) = world.act(&call);
    let Reply::Refused { why: answered, party, .. } = reply else { panic!("{last}: {reply:?}") };
    assert_eq!(answered, why, "{before}{last}");
    assert!(changes.is_empty(), "a refused command changes nothing");
    let own = call.user.and_then(|user| stored.guest(&user).party).map(|id| stored.parties[&id].clone());
    assert_eq!(party.map(|party| *party), own, "a refusal shows the caller's party");
}

#[test]
fn the_order_of_refusals_is_that_of_the_list() {
    let listed = "bad_request, rate_limited, no_such_party, not_member, not_leader, version_conflict, no_such_go, \
        busy, self_target, no_such_user, target_not_member, user_not_logged, already_member, user_in_party, \
        no_invite, party_full";
    assert_eq!(Refusal::ALL.map(Refusal::as_str).join(", "), listed);
    assert!(Refusal::ALL.is_sorted());
    assert!(Refusal::ALL.into_iter().all(|refusal| Refusal::parse(refusal.as_str()) == Some(refusal)));
}

#[test]
fn inviting_is_checked_in_order() {
    refused(NONE, "", "ann invites ", Refusal::BadRequest);
    refused(NONE, "", "ann invites bob of 9", Refusal::RateLimited);
    refused(RULES, "", "ann invites bob of 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "bob invites cid of 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "cid invites dan of 1 seen 9", Refusal::NotMember);
    refused(
        RULES,
        "ann invites bob; bob accepts; cid invites dan; ",
        "bob invites eve of 2",
        Refusal::NotMember,
    );
    refused(RULES, PAIR, "bob invites cid seen 9", Refusal::NotLeader);
    refused(RULES, AND_QUEUED, "bob invites bob", Refusal::NotLeader);
    refused(RULES, AND_QUEUED, "ann invites ann seen 9", Refusal::VersionConflict);
    refused(RULES, "", "ann invites bob seen 3", Refusal::VersionConflict);
    refused(RULES, AND_QUEUED, "ann invites ann", Refusal::Busy);
    refused(RULES, AND_QUEUED, "ann invites zoe", Refusal::Busy);
    refused(RULES, PAIR, "ann invites ann", Refusal::SelfTarget);
    refused(TWO, PAIR, "ann invites zoe", Refusal::NoSuchUser);
    refused(TWO, PAIR, "ann invites old", Refusal::UserNotLogged);
    let lost_member = "ann invites bob; bob accepts; bob is lost; ";
    refused(RULES, lost_member, "ann invites bob", Refusal::UserNotLogged);
    let lost_elsewhere = "cid invites dan; dan accepts; dan is lost; ";
    refused(RULES, lost_elsewhere, "ann invites dan", Refusal::UserNotLogged);
    refused(TWO, PAIR, "ann invites bob", Refusal::AlreadyMember);
    refused(TWO, "cid invites dan; dan accepts; ann invites bob; ", "ann invites dan", Refusal::UserInParty);
    refused(RULES, "cid invites dan; dan accepts; ", "ann invites dan", Refusal::UserInParty);
    refused(TWO, "ann invites bob; ", "ann invites cid", Refusal::PartyFull);
}

#[test]
fn accepting_and_declining_are_checked_in_order() {
    refused(RULES, PAIR, "ann accepts 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "ann accepts 1", Refusal::AlreadyMember);
    refused(RULES, "ann invites bob; ", "ann accepts 1", Refusal::AlreadyMember);
    refused(RULES, "ann invites bob; bob accepts; cid invites dan; ", "ann accepts 2", Refusal::UserInParty);
    let invited_and_in_another = "ann invites bob; cid invites bob; bob accepts 1; ";
    refused(RULES, invited_and_in_another, "bob accepts 2", Refusal::NoSuchParty);
    refused(RULES, "ann invites bob; ", "cid accepts 1", Refusal::NoInvite);
    refused(RULES, PAIR, "ann declines 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "ann declines 1", Refusal::AlreadyMember);
    refused(RULES, "ann invites bob; ", "cid declines 1", Refusal::NoInvite);
    refused(RULES, "ann invites bob; bob accepts; cid invites dan; ", "ann declines 2", Refusal::NoInvite);
    refused(RULES, "ann invites bob; ", "bob declines saying \u{7}", Refusal::BadRequest);
}

#[test]
fn cancelling_an_invite_is_checked_in_order() {
    refused(RULES, "", "ann cancels  of 9", Refusal::BadRequest);
    refused(RULES, "", "ann cancels bob of 9", Refusal::NoSuchParty);
    refused(RULES, "", "ann cancels bob", Refusal::NotMember);
    refused(RULES, PAIR, "bob cancels cid seen 9", Refusal::NotLeader);
    refused(RULES, PAIR, "ann cancels ann seen 9", Refusal::VersionConflict);
    refused(RULES, PAIR, "ann cancels ann", Refusal::SelfTarget);
    refused(RULES, PAIR, "ann cancels zoe", Refusal::NoSuchUser);
    refused(RULES, PAIR, "ann cancels cid", Refusal::NoInvite);
    refused(RULES, PAIR, "ann cancels bob", Refusal::NoInvite);
}

#[test]
fn kicking_and_promoting_are_checked_in_order() {
    refused(RULES, "", "ann kicks bob saying \u{7} of 9", Refusal::BadRequest);
    for what in ["kicks", "promotes"] {
        refused(RULES, "", &format!("ann {what} bob of 9"), Refusal::NoSuchParty);
        refused(RULES, PAIR, &format!("cid {what} bob of 1 seen 9"), Refusal::NotMember);
        refused(RULES, "", &format!("ann {what} bob"), Refusal::NotMember);
        refused(RULES, PAIR, &format!("bob {what} bob seen 9"), Refusal::NotLeader);
        refused(RULES, AND_QUEUED, &format!("ann {what} ann seen 9"), Refusal::VersionConflict);
        refused(RULES, PAIR, &format!("ann {what} ann"), Refusal::SelfTarget);
        refused(RULES, PAIR, &format!("ann {what} zoe"), Refusal::NoSuchUser);
        refused(RULES, PAIR, &format!("ann {what} old"), Refusal::TargetNotMember);
        let invited = "ann invites bob; bob accepts; ann invites cid; ";
        refused(RULES, invited, &format!("ann {what} cid"), Refusal::TargetNotMember);
    }
    refused(RULES, AND_QUEUED, "ann promotes ann", Refusal::Busy);
    refused(RULES, AND_QUEUED, "ann promotes zoe", Refusal::Busy);
}

#[test]
fn leaving_disbanding_and_data_are_checked_in_order() {
    refused(RULES, "", "ann leaves saying \u{7} of 9", Refusal::BadRequest);
    refused(RULES, "", "ann leaves of 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "cid leaves of 1", Refusal::NotMember);
    refused(RULES, "", "ann leaves", Refusal::NotMember);
    refused(RULES, PAIR, "bob gets of 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "cid gets of 1", Refusal::NotMember);
    refused(RULES, "", "ann disbands saying \u{7} of 9", Refusal::BadRequest);
    for what in ["disbands", "sets {}"] {
        refused(RULES, "", &format!("ann {what} of 9"), Refusal::NoSuchParty);
        refused(RULES, "", &format!("ann {what} seen 9"), Refusal::NotMember);
        refused(RULES, PAIR, &format!("cid {what} of 1"), Refusal::NotMember);
        refused(RULES, PAIR, &format!("bob {what} seen 9"), Refusal::NotLeader);
        refused(RULES, PAIR, &format!("ann {what} seen 1"), Refusal::VersionConflict);
    }
}

#[test]
fn going_is_checked_in_order() {
    refused(RULES, "", "ann goes of 9", Refusal::NoSuchParty);
    refused(RULES, PAIR, "cid goes of 1", Refusal::NotMember);
    refused(RULES, AND_QUEUED, "bob goes seen 9", Refusal::NotLeader);
    refused(RULES, AND_QUEUED, "ann goes seen 9", Refusal::VersionConflict);
    refused(RULES, AND_QUEUED, "ann goes", Refusal::Busy);
    refused(RULES, "ann invites bob; ", "ann goes", Refusal::Busy);
    refused(RULES, "", "ann stops of 9", Refusal::NoSuchParty);
    refused(RULES, "", "ann stops", Refusal::NotMember);
    refused(RULES, PAIR, "bob stops seen 9", Refusal::NotLeader);
    refused(RULES, PAIR, "ann stops seen 9", Refusal::VersionConflict);
    refused(RULES, PAIR, "ann stops", Refusal::NoSuchGo);
    refused(RULES, "", "ann is ready 3 of 9", Refusal::NoSuchParty);
    refused(RULES, AND_QUEUED, "cid is ready 3 of 1", Refusal::NotMember);
    refused(RULES, AND_QUEUED, "cid is ready 3", Refusal::NotMember);
    refused(RULES, AND_QUEUED, "bob is ready 2", Refusal::NoSuchGo);
    refused(RULES, PAIR, "bob is ready 2", Refusal::NoSuchGo);
}

#[test]
fn blocking_is_checked_in_order() {
    refused(RULES, "", "ann blocks ", Refusal::BadRequest);
    refused(RULES, "", "ann blocks ann", Refusal::SelfTarget);
    refused(RULES, "", "ann blocks zoe", Refusal::NoSuchUser);
    refused(RULES, "", "ann unblocks ", Refusal::BadRequest);
    check_by(RULES, "ann unblocks zoe", "nothing |");
}

#[test]
fn users_and_the_server_have_commands_of_their_own() {
    let mut world = World::new(RULES);
    let of_the_server = [
        Command::Wake { party: 1 },
        Command::Check { user: user("bob") },
        Command::Answer { party: 1, go_id: 1, matched: true, details: None },
    ];
    let of_users = [Command::Leave { message: None }, Command::Invite { user: user("bob") }, Command::Get];
    let calls = of_the_server.map(|command| call("ann", command)).into_iter().chain(of_users.map(server));
    for call in calls {
        let bad = Reply::Refused { why: Refusal::BadRequest, retry_after_ms: None, party: None };
        assert_eq!(world.act(&call).0, bad, "{call:?}");
    }
}

#[test]
fn an_app_reads_any_party() {
    let mut world = World::new(RULES);
    crate::script::tell(&mut world, "ann invites bob; bob accepts");
    let get = |party| Call { party: Some(party), ..server(Command::Get) };
    assert_eq!(world.act(&get(1)).0, Reply::Party(Some(Box::new(world.parties[&1].clone()))));
    assert!(matches!(world.act(&get(2)).0, Reply::Refused { why: Refusal::NoSuchParty, .. }));
}

#[test]
fn the_parts_of_a_request_are_bounded() {
    let text = |bytes: usize| -> Arc<str> { "x".repeat(bytes).into() };
    let leave = |message| Command::Leave { message: Some(message) };
    let bounded: [(&dyn Fn(usize) -> Command, usize); 8] = [
        (&|bytes| leave(text(bytes)), 256),
        (&|bytes| Command::Disband { message: Some(text(bytes)) }, 256),
        (&|bytes| Command::Kick { user: user("bob"), message: Some(text(bytes)) }, 256),
        (&|bytes| Command::Decline { party_id: 1, message: Some(text(bytes)) }, 256),
        (&|bytes| Command::SetData { data: text(bytes) }, 4096),
        (&|bytes| Command::Go { params: Some(text(bytes)) }, 4096),
        (&|bytes| Command::Invite { user: text(bytes) }, 128),
        (&|bytes| Command::CancelInvite { user: text(bytes) }, 128),
    ];
    let world = World::new(RULES);
    for (command, most) in bounded {
        let is_bad = |bytes| {
            let (reply, ..) = world.decide(&call("ann", command(bytes)));
            matches!(reply, Reply::Refused { why: Refusal::BadRequest, .. })
        };
        assert!(!is_bad(most) && is_bad(most + 1), "{:?}", command(3));
    }
    for rid in ["".into(), text(65)] {
        let (reply, ..) = world.decide(&Call { rid: Some(rid), ..call("ann", leave(text(1))) });
        assert!(matches!(reply, Reply::Refused { why: Refusal::BadRequest, .. }));
    }
}
