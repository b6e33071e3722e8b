//! The status of a user: the channels they are in, the activities derived from them, and the cause of a change. The
//! names of activities and causes come from the configuration. Must hold: always the whole status, never a
//! difference.

use crate::channel::Channel;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The names of activities and of status changes, from the configuration.
#[derive(Clone, Debug, Default)]
pub struct Activities {
    /// The activity of being in a channel, by its kind.
    pub kinds: Vec<(Arc<str>, Arc<str>)>,
    /// The same by the whole name, which wins over the kind.
    pub channels: Vec<(Arc<str>, Arc<str>)>,
    /// The activity of being in any other channel.
    pub others: Arc<str>,
    /// Activities in the order in which they are listed; those not named come last.
    pub priority: Vec<Arc<str>>,
    /// The cause for an arrival in a channel, by its whole name or its kind.
    pub arrivals: Vec<(Arc<str>, Arc<str>)>,
    /// The cause for a departure from a channel, by its whole name or its kind.
    pub departures: Vec<(Arc<str>, Arc<str>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub activity: Arc<str>,
    pub channel: Arc<str>,
    pub since: Time,
}

/// The whole status of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub online: bool,
    pub leaving: bool,
    pub activities: Vec<Activity>,
    pub channels: Vec<Arc<str>>,
    /// When they last went offline. `None` while they are online.
    pub last_seen: Option<Time>,
}

/// A channel that a user is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserChannel {
    pub channel: Arc<str>,
    pub since: Time,
}

/// Why a status was sent to followers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusCause {
    None,
    /// The user's last session has ended.
    Disconnected,
    /// A name from the configuration, such as `started_game`.
    Word(Arc<str>),
}

impl StatusCause {
    pub fn as_str(&self) -> &str {
        match self {
            StatusCause::None => "none",
            StatusCause::Disconnected => "disconnected",
            StatusCause::Word(cause) => cause,
        }
    }
}

impl Activities {
    /// The activity of being in a channel.
    pub fn of(&self, channel: &str) -> &Arc<str> {
        let by_kind = || find(&self.kinds, kind_of(channel));
        find(&self.channels, channel).or_else(by_kind).unwrap_or(&self.others)
    }

    /// The cause for an arrival in a channel, or for a departure from it.
    pub fn cause(&self, channel: &str, arrived: bool) -> StatusCause {
        let kind = kind_of(channel);
        if kind == "user" {
            return if arrived { StatusCause::None } else { StatusCause::Disconnected };
        }
        let names = if arrived { &self.arrivals } else { &self.departures };
        let cause = find(names, channel).or_else(|| find(names, kind));
        cause.map_or(StatusCause::None, |cause| StatusCause::Word(cause.clone()))
    }

    /// The status of a user who is in these channels. `online` and `leaving` are those of their own `user#` channel.
    pub fn status(
        &self,
        online: bool,
        leaving: bool,
        current: &[UserChannel],
        last_seen: Option<Time>,
    ) -> Status {
        let mut current: Vec<&UserChannel> = current.iter().filter(|_| online).collect();
        current.retain(|one| Channel::parse(&one.channel).is_ok_and(|channel| channel.kind != "user"));
        current.sort_by(|a, b| a.channel.cmp(&b.channel));
        let activity = |one: &&UserChannel| Activity {
            activity: self.of(&one.channel).clone(),
            channel: one.channel.clone(),
            since: one.since,
        };
        let mut activities: Vec<Activity> = current.iter().map(activity).collect();
        // A stable sort: equal ones stay in the order of their channels.
        activities.sort_by_key(|activity| self.rank(&activity.activity));
        let channels = current.iter().map(|one| one.channel.clone()).collect();
        let last_seen = last_seen.filter(|_| !online);
        Status { online, leaving: online && leaving, activities, channels, last_seen }
    }

    fn rank(&self, activity: &Arc<str>) -> usize {
        self.priority.iter().position(|known| known == activity).unwrap_or(self.priority.len())
    }
}

fn find<'a>(names: &'a [(Arc<str>, Arc<str>)], name: &str) -> Option<&'a Arc<str>> {
    names.iter().find(|(known, _)| **known == *name).map(|(_, cause)| cause)
}

fn kind_of(channel: &str) -> &str {
    Channel::parse(channel).map_or("", |channel| channel.kind)
}

#[cfg(test)]
mod tests;
