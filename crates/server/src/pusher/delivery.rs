//! Events of the hub as frames of Pusher.
//! Must hold: a socket gets what its subscriptions cover, once, and never its own events back.

use super::client::PusherClient;
use super::occupancy::Seat;
use super::sessions::{LISTENER, SessionNumber};
use serde_json::value::RawValue;
use std::borrow::Cow;
use tavern_hub::GatewayFrame;
use tavern_pusher::{
    ChannelAccess, MemberChange, PresenceMembers, PusherChannel, channel_event, member_added, member_removed,
    read_message, user_id_in, watchlist_event,
};
use tavern_wire::gateway::{self, HubEvent, HubMembers};
use tavern_wire::json;
use tavern_wire::ws;

/// A channel that the socket is subscribed to.
pub struct ServedChannel {
    /// In Pusher.
    pub name: String,
    pub access: ChannelAccess,
    /// The session that gets its messages.
    pub session: SessionNumber,
    /// The session that is present, in a presence channel.
    pub member: SessionNumber,
    pub members: Option<PresenceMembers>,
    /// Members that are being read, page by page.
    pub reading: Option<PresenceMembers>,
    /// Who the socket is there, in a presence channel.
    pub user_id: Option<String>,
    /// It counts. None in the channel of a user.
    pub seat: Option<Seat>,
    /// Events were lost: the members must be read again.
    pub is_stale: bool,
}

impl ServedChannel {
    pub fn new(channel: &PusherChannel<'_>, session: SessionNumber, member: SessionNumber) -> ServedChannel {
        let (name, access) = (channel.name.to_owned(), channel.access);
        let (members, reading, user_id, seat) = (None, None, None, None);
        ServedChannel { name, access, session, member, members, reading, user_id, seat, is_stale: false }
    }

    fn lose_events(&mut self) {
        self.is_stale = self.access == ChannelAccess::Presence;
    }
}

/// A user of the watchlist.
pub struct WatchedUser {
    pub user_id: String,
    /// In Tavern.
    user: String,
    pub is_online: bool,
    version: u64,
}

impl WatchedUser {
    pub fn new(user_id: String, user: String, members: &HubMembers<'_>) -> WatchedUser {
        let is_online = members.users.iter().any(|member| member.user.as_deref() == Some(&user));
        WatchedUser { user_id, user, is_online, version: members.version }
    }

    /// Whether they came or went.
    fn changes(&mut self, event: &HubEvent<'_>) -> bool {
        if event.version.is_none_or(|version| version <= self.version) {
            return false;
        }
        self.version = event.version.unwrap_or(self.version);
        let is_they = |user: &Option<Cow<'_, str>>| user.as_deref() == Some(&*self.user);
        let is_online = match &*event.event {
            "user_online" if is_they(&event.user) => true,
            "user_offline" if is_they(&event.user) => false,
            "presence" if event.joined.iter().any(|entry| is_they(&entry.user)) => true,
            "presence" if event.left.iter().any(|entry| entry.client.is_none() && is_they(&entry.user)) => {
                false
            }
            _ => self.is_online,
        };
        std::mem::replace(&mut self.is_online, is_online) != is_online
    }
}

impl PusherClient {
    /// Events of one session.
    pub(super) fn deliver(&mut self, session: SessionNumber, bytes: &[u8]) {
        gateway::read_events(bytes, |event| self.deliver_one(session, &event));
    }

    fn deliver_one(&mut self, session: SessionNumber, event: &HubEvent<'_>) {
        let PusherClient { app, id, channels, watched, out, .. } = self;
        let Some(channel) = event.channel.as_deref() else {
            if event.event == "gap" {
                channels.values_mut().for_each(ServedChannel::lose_events);
            }
            return;
        };
        if session == LISTENER
            && let Some(user) = watched.get_mut(channel)
        {
            if user.changes(event) {
                out.push(watchlist_event(user.is_online, &[&user.user_id]));
            }
            return;
        }
        let Some(served) = channels.get_mut(channel).filter(|served| served.session == session) else {
            return;
        };
        match (&*event.event, event.data) {
            ("message", Some(data)) => {
                let (frame, except) = message_frame(&app.id, (&served.name, served.access), data, event);
                if except.as_deref() != Some(&**id) {
                    out.push(frame);
                }
            }
            ("gap", _) => served.lose_events(),
            _ => {
                let ServedChannel { name, members, reading, .. } = served;
                if let Some(reading) = reading {
                    reading.apply(app, event, |_| {});
                }
                if let Some(members) = members {
                    members.apply(app, event, |change| out.push(member_frame(name, change)));
                }
            }
        }
    }

