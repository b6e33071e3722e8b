//! A client that keeps its view of a party from messages: the old snapshot and the messages give the new one. A message that
//! does not follow from the view fails the test.

use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_domain::party::{
    MatchTicket, MemberDisconnect, Party, PartyChanges, PartyEvent, PartyEventKind, PartyInvite, PartyMember,
    PartyReply, PartyRequest, UserId,
};

/// What every member may see of a party.
pub fn seen(party: &Party) -> Party {
    let mut seen = party.clone();
    for member in &mut seen.members {
        member.away = member.away.map(|_| MemberDisconnect { since: Time(0), until: Time(0) });
    }
    for pending in &mut seen.pending {
        pending.hidden = false;
    }
    if let Some(go) = &mut seen.go {
        go.until = go.until.map(|_| Time(0));
    }
    seen
}

pub fn update(
    views: &mut BTreeMap<UserId, Party>,
    reply: &PartyReply,
    call: &PartyRequest,
    changes: &PartyChanges,
) {
    for event in &changes.events {
        match views.get_mut(&event.to) {
            Some(view) if view.id == event.party_id => {
                if fold(view, event) {
                    views.remove(&event.to);
                }
            }
            // The snapshot in the reply includes it.
            _ if is_in_reply(event, reply, call) => {}
            _ => {
                if let Some(view) = first(event) {
                    views.insert(event.to.clone(), view);
                }
            }
        }
    }
    // A user who left knows it from the reply.
    for (id, user) in &changes.left {
        if views.get(user).is_some_and(|view| view.id == *id) {
            views.remove(user);
        }
    }
    if let (PartyReply::Party(Some(party)), Some(user)) = (reply, &call.user) {
        views.insert(user.clone(), seen(party));
    }
}

fn is_in_reply(event: &PartyEvent, reply: &PartyReply, call: &PartyRequest) -> bool {
    match reply {
        PartyReply::Party(Some(party)) => {
            call.user.as_ref() == Some(&event.to)
                && party.id == event.party_id
                && party.version >= event.version
        }
        _ => false,
    }
}

/// The view after the first message about the user's own party.
fn first(event: &PartyEvent) -> Option<Party> {
    match &event.kind {
        PartyEventKind::Invited { user, name, expires } => {
            assert_eq!((event.version, &event.actor), (1, &event.to), "{event:?}");
            let leader = PartyMember {
                user: event.actor.clone(),
                name: event.name.clone(),
                since: event.at,
                away: None,
            };
            let pending = pending(event, user, name, *expires);
            let members = vec![leader];
            Some(Party {
                id: event.party_id,
                version: 1,
                members,
                pending: vec![pending],
                go: None,
                data: None,
            })
        }
        // To a user who is not a member.
        PartyEventKind::Invite { .. } | PartyEventKind::InviteCancel { .. } => None,
        _ => panic!("{event:?} is about another party"),
    }
}

fn pending(
    event: &PartyEvent,
    user: &UserId,
    name: &Option<std::sync::Arc<str>>,
    expires: Time,
) -> PartyInvite {
    PartyInvite { user: user.clone(), name: name.clone(), by: event.actor.clone(), expires, hidden: false }
}

/// Applies a message. True: it was the last one.
fn fold(view: &mut Party, event: &PartyEvent) -> bool {
    assert_eq!(event.version, view.version + 1, "{event:?} does not follow on {view:?}");
    view.version = event.version;
    let actor = &event.actor;
    let away = |view: &mut Party, away| {
        view.members.iter_mut().find(|member| member.user == *actor).unwrap().away = away;
    };
    match &event.kind {
        PartyEventKind::Invite { .. } | PartyEventKind::InviteCancel { .. } => {
            panic!("{event:?} to a member")
        }
        PartyEventKind::Invited { user, name, expires } => {
            view.pending.push(pending(event, user, name, *expires))
        }
        PartyEventKind::Uninvited { .. } | PartyEventKind::Decline { .. } => uninvite(view, actor),
        PartyEventKind::Accept | PartyEventKind::Join => {
            uninvite(view, actor);
            let name = event.name.clone();
            view.members.push(PartyMember { user: actor.clone(), name, since: event.at, away: None });
        }
        PartyEventKind::Kick { .. } | PartyEventKind::Disband { .. } => return true,
        PartyEventKind::Leave { .. } if *actor == event.to => return true,
        PartyEventKind::Leave { .. } => view.members.retain(|member| member.user != *actor),
        PartyEventKind::Leader { .. } => {
            let at = view.members.iter().position(|member| member.user == *actor).unwrap();
            let leader = view.members.remove(at);
            view.members.insert(0, leader);
        }
        PartyEventKind::Data { data } => view.data = Some(data.clone()),
        PartyEventKind::PartyGo { go_id, members, params, queued } => {
            let ready = if *queued { members.clone() } else { Vec::new() };
            let until = (!queued).then_some(Time(0));
            view.go = Some(MatchTicket {
                id: *go_id,
                members: members.clone(),
                params: params.clone(),
                ready,
                until,
            });
        }
        PartyEventKind::Ready { go_id, queued } => {
            let go = view.go.as_mut().unwrap();
            assert_eq!(go.id, *go_id);
            go.ready.push(actor.clone());
            if *queued {
                go.until = None;
            }
        }
        PartyEventKind::PartyMatched { go_id, .. } | PartyEventKind::GoCancel { go_id, .. } => {
            assert_eq!(view.go.take().unwrap().id, *go_id);
        }
        PartyEventKind::GoFailed { .. } => view.go = None,
        PartyEventKind::Offline => away(view, Some(MemberDisconnect { since: Time(0), until: Time(0) })),
        PartyEventKind::Online => away(view, None),
    }
    false
}

fn uninvite(view: &mut Party, user: &UserId) {
    let before = view.pending.len();
    view.pending.retain(|pending| pending.user != *user);
    assert_eq!(view.pending.len() + 1, before, "{user} was not invited");
}
