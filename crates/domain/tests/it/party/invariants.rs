//! The invariants that are checked after every commit.

use super::client_view::seen;
use super::world::World;
use std::collections::BTreeSet;
use tavern_domain::limits;
use tavern_domain::party::{
    Party, PartyChanges, PartyCommand, PartyEvent, PartyEventKind, PartyInvite, PartyReply, PartyRequest,
    PartyState, PartyTopicEvent, UserId,
};

pub fn check(
    before: &World,
    after: &mut World,
    call: &PartyRequest,
    reply: &PartyReply,
    changes: &PartyChanges,
) {
    if matches!(reply, PartyReply::Refused { .. }) {
        assert!(changes.parties.is_empty() && changes.events.is_empty() && changes.topic_events.is_empty());
        assert!(changes.memberships.is_empty() || call.rid.is_some(), "a refused command changes nothing");
    }
    if let PartyCommand::Check { user } = &call.command {
        assert_eq!(after.membership(user).logged_out, None, "a logout is applied once");
    }
    attend(after, call, reply, changes);
    documents(after);
    memberships(after);
    let ids: BTreeSet<u64> = before.parties.keys().chain(after.parties.keys()).copied().collect();
    for id in ids {
        versions(before, after, id, changes);
        invites(before, after, id, call, reply, changes);
    }
    for party in after.parties.values() {
        for member in &party.members {
            assert_eq!(after.views.get(&member.user), Some(&seen(party)), "what {} knows", member.user);
        }
    }
    let members: usize = after.parties.values().map(|party| party.members.len()).sum();
    assert_eq!(after.views.len(), members, "only members have a view of a party");
}

/// Topic events agree with the stored parties.
fn attend(after: &mut World, call: &PartyRequest, reply: &PartyReply, changes: &PartyChanges) {
    for (id, user) in &changes.entered {
        assert!(after.present.insert((*id, user.clone())), "{user} entered twice");
    }
    for (id, user) in &changes.left {
        assert!(after.present.remove(&(*id, user.clone())), "{user} was not there");
    }
    let members = |party: &Party| {
        let id = party.id;
        party.members.iter().map(move |member| (id, member.user.clone())).collect::<Vec<_>>()
    };
    let present: BTreeSet<(u64, UserId)> = after.parties.values().flat_map(members).collect();
    assert_eq!(after.present, present);
    if let (PartyCommand::Answer { party, go_id, .. }, PartyReply::Nothing) = (&call.command, reply) {
        assert!(after.tickets.remove(&(*party, *go_id)));
    }
    for results in &changes.topic_events {
        match results {
            PartyTopicEvent::Go { id, go_id, members, .. } => {
                assert!(after.tickets.insert((*id, *go_id)), "a ticket is announced once");
                let party = &after.parties[id];
                assert!(party.members.iter().map(|member| &member.user).eq(members));
            }
            PartyTopicEvent::GoCancelled { id, go_id } => assert!(after.tickets.remove(&(*id, *go_id))),
            PartyTopicEvent::Disbanded { id, .. } => assert!(!after.parties.contains_key(id)),
            PartyTopicEvent::Left { id, user, .. } => assert!(changes.left.contains(&(*id, user.clone()))),
            PartyTopicEvent::Joined { id, user } | PartyTopicEvent::Created { id, leader: user } => {
                assert!(changes.entered.contains(&(*id, user.clone())));
            }
        }
    }
    let queued = |party: &&Party| party.state() == PartyState::Queued;
    let queued = after.parties.values().filter(queued).map(|party| (party.id, party.go.as_ref().unwrap().id));
    assert_eq!(after.tickets, queued.collect());
}

fn documents(world: &World) {
    for party in world.parties.values() {
        let members: Vec<&UserId> = party.members.iter().map(|member| &member.user).collect();
        let invited: Vec<&UserId> = party.pending.iter().map(|pending| &pending.user).collect();
        let all: BTreeSet<&UserId> = members.iter().chain(&invited).copied().collect();
        assert_eq!(all.len(), members.len() + invited.len(), "no user is both a member and invited");
        assert!(all.len() <= world.rules.max_members as usize);
        assert!(members.len() > 1 || members.len() == 1 && !invited.is_empty(), "{party:?} is empty");
        if let Some(go) = &party.go {
            assert!(go.members.iter().eq(members.iter().copied()), "a ticket names the members");
            assert!(invited.is_empty(), "a party with a ticket has no invites");
            assert!(go.ready.iter().all(|user| go.members.contains(user)));
            assert_eq!(go.until.is_none(), go.ready.len() == members.len());
        }
        for member in &members {
            assert_eq!(world.membership(member).party, Some(party.id), "the index and the members agree");
        }
        for pending in party.pending.iter().filter(|pending| !pending.hidden) {
            assert!(world.membership(&pending.user).invites.contains(&party.id));
        }
    }
}

