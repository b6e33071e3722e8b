//! User ids and the channel of a user's own, in which each of their sessions is present by itself.

use std::sync::Arc;
use tavern_domain::{Channel, limits};

const OWN_KIND: &str = "user";

/// The channel of one user's own.
pub fn own_channel(user: &str) -> Arc<str> {
    format!("{OWN_KIND}#{user}").into()
}

pub fn is_own_channel(channel: &str) -> bool {
    channel.strip_prefix(OWN_KIND).is_some_and(|rest| rest.starts_with('#'))
}

/// Whether this can be the id of a user.
pub fn is_user(name: &str) -> bool {
    !name.is_empty() && name.len() <= limits::USER_BYTES && Channel::parse(&own_channel(name)).is_ok()
}
