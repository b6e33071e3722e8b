//! Limits of invites, repeated requests, and the memory of a party.

use super::script::{check_by, run_story};
use super::world::{RULES, World, call, user};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::limits;
use tavern_domain::party::{
    Party, PartyCommand, PartyFacts, PartyInvite, PartyLimits, PartyMember, PartyRefusal, PartyReply,
    PartyRequest, PartyResult, UserPresence, likely_needs, run,
};

const THREE_A_MINUTE: PartyLimits = PartyLimits { invites_per_minute: 3, ..RULES };
const ROOMY: PartyLimits = PartyLimits { max_members: 64, max_pending: 64, invites_per_minute: 500, ..RULES };

#[test]
fn invites_per_minute_are_limited_except_repeated_ones() {
    let three = "ann invites bob; 1s: ann cancels bob; 2s: ann invites bob; 3s: ann invites cid";
    let check = |last: &str, expected: &str| check_by(THREE_A_MINUTE, &format!("{three}; {last}"), expected);
    check("5s: ann invites dan", "rate_limited 55000 | 2 v2 forming: ann +bob +cid");
    check("5s: ann invites cid", "nothing | 2 v2 forming: ann +bob +cid");
    check("59s: ann invites dan", "rate_limited 1000 | 2 v2 forming: ann +bob +cid");
    check("60s: ann invites dan", "dan: invite ann, ann: invited ann dan | 2 v3 forming: ann +bob +cid +dan");
    check(
        "5s: bob invites ann",
        "ann: invite bob, bob: invited bob ann | 2 v2 forming: ann +bob +cid, 3 v1 forming: bob +ann",
    );
}

#[test]
fn open_invites_of_one_user_are_limited() {
    let rules = PartyLimits { max_pending: 2, ..RULES };
    let story = "ann invites bob; 5s: ann invites cid; 6s: ann invites dan";
    check_by(rules, story, "rate_limited 54000 | 1 v2 forming: ann +bob +cid");
    let story = "ann invites bob; 5s: ann invites cid; 6s: cid accepts; ann invites dan";
    check_by(rules, story, "dan: invite ann, ann+cid: invited ann dan | 1 v4 idle: ann cid +bob +dan");
}

#[test]
fn invites_of_an_earlier_leader_do_not_count() {
    let rules = PartyLimits { max_pending: 1, ..RULES };
    let story = "ann invites bob; bob accepts; ann invites cid; ann promotes bob; bob invites dan";
    let expected = "dan: invite bob, bob+ann: invited bob dan | 1 v5 idle: bob ann +cid +dan";
    check_by(rules, story, expected);
}

#[test]
fn a_user_who_declined_cannot_be_invited_again_at_once() {
    let declined = "ann invites bob; 10s: bob declines";
    let check = |last: &str, expected: &str| check_by(RULES, &format!("{declined}; {last}"), expected);
    check("39s: ann invites bob", "rate_limited 1000 |");
    check("40s: ann invites bob", "bob: invite ann, ann: invited ann bob | 2 v1 forming: ann +bob");
    check("11s: cid invites bob", "bob: invite cid, cid: invited cid bob | 2 v1 forming: cid +bob");
    check("11s: bob invites ann", "ann: invite bob, bob: invited bob ann | 2 v1 forming: bob +ann");
    // An expired invite, or one ended by joining another party, was not declined.
    check_by(
        RULES,
        "ann invites bob; 60s: ann invites bob",
        "bob: invite_cancel ann expired, ann: decline bob expired, \
        ann: disband ann empty, bob: invite ann, ann: invited ann bob | 2 v1 forming: ann +bob",
    );
}

#[test]
fn open_invites_to_one_user_are_limited() {
    let mut world = World::new(RULES);
    // A blocked inviter is refused like the others, and does not learn of the block.
    let blocked = user(&format!("user{}", limits::PARTY_INCOMING));
    world.presences.insert(blocked.clone(), UserPresence::Absent);
    world.act(&call("bob", PartyCommand::Block { user: blocked }));
    for at in 0..=limits::PARTY_INCOMING {
        let who = format!("user{at}");
        world.presences.insert(user(&who), UserPresence::Online { name: None });
        let reply = world.act(&call(&who, PartyCommand::Invite { user: user("bob") })).0;
        match at < limits::PARTY_INCOMING {
            true => assert!(matches!(reply, PartyReply::Invited { .. }), "{at}: {reply:?}"),
            false => assert!(
                matches!(reply, PartyReply::Refused { why: PartyRefusal::RateLimited, .. }),
                "{reply:?}"
            ),
        }
    }
    world.act(&call("bob", PartyCommand::Accept { party_id: 7 }));
    assert_eq!(world.parties.len(), 1, "all others have ended");
}