    /// The members as the client was told them.
    pub(super) fn begin_members(&mut self, name: &str, members: PresenceMembers) {
        if let Some(served) = self.channels.get_mut(name) {
            served.members = Some(members);
        }
    }

    /// The members as they were read again.
    pub(super) fn replace_members(&mut self, name: &str, fresh: PresenceMembers) {
        let PusherClient { channels, out, .. } = self;
        let Some(ServedChannel { name, members: Some(members), .. }) = channels.get_mut(name) else { return };
        members.replace(fresh, |change| out.push(member_frame(name, change)));
    }
}

/// A message as a frame, and the socket that does not get it. Members of presence channels are told who sent a client event.
fn message_frame<'a>(
    app: &str,
    (channel, access): (&str, ChannelAccess),
    data: &'a RawValue,
    event: &HubEvent<'_>,
) -> (Vec<u8>, Option<Cow<'a, str>>) {
    let message = read_message(data);
    let is_told = access == ChannelAccess::Presence && message.event.starts_with("client-");
    let user = event.from.as_ref().filter(|_| is_told).and_then(|from| from.user.as_deref());
    let sender = user.map(|user| user_id_in(app, user));
    (channel_event(&message.event, channel, &message.data, sender.as_deref()), message.except)
}

/// The same for all sockets of a channel, as a WebSocket frame: the shard writes it. None: the task must see the event. Messages
/// for a user are among those, because sockets that watch the user hear them too.
pub fn render(tail: &[u8]) -> Option<GatewayFrame> {
    let mut text = Vec::with_capacity(tail.len() + 8);
    json::seq_head(&mut text, 0);
    text.extend_from_slice(tail);
    let event: HubEvent<'_> = serde_json::from_slice(&text).ok()?;
    let (app, channel) = PusherChannel::of_any_app(event.channel.as_deref()?)?;
    let (frame, except) = message_frame(app, (channel.name, channel.access), event.data?, &event);
    let mut bytes = Vec::with_capacity(frame.len() + 10);
    ws::write_head(&mut bytes, ws::Opcode::Text, frame.len());
    bytes.extend_from_slice(&frame);
    Some(GatewayFrame { bytes: bytes.into(), except: except.map(|id| id.into()) })
}

fn member_frame(channel: &str, change: MemberChange<'_>) -> Vec<u8> {
    match change {
        MemberChange::Added { user_id, user_info } => member_added(channel, user_id, user_info),
        MemberChange::Removed { user_id } => member_removed(channel, user_id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(channel: &str, data: &str, frame: Option<&str>, except: Option<&str>) {
        let tail = format!(
            r#","event":"message","channel":"{channel}","data":{data},"from":{{"user":"3:ann","client":"c"}}}}"#
        );
        let rendered = render(tail.as_bytes());
        let text = rendered.as_ref().map(|rendered| String::from_utf8_lossy(&rendered.bytes[2..]));
        assert_eq!(text.as_deref(), frame, "{channel} {data}");
        assert_eq!(rendered.and_then(|rendered| rendered.except).as_deref(), except, "{channel} {data}");
    }

    #[test]
    fn the_shard_writes_messages_of_channels_only() {
        let moved = r#"{"event":"moved","data":{"x":1}}"#;
        let frame = r#"{"event":"moved","channel":"cache-a","data":"{\"x\":1}"}"#;
        check("pusher-3-cache#cache-a", moved, Some(frame), None);
        check("pusher-3#a", r#""hi""#, Some(r#"{"event":"message","channel":"a","data":"hi"}"#), None);
        let typing = r#"{"event":"client-a","data":"","socket_id":"1.2"}"#;
        let frame = r#"{"event":"client-a","channel":"presence-a","data":"","user_id":"ann"}"#;
        check("pusher-3#presence-a", typing, Some(frame), Some("1.2"));
        let frame = r#"{"event":"client-a","channel":"private-a","data":""}"#;
        check("pusher-3#private-a", typing, Some(frame), Some("1.2"));
        // Sockets that watch this user hear these too.
        check("pusher-3-user#7", moved, None, None);
        check("pusher-3-occupied#a", moved, None, None);
        check("game#1", moved, None, None);
    }
}
