//! News of presence as nodes send them to each other.

use super::message::{self, ClientGone, ClientState, Empty, UserGone, What};
use super::{visibility, visibility_number};
use prost::Message as _;
use tavern_domain::presence::{Change, Departure, News, State};
use tavern_domain::{ClientId, Time};

pub fn encode(news: &News) -> Vec<u8> {
    let message = message::News {
        user: news.user.to_string(),
        name: news.name.as_ref().map(ToString::to_string),
        anonymous: news.anonymous,
        at: news.at.ms(),
        to: news.to,
        begins: news.begins,
        changes: news.changes.iter().map(|change| message::Change { change: what(change) }).collect(),
        visibility: visibility_number(news.visibility),
    };
    message.encode_to_vec()
}

/// None: not news that this release understands.
pub fn decode(bytes: &[u8]) -> Option<News> {
    let message = message::News::decode(bytes).ok()?;
    let changes: Option<Vec<Change>> = message.changes.into_iter().map(|one| change(one.change?)).collect();
    Some(News {
        user: message.user.into(),
        name: message.name.map(Into::into),
        anonymous: message.anonymous,
        visibility: visibility(message.visibility)?,
        at: Time(message.at),
        changes: changes.filter(|changes| !changes.is_empty())?,
        to: message.to,
        begins: message.begins,
    })
}

fn what(change: &Change) -> Option<What> {
    let written = |state: &State| message::State { text: state.text.to_string(), meaning: state.meaning };
    Some(match change {
        Change::UserOnline => What::UserOnline(Empty {}),
        Change::ClientOnline { client, state } => {
            let state = state.as_ref().map(written);
            What::ClientOnline(ClientState { client: client.to_string(), state })
        }
        Change::ClientUpdated { client, state } => {
            What::ClientUpdated(ClientState { client: client.to_string(), state: Some(written(state)) })
        }
        Change::ClientOffline { client, reason } => {
            What::ClientOffline(ClientGone { client: client.to_string(), reason: reason.as_str().into() })
        }
        Change::UserOffline { last_seen, reason } => {
            What::UserOffline(UserGone { last_seen: last_seen.ms(), reason: reason.as_str().into() })
        }
        Change::Face { from, to } => {
            What::Face(message::Face { from: visibility_number(*from), to: visibility_number(*to) })
        }
        Change::NotFound => return None,
    })
}

fn change(what: What) -> Option<Change> {
    let read = |state: message::State| State { text: state.text.into(), meaning: state.meaning };
    Some(match what {
        What::UserOnline(_) => Change::UserOnline,
        What::ClientOnline(ClientState { client, state }) => {
            Change::ClientOnline { client: ClientId::parse(&client)?, state: state.map(read) }
        }
        What::ClientUpdated(ClientState { client, state }) => {
            Change::ClientUpdated { client: ClientId::parse(&client)?, state: state.map(read)? }
        }
        What::ClientOffline(ClientGone { client, reason }) => {
            Change::ClientOffline { client: ClientId::parse(&client)?, reason: Departure::parse(&reason)? }
        }
        What::UserOffline(UserGone { last_seen, reason }) => {
            Change::UserOffline { last_seen: Time(last_seen), reason: Departure::parse(&reason)? }
        }
        What::Face(face) => Change::Face { from: visibility(face.from)?, to: visibility(face.to)? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::presence::Visibility;

    #[test]
    fn news_read_back_as_they_were_written() {
        let client = ClientId::from_random(7);
        let state = State { text: "{\"a\":\"ü\"}".into(), meaning: u64::MAX };
        let news = News {
            user: "ann".into(),
            name: Some("Ann".into()),
            anonymous: false,
            visibility: Visibility::Nobody,
            at: Time(5),
            changes: vec![
                Change::UserOnline,
                Change::ClientOnline { client, state: Some(state.clone()) },
                Change::ClientOnline { client, state: None },
                Change::ClientUpdated { client, state },
                Change::ClientOffline { client, reason: Departure::Lost },
                Change::UserOffline { last_seen: Time(4), reason: Departure::Bye },
                Change::Face { from: Visibility::Everyone, to: Visibility::Nobody },
            ],
            to: u64::MAX,
            begins: true,
        };
        assert_eq!(decode(&encode(&news)), Some(news));
    }

    #[test]
    fn strange_bytes_are_no_news() {
        for bytes in [&b""[..], b"{}", b"\xff"] {
            assert_eq!(decode(bytes), None);
        }
    }

    #[test]
    fn a_field_of_a_later_release_is_skipped() {
        let news = News {
            user: "ann".into(),
            name: None,
            anonymous: true,
            visibility: Visibility::Everyone,
            at: Time(5),
            changes: vec![Change::UserOnline],
            to: 1,
            begins: false,
        };
        let mut bytes = encode(&news);
        // Field 99, a text.
        bytes.extend([0x9a, 0x06, 2, b'h', b'i']);
        assert_eq!(decode(&bytes), Some(news));
    }
}