#[test]
fn blocks_are_limited() {
    let mut world = World::new(RULES);
    let block = |at: usize| call("bob", PartyCommand::Block { user: user(&format!("user{at}")) });
    for at in 0..=limits::PARTY_BLOCKS {
        world.presences.insert(user(&format!("user{at}")), UserPresence::Absent);
        let reply = world.act(&block(at)).0;
        assert_eq!(reply == PartyReply::Nothing, at < limits::PARTY_BLOCKS, "{at}: {reply:?}");
    }
    assert_eq!(world.act(&block(5)).0, PartyReply::Nothing, "who is blocked already");
}

#[test]
fn a_request_with_an_id_is_executed_once() {
    let check = |story: &str, expected: &str| check_by(RULES, story, expected);
    let pair = "ann invites bob; bob accepts";
    check(&format!("{pair}; ann goes #a; ann goes #a"), "go 3 | 1 v3 queued: ann bob");
    check(&format!("{pair}; ann goes #a; ann stops; 119s: ann goes #a"), "go 3 | 1 v4 idle: ann bob");
    check(
        &format!("{pair}; ann goes #a; ann stops; 120s: ann goes #a"),
        "ann+bob: party_go ann 5 ann+bob, go 5 | 1 v5 queued: ann bob",
    );
    check(
        &format!("{pair}; ann goes #a; bob leaves #a"),
        "ann+bob: go_cancel bob left, ann: leave bob left, ann: disband ann empty |",
    );
    check("ann invites bob #a; ann cancels bob; ann invites bob #a", "nothing |");
    // A refusal is stored too.
    check(
        &format!("{pair}; cid leaves #a; cid invites dan; cid leaves #a"),
        "not_member | 1 v2 idle: ann bob, 2 v1 forming: cid +dan",
    );
    // A rate-limited request may be retried.
    check_by(
        THREE_A_MINUTE,
        "ann invites bob; ann invites cid; ann invites dan; ann invites eve #a; 59s: dan accepts; 60s: ann invites eve #a",
        "bob: invite_cancel ann expired, ann: decline bob expired, dan: uninvited bob expired, cid: invite_cancel ann \
         expired, ann: decline cid expired, dan: uninvited cid expired, eve: invite ann, ann+dan: invited ann eve | \
         1 v7 idle: ann dan +eve",
    );
}

#[test]
fn a_repeated_request_is_shown_the_party_as_it_is_now() {
    let mut world = World::new(RULES);
    run_story(&mut world, "ann invites bob; bob accepts #a; ann sets {}");
    let again = PartyRequest { rid: Some("#a".into()), ..call("bob", PartyCommand::Accept { party_id: 1 }) };
    let (reply, changes) = world.act(&again);
    assert_eq!(reply, PartyReply::Party(Some(Box::new(world.parties[&1].clone()))));
    assert!(changes.is_empty());
    assert_eq!(world.membership("bob").done[0].reply, PartyReply::Party(None), "no party is remembered");
    let get = PartyRequest { rid: Some("#b".into()), ..call("bob", PartyCommand::Get) };
    assert!(world.act(&get).1.is_empty(), "asking is not remembered at all");
}

#[test]
fn stored_replies_are_limited() {
    let mut world = World::new(RULES);
    for at in 0..40 {
        let leave = PartyCommand::Leave { message: None };
        world.act(&PartyRequest { rid: Some(format!("{at}").into()), ..call("ann", leave) });
    }
    let kept: Vec<Arc<str>> = world.membership("ann").done.into_iter().map(|done| done.rid).collect();
    assert_eq!(kept.len(), limits::PARTY_DONE);
    assert_eq!((&*kept[0], &*kept[15]), ("24", "39"), "the last ones");
}

#[test]
fn stored_declines_are_limited() {
    let mut world = World::new(ROOMY);
    for at in 0..limits::PARTY_DECLINED + 9 {
        let who = format!("user{at}");
        world.now = Time(at as u64);
        world.presences.insert(user(&who), UserPresence::Online { name: None });
        world.act(&call("ann", PartyCommand::Invite { user: user(&who) }));
        let party_id = world.membership(&who).invites[0];
        world.act(&call(&who, PartyCommand::Decline { party_id, message: None }));
    }
    let declined = world.membership("ann").declined;
    assert_eq!(declined.len(), limits::PARTY_DECLINED);
    assert_eq!(&*declined[0].0, "user9", "the one that ends first is forgotten first");
}

#[test]
fn an_empty_user_record_is_deleted() {
    let mut world = World::new(RULES);
    run_story(&mut world, "ann invites bob; bob accepts; bob blocks cid");
    assert_eq!(
        (world.membership("ann").forgotten_at(), world.membership("bob").forgotten_at()),
        (None, None)
    );
    run_story(&mut world, "eve blocks cid #a");
    assert_eq!(world.membership("eve").forgotten_at(), None, "a block does not expire");
    run_story(&mut world, "200s: bob unblocks cid; bob leaves");
    assert_eq!(world.memberships.get("bob"), None);
    assert_eq!(world.memberships.get("ann"), None, "her sent invites have expired");
    run_story(&mut world, "ann invites bob; 210s: bob declines #a");
    assert_eq!(world.membership("ann").forgotten_at(), Some(Time(260_000)), "a minute after the invite");
    assert_eq!(world.membership("bob").forgotten_at(), Some(Time(330_000)), "two minutes after the request");
}

