//! News of presence as nodes send them to each other: JSON with a version, so that two releases can run side by side.
//! Must hold: what was written is read back the same; anything else is refused.

use serde::{Deserialize, Serialize};
use tavern_domain::presence::{Change, Departure, News, State};
use tavern_domain::{ClientId, Time};

const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Letter {
    v: u8,
    user: String,
    name: Option<String>,
    anonymous: bool,
    at: u64,
    to: u64,
    begins: bool,
    changes: Vec<Line>,
}

/// One change; which members it has depends on what it is.
#[derive(Default, Serialize, Deserialize)]
struct Line {
    what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<(String, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<u64>,
}

pub fn encode(news: &News) -> Vec<u8> {
    let letter = Letter {
        v: VERSION,
        user: news.user.to_string(),
        name: news.name.as_ref().map(ToString::to_string),
        anonymous: news.anonymous,
        at: news.at.ms(),
        to: news.to,
        begins: news.begins,
        changes: news.changes.iter().map(line).collect(),
    };
    serde_json::to_vec(&letter).unwrap_or_default()
}

/// None: not news that this release understands.
pub fn decode(bytes: &[u8]) -> Option<News> {
    let letter: Letter = serde_json::from_slice(bytes).ok()?;
    let changes: Option<Vec<Change>> = letter.changes.iter().map(change).collect();
    Some(News {
        user: letter.user.into(),
        name: letter.name.map(Into::into),
        anonymous: letter.anonymous,
        at: Time(letter.at),
        changes: changes.filter(|changes| letter.v == VERSION && !changes.is_empty())?,
        to: letter.to,
        begins: letter.begins,
    })
}

fn line(change: &Change) -> Line {
    let with = |what: &str, client: &ClientId| Line {
        what: what.into(),
        client: Some(client.to_string()),
        ..Line::default()
    };
    let written = |state: &State| (state.text.to_string(), state.meaning);
    match change {
        Change::UserOnline => Line { what: "user_online".into(), ..Line::default() },
        Change::ClientOnline { client, state } => {
            Line { state: state.as_ref().map(written), ..with("client_online", client) }
        }
        Change::ClientUpdated { client, state } => {
            Line { state: Some(written(state)), ..with("client_updated", client) }
        }
        Change::ClientOffline { client, reason } => {
            Line { reason: Some(reason.as_str().into()), ..with("client_offline", client) }
        }
        Change::UserOffline { last_seen, reason } => Line {
            what: "user_offline".into(),
            reason: Some(reason.as_str().into()),
            seen: Some(last_seen.ms()),
            ..Line::default()
        },
        Change::NotFound => Line::default(),
    }
}

fn change(line: &Line) -> Option<Change> {
    let client = || ClientId::parse(line.client.as_ref()?);
    let reason = || Departure::parse(line.reason.as_ref()?);
    let state =
        line.state.as_ref().map(|(text, meaning)| State { text: text.as_str().into(), meaning: *meaning });
    Some(match line.what.as_str() {
        "user_online" => Change::UserOnline,
        "client_online" => Change::ClientOnline { client: client()?, state },
        "client_updated" => Change::ClientUpdated { client: client()?, state: state? },
        "client_offline" => Change::ClientOffline { client: client()?, reason: reason()? },
        "user_offline" => Change::UserOffline { last_seen: Time(line.seen?), reason: reason()? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_read_back_as_they_were_written() {
        let client = ClientId::from_random(7);
        let state = State { text: "{\"a\":\"ü\"}".into(), meaning: u64::MAX };
        let news = News {
            user: "ann".into(),
            name: Some("Ann".into()),
            anonymous: false,
            at: Time(5),
            changes: vec![
                Change::UserOnline,
                Change::ClientOnline { client, state: Some(state.clone()) },
                Change::ClientOnline { client, state: None },
                Change::ClientUpdated { client, state },
                Change::ClientOffline { client, reason: Departure::Lost },
                Change::UserOffline { last_seen: Time(4), reason: Departure::Bye },
            ],
            to: u64::MAX,
            begins: true,
        };
        assert_eq!(decode(&encode(&news)), Some(news));
    }

    #[test]
    fn strange_bytes_are_no_news() {
        for bytes in [
            &b""[..],
            b"{}",
            b"\xff",
            br#"{"v":1,"user":"a","anonymous":false,"at":1,"to":1,"begins":false,"changes":[]}"#,
        ] {
            assert_eq!(decode(bytes), None);
        }
        let later = br#"{"v":2,"user":"a","name":null,"anonymous":false,"at":1,"to":1,"begins":false,"changes":[{"what":"user_online"}]}"#;
        assert_eq!(decode(later), None);
    }
}
