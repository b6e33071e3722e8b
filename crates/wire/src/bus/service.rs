//! The status events that other services receive: `FolloweeActivity` of `proto/tavern.proto`.

use super::message::{ActivityRecord, FolloweeActivity, StatusRecord as Message};
use prost::Message as _;
use tavern_domain::Time;
use tavern_domain::presence::{Status, StatusCause};

/// A change of a user's status.
pub struct StatusEvent<'a> {
    pub user: &'a str,
    pub turn: StatusCause,
    pub channel: Option<&'a str>,
    pub name: Option<&'a str>,
    pub status: &'a Status,
}

/// The causes that `UserActivityType` has a value for, in the order of its values. Any other cause is `TypeNone` there.
const ACTIVITY_TYPES: [&str; 7] = [
    "none",
    "disconnected",
    "started_game",
    "ended_game",
    "solving_puzzles",
    "annotating_game",
    "in_game_channel",
];

pub fn encode(event: &StatusEvent<'_>) -> Vec<u8> {
    let activity = |activity: &tavern_domain::presence::Activity| ActivityRecord {
        activity: activity.activity.to_string(),
        channel: activity.channel.to_string(),
        since: activity.since.ms(),
    };
    let status = Message {
        online: event.status.online,
        leaving: event.status.leaving,
        activities: event.status.activities.iter().map(activity).collect(),
        channels: event.status.channels.iter().map(ToString::to_string).collect(),
        last_seen: event.status.last_seen.map(Time::ms),
        name: event.name.map(Into::into),
    };
    let change = event.turn.as_str();
    let atype = ACTIVITY_TYPES.iter().position(|word| *word == change).unwrap_or(0) as i32;
    let meta = event.channel.unwrap_or_default().into();
    let change = change.into();
    FolloweeActivity { atype, user_id: event.user.into(), meta, status: Some(status), change }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::presence::Activity as Doing;

    #[test]
    fn a_service_reads_the_activity_and_the_whole_status() {
        let status = Status {
            online: true,
            leaving: false,
            activities: vec![Doing {
                activity: "playing".into(),
                channel: "activegame#A".into(),
                since: Time(7),
            }],
            channels: vec!["activegame#A".into(), "lobby#x".into()],
            last_seen: Some(Time(9)),
        };
        let event = StatusEvent {
            user: "ann",
            turn: StatusCause::Word("started_game".into()),
            channel: Some("activegame#A"),
            name: Some("Ann"),
            status: &status,
        };
        let read = FolloweeActivity::decode(&*encode(&event)).unwrap();
        assert_eq!((read.atype, &*read.user_id, &*read.meta), (2, "ann", "activegame#A"));
        assert_eq!(read.change, "started_game");
        let status = read.status.unwrap();
        assert_eq!((status.online, status.channels.len(), status.last_seen), (true, 2, Some(9)));
        assert_eq!(status.activities[0].activity, "playing");
        // The bytes on the bus: field 1 is the enum, field 2 the user.
        assert!(encode(&event).starts_with(b"\x08\x02\x12\x03ann\x1a\x0cactivegame#A"));
        // A cause of the application's own is in `change` alone.
        let event = StatusEvent { turn: StatusCause::Word("drafting".into()), ..event };
        let read = FolloweeActivity::decode(&*encode(&event)).unwrap();
        assert_eq!((read.atype, &*read.change), (0, "drafting"));
    }
}
