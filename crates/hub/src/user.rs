//! User ids and the own channel of a user, in which the server makes each of their sessions present.

use std::sync::Arc;
use tavern_domain::channel::USER_KIND;
use tavern_domain::{Channel, is_user_id};

/// The own channel of a user.
pub fn own_channel(user: &str) -> Arc<str> {
    [USER_KIND, "#", user].concat().into()
}

pub fn is_own_channel(channel: &str) -> bool {
    channel.strip_prefix(USER_KIND).is_some_and(|rest| rest.starts_with('#'))
}

/// Whether this is a valid user id.
pub fn is_user(name: &str) -> bool {
    is_user_id(name) && Channel::parse(&own_channel(name)).is_ok()
}
