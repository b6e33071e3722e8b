//! What a party makes of somebody's presence.
//! Must hold: a goodbye ends his membership and the invites to him, even if he is back by now; whoever is lost keeps his
//! seat and his invites for a while; whoever is absent keeps his seat only.

use super::desk::{Desk, Step};
use super::{Need, Reason, Reply, Standing, User};
use alloc::vec::Vec;

impl Desk<'_> {
    pub fn check(&mut self, user: &User) -> Step<Reply> {
        self.want(Vec::from([Need::Guest(user.clone()), Need::Standing(user.clone())]))?;
        self.farewell(user)?;
        if let Some(id) = self.seat(user)? {
            self.notice(id, user)?;
            self.settle(id)?;
        }
        if matches!(self.standing(user)?, Standing::Absent | Standing::Never) {
            self.close_invites(user, Reason::Logout)?;
        }
        Ok(Reply::Nothing)
    }

    /// He said goodbye, and his party and those who invited him do not know yet.
    pub fn farewell(&mut self, user: &User) -> Step {
        if self.guest(user)?.bye.is_none() {
            return Ok(());
        }
        // What is due comes first, and may be that he is taken out.
        let seat = self.seat(user)?;
        self.guest(user)?.bye = None;
        self.close_invites(user, Reason::Logout)?;
        match seat {
            Some(id) => self.depart(id, user, Reason::Logout, None, None),
            None => Ok(()),
        }
    }

    /// Ends every invite that a user sees.
    pub fn close_invites(&mut self, user: &User, reason: Reason) -> Step {
        for id in self.open_invites(user)? {
            self.end_invite(id, user, reason.into())?;
            self.end_if_empty(id)?;
        }
        Ok(())
    }

    /// The parties whose invites a user sees, settled.
    pub fn open_invites(&mut self, user: &User) -> Step<Vec<u64>> {
        let listed = self.guest(user)?.invites.clone();
        self.want(listed.iter().map(|id| Need::Party(*id)).collect())?;
        for id in &listed {
            self.open(*id)?;
        }
        let sees = |id: &u64| {
            self.lives(*id) && self.party(*id).invite_of(user).is_some_and(|pending| !pending.dark)
        };
        let open: Vec<u64> = listed.into_iter().filter(sees).collect();
        self.guest(user)?.invites.clone_from(&open);
        Ok(open)
    }

    /// What a member's presence means for his party.
    pub fn notice(&mut self, id: u64, user: &User) -> Step {
        let away = self.party(id).member(user).and_then(|member| member.away);
        let now = self.now;
        match (self.standing(user)?, away) {
            (Standing::Online { .. }, Some(_)) => self.back(id, user),
            (Standing::Lost { since, until, node_down }, None) => {
                self.interrupt(id, user, *node_down);
                self.away(id, user, *since, *until);
            }
            (Standing::Lost { since, .. }, Some(away)) if away.since < *since => self.lost_again(id, user)?,
            (Standing::Absent | Standing::Never, None) => self.away(id, user, now, now),
            _ => {}
        }
        Ok(())
    }
}
