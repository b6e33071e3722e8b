//! `PUBLISH` of a Redis connection to a channel with history: the reply comes when the message is stored, in the order of the
//! connection's commands.

use super::Shard;
use crate::connection::LinkId;
use crate::core::ReplyTo;
use crate::event::Author;
use crate::history::{HistoryPublish, PublisherReply};
use std::sync::Arc;
use tavern_domain::{HistoryLimits, Time};
use tavern_store::{HistorySender, NewHistoryMessage};
use tavern_wire::resp;

/// A message that a Redis connection publishes.
pub struct RedisPublish<'a> {
    pub channel: &'a str,
    pub payload: &'a [u8],
    pub author: Option<Author>,
    pub keep: HistoryLimits,
    /// False: the client asked for no replies.
    pub replies: bool,
}

/// Stores a message, then delivers it. `next_redis_reply` returns the reply once the link is named in
/// `Effects::ready`.
pub fn publish_stored(shard: &mut Shard, now: Time, link: LinkId, publish: RedisPublish<'_>) {
    shard.core.now = now;
    let core = &mut shard.core;
    let to = match publish.replies {
        true => {
            let to = core.replies.expect_reply(core.now, link);
            core.replies.pipeline(to, None);
            to
        }
        // No command has this number.
        false => ReplyTo::Link { link, number: 0 },
    };
    let sender = publish.author.map(|Author { user, client }| HistorySender { user, client });
    let message = NewHistoryMessage {
        channel: Arc::from(publish.channel),
        id: None,
        sender,
        json: false,
        body: publish.payload.into(),
        keep: publish.keep,
    };
    shard.history.publish(core, HistoryPublish { message, to, reply: PublisherReply::Redis });
    shard.route();
}

/// The next reply of a Redis connection, appended to `out`. False: it has not arrived yet.
pub fn next_redis_reply(shard: &mut Shard, link: LinkId, out: &mut Vec<u8>) -> bool {
    match shard.core.replies.next(link) {
        Some((_, Ok(reply))) => out.extend_from_slice(&reply),
        Some((_, Err(refusal))) => resp::error(out, &format!("ERR {}", refusal.message)),
        None => return false,
    }
    true
}