#[test]
fn a_party_of_five_with_two_invites_takes_less_than_two_kibibytes() {
    let mut world = World::new(ROOMY);
    let named = |at: usize, command| PartyRequest {
        name: Some("A Name Of Sixteen".into()),
        ..call(&id_of(at), command)
    };
    for at in 0..7 {
        let name = Some("A Name Of Sixteen".into());
        world.presences.insert(user(&id_of(at)), UserPresence::Online { name });
    }
    for at in 1..7 {
        world.act(&named(0, PartyCommand::Invite { user: user(&id_of(at)) }));
        if at < 5 {
            world.act(&named(at, PartyCommand::Accept { party_id: 1 }));
        }
    }
    let party = &world.parties[&1];
    assert_eq!((party.members.len(), party.pending.len()), (5, 2));
    // An allocation of an `Arc<str>` begins with its two counters.
    let text = |text: &Arc<str>| 16 + text.len();
    let name = |name: &Option<Arc<str>>| name.as_ref().map_or(0, text);
    let members: usize = party.members.iter().map(|member| text(&member.user) + name(&member.name)).sum();
    let pending = party.pending.iter();
    let pending: usize = pending.map(|one| text(&one.user) + name(&one.name) + text(&one.by)).sum();
    let bytes = size_of::<Party>()
        + party.members.capacity() * size_of::<PartyMember>()
        + party.pending.capacity() * size_of::<PartyInvite>()
        + members
        + pending;
    assert!(bytes < 2048, "{bytes} bytes");
}

/// An id of the length of a UUID.
fn id_of(at: usize) -> String {
    format!("{at:036}")
}

#[test]
fn a_first_invite_takes_two_round_trips_with_or_without_a_request_id() {
    let world = World::new(RULES);
    let rounds = |rid: Option<&str>| {
        let invite = call("ann", PartyCommand::Invite { user: user("bob") });
        let call = PartyRequest { rid: rid.map(Arc::from), ..invite };
        let (mut facts, mut rounds) = (PartyFacts::default(), 0);
        while let PartyResult::Need(needs) = run(world.now, &world.rules, &facts, &call) {
            needs.iter().for_each(|need| world.read(&mut facts, need));
            rounds += 1;
        }
        rounds
    };
    assert_eq!((rounds(None), rounds(Some("r1"))), (2, 2));
}

/// The facts that a command probably needs are enough for one run, if the party of the caller is known.
#[test]
fn likely_needs_are_all_that_the_usual_commands_need() {
    let mut world = World::new(RULES);
    let decided = |world: &World, call: &PartyRequest, party: Option<u64>| {
        let mut facts = PartyFacts::default();
        facts.id = Some(9_000);
        let needs = likely_needs(call, party);
        assert!(needs.iter().enumerate().all(|(at, need)| !needs[..at].contains(need)), "{needs:?}");
        needs.iter().for_each(|need| world.read(&mut facts, need));
        matches!(run(world.now, &world.rules, &facts, call), PartyResult::Answered { .. })
    };
    let invite = call("ann", PartyCommand::Invite { user: user("bob") });
    assert!(decided(&world, &invite, None), "a first invite");
    world.act(&invite);
    let id = world.membership("ann").party.unwrap();
    assert!(
        decided(&world, &call("ann", PartyCommand::Invite { user: user("cid") }), Some(id)),
        "a second invite"
    );
    let cancel = call("ann", PartyCommand::CancelInvite { user: user("bob") });
    assert!(decided(&world, &cancel, Some(id)));
    assert!(decided(&world, &PartyRequest { party: Some(id), ..cancel.clone() }, Some(id)), "each fact once");
    assert!(!decided(&world, &cancel, None), "an unknown party is loaded in a second run");
    assert!(decided(&world, &call("bob", PartyCommand::Accept { party_id: id }), None));
    let unsound = PartyRequest { rid: Some("".into()), ..invite };
    assert_eq!(likely_needs(&unsound, None), [], "it is refused without a read");
}

/// Users may change their display name while they are in a party.
#[test]
fn events_carry_the_display_name_that_the_caller_has_now() {
    let mut world = World::new(RULES);
    let named =
        |name: Option<&str>, command| PartyRequest { name: name.map(Arc::from), ..call("ann", command) };
    let invite = |target: &str| PartyCommand::Invite { user: user(target) };
    let mut name_in_event = |name, command| {
        let (_, changes) = world.act(&named(name, command));
        changes.events.first().and_then(|event| event.name.as_deref().map(String::from))
    };
    assert_eq!(name_in_event(Some("Ann"), invite("bob")).as_deref(), Some("Ann"));
    assert_eq!(name_in_event(Some("Annie"), invite("cid")).as_deref(), Some("Annie"), "the new one");
    assert_eq!(name_in_event(None, invite("dan")).as_deref(), Some("Ann"), "the one that the party knows");
}
