//! Updates about users, as nodes send them to each other.

use super::message;
use super::{envelope, visibility, visibility_number};
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Rumour, Stay};

pub fn encode(rumour: &Rumour) -> Vec<u8> {
    let update = match rumour {
        Rumour::Fact(Fact::Place { channel, version, stay, last_seen, name }) => {
            message::UserUpdateKind::Channel(message::ChannelPresence {
                channel: channel.to_string(),
                version: *version,
                stay: stay.map(|stay| message::Stay { since: stay.since.ms(), leaving: stay.leaving }),
                last_seen: last_seen.map(Time::ms),
                name: name.as_ref().map(ToString::to_string),
            })
        }
        Rumour::Fact(Fact::Shown { version, visibility }) => {
            message::UserUpdateKind::Visibility(message::UserVisibility {
                version: *version,
                visibility: visibility_number(*visibility),
            })
        }
        Rumour::Follows { followee, version, on } => message::UserUpdateKind::Follow(message::Follow {
            followee: followee.to_string(),
            version: *version,
            on: *on,
        }),
        Rumour::Removed { channel } => message::UserUpdateKind::RemovedFrom(channel.to_string()),
        Rumour::Mail => message::UserUpdateKind::Inbox(message::Empty {}),
    };
    envelope(message::EnvelopeKind::User(message::UserUpdate { update: Some(update) }))
}

pub(super) fn read(message: message::UserUpdate) -> Option<Rumour> {
    Some(match message.update? {
        message::UserUpdateKind::Channel(place) => Rumour::Fact(Fact::Place {
            channel: place.channel.into(),
            version: place.version,
            stay: place.stay.map(|stay| Stay { since: Time(stay.since), leaving: stay.leaving }),
            last_seen: place.last_seen.map(Time),
            name: place.name.map(Into::into),
        }),
        message::UserUpdateKind::Visibility(shown) => {
            Rumour::Fact(Fact::Shown { version: shown.version, visibility: visibility(shown.visibility)? })
        }
        message::UserUpdateKind::Follow(follows) => {
            Rumour::Follows { followee: follows.followee.into(), version: follows.version, on: follows.on }
        }
        message::UserUpdateKind::RemovedFrom(channel) => Rumour::Removed { channel: channel.into() },
        message::UserUpdateKind::Inbox(_) => Rumour::Mail,
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
            Rumour::Fact(Fact::Place {
                channel: "game#ü".into(),
                version: u64::MAX,
                stay,
                last_seen,
                name: Some("Ann".into()),
            })
        };
        let shown = |visibility| Rumour::Fact(Fact::Shown { version: 3, visibility });
        for rumour in [
            place(Some(Stay { since: Time(0), leaving: true }), None),
            place(None, Some(Time(7))),
            shown(Visibility::Everyone),
            shown(Visibility::FollowersIFollow),
            shown(Visibility::Nobody),
            Rumour::Follows { followee: "bob".into(), version: 9, on: true },
            Rumour::Removed { channel: "game#A".into() },
            Rumour::Mail,
        ] {
            match BusMessage::decode(&encode(&rumour)) {
                Some(BusMessage::Person(read)) => assert_eq!(read, rumour),
                other => panic!("{other:?}"),
            }
        }
    }
}
