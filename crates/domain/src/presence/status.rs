//! What a user is doing: the channels he is in, what that means, and the word for what changed.
//! Must hold: always the whole status, never a difference.

use crate::channel::Channel;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What being somewhere means, in the words of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Activities {
    /// By kind of channel.
    pub kinds: Vec<(Arc<str>, Arc<str>)>,
    /// By the whole name; stronger than the kind.
    pub channels: Vec<(Arc<str>, Arc<str>)>,
    pub others: Arc<str>,
    /// The most telling first; those not named come last.
    pub priority: Vec<Arc<str>>,
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
    pub last_seen: Option<Time>,
}

/// A channel that a user is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    pub channel: Arc<str>,
    pub since: Time,
}

/// The word for what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    None,
    Disconnected,
    StartedGame,
    EndedGame,
    SolvingPuzzles,
    AnnotatingGame,
    InGameChannel,
}

impl Turn {
    pub fn as_str(self) -> &'static str {
        match self {
            Turn::None => "none",
            Turn::Disconnected => "disconnected",
            Turn::StartedGame => "started_game",
            Turn::EndedGame => "ended_game",
            Turn::SolvingPuzzles => "solving_puzzles",
            Turn::AnnotatingGame => "annotating_game",
            Turn::InGameChannel => "in_game_channel",
        }
    }
}

impl Activities {
    pub fn of(&self, channel: &str) -> &Arc<str> {
        let find =
            |list: &'_ [(Arc<str>, Arc<str>)], name: &str| list.iter().position(|(of, _)| &**of == name);
        if let Some(at) = find(&self.channels, channel) {
            return &self.channels[at].1;
        }
        let kind = Channel::parse(channel).map_or("", |channel| channel.kind);
        find(&self.kinds, kind).map_or(&self.others, |at| &self.kinds[at].1)
    }

    /// The status of somebody who is in these channels. His own `user#` channel says whether he is there at all.
    pub fn status(
        &self,
        online: bool,
        leaving: bool,
        places: &[Whereabouts],
        last_seen: Option<Time>,
    ) -> Status {
        let mut places: Vec<&Whereabouts> = places.iter().filter(|_| online).collect();
        places.retain(|place| Channel::parse(&place.channel).is_ok_and(|channel| channel.kind != "user"));
        places.sort_by(|a, b| a.channel.cmp(&b.channel));
        let activity = |place: &&Whereabouts| Activity {
            activity: self.of(&place.channel).clone(),
            channel: place.channel.clone(),
            since: place.since,
        };
        let mut activities: Vec<Activity> = places.iter().map(activity).collect();
        // Stable: equals stay in the order of their channels.
        activities.sort_by_key(|activity| self.rank(&activity.activity));
        let channels = places.iter().map(|place| place.channel.clone()).collect();
        Status { online, leaving: online && leaving, activities, channels, last_seen }
    }

    fn rank(&self, activity: &Arc<str>) -> usize {
        self.priority.iter().position(|known| known == activity).unwrap_or(self.priority.len())
    }
}

/// The word for somebody's arrival in a channel, or for his departure from it.
pub fn turn(channel: &str, arrived: bool) -> Turn {
    let kind = Channel::parse(channel).map_or("", |channel| channel.kind);
    match (kind, arrived) {
        ("user", false) => Turn::Disconnected,
        ("activegame", true) => Turn::StartedGame,
        ("activegame", false) => Turn::EndedGame,
        ("game", true) => Turn::InGameChannel,
        ("anno", true) => Turn::AnnotatingGame,
        ("lobby", true) if channel == "lobby#puzzles" => Turn::SolvingPuzzles,
        _ => Turn::None,
    }
}

#[cfg(test)]
mod tests;
