//! The commands of a leader, and how a member leaves.

use super::CommandHandler;
use crate::party::draft::PartyStep;
use crate::party::leave::{MemberDeparture, dissolve, make_leader, remove_member};
use crate::party::{PartyEventKind, PartyReason, PartyRefusal, PartyReply, PartyState, UserId, UserPresence};
use alloc::sync::Arc;

impl CommandHandler<'_, '_> {
    pub(super) fn kick(&mut self, target: &UserId, message: Option<Arc<str>>) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        self.check_other_member(id, target)?;
        self.draft.begin_command();
        let departure = MemberDeparture { reason: PartyReason::Kicked, by: Some(self.user.clone()), message };
        remove_member(self.draft, id, target, departure)?;
        Ok(PartyReply::Nothing)
    }

    pub(super) fn leave(&mut self, message: Option<Arc<str>>) -> PartyStep<PartyReply> {
        let id = self.own_party()?;
        self.draft.begin_command();
        let departure = MemberDeparture { reason: PartyReason::Left, by: None, message };
        remove_member(self.draft, id, self.user, departure)?;
        Ok(PartyReply::Nothing)
    }

    pub(super) fn promote(&mut self, target: &UserId) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        self.check_no_ticket(id)?;
        self.check_other_member(id, target)?;
        self.draft.begin_command();
        make_leader(self.draft, id, target, Some(self.user.clone()));
        Ok(PartyReply::Nothing)
    }

    pub(super) fn disband(&mut self, message: Option<Arc<str>>) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        self.draft.begin_command();
        let actor = self.caller(id);
        dissolve(self.draft, id, &actor, PartyReason::Disbanded, PartyReason::Disbanded, message)?;
        Ok(PartyReply::Nothing)
    }

    pub(super) fn set_data(&mut self, data: &Arc<str>) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        self.draft.begin_command();
        if self.draft.party(id).data.as_ref() != Some(data) {
            self.draft.change(id).data = Some(data.clone());
            let actor = self.caller(id);
            self.draft.notify_members(id, &actor, &PartyEventKind::Data { data: data.clone() });
        }
        Ok(PartyReply::Nothing)
    }

    pub(super) fn check_no_ticket(&self, id: u64) -> PartyStep {
        match self.draft.party(id).state() {
            PartyState::Gathering | PartyState::Queued => Err(PartyRefusal::Busy.into()),
            PartyState::Forming | PartyState::Idle => Ok(()),
        }
    }

    pub(super) fn check_not_self(&self, target: &UserId) -> PartyStep {
        if self.user == target { Err(PartyRefusal::SelfTarget.into()) } else { Ok(()) }
    }

    pub(super) fn check_known(&mut self, target: &UserId) -> PartyStep {
        match self.draft.presence(target)? {
            UserPresence::Never => Err(PartyRefusal::NoSuchUser.into()),
            _ => Ok(()),
        }
    }

    fn check_other_member(&mut self, id: u64, target: &UserId) -> PartyStep {
        self.check_not_self(target)?;
        if self.draft.party(id).member(target).is_none() {
            self.check_known(target)?;
            return Err(PartyRefusal::TargetNotMember.into());
        }
        Ok(())
    }
}
