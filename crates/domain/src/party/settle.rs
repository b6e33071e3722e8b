//! What happens by time alone, and how people and invites leave a party, whatever the cause.
//! Must hold: a deadline at t has passed at t; what is due happens in the order of its deadlines; an invite that ends is
//! told once to each side that did not end it itself; a party with one member and no invite ends.

use super::desk::{Desk, Step};
use super::letter::Actor;
use super::{Away, Party, Reason, Standing, State, Told, User, Word};
use crate::time::Time;
use alloc::sync::Arc;

/// What is due first.
enum Due {
    Invite(User),
    Gathering,
    Away(User),
}

/// How an invite ends.
pub(super) struct End {
    pub reason: Reason,
    pub message: Option<Arc<str>>,
    /// Who ended it by a command about this very invite. His reply tells him.
    pub by: Option<User>,
}

impl From<Reason> for End {
    fn from(reason: Reason) -> End {
        End { reason, message: None, by: None }
    }
}

impl Desk<'_> {
    /// Lets everything happen that is due by now.
    pub fn settle(&mut self, id: u64) -> Step {
        while self.lives(id) {
            let Some(due) = first_due(self.party(id), self.now) else { break };
            match due {
                Due::Invite(user) => self.end_invite(id, &user, Reason::Expired.into())?,
                Due::Gathering => self.gathering_failed(id, None),
                Due::Away(user) => self.time_is_over(id, &user)?,
            }
            self.end_if_empty(id)?;
        }
        Ok(())
    }

    /// The seat of a lost member is kept no longer, unless he is back, or was back and is lost anew.
    fn time_is_over(&mut self, id: u64, user: &User) -> Step {
        // What else the goodbye ends is looked at when it is his turn.
        if self.guest(user)?.bye.is_some() {
            return self.depart(id, user, Reason::Logout, None, None);
        }
        let since = self.party(id).member(user).and_then(|member| member.away).map(|away| away.since);
        match self.standing(user)? {
            Standing::Online { .. } => self.back(id, user),
            Standing::Lost { since: again, .. } if since.is_some_and(|since| since < *again) => {
                self.lost_again(id, user)?;
            }
            _ => return self.depart(id, user, Reason::Timeout, None, None),
        }
        Ok(())
    }

    pub fn lost_again(&mut self, id: u64, user: &User) -> Step {
        if let Standing::Lost { since, until, .. } = self.standing(user)? {
            self.back(id, user);
            self.away(id, user, *since, *until);
        }
        Ok(())
    }

    pub fn back(&mut self, id: u64, user: &User) {
        self.change(id).member_mut(user).away = None;
        let actor = self.party(id).actor(user);
        self.tell_members(id, &actor, &Word::Online);
    }

    /// A server that goes down with a member makes the gathering fail; nobody has taken it back.
    pub fn interrupt(&mut self, id: u64, user: &User, node_down: bool) {
        if node_down && self.party(id).state() == State::Gathering {
            self.gathering_failed(id, Some(user));
        }
    }

    /// A member is lost: his seat is kept for a while after the grace of his presence.
    pub fn away(&mut self, id: u64, user: &User, since: Time, grace_ends: Time) {
        let actor = self.party(id).actor(user);
        self.cancel_go(id, &actor, Reason::Offline);
        let until = grace_ends + self.rules.grace_ms;
        self.change(id).member_mut(user).away = Some(Away { since, until });
        self.tell_members(id, &actor, &Word::Offline);
    }

    pub fn end_invite(&mut self, id: u64, user: &User, end: End) -> Step {
        let party = self.change(id);
        let at = party.pending.iter().position(|pending| pending.user == *user).expect("he is invited");
        let pending = party.pending.remove(at);
        let host = party.host_of(&pending);
        let End { reason, message, by } = end;
        let guest = Actor { user: user.clone(), name: pending.name.clone() };
        if !pending.dark {
            self.guest(user)?.invites.retain(|invite| *invite != id);
            if by.as_ref() != Some(user) {
                let actor = self.party(id).actor(by.as_ref().unwrap_or(&pending.by));
                self.tell(id, user, &actor, Word::InviteCancel { reason });
            }
        }
        for member in self.party(id).users() {
            let what = match member == host && by.as_ref() != Some(&host) {
                true => Word::Decline { reason, message: message.clone() },
                false => Word::Uninvited { reason },
            };
            self.tell(id, &member, &guest, what);
        }
        Ok(())
    }

    /// A member goes. If he led, the next who is online leads, or the next if nobody is.
    pub fn depart(
        &mut self,
        id: u64,
        user: &User,
        reason: Reason,
        by: Option<User>,
        message: Option<Arc<str>>,
    ) -> Step {
        let actor = self.party(id).actor(user);
        self.changes.told.push(Told::Left { id, user: user.clone(), reason });
        if self.party(id).members.len() == 1 {
            return self.dissolve(id, &actor, Reason::Disbanded, Reason::Empty, None);
        }
        self.cancel_go(id, &actor, reason);
        self.guest(user)?.party = None;
        let led = self.party(id).leader().user == *user;
        self.change(id).members.retain(|member| member.user != *user);
        self.changes.left.push((id, user.clone()));
        if let Some(by) = &by {
            let leader = self.party(id).actor(by);
            self.tell(id, user, &leader, Word::Kick { message: message.clone() });
        }
        let leave = Word::Leave { reason, by, message };
        if reason == Reason::Timeout {
            // He did not say it himself, and may come back at this very moment.
            self.tell(id, user, &actor, leave.clone());
        }
        self.tell_members(id, &actor, &leave);
        if led {
            let party = self.party(id);
            let next = party.members.iter().find(|member| member.away.is_none()).unwrap_or(party.leader());
            let next = next.user.clone();
            self.lead(id, &next, None);
        }
        self.end_if_empty(id)
    }

    pub fn lead(&mut self, id: u64, user: &User, by: Option<User>) {
        self.change(id).put_first(user);
        let actor = self.party(id).actor(user);
        self.tell_members(id, &actor, &Word::Leader { by });
    }

    pub fn end_if_empty(&mut self, id: u64) -> Step {
        if !self.lives(id) || self.party(id).members.len() > 1 || !self.party(id).pending.is_empty() {
            return Ok(());
        }
        let last = self.party(id).actor(&self.party(id).leader().user);
        self.end(id, &last, Reason::Empty, None)
    }

    /// The ticket, the invites and the party end.
    pub fn dissolve(
        &mut self,
        id: u64,
        actor: &Actor,
        invites: Reason,
        reason: Reason,
        message: Option<Arc<str>>,
    ) -> Step {
        self.cancel_go(id, actor, invites);
        while let Some(pending) = self.party(id).pending.first() {
            let user = pending.user.clone();
            self.end_invite(id, &user, invites.into())?;
        }
        self.end(id, actor, reason, message)
    }

    fn end(&mut self, id: u64, actor: &Actor, reason: Reason, message: Option<Arc<str>>) -> Step {
        let users = self.party(id).users();
        self.change(id);
        self.tell_members(id, actor, &Word::Disband { reason, message });
        for user in users {
            self.guest(&user)?.party = None;
            self.changes.left.push((id, user));
        }
        self.changes.told.push(Told::Disbanded { id, reason });
        self.remove(id);
        Ok(())
    }
}

fn first_due(party: &Party, now: Time) -> Option<Due> {
    let invites = party.pending.iter().map(|pending| (pending.expires, Due::Invite(pending.user.clone())));
    let gathering = party.go.iter().filter_map(|go| Some((go.until?, Due::Gathering)));
    let away = party.members.iter().filter_map(|member| {
        let until = member.away?.until;
        Some((until, Due::Away(member.user.clone())))
    });
    let due = invites.chain(gathering).chain(away).filter(|(at, _)| now >= *at);
    due.min_by_key(|(at, _)| *at).map(|(_, due)| due)
}