fn memberships(world: &World) {
    for (user, membership) in &world.memberships {
        if let Some(id) = membership.party {
            assert!(world.parties[&id].member(user).is_some(), "the index and the members agree");
        }
        let distinct: BTreeSet<&u64> = membership.invites.iter().collect();
        assert_eq!(distinct.len(), membership.invites.len());
        for id in &membership.invites {
            assert!(world.parties[id].invite_of(user).is_some_and(|pending| !pending.hidden));
        }
        assert!(membership.invites.len() <= limits::PARTY_INCOMING);
        assert!(membership.blocks.len() <= limits::PARTY_BLOCKS);
        assert!(membership.declined.len() <= limits::PARTY_DECLINED);
        assert!(membership.sent.len() <= world.rules.invites_per_minute as usize);
        assert!(membership.done.len() <= limits::PARTY_DONE);
    }
}

/// Every change has a version, and every version a message.
fn versions(before: &World, after: &World, id: u64, changes: &PartyChanges) {
    let old = before.parties.get(&id).map_or(0, |party| party.version);
    let mut events = changes.events.iter().filter(|event| event.party_id == id);
    let results: Vec<u64> = events.clone().map(|event| event.version).collect();
    assert!(results.is_sorted(), "in the order of the changes");
    let results: BTreeSet<u64> = results.into_iter().collect();
    assert!(results.iter().copied().eq(old + 1..=old + results.len() as u64), "no version is left out");
    match after.parties.get(&id) {
        Some(party) => assert_eq!(party.version, old + results.len() as u64),
        None => {
            let last = events.next_back().expect("the end is announced");
            assert!(matches!(last.kind, PartyEventKind::Disband { .. }), "{last:?}");
        }
    }
    assert_eq!(results.is_empty(), before.parties.get(&id) == after.parties.get(&id), "no change, no event");
}

/// Every invite ends once, and each side that did not end it is notified once.
fn invites(
    before: &World,
    after: &World,
    id: u64,
    call: &PartyRequest,
    reply: &PartyReply,
    changes: &PartyChanges,
) {
    let none = Vec::new();
    let old = before.parties.get(&id).map_or(&none, |party| &party.pending);
    let new = after.parties.get(&id).map_or(&none, |party| &party.pending);
    let count = |of: &dyn Fn(&PartyEvent) -> bool| {
        changes.events.iter().filter(|event| event.party_id == id && of(event)).count()
    };
    // A user who is invited again at the moment when their invite expires has an invite afterwards too.
    let invited_again = |user: &UserId| {
        count(&|event| matches!(&event.kind, PartyEventKind::Invited { user: to, .. } if to == user)) > 0
    };
    let kept = |pending: &PartyInvite| new.contains(pending) && !invited_again(&pending.user);
    for pending in old {
        let user = &pending.user;
        let ended = usize::from(!kept(pending));
        let itself = matches!(&call.command, PartyCommand::Accept { party_id } | PartyCommand::Decline { party_id, .. }
            if *party_id == id && call.user.as_ref() == Some(user));
        let itself = usize::from(itself && !matches!(reply, PartyReply::Refused { .. }));
        let host = host_of(before, id, pending, changes);
        let cancelled = matches!(&call.command, PartyCommand::CancelInvite { user: target }
            if target == user && call.user.as_ref() == Some(&host));
        let notified = count(&|event| {
            event.actor == *user
                && (matches!(event.kind, PartyEventKind::Accept | PartyEventKind::Decline { .. })
                    || cancelled
                        && event.to == host
                        && matches!(event.kind, PartyEventKind::Uninvited { .. }))
        });
        assert_eq!(notified, ended, "the inviter of {user} is notified of its end");
        let cancels =
            count(&|event| event.to == *user && matches!(event.kind, PartyEventKind::InviteCancel { .. }));
        let expected = if pending.hidden { 0 } else { ended - itself.min(ended) };
        assert_eq!(cancels, expected, "{user} is notified of the end of their invite");
    }
    for pending in new.iter().filter(|pending| !old.contains(pending) || invited_again(&pending.user)) {
        let arrived =
            count(&|event| event.to == pending.user && matches!(event.kind, PartyEventKind::Invite { .. }));
        assert_eq!(arrived, usize::from(!pending.hidden), "an invite arrives once, or nowhere");
    }
}

/// Who is notified of an invite's end: deadlines were applied before, and the inviter may have left.
fn host_of(before: &World, id: u64, pending: &PartyInvite, changes: &PartyChanges) -> UserId {
    let party = &before.parties[&id];
    let mut events = changes.events.iter().filter(|event| event.party_id == id);
    let gone = events
        .clone()
        .any(|event| event.actor == pending.by && matches!(event.kind, PartyEventKind::Leave { .. }));
    if party.member(&pending.by).is_some() && !gone {
        return pending.by.clone();
    }
    match events.rfind(|event| matches!(event.kind, PartyEventKind::Leader { .. })) {
        Some(event) => event.actor.clone(),
        None => party.leader().user.clone(),
    }
}
