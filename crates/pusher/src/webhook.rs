//! Webhooks: the events of an app that its server is told, as Pusher writes them, and which of them a webhook wants.
//! A request is `{"time_ms":…,"events":[…]}`, signed over its body; topics deliver it.

use crate::app::PusherApp;
use crate::channel::{ChannelAccess, PusherChannel};
use serde::Serialize;
use std::borrow::Cow;

/// The headers of a request: the key of the app, and the signature over the body.
pub const WEBHOOK_KEY: &str = "x-pusher-key";
pub const WEBHOOK_SIGNATURE: &str = "x-pusher-signature";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookKind {
    ChannelOccupied,
    ChannelVacated,
    MemberAdded,
    MemberRemoved,
    ClientEvent,
    CacheMiss,
    SubscriptionCount,
}

impl WebhookKind {
    pub const ALL: [WebhookKind; 7] = [
        WebhookKind::ChannelOccupied,
        WebhookKind::ChannelVacated,
        WebhookKind::MemberAdded,
        WebhookKind::MemberRemoved,
        WebhookKind::ClientEvent,
        WebhookKind::CacheMiss,
        WebhookKind::SubscriptionCount,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            WebhookKind::ChannelOccupied => "channel_occupied",
            WebhookKind::ChannelVacated => "channel_vacated",
            WebhookKind::MemberAdded => "member_added",
            WebhookKind::MemberRemoved => "member_removed",
            WebhookKind::ClientEvent => "client_event",
            WebhookKind::CacheMiss => "cache_miss",
            WebhookKind::SubscriptionCount => "subscription_count",
        }
    }

    pub fn parse(text: &str) -> Option<WebhookKind> {
        WebhookKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Which events a webhook wants.
#[derive(Clone, Debug)]
pub struct WebhookFilter {
    pub kinds: Vec<WebhookKind>,
    /// Channels whose names begin like this; empty: all.
    pub channel_prefix: Box<str>,
}

impl WebhookFilter {
    pub fn wants(&self, kind: WebhookKind, channel: &str) -> bool {
        self.kinds.contains(&kind) && channel.starts_with(&*self.channel_prefix)
    }
}

/// One event, in the form in which it is posted.
#[derive(Clone, Debug, Serialize)]
pub struct WebhookEvent<'a> {
    pub name: WebhookKind,
    pub channel: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<&'a str>,
    /// The text of the data of a client event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_count: Option<u64>,
}

impl<'a> WebhookEvent<'a> {
    pub fn new(name: WebhookKind, channel: impl Into<Cow<'a, str>>) -> WebhookEvent<'a> {
        let channel = channel.into();
        WebhookEvent {
            name,
            channel,
            user_id: None,
            event: None,
            data: None,
            socket_id: None,
            subscription_count: None,
        }
    }

    /// What users who come and go in a channel of Tavern mean: members of presence channels, and channels that are in use.
    pub fn of_presence(
        app: &PusherApp,
        channel: &'a str,
        user: &str,
        online: bool,
    ) -> Option<WebhookEvent<'a>> {
        let choose = |arrived, gone| if online { arrived } else { gone };
        if let Some(name) = PusherChannel::of_occupied(app, channel) {
            let kind = choose(WebhookKind::ChannelOccupied, WebhookKind::ChannelVacated);
            return (*user == *app.counter()).then(|| WebhookEvent::new(kind, name));
        }
        let found = PusherChannel::of_tavern(app, channel)?;
        let kind = choose(WebhookKind::MemberAdded, WebhookKind::MemberRemoved);
        (found.access == ChannelAccess::Presence).then(|| WebhookEvent {
            user_id: Some(app.user_id(user).into()),
            ..WebhookEvent::new(kind, found.name)
        })
    }

    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    fn check(channel: &str, user: &str, online: bool, expected: Option<&str>) {
        let app = sample();
        let event = WebhookEvent::of_presence(&app, channel, user, online).map(|event| event.write());
        assert_eq!(event.as_deref(), expected, "{channel} {user}");
    }

    #[test]
    fn presence_becomes_members_and_channels_in_use() {
        let added = r#"{"name":"member_added","channel":"presence-a","user_id":"ann"}"#;
        check("pusher-3#presence-a", "3:ann", true, Some(added));
        let removed = r#"{"name":"member_removed","channel":"presence-cache-a","user_id":"tavern:bob"}"#;
        check("pusher-3-cache#presence-cache-a", "bob", false, Some(removed));
        let occupied = r#"{"name":"channel_occupied","channel":"private-cache-a"}"#;
        check("pusher-3-occupied#private-cache-a", "pusher-3", true, Some(occupied));
        check("pusher-3-occupied#a", "pusher-3", false, Some(r#"{"name":"channel_vacated","channel":"a"}"#));
    }

    #[test]
    fn other_presence_is_no_event() {
        check("pusher-3#room", "3:ann", true, None);
        check("pusher-3-user#ann", "3:ann", true, None);
        check("pusher-4#presence-a", "4:ann", true, None);
        check("pusher-3-occupied#a", "3:ann", true, None);
        check("pusher-3-occupied##server-to-user-a", "pusher-3", true, None);
    }

    #[test]
    fn a_webhook_wants_kinds_and_a_prefix() {
        let filter = WebhookFilter { kinds: vec![WebhookKind::CacheMiss], channel_prefix: "cache-".into() };
        assert!(filter.wants(WebhookKind::CacheMiss, "cache-a"));
        assert!(!filter.wants(WebhookKind::CacheMiss, "private-cache-a"));
        assert!(!filter.wants(WebhookKind::ClientEvent, "cache-a"));
        for kind in WebhookKind::ALL {
            assert_eq!(WebhookKind::parse(kind.as_str()), Some(kind));
            assert_eq!(
                WebhookEvent::new(kind, "a").write(),
                format!(r#"{{"name":"{}","channel":"a"}}"#, kind.as_str())
            );
        }
    }
}
