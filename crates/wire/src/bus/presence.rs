//! Presence changes, as nodes send them to each other.

use super::message;
use super::{envelope, visibility, visibility_number};
use tavern_domain::presence::{AttendanceChange, ClientState, OfflineReason, PresenceUpdate};
use tavern_domain::{ClientId, Time};

pub fn encode(update: &PresenceUpdate) -> Vec<u8> {
    let message = message::PresenceChangeRecord {
        user: update.user.to_string(),
        name: update.name.as_ref().map(ToString::to_string),
        anonymous: update.anonymous,
        at: update.at.ms(),
        to: update.to,
        begins: update.begins,
        events: update
            .changes
            .iter()
            .map(|change| message::PresenceEvent { event: written(change) })
            .collect(),
        visibility: visibility_number(update.visibility),
    };
    envelope(message::EnvelopeKind::Presence(message))
}

pub(super) fn read(message: message::PresenceChangeRecord) -> Option<PresenceUpdate> {
    let changes: Option<Vec<AttendanceChange>> =
        message.events.into_iter().map(|one| change(one.event?)).collect();
    Some(PresenceUpdate {
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

fn written(change: &AttendanceChange) -> Option<message::PresenceEventKind> {
    let written =
        |state: &ClientState| message::StateText { text: state.text.to_string(), digest: state.digest };
    Some(match change {
        AttendanceChange::UserOnline => message::PresenceEventKind::UserOnline(message::Empty {}),
        AttendanceChange::ClientOnline { client, state } => {
            let state = state.as_ref().map(written);
            message::PresenceEventKind::ClientOnline(message::ClientStateRecord {
                client: client.to_string(),
                state,
            })
        }
        AttendanceChange::ClientUpdated { client, state } => {
            message::PresenceEventKind::ClientUpdated(message::ClientStateRecord {
                client: client.to_string(),
                state: Some(written(state)),
            })
        }
        AttendanceChange::ClientOffline { client, reason } => {
            message::PresenceEventKind::ClientOffline(message::ClientOffline {
                client: client.to_string(),
                reason: reason.as_str().into(),
            })
        }
        AttendanceChange::UserOffline { last_seen, reason } => {
            message::PresenceEventKind::UserOffline(message::UserOffline {
                last_seen: last_seen.ms(),
                reason: reason.as_str().into(),
            })
        }
        AttendanceChange::VisibilityChanged { from, to } => {
            message::PresenceEventKind::Visibility(message::VisibilityChange {
                from: visibility_number(*from),
                to: visibility_number(*to),
            })
        }
        AttendanceChange::NotFound => return None,
    })
}

fn change(event: message::PresenceEventKind) -> Option<AttendanceChange> {
    let read = |state: message::StateText| ClientState { text: state.text.into(), digest: state.digest };
    Some(match event {
        message::PresenceEventKind::UserOnline(_) => AttendanceChange::UserOnline,
        message::PresenceEventKind::ClientOnline(message::ClientStateRecord { client, state }) => {
            AttendanceChange::ClientOnline { client: ClientId::parse(&client)?, state: state.map(read) }
        }
        message::PresenceEventKind::ClientUpdated(message::ClientStateRecord { client, state }) => {
            AttendanceChange::ClientUpdated { client: ClientId::parse(&client)?, state: state.map(read)? }
        }
        message::PresenceEventKind::ClientOffline(message::ClientOffline { client, reason }) => {
            AttendanceChange::ClientOffline {
                client: ClientId::parse(&client)?,
                reason: OfflineReason::parse(&reason)?,
            }
        }
        message::PresenceEventKind::UserOffline(message::UserOffline { last_seen, reason }) => {
            AttendanceChange::UserOffline {
                last_seen: Time(last_seen),
                reason: OfflineReason::parse(&reason)?,
            }
        }
        message::PresenceEventKind::Visibility(message::VisibilityChange { from, to }) => {
            AttendanceChange::VisibilityChanged { from: visibility(from)?, to: visibility(to)? }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;
    use tavern_domain::presence::Visibility;

    fn read_back(bytes: &[u8]) -> Option<PresenceUpdate> {
        match BusMessage::decode(bytes)? {
            BusMessage::Presence(update) => Some(update),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_presence_change_is_read_back_as_it_was_written() {
        let client = ClientId::from_random(7);
        let state = ClientState { text: "{\"a\":\"ü\"}".into(), digest: u64::MAX };
        let update = PresenceUpdate {
            user: "ann".into(),
            name: Some("Ann".into()),
            anonymous: false,
            visibility: Visibility::Nobody,
            at: Time(5),
            changes: vec![
                AttendanceChange::UserOnline,
                AttendanceChange::ClientOnline { client, state: Some(state.clone()) },
                AttendanceChange::ClientOnline { client, state: None },
                AttendanceChange::ClientUpdated { client, state },
                AttendanceChange::ClientOffline { client, reason: OfflineReason::Lost },
                AttendanceChange::UserOffline { last_seen: Time(4), reason: OfflineReason::Bye },
                AttendanceChange::VisibilityChanged { from: Visibility::Everyone, to: Visibility::Nobody },
            ],
            to: u64::MAX,
            begins: true,
        };
        assert_eq!(read_back(&encode(&update)), Some(update));
    }

    #[test]
    fn a_field_of_a_later_release_is_skipped() {
        let update = PresenceUpdate {
            user: "ann".into(),
            name: None,
            anonymous: true,
            visibility: Visibility::Everyone,
            at: Time(5),
            changes: vec![AttendanceChange::UserOnline],
            to: 1,
            begins: false,
        };
        let mut bytes = encode(&update);
        // Field 99, a text.
        bytes.extend([0x9a, 0x06, 2, b'h', b'i']);
        assert_eq!(read_back(&bytes), Some(update));
    }
}
