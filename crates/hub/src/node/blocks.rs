//! Users who may not connect to this node: those who are banned, and the sessions of those who were disconnected a moment
//! ago. Must hold: what is looked up at every hello and every second for each session costs nothing while there are neither;
//! the number of both is bounded.

use crate::connection::{CloseReason, ban_text};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use tavern_domain::{ClientId, Time};
use tavern_wire::bus::control::{Ban, Disconnect};
use tavern_wire::error::{Code, Refusal};

/// How long a disconnect is remembered: longer than a session may be on its way between nodes, or in the store until one of
/// them adopts it.
pub const DISCONNECT_MS: u64 = 10 * 60_000;
/// Disconnected users that are remembered. Beyond it the oldest are forgotten.
const DISCONNECTED_MAX: usize = 100_000;

#[derive(Default)]
pub struct Blocks {
    /// False: there are none, and nothing needs to be looked up.
    any: AtomicBool,
    lists: RwLock<BlockLists>,
}

#[derive(Default)]
struct BlockLists {
    bans: HashMap<Arc<str>, Ban>,
    /// Bans that cannot be read; None: none was read yet.
    unreadable: Option<usize>,
    /// With the time at which each was received.
    disconnects: HashMap<Arc<str>, (Time, Disconnect)>,
    /// The oldest are forgotten first.
    order: VecDeque<(Time, Arc<str>)>,
}

impl Blocks {
    /// Why a user may not connect now.
    pub fn refusal(&self, user: Option<&str>, now: Time) -> Option<Refusal> {
        let ban = self.ban_of(user?, now)?;
        let refusal = Refusal::new(Code::Blocked, ban_text(&ban));
        Some(if ban.until == Time::NEVER { refusal } else { refusal.retry_after(ban.until.since(now)) })
    }

    /// Why a connection or a session of this user, which began then, must end.
    pub fn end_of(
        &self,
        user: Option<&str>,
        client: Option<ClientId>,
        since: Time,
        now: Time,
    ) -> Option<CloseReason> {
        if let Some(ban) = self.ban_of(user?, now) {
            return Some(CloseReason::banned(&ban));
        }
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        let (_, disconnect) = lists.disconnects.get(user?)?;
        let stays = since > disconnect.at || client.is_some_and(|client| disconnect.except.contains(&client));
        (!stays).then(|| CloseReason::disconnected(disconnect))
    }

    pub fn ban_of(&self, user: &str, now: Time) -> Option<Ban> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        lists.bans.get(user).filter(|ban| now < ban.until).cloned()
    }

    /// All bans, as they are in the store.
    pub(crate) fn set_bans(&self, bans: HashMap<Arc<str>, Ban>, unreadable: usize) {
        let mut lists = self.write();
        (lists.bans, lists.unreadable) = (bans, Some(unreadable));
        self.note(&lists);
    }

    /// How many bans of the store cannot be read. None: they were not read yet.
    pub fn unreadable(&self) -> Option<usize> {
        self.lists.read().unwrap_or_else(PoisonError::into_inner).unreadable
    }

    pub(crate) fn ban(&self, user: Arc<str>, ban: Ban) {
        let mut lists = self.write();
        lists.bans.insert(user, ban);
        self.note(&lists);
    }

    pub(crate) fn unban(&self, user: &str) {
        let mut lists = self.write();
        lists.bans.remove(user);
        self.note(&lists);
    }

    /// Sessions of this user that began before and come to this node later end too.
    pub(crate) fn disconnect(&self, now: Time, user: Arc<str>, disconnect: Disconnect) {
        let mut lists = self.write();
        let BlockLists { disconnects, order, .. } = &mut *lists;
        if disconnects.get(&user).is_some_and(|(_, known)| known.at >= disconnect.at) {
            return;
        }
        while let Some((received, _)) = order.front() {
            if *received + DISCONNECT_MS > now && order.len() < DISCONNECTED_MAX {
                break;
            }
            let Some((received, user)) = order.pop_front() else { break };
            // One that was repeated has a later entry.
            if disconnects.get(&user).is_some_and(|(known, _)| *known == received) {
                disconnects.remove(&user);
            }
        }
        order.push_back((now, user.clone()));
        disconnects.insert(user, (now, disconnect));
        self.note(&lists);
    }

    fn note(&self, lists: &BlockLists) {
        self.any.store(!lists.bans.is_empty() || !lists.disconnects.is_empty(), Ordering::Release);
    }

    fn write(&self) -> RwLockWriteGuard<'_, BlockLists> {
        self.lists.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disconnect(at: u64) -> Disconnect {
        let (reason, except) = ("bye".into(), vec![ClientId::from_random(1)]);
        Disconnect { code: 4000, reason, except, allow_resume: false, at: Time(at) }
    }

    #[test]
    fn a_ban_ends_at_its_time() {
        let blocks = Blocks::default();
        blocks.ban("ann".into(), Ban { until: Time(10), reason: "spam".into(), at: Time(1) });
        let refusal = blocks.refusal(Some("ann"), Time(4)).unwrap();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::Blocked, Some(6)));
        assert!(blocks.end_of(Some("ann"), None, Time(5), Time(9)).is_some());
        assert!(blocks.refusal(Some("ann"), Time(10)).is_none());
        assert!(blocks.refusal(Some("bob"), Time(4)).is_none() && blocks.refusal(None, Time(4)).is_none());
        blocks.unban("ann");
        assert!(blocks.refusal(Some("ann"), Time(4)).is_none());
    }

    #[test]
    fn a_disconnect_ends_what_began_before_it() {
        let blocks = Blocks::default();
        blocks.disconnect(Time(5), "ann".into(), disconnect(5));
        let ends = |client: u128, since| {
            blocks.end_of(Some("ann"), Some(ClientId::from_random(client)), Time(since), Time(6)).is_some()
        };
        assert!(ends(2, 5) && !ends(2, 6) && !ends(1, 5));
        // An older one that arrives late changes nothing.
        blocks.disconnect(Time(6), "ann".into(), disconnect(3));
        assert!(ends(2, 5));
    }

    #[test]
    fn disconnects_are_forgotten_after_a_while() {
        let blocks = Blocks::default();
        blocks.disconnect(Time(5), "ann".into(), disconnect(5));
        blocks.disconnect(Time(6), "bob".into(), disconnect(6));
        blocks.disconnect(Time(7), "ann".into(), disconnect(7));
        blocks.disconnect(Time(6 + DISCONNECT_MS), "cid".into(), disconnect(9));
        let ends = |user| blocks.end_of(Some(user), None, Time(1), Time(9)).is_some();
        assert!(ends("ann") && !ends("bob") && ends("cid"));
    }
}
