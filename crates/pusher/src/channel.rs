//! Channel names of Pusher, and their channels in Tavern: `room` of app 3 is `pusher-3#room`, `cache-room` is
//! `pusher-3-cache#cache-room`, and the channel of user 7 is `pusher-3-user#7`.
//! Must hold: each name has one channel, and each channel at most one name.

use crate::app::{PusherApp, app_kinds, is_app_id};

/// The server may send to one user on this channel; its rest is the user's id.
pub const USER_CHANNEL: &str = "#server-to-user-";
/// Characters of a name.
const NAME_BYTES: usize = 200;
/// The longest that fits comes first.
const PREFIXES: [(&str, ChannelAccess); 3] = [
    ("private-encrypted-", ChannelAccess::Encrypted),
    ("private-", ChannelAccess::Private),
    ("presence-", ChannelAccess::Presence),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelAccess {
    Public,
    Private,
    /// Private, and the server cannot read its events.
    Encrypted,
    Presence,
    /// Of the user who has signed in.
    User,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PusherChannel<'a> {
    pub name: &'a str,
    pub access: ChannelAccess,
    /// Subscribers get the last event first.
    pub is_cache: bool,
}

impl<'a> PusherChannel<'a> {
    pub fn parse(name: &'a str) -> Option<PusherChannel<'a>> {
        if name.strip_prefix(USER_CHANNEL).is_some_and(|id| !id.is_empty()) {
            return Some(PusherChannel { name, access: ChannelAccess::User, is_cache: false });
        }
        let of_prefix = |&(prefix, access)| Some((access, name.strip_prefix(prefix)?));
        let (access, rest) = PREFIXES.iter().find_map(of_prefix).unwrap_or((ChannelAccess::Public, name));
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=@,.;".contains(&byte);
        let fits = (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(valid);
        fits.then_some(PusherChannel { name, access, is_cache: rest.starts_with("cache-") })
    }

    /// The user of a user's channel.
    pub fn user_id(&self) -> Option<&'a str> {
        self.name.strip_prefix(USER_CHANNEL)
    }

    /// Whether subscribing needs a signature.
    pub fn needs_signature(&self) -> bool {
        matches!(self.access, ChannelAccess::Private | ChannelAccess::Encrypted | ChannelAccess::Presence)
    }

    /// The same channel in Tavern. None: the user id in it is not allowed.
    pub fn in_tavern(&self, app: &PusherApp) -> Option<String> {
        let [plain, cache, user] = app_kinds(&app.id);
        match self.user_id() {
            Some(id) => app.user(id).map(|_| format!("{user}#{id}")),
            None => Some(format!("{}#{}", if self.is_cache { cache } else { plain }, self.name)),
        }
    }

    /// The name of a Tavern channel of this app, without those of users.
    pub fn of_tavern(app: &PusherApp, channel: &'a str) -> Option<PusherChannel<'a>> {
        let (id, found) = PusherChannel::of_any_app(channel)?;
        (id == &*app.id).then_some(found)
    }

    /// The same for whatever app it belongs to, with the id of that app.
    pub fn of_any_app(channel: &'a str) -> Option<(&'a str, PusherChannel<'a>)> {
        let (kind, name) = channel.split_once('#')?;
        let found = PusherChannel::parse(name).filter(|found| found.access != ChannelAccess::User)?;
        let rest = kind.strip_prefix("pusher-")?;
        let id = if found.is_cache { rest.strip_suffix("-cache")? } else { rest };
        is_app_id(id).then_some((id, found))
    }

    /// The name of the channel in which an app's servers are present because it has subscriptions there: see
    /// `PusherApp::occupied_channel`.
    pub fn of_occupied(app: &PusherApp, channel: &'a str) -> Option<&'a str> {
        let (kind, name) = channel.split_once('#')?;
        let is_own = kind.strip_prefix("pusher-")?.strip_suffix("-occupied")? == &*app.id;
        PusherChannel::parse(name).filter(|found| is_own && found.access != ChannelAccess::User).map(|_| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    fn check(name: &str, access: ChannelAccess, is_cache: bool, channel: &str) {
        let found = PusherChannel::parse(name).unwrap();
        assert_eq!((found.access, found.is_cache), (access, is_cache), "{name}");
        assert_eq!(found.in_tavern(&sample()).as_deref(), Some(channel), "{name}");
        if access != ChannelAccess::User {
            assert_eq!(PusherChannel::of_tavern(&sample(), channel), Some(found), "{channel}");
            assert_eq!(PusherChannel::of_any_app(channel), Some(("3", found)), "{channel}");
        }
    }

    #[test]
    fn each_name_has_one_channel() {
        use ChannelAccess::*;
        check("room", Public, false, "pusher-3#room");
        check("cache-room", Public, true, "pusher-3-cache#cache-room");
        check("cached", Public, false, "pusher-3#cached");
        check("private-room", Private, false, "pusher-3#private-room");
        check("private-cache-room", Private, true, "pusher-3-cache#private-cache-room");
        check("private-encrypted-room", Encrypted, false, "pusher-3#private-encrypted-room");
        check("private-encrypted-cache-a", Encrypted, true, "pusher-3-cache#private-encrypted-cache-a");
        check("presence-room", Presence, false, "pusher-3#presence-room");
        check("presence-cache-room", Presence, true, "pusher-3-cache#presence-cache-room");
        check("#server-to-user-7", User, false, "pusher-3-user#7");
    }

    #[test]
    fn other_names_are_refused() {
        let long = "a".repeat(201);
        for name in ["", "a b", "a#b", "a/b", "#a", "#server-to-user-", "ü", &long] {
            assert_eq!(PusherChannel::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn other_channels_have_no_name() {
        for channel in
            ["pusher-4#room", "pusher-3#cache-a", "pusher-3-cache#room", "room", "pusher-3-user#7", "game#1"]
        {
            assert_eq!(PusherChannel::of_tavern(&sample(), channel), None, "{channel}");
        }
    }
}
