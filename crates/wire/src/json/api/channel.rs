//! Channels: the list, and the answer to a publish.

use serde::Serialize;

/// `GET /v1/channels`.
#[derive(Clone, Debug, Serialize)]
pub struct ChannelList {
    pub channels: Vec<ChannelCount>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChannelCount {
    pub channel: String,
    /// Left out unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<u64>,
    pub subscriptions: u32,
}

/// `POST /v1/channels/{channel}/messages`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Receivers {
    pub receivers: u32,
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    #[test]
    fn presence_is_shown_when_asked_for() {
        let channel = |present| ChannelCount { channel: "game#1".into(), present, subscriptions: 2 };
        let list = ChannelList { channels: vec![channel(None), channel(Some(3))], next: None };
        let expected = r#"{"channels":[{"channel":"game#1","subscriptions":2},{"channel":"game#1","present":3,"subscriptions":2}],"next":null}"#;
        assert_eq!(encode(&list), expected.as_bytes());
    }
}
