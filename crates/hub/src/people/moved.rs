//! A follower's session that comes from another node: what it was told there about those whom its user follows is compared
//! with what is known here, and it hears what is different. Must hold: a move is noticed by nobody, and nothing that
//! happened during it is missed.

use super::People;
use crate::core::Core;
use crate::core::listener::ListenerId;
use std::sync::Arc;
use tavern_domain::presence::{Status, Tidings, Turn};

/// What a session was told last, by user.
pub(super) type Told = Vec<(Arc<str>, u64)>;

impl People {
    /// What a session was told last about each of those whom its user follows.
    pub(crate) fn told_statuses(&self, core: &Core, id: ListenerId) -> Told {
        let Some(user) = core.user_of(id) else { return Vec::new() };
        let local = core.users.get(&user);
        let followees = local.into_iter().flat_map(|local| local.following.keys());
        let mut told: Told = followees
            .filter_map(|followee| Some((followee.clone(), digest(&self.status_for(core, &user, followee)?))))
            .collect();
        told.sort();
        told
    }

    /// A session came from elsewhere, where it was told this.
    pub(crate) fn compare_statuses(&mut self, core: &mut Core, id: ListenerId, told: &Told) {
        let Some(user) = core.user_of(id).filter(|_| !told.is_empty()) else { return };
        if let Some(here) = self.here.get_mut(&user) {
            here.moved.push((id, told.clone()));
        }
        self.settle_wants(core, &user);
    }

    /// Everybody whom a user follows is known: sessions that came from elsewhere hear what they missed.
    pub(super) fn settle_moved(&mut self, core: &mut Core, user: &Arc<str>) {
        let moved = self.here.get_mut(user).map(|here| std::mem::take(&mut here.moved));
        for (id, told) in moved.unwrap_or_default() {
            for (followee, before) in told {
                // Whom he stopped following meanwhile he does not hear of any more.
                let Some(status) =
                    self.status_for(core, user, &followee).filter(|_| core.users.follows(user, &followee))
                else {
                    continue;
                };
                if digest(&status) != before {
                    let tidings = Tidings { status, turn: Turn::None, channel: None };
                    self.tell_sessions(core, &followee, &[id], &tidings);
                }
            }
        }
    }
}

/// Equal for statuses that are told as equal. Stable, because it travels between nodes.
fn digest(status: &Status) -> u64 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0xff]) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(&[u8::from(status.online), u8::from(status.leaving)]);
    for activity in &status.activities {
        add(activity.activity.as_bytes());
        add(activity.channel.as_bytes());
        add(&activity.since.ms().to_le_bytes());
    }
    sum
}
