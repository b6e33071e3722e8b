//! A client that keeps its view of a party from messages: the old snapshot and the messages give the new one. A message that
//! does not follow from the view fails the test.

use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_domain::party::{
    Away, Call, Changes, Go, Letter, Member, Party, Pending, Reason, Reply, User, Word,
};

/// What every member may see of a party.
pub fn seen(party: &Party) -> Party {
    let mut seen = party.clone();
    for member in &mut seen.members {
        member.away = member.away.map(|_| Away { since: Time(0), until: Time(0) });
    }
    for pending in &mut seen.pending {
        pending.dark = false;
    }
    if let Some(go) = &mut seen.go {
        go.until = go.until.map(|_| Time(0));
    }
    seen
}

pub fn update(views: &mut BTreeMap<User, Party>, reply: &Reply, call: &Call, changes: &Changes) {
    for letter in &changes.letters {
        // A user who logs out knows it, and has no party when they return.
        if let Word::Leave { reason: Reason::Logout, .. } = letter.what {
            views.remove(&letter.actor);
        }
        match views.get_mut(&letter.to) {
            Some(view) if view.id == letter.party_id => {
                if fold(view, letter) {
                    views.remove(&letter.to);
                }
            }
            // The snapshot in the reply includes it.
            _ if is_in_reply(letter, reply, call) => {}
            _ => {
                if let Some(view) = first(letter) {
                    views.insert(letter.to.clone(), view);
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
    if let (Reply::Party(Some(party)), Some(user)) = (reply, &call.user) {
        views.insert(user.clone(), seen(party));
    }
}

fn is_in_reply(letter: &Letter, reply: &Reply, call: &Call) -> bool {
    match reply {
        Reply::Party(Some(party)) => {
            call.user.as_ref() == Some(&letter.to)
                && party.id == letter.party_id
                && party.version >= letter.version
        }
        _ => false,
    }
}

/// The view after the first message about the user's own party.
fn first(letter: &Letter) -> Option<Party> {
    match &letter.what {
        Word::Invited { user, name, expires } => {
            assert_eq!((letter.version, &letter.actor), (1, &letter.to), "{letter:?}");
            let leader = Member {
                user: letter.actor.clone(),
                name: letter.name.clone(),
                since: letter.at,
                away: None,
            };
            let pending = pending(letter, user, name, *expires);
            let members = vec![leader];
            Some(Party {
                id: letter.party_id,
                version: 1,
                members,
                pending: vec![pending],
                go: None,
                data: None,
            })
        }
        // To a user who is not a member.
        Word::Invite { .. } | Word::InviteCancel { .. } => None,
        _ => panic!("{letter:?} is about another party"),
    }
}

fn pending(letter: &Letter, user: &User, name: &Option<std::sync::Arc<str>>, expires: Time) -> Pending {
    Pending { user: user.clone(), name: name.clone(), by: letter.actor.clone(), expires, dark: false }
}

/// Applies a message. True: it was the last one.
fn fold(view: &mut Party, letter: &Letter) -> bool {
    assert_eq!(letter.version, view.version + 1, "{letter:?} does not follow on {view:?}");
    view.version = letter.version;
    let actor = &letter.actor;
    let away = |view: &mut Party, away| {
        view.members.iter_mut().find(|member| member.user == *actor).unwrap().away = away;
    };
    match &letter.what {
        Word::Invite { .. } | Word::InviteCancel { .. } => panic!("{letter:?} to a member"),
        Word::Invited { user, name, expires } => view.pending.push(pending(letter, user, name, *expires)),
        Word::Uninvited { .. } | Word::Decline { .. } => uninvite(view, actor),
        Word::Accept | Word::Join => {
            uninvite(view, actor);
            let name = letter.name.clone();
            view.members.push(Member { user: actor.clone(), name, since: letter.at, away: None });
        }
        Word::Kick { .. } | Word::Disband { .. } => return true,
        Word::Leave { .. } if *actor == letter.to => return true,
        Word::Leave { .. } => view.members.retain(|member| member.user != *actor),
        Word::Leader { .. } => {
            let at = view.members.iter().position(|member| member.user == *actor).unwrap();
            let leader = view.members.remove(at);
            view.members.insert(0, leader);
        }
        Word::Data { data } => view.data = Some(data.clone()),
        Word::PartyGo { go_id, members, params, queued } => {
            let ready = if *queued { members.clone() } else { Vec::new() };
            let until = (!queued).then_some(Time(0));
            view.go = Some(Go { id: *go_id, members: members.clone(), params: params.clone(), ready, until });
        }
        Word::Ready { go_id, queued } => {
            let go = view.go.as_mut().unwrap();
            assert_eq!(go.id, *go_id);
            go.ready.push(actor.clone());
            if *queued {
                go.until = None;
            }
        }
        Word::PartyMatched { go_id, .. } | Word::GoCancel { go_id, .. } => {
            assert_eq!(view.go.take().unwrap().id, *go_id);
        }
        Word::GoFailed { .. } => view.go = None,
        Word::Offline => away(view, Some(Away { since: Time(0), until: Time(0) })),
        Word::Online => away(view, None),
    }
    false
}

fn uninvite(view: &mut Party, user: &User) {
    let before = view.pending.len();
    view.pending.retain(|pending| pending.user != *user);
    assert_eq!(view.pending.len() + 1, before, "{user} was not invited");
}
