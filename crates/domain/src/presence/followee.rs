//! A followed user, as a node knows them: their channels and their visibility. It is fed with facts in any order and
//! more than once; each has the version of the row it is about. A disconnect is delayed for a moment, so that
//! followers do not see it when the user switches pages or nodes.
//! Must hold: an older fact changes nothing; the last status announced is the current one; the same status is not
//! announced twice.

use super::attendance::Attendance;
use super::status::{Activities, Status, StatusCause, UserChannel};
use super::visibility::Visibility;
use crate::channel::Channel;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A fact about a user, with the version of the row it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserFact {
    /// The user is in a channel, or no longer.
    Channel {
        channel: Arc<str>,
        version: u64,
        presence: Option<PresenceSummary>,
        /// When they were last there, if they have left.
        last_seen: Option<Time>,
        name: Option<Arc<str>>,
    },
    Shown {
        version: u64,
        visibility: Visibility,
    },
}

impl UserFact {
    /// Whether it replaces another fact about the same row.
    pub fn supersedes(&self, other: &UserFact) -> bool {
        match (self, other) {
            (
                UserFact::Channel { channel, version, .. },
                UserFact::Channel { channel: old, version: older, .. },
            ) => channel == old && version >= older,
            (UserFact::Shown { version, .. }, UserFact::Shown { version: older, .. }) => version >= older,
            _ => false,
        }
    }
}

/// A message between nodes about a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserUpdate {
    Fact(UserFact),
    /// They follow another user, or no longer.
    Follows {
        followee: Arc<str>,
        version: u64,
        on: bool,
    },
    /// An app removed them from a channel: their clients are no longer joined to it.
    Removed {
        channel: Arc<str>,
    },
    /// Their inbox or party has changed: nodes with their sessions read it.
    Inbox,
}

/// The presence of a user in a channel, summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresenceSummary {
    pub since: Time,
    /// Within a grace period: all clients are lost.
    pub leaving: bool,
}

impl PresenceSummary {
    /// `None`: they are not in the channel.
    pub fn of(attendance: &Attendance) -> Option<PresenceSummary> {
        let (since, leaving) = (attendance.since(), attendance.is_leaving());
        attendance.is_present().then_some(PresenceSummary { since, leaving })
    }
}

/// A status update for followers, and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    pub status: Status,
    pub cause: StatusCause,
    pub channel: Option<Arc<str>>,
}

/// A followed user.
#[derive(Clone, Debug, Default)]
pub struct Followee {
    pub name: Option<Arc<str>>,
    pub visibility: Visibility,
    shown_version: u64,
    last_seen: Option<Time>,
    /// Sorted by channel. Channels they left are kept for a while, so that an older fact does not bring them back.
    channels: Vec<KnownChannel>,
    held: Option<Box<HeldDisconnect>>,
}

#[derive(Clone, Debug)]
struct KnownChannel {
    channel: Arc<str>,
    version: u64,
    at: Time,
    presence: Option<PresenceSummary>,
}

/// What a fact changed.
struct FactEffect {
    channel: Option<Arc<str>>,
    /// Whether the user came or went; `None`: neither.
    arrived: Option<bool>,
}

/// A delayed disconnect, and the status that followers have.
#[derive(Clone, Debug)]
struct HeldDisconnect {
    due: Time,
    believed: Status,
}

/// How long a channel that was left is remembered: longer than any fact is in flight.
const LEFT_MS: u64 = 60_000;

impl Followee {
    /// From storage. Facts that arrived during the read are given to `apply` afterwards.
    pub fn read(
        now: Time,
        visibility: Option<(u64, Visibility)>,
        last_seen: Option<Time>,
        facts: impl Iterator<Item = UserFact>,
    ) -> Followee {
        let (shown_version, visibility) = visibility.unwrap_or_default();
        let mut followee = Followee { visibility, shown_version, last_seen, ..Followee::default() };
        facts.for_each(|fact| drop(followee.take(now, fact)));
        followee
    }

    /// The user was read again. Returns the update for followers.
    pub fn replace(
        &mut self,
        now: Time,
        activities: &Activities,
        hold_ms: u64,
        mut read: Followee,
    ) -> Option<StatusUpdate> {
        let believed = self.believed(activities);
        read.channels.extend(self.channels.drain(..).filter(|known| known.presence.is_none()));
        read.channels.sort_by(|a, b| (&a.channel, b.version).cmp(&(&b.channel, a.version)));
        read.channels.dedup_by(|later, first| later.channel == first.channel);
        read.name = read.name.or(self.name.take());
        read.last_seen = read.last_seen.max(self.last_seen);
        *self = Followee { held: self.held.take(), ..read };
        self.announce(now, activities, hold_ms, believed, (StatusCause::None, None))
    }

