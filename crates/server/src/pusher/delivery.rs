//! Events of the hub as frames of Pusher.
//! Must hold: a socket gets what its subscriptions cover, once, and never its own events back.

use super::client::PusherClient;
use super::occupancy::Seat;
use super::sessions::{LISTENER, SessionNumber};
use tavern_pusher::{
    ChannelAccess, MemberChange, PresenceMembers, PusherApp, PusherChannel, channel_event, member_added,
    member_removed, read_message, watchlist_event,
};
use tavern_wire::gateway::{self, HubEvent, HubMembers};

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
        let is_they = |user: &Option<std::borrow::Cow<'_, str>>| user.as_deref() == Some(&*self.user);
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
                let message = read_message(data);
                if message.except.as_deref() == Some(&**id) {
                    return;
                }
                let sender = sender_of(app, served, &message.event, event);
                out.push(channel_event(&message.event, &served.name, &message.data, sender.as_deref()));
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

/// Who sent a client event, for members of a presence channel.
fn sender_of(app: &PusherApp, served: &ServedChannel, name: &str, event: &HubEvent<'_>) -> Option<String> {
    let is_told = served.access == ChannelAccess::Presence && name.starts_with("client-");
    let user = event.from.as_ref().filter(|_| is_told)?.user.as_deref()?;
    Some(app.user_id(user))
}

fn member_frame(channel: &str, change: MemberChange<'_>) -> Vec<u8> {
    match change {
        MemberChange::Added { user_id, user_info } => member_added(channel, user_id, user_info),
        MemberChange::Removed { user_id } => member_removed(channel, user_id),
    }
}
