//! The whole group on its way into a match.
//! Must hold: the members are frozen into the ticket in the commit that makes it; the outside is told of a ticket once,
//! when everybody is ready; an answer for an old ticket is ignored.

use super::desk::{Desk, Step};
use super::{Call, Go, Need, Reason, Refusal, Reply, State, Told, User, Word};
use alloc::sync::Arc;
use alloc::vec::Vec;

impl Desk<'_> {
    pub fn go(&mut self, user: &User, params: Option<Arc<str>>, call: &Call) -> Step<Reply> {
        let id = self.led(user, call)?;
        if self.party(id).state() != State::Idle {
            return Err(Refusal::Busy.into());
        }
        let members = self.party(id).users();
        self.want(members.iter().cloned().map(Need::Standing).collect())?;
        self.begin();
        let actor = self.caller(id, user, call);
        let mut missing = Vec::new();
        for member in &members {
            if !self.standing(member)?.is_online() {
                missing.push(member.clone());
            }
        }
        if !missing.is_empty() {
            // It was tried, and has its own number; otherwise the party stays as it is.
            self.change(id);
            let go_id = self.party(id).version;
            self.tell_members(id, &actor, &Word::GoFailed { go_id, missing, details: None });
            return Ok(Reply::Gone { go_id });
        }
        while let Some(pending) = self.party(id).pending.first() {
            let invitee = pending.user.clone();
            self.end_invite(id, &invitee, Reason::PartyQueued.into())?;
        }
        let queued = !self.rules.require_ready;
        let until = (!queued).then_some(self.now + self.rules.gather_ms);
        let ready = if queued { members.clone() } else { Vec::new() };
        let party = self.change(id);
        let go_id = party.version;
        party.go = Some(Go { id: go_id, members: members.clone(), params: params.clone(), ready, until });
        self.tell_members(id, &actor, &Word::PartyGo { go_id, members, params, queued });
        if queued {
            self.announce_go(id);
        }
        Ok(Reply::Gone { go_id })
    }

    pub fn ready(&mut self, user: &User, go_id: u64, call: &Call) -> Step<Reply> {
        let id = self.own(user, call)?;
        let Some(go) = self.party(id).go.as_ref().filter(|go| go.id == go_id) else {
            return Err(Refusal::NoSuchGo.into());
        };
        if go.ready.contains(user) {
            return Ok(Reply::Nothing);
        }
        self.begin();
        let go = self.change(id).go.as_mut().expect("it was there");
        go.ready.push(user.clone());
        let queued = go.ready.len() == go.members.len();
        if queued {
            go.until = None;
        }
        let actor = self.caller(id, user, call);
        self.tell_members(id, &actor, &Word::Ready { go_id, queued });
        if queued {
            self.announce_go(id);
        }
        Ok(Reply::Nothing)
    }

    pub fn withdraw(&mut self, user: &User, call: &Call) -> Step<Reply> {
        let id = self.led(user, call)?;
        if self.party(id).go.is_none() {
            return Err(Refusal::NoSuchGo.into());
        }
        self.begin();
        let actor = self.caller(id, user, call);
        self.cancel_go(id, &actor, Reason::Cancelled);
        Ok(Reply::Nothing)
    }

    pub fn matchmaker_says(
        &mut self,
        id: u64,
        go_id: u64,
        matched: bool,
        details: Option<Arc<str>>,
    ) -> Step<Reply> {
        if !self.open(id)? {
            return Err(Refusal::NoSuchParty.into());
        }
        let party = self.party(id);
        if party.state() != State::Queued || party.go.as_ref().is_none_or(|go| go.id != go_id) {
            return Err(Refusal::NoSuchGo.into());
        }
        self.begin();
        let leader = self.party(id).actor(&self.party(id).leader().user);
        self.change(id).go = None;
        let what = match matched {
            true => Word::PartyMatched { go_id, details },
            false => Word::GoFailed { go_id, missing: Vec::new(), details },
        };
        self.tell_members(id, &leader, &what);
        Ok(Reply::Nothing)
    }

    /// Not everybody was ready in time, or somebody who was is there no longer.
    pub fn gathering_failed(&mut self, id: u64, lost: Option<&User>) {
        let leader = self.party(id).actor(&self.party(id).leader().user);
        let go = self.change(id).go.take().expect("it was gathering");
        let is_missing = |user: &&User| !go.ready.contains(user) || lost == Some(user);
        let missing = go.members.iter().filter(is_missing).cloned().collect();
        self.tell_members(id, &leader, &Word::GoFailed { go_id: go.id, missing, details: None });
    }

    fn announce_go(&mut self, id: u64) {
        let Go { id: go_id, members, params, .. } = self.party(id).go.clone().expect("it is queued");
        self.changes.told.push(Told::Go { id, go_id, members, params });
    }
}