    /// Applies a fact. Returns the update for followers. A disconnect is delayed by `hold_ms`.
    pub fn apply(
        &mut self,
        now: Time,
        activities: &Activities,
        hold_ms: u64,
        fact: UserFact,
    ) -> Option<StatusUpdate> {
        let believed = self.believed(activities);
        let moved = self.take(now, fact)?;
        let cause = match (&moved.channel, moved.arrived) {
            (Some(channel), Some(arrived)) => activities.cause(channel, arrived),
            _ => StatusCause::None,
        };
        self.announce(now, activities, hold_ms, believed, (cause, moved.channel))
    }

    /// Returns a delayed disconnect when its time has come.
    pub fn wake(&mut self, now: Time, activities: &Activities) -> Option<StatusUpdate> {
        let held = self.held.take_if(|held| now >= held.due)?;
        self.announce(now, activities, 0, held.believed, (StatusCause::Disconnected, None))
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.held.as_ref().map(|held| held.due)
    }

    /// The current status.
    pub fn status(&self, activities: &Activities) -> Status {
        let own = self.channels.iter().find(|known| is_own(&known.channel)).and_then(|known| known.presence);
        let current = self.channels.iter().filter_map(|known| Some((&known.channel, known.presence?)));
        let channels: Vec<UserChannel> = current
            .map(|(channel, presence)| UserChannel { channel: channel.clone(), since: presence.since })
            .collect();
        activities.status(
            own.is_some(),
            own.is_some_and(|presence| presence.leaving),
            &channels,
            self.last_seen,
        )
    }

    /// The status that followers have.
    pub fn believed(&self, activities: &Activities) -> Status {
        self.held.as_ref().map_or_else(|| self.status(activities), |held| held.believed.clone())
    }

    fn is_online(&self) -> bool {
        self.channels.iter().any(|known| known.presence.is_some() && is_own(&known.channel))
    }

    fn announce(
        &mut self,
        now: Time,
        activities: &Activities,
        hold_ms: u64,
        believed: Status,
        (mut cause, mut channel): (StatusCause, Option<Arc<str>>),
    ) -> Option<StatusUpdate> {
        let mut returned = false;
        if self.is_online() {
            // They are back: drop the delayed disconnect.
            returned = self.held.take().is_some();
        } else if believed.online && hold_ms > 0 {
            self.held.get_or_insert_with(|| Box::new(HeldDisconnect { due: now + hold_ms, believed }));
            return None;
        }
        let status = self.status(activities);
        if believed.online && !status.online {
            cause = StatusCause::Disconnected;
        } else if returned && cause == StatusCause::None {
            // They arrived in a channel during the delay: report that as the change.
            let came = status.activities.iter().find(|one| !believed.channels.contains(&one.channel));
            if let Some(came) = came {
                (cause, channel) = (activities.cause(&came.channel, true), Some(came.channel.clone()));
            }
        }
        (status != believed).then_some(StatusUpdate { status, cause, channel })
    }

    /// Applies a fact. `None`: it is already known, or older than what is known.
    fn take(&mut self, now: Time, fact: UserFact) -> Option<FactEffect> {
        match fact {
            UserFact::Shown { version, visibility } => {
                if version <= self.shown_version {
                    return None;
                }
                (self.shown_version, self.visibility) = (version, visibility);
                Some(FactEffect { channel: None, arrived: None })
            }
            UserFact::Channel { channel, version, presence, last_seen, name } => {
                let was = self.keep(now, &channel, version, presence)?;
                if name.is_some() {
                    self.name = name;
                }
                if is_own(&channel) {
                    self.last_seen = self.last_seen.max(last_seen);
                }
                let arrived = Some(presence.is_some()).filter(|is| *is != was);
                Some(FactEffect { channel: Some(channel), arrived })
            }
        }
    }

    /// Stores a presence. Returns whether they were in the channel before. `None`: it is older than what is known.
    fn keep(
        &mut self,
        now: Time,
        channel: &Arc<str>,
        version: u64,
        presence: Option<PresenceSummary>,
    ) -> Option<bool> {
        self.channels.retain(|known| known.presence.is_some() || now.since(known.at) < LEFT_MS);
        match self.channels.binary_search_by(|known| known.channel.cmp(channel)) {
            Ok(at) if self.channels[at].version >= version => None,
            Ok(at) => {
                let known = &mut self.channels[at];
                let was = known.presence.is_some();
                (known.version, known.at, known.presence) = (version, now, presence);
                Some(was)
            }
            Err(at) => {
                self.channels
                    .insert(at, KnownChannel { channel: channel.clone(), version, at: now, presence });
                Some(false)
            }
        }
    }
}

/// Whether it is a user's own channel, whose presence means that they are online.
fn is_own(channel: &str) -> bool {
    Channel::parse(channel).is_ok_and(|channel| channel.kind == "user")
}

#[cfg(test)]
mod tests;
