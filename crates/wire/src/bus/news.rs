//! Presence changes, as nodes send them to each other.

use super::message;
use super::{envelope, visibility, visibility_number};
use tavern_domain::presence::{Change, Departure, News, State};
use tavern_domain::{ClientId, Time};

pub fn encode(news: &News) -> Vec<u8> {
    let message = message::PresenceChange {
        user: news.user.to_string(),
        name: news.name.as_ref().map(ToString::to_string),
        anonymous: news.anonymous,
        at: news.at.ms(),
        to: news.to,
        begins: news.begins,
        events: news.changes.iter().map(|change| message::PresenceEvent { event: written(change) }).collect(),
        visibility: visibility_number(news.visibility),
    };
    envelope(message::EnvelopeKind::Presence(message))
}

pub(super) fn read(message: message::PresenceChange) -> Option<News> {
    let changes: Option<Vec<Change>> = message.events.into_iter().map(|one| change(one.event?)).collect();
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

fn written(change: &Change) -> Option<message::PresenceEventKind> {
    let written = |state: &State| message::StateText { text: state.text.to_string(), digest: state.meaning };
    Some(match change {
        Change::UserOnline => message::PresenceEventKind::UserOnline(message::Empty {}),
        Change::ClientOnline { client, state } => {
            let state = state.as_ref().map(written);
            message::PresenceEventKind::ClientOnline(message::ClientState {
                client: client.to_string(),
                state,
            })
        }
        Change::ClientUpdated { client, state } => {
            message::PresenceEventKind::ClientUpdated(message::ClientState {
                client: client.to_string(),
                state: Some(written(state)),
            })
        }
        Change::ClientOffline { client, reason } => {
            message::PresenceEventKind::ClientOffline(message::ClientOffline {
                client: client.to_string(),
                reason: reason.as_str().into(),
            })
        }
        Change::UserOffline { last_seen, reason } => {
            message::PresenceEventKind::UserOffline(message::UserOffline {
                last_seen: last_seen.ms(),
                reason: reason.as_str().into(),
            })
        }
        Change::Face { from, to } => message::PresenceEventKind::Visibility(message::VisibilityChange {
            from: visibility_number(*from),
            to: visibility_number(*to),
        }),
        Change::NotFound => return None,
    })
}

fn change(event: message::PresenceEventKind) -> Option<Change> {
    let read = |state: message::StateText| State { text: state.text.into(), meaning: state.digest };
    Some(match event {
        message::PresenceEventKind::UserOnline(_) => Change::UserOnline,
        message::PresenceEventKind::ClientOnline(message::ClientState { client, state }) => {
            Change::ClientOnline { client: ClientId::parse(&client)?, state: state.map(read) }
        }
        message::PresenceEventKind::ClientUpdated(message::ClientState { client, state }) => {
            Change::ClientUpdated { client: ClientId::parse(&client)?, state: state.map(read)? }
        }
        message::PresenceEventKind::ClientOffline(message::ClientOffline { client, reason }) => {
            Change::ClientOffline { client: ClientId::parse(&client)?, reason: Departure::parse(&reason)? }
        }
        message::PresenceEventKind::UserOffline(message::UserOffline { last_seen, reason }) => {
            Change::UserOffline { last_seen: Time(last_seen), reason: Departure::parse(&reason)? }
        }
        message::PresenceEventKind::Visibility(message::VisibilityChange { from, to }) => {
            Change::Face { from: visibility(from)?, to: visibility(to)? }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;
    use tavern_domain::presence::Visibility;

    fn read_back(bytes: &[u8]) -> Option<News> {
        match BusMessage::decode(bytes)? {
            BusMessage::Presence(news) => Some(news),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_presence_change_is_read_back_as_it_was_written() {
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
        assert_eq!(read_back(&encode(&news)), Some(news));
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
        assert_eq!(read_back(&bytes), Some(news));
    }
}
