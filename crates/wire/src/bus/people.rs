//! Rumours about people as nodes send them to each other.

use super::message::{About, Empty, Follows, Place, Removed, Rumour as Message, Shown, Stay as Staying};
use super::{visibility, visibility_number};
use prost::Message as _;
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Rumour, Stay};

pub fn encode(rumour: &Rumour) -> Vec<u8> {
    let about = match rumour {
        Rumour::Fact(Fact::Place { channel, version, stay, last_seen, name }) => About::Place(Place {
            channel: channel.to_string(),
            version: *version,
            stay: stay.map(|stay| Staying { since: stay.since.ms(), leaving: stay.leaving }),
            last_seen: last_seen.map(Time::ms),
            name: name.as_ref().map(ToString::to_string),
        }),
        Rumour::Fact(Fact::Shown { version, visibility }) => {
            About::Shown(Shown { version: *version, visibility: visibility_number(*visibility) })
        }
        Rumour::Follows { followee, version, on } => {
            About::Follows(Follows { followee: followee.to_string(), version: *version, on: *on })
        }
        Rumour::Removed { channel } => About::Removed(Removed { channel: channel.to_string() }),
        Rumour::Mail => About::Mail(Empty {}),
    };
    Message { rumour: Some(about) }.encode_to_vec()
}

/// None: nothing that this release understands.
pub fn decode(bytes: &[u8]) -> Option<Rumour> {
    Some(match Message::decode(bytes).ok()?.rumour? {
        About::Place(place) => Rumour::Fact(Fact::Place {
            channel: place.channel.into(),
            version: place.version,
            stay: place.stay.map(|stay| Stay { since: Time(stay.since), leaving: stay.leaving }),
            last_seen: place.last_seen.map(Time),
            name: place.name.map(Into::into),
        }),
        About::Shown(shown) => {
            Rumour::Fact(Fact::Shown { version: shown.version, visibility: visibility(shown.visibility)? })
        }
        About::Follows(follows) => {
            Rumour::Follows { followee: follows.followee.into(), version: follows.version, on: follows.on }
        }
        About::Removed(removed) => Rumour::Removed { channel: removed.channel.into() },
        About::Mail(_) => Rumour::Mail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::presence::Visibility;

    #[test]
    fn rumours_read_back_as_they_were_written() {
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
            assert_eq!(decode(&encode(&rumour)), Some(rumour));
        }
    }

    #[test]
    fn strange_bytes_are_no_rumour() {
        for bytes in [&b""[..], b"\xff", b"{}"] {
            assert_eq!(decode(bytes), None);
        }
    }
}
