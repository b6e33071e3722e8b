//! What a leader does with the party and its members, and how a member leaves.

use super::CommandHandler;
use crate::party::draft::Step;
use crate::party::leave::{MemberDeparture, dissolve, make_leader, remove_member};
use crate::party::{Reason, Refusal, Reply, Standing, State, User, Word};
use alloc::sync::Arc;

impl CommandHandler<'_, '_> {
    pub(super) fn kick(&mut self, target: &User, message: Option<Arc<str>>) -> Step<Reply> {
        let id = self.led_party()?;
        self.check_other_member(id, target)?;
        self.draft.begin_command();
        let departure = MemberDeparture { reason: Reason::Kicked, by: Some(self.user.clone()), message };
        remove_member(self.draft, id, target, departure)?;
        Ok(Reply::Nothing)
    }

    pub(super) fn leave(&mut self, message: Option<Arc<str>>) -> Step<Reply> {
        let id = self.own_party()?;
        self.draft.begin_command();
        let departure = MemberDeparture { reason: Reason::Left, by: None, message };
        remove_member(self.draft, id, self.user, departure)?;
        Ok(Reply::Nothing)
    }

    pub(super) fn promote(&mut self, target: &User) -> Step<Reply> {
        let id = self.led_party()?;
        self.check_no_ticket(id)?;
        self.check_other_member(id, target)?;
        self.draft.begin_command();
        make_leader(self.draft, id, target, Some(self.user.clone()));
        Ok(Reply::Nothing)
    }

    pub(super) fn disband(&mut self, message: Option<Arc<str>>) -> Step<Reply> {
        let id = self.led_party()?;
        self.draft.begin_command();
        let actor = self.caller(id);
        dissolve(self.draft, id, &actor, Reason::Disbanded, Reason::Disbanded, message)?;
        Ok(Reply::Nothing)
    }

    pub(super) fn set_data(&mut self, data: &Arc<str>) -> Step<Reply> {
        let id = self.led_party()?;
        self.draft.begin_command();
        if self.draft.party(id).data.as_ref() != Some(data) {
            self.draft.change(id).data = Some(data.clone());
            let actor = self.caller(id);
            self.draft.tell_members(id, &actor, &Word::Data { data: data.clone() });
        }
        Ok(Reply::Nothing)
    }

    pub(super) fn check_no_ticket(&self, id: u64) -> Step {
        match self.draft.party(id).state() {
            State::Gathering | State::Queued => Err(Refusal::Busy.into()),
            State::Forming | State::Idle => Ok(()),
        }
    }

    pub(super) fn check_not_self(&self, target: &User) -> Step {
        if self.user == target { Err(Refusal::SelfTarget.into()) } else { Ok(()) }
    }

    pub(super) fn check_known(&mut self, target: &User) -> Step {
        match self.draft.standing(target)? {
            Standing::Never => Err(Refusal::NoSuchUser.into()),
            _ => Ok(()),
        }
    }

    fn check_other_member(&mut self, id: u64, target: &User) -> Step {
        self.check_not_self(target)?;
        if self.draft.party(id).member(target).is_none() {
            self.check_known(target)?;
            return Err(Refusal::TargetNotMember.into());
        }
        Ok(())
    }
}
