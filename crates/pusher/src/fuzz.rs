//! Properties of any input, for the fuzzer: nothing panics, and what is read back is what was written.

use crate::app::PusherApp;
use crate::channel::{ChannelAccess, PusherChannel};
use crate::client_frame::{parse_channel_data, parse_frame, parse_user_data};
use crate::message::{OutgoingEvent, read_message, write_message};
use crate::request_body::{parse_batch, parse_trigger};
use serde_json::value::RawValue;

/// A frame, a body, a name or data of an event.
pub fn pusher(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = parse_frame(&text);
    let _ = parse_trigger(&text);
    let _ = parse_batch(&text);
    let _ = parse_channel_data(&text);
    let _ = parse_user_data(&text);
    if let Ok(json) = serde_json::from_str::<&RawValue>(&text) {
        let event = read_message(json).event;
        assert!(!event.starts_with("pusher:") && !event.starts_with("pusher_internal:"), "{event}");
    }
    let written = write_message(&OutgoingEvent { event: "e", data: &text, except: Some("1.2") });
    let json: &RawValue = serde_json::from_str(&written).expect("a message is JSON");
    let read = read_message(json);
    assert_eq!((&*read.data, read.except.as_deref()), (&*text, Some("1.2")));
    let app = PusherApp {
        id: "1".into(),
        key: "key".into(),
        secrets: vec!["secret".into()],
        client_events: true,
        user_authentication: false,
        subscription_count: false,
    };
    if let Some(user) = app.user(&text) {
        assert_eq!(app.user_id(&user), text);
    }
    if let Some(channel) = PusherChannel::parse(&text)
        && let Some(name) = channel.in_tavern(&app)
    {
        assert!(
            tavern_domain::Channel::parse(&name).is_ok_and(|found| found.kind.starts_with("pusher-1")),
            "{name}"
        );
        let back = PusherChannel::of_tavern(&app, &name);
        assert_eq!(back, (channel.access != ChannelAccess::User).then_some(channel));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn inputs_of_every_kind_keep_the_properties() {
        for input in [
            "",
            "room",
            "#server-to-user-7",
            "#server-to-user-a\nb",
            "private-encrypted-cache-a",
            "\u{feff}",
            "[[[[[[",
            "{\"event\":\"pusher:x\"}",
            "{\"event\":\"pusher\\u003ax\"}",
            "{\"event\":\"pusher:subscribe\",\"data\":\"{}\"}",
            "{\"name\":\"a\",\"channels\":[],\"data\":{}}",
            " {\"a\":1} ",
            "\"\\ud800\"",
        ] {
            super::pusher(input.as_bytes());
        }
        super::pusher(&[0xff, 0xfe, b'{', b'"']);
    }
}
