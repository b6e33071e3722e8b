//! What a leader does with his party and its members, and how a member leaves by his own will.

use super::desk::{Desk, Step};
use super::{Call, Reason, Refusal, Reply, Standing, State, User, Word};
use alloc::sync::Arc;

impl Desk<'_> {
    pub fn kick(
        &mut self,
        user: &User,
        target: &User,
        message: Option<Arc<str>>,
        call: &Call,
    ) -> Step<Reply> {
        let id = self.led(user, call)?;
        self.is_other_member(id, user, target)?;
        self.begin();
        self.depart(id, target, Reason::Kicked, Some(user.clone()), message)?;
        Ok(Reply::Nothing)
    }

    pub fn leave(&mut self, user: &User, message: Option<Arc<str>>, call: &Call) -> Step<Reply> {
        let id = self.own(user, call)?;
        self.begin();
        self.depart(id, user, Reason::Left, None, message)?;
        Ok(Reply::Nothing)
    }

    pub fn promote(&mut self, user: &User, target: &User, call: &Call) -> Step<Reply> {
        let id = self.led(user, call)?;
        self.is_free(id)?;
        self.is_other_member(id, user, target)?;
        self.begin();
        self.lead(id, target, Some(user.clone()));
        Ok(Reply::Nothing)
    }

    pub fn disband(&mut self, user: &User, message: Option<Arc<str>>, call: &Call) -> Step<Reply> {
        let id = self.led(user, call)?;
        self.begin();
        let actor = self.caller(id, user, call);
        self.dissolve(id, &actor, Reason::Disbanded, Reason::Disbanded, message)?;
        Ok(Reply::Nothing)
    }

    pub fn set_data(&mut self, user: &User, data: &Arc<str>, call: &Call) -> Step<Reply> {
        let id = self.led(user, call)?;
        self.begin();
        if self.party(id).data.as_ref() != Some(data) {
            self.change(id).data = Some(data.clone());
            let actor = self.caller(id, user, call);
            self.tell_members(id, &actor, &Word::Data { data: data.clone() });
        }
        Ok(Reply::Nothing)
    }

    /// No ticket is under way.
    pub fn is_free(&self, id: u64) -> Step {
        match self.party(id).state() {
            State::Gathering | State::Queued => Err(Refusal::Busy.into()),
            State::Forming | State::Idle => Ok(()),
        }
    }

    pub fn is_other(&self, user: &User, target: &User) -> Step {
        if user == target { Err(Refusal::SelfTarget.into()) } else { Ok(()) }
    }

    pub fn is_known(&mut self, target: &User) -> Step {
        match self.standing(target)? {
            Standing::Never => Err(Refusal::NoSuchUser.into()),
            _ => Ok(()),
        }
    }

    fn is_other_member(&mut self, id: u64, user: &User, target: &User) -> Step {
        self.is_other(user, target)?;
        if self.party(id).member(target).is_none() {
            self.is_known(target)?;
            return Err(Refusal::TargetNotMember.into());
        }
        Ok(())
    }
}
