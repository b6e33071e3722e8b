//! Updates about users, as nodes send them to each other.

use super::message;
use super::{envelope, visibility, visibility_number};
use tavern_domain::Time;
use tavern_domain::presence::{PresenceSummary, UserFact, UserUpdate};

pub fn encode(update: &UserUpdate) -> Vec<u8> {
    let update = match update {
        UserUpdate::Fact(UserFact::Channel { channel, version, presence: stay, last_seen, name }) => {
            message::UserUpdateRecordKind::Channel(message::ChannelPresenceRecord {
                channel: channel.to_string(),
                version: *version,
                presence: stay.map(|stay| message::PresenceSummaryRecord {
                    since: stay.since.ms(),
                    leaving: stay.leaving,
                }),
                last_seen: last_seen.map(Time::ms),
                name: name.as_ref().map(ToString::to_string),
            })
        }
        UserUpdate::Fact(UserFact::Shown { version, visibility }) => {
            message::UserUpdateRecordKind::Visibility(message::UserVisibility {
                version: *version,
                visibility: visibility_number(*visibility),
            })
        }
        UserUpdate::Follows { followee, version, on } => {
            message::UserUpdateRecordKind::Follow(message::FollowRecord {
                followee: followee.to_string(),
                version: *version,
                on: *on,
            })
        }
        UserUpdate::Removed { channel } => message::UserUpdateRecordKind::RemovedFrom(channel.to_string()),
        UserUpdate::Inbox => message::UserUpdateRecordKind::Inbox(message::Empty {}),
    };
    envelope(message::EnvelopeKind::User(message::UserUpdateRecord { update: Some(update) }))
}

pub(super) fn read(message: message::UserUpdateRecord) -> Option<UserUpdate> {
    Some(match message.update? {
        message::UserUpdateRecordKind::Channel(place) => UserUpdate::Fact(UserFact::Channel {
            channel: place.channel.into(),
            version: place.version,
            presence: place
                .presence
                .map(|stay| PresenceSummary { since: Time(stay.since), leaving: stay.leaving }),
            last_seen: place.last_seen.map(Time),
            name: place.name.map(Into::into),
        }),
        message::UserUpdateRecordKind::Visibility(shown) => UserUpdate::Fact(UserFact::Shown {
            version: shown.version,
            visibility: visibility(shown.visibility)?,
        }),
        message::UserUpdateRecordKind::Follow(follows) => UserUpdate::Follows {
            followee: follows.followee.into(),
            version: follows.version,
            on: follows.on,
        },
        message::UserUpdateRecordKind::RemovedFrom(channel) => {
            UserUpdate::Removed { channel: channel.into() }
        }
        message::UserUpdateRecordKind::Inbox(_) => UserUpdate::Inbox,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;
    use tavern_domain::presence::Visibility;

    #[test]
    fn a_user_update_is_read_back_as_it_was_written() {
        let place = |stay, last_seen| {
            UserUpdate::Fact(UserFact::Channel {
                channel: "game#ü".into(),
                version: u64::MAX,
                presence: stay,
                last_seen,
                name: Some("Ann".into()),
            })
        };
        let shown = |visibility| UserUpdate::Fact(UserFact::Shown { version: 3, visibility });
        for update in [
            place(Some(PresenceSummary { since: Time(0), leaving: true }), None),
            place(None, Some(Time(7))),
            shown(Visibility::Everyone),
            shown(Visibility::FollowersIFollow),
            shown(Visibility::Nobody),
            UserUpdate::Follows { followee: "bob".into(), version: 9, on: true },
            UserUpdate::Removed { channel: "game#A".into() },
            UserUpdate::Inbox,
        ] {
            match BusMessage::decode(&encode(&update)) {
                Some(BusMessage::Person(read)) => assert_eq!(read, update),
                other => panic!("{other:?}"),
            }
        }
    }
}
