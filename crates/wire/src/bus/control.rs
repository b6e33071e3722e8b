//! Orders about a user that reach all their sessions, and what every shard of every node answers; and the counts that nodes
//! tell each other. Who waits for whom is `tavern-hub`'s.

use super::envelope;
use super::message::{
    self, BanRecord, ControlActionKind, ControlReplyRecord, ControlRequestRecord, DisconnectRecord, Empty,
    EnvelopeKind, NodeCountsRecord, PusherCountRecord, UserSessionRecord,
};
use std::sync::Arc;
use tavern_domain::{ClientId, Time};

/// An order about a user, for every shard of every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// Chosen by the node that asks.
    pub number: u64,
    /// The shard of that node that waits for the replies.
    pub shard: u32,
    pub user: Arc<str>,
    pub action: ControlAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAction {
    /// Which sessions are there?
    Sessions,
    Disconnect(Disconnect),
    /// Subscribe every session to this channel.
    Subscribe(Arc<str>),
    Unsubscribe(Arc<str>),
    /// No session begins until then, and those that exist end.
    Ban(Ban),
    Unban,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The close code of a WebSocket.
    pub code: u16,
    pub reason: Arc<str>,
    /// Clients that stay.
    pub except: Vec<ClientId>,
    /// Only connections are closed: their clients may come back to their sessions.
    pub allow_resume: bool,
    /// Sessions that began later are not concerned.
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// `NEVER`: until it is lifted.
    pub until: Time,
    pub reason: Arc<str>,
    pub at: Time,
}

/// What one shard has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlReply {
    pub number: u64,
    /// The shard that waits.
    pub to_shard: u32,
    /// Who answers, and how many shards that node has.
    pub shard: u32,
    pub shards: u32,
    /// Sessions that were concerned.
    pub count: u32,
    /// Sessions for which it failed: a limit was reached, or the bus did not answer.
    pub failed: u32,
    pub sessions: Vec<UserSession>,
}

/// A session as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSession {
    pub client: ClientId,
    pub since: Time,
    /// `websocket`, `sse`, `poll` or `radar`; None while nothing is attached.
    pub transport: Option<Arc<str>>,
    /// The last sign of life.
    pub heard_at: Time,
    pub channels: u32,
    /// It is on its way to another node.
    pub moving: bool,
}

/// How much a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Users with a session.
    pub users: u64,
    pub sessions: u64,
    pub websocket: u64,
    pub sse: u64,
    pub poll: u64,
    pub redis: u64,
    /// Channels with a subscriber.
    pub channels: u64,
}

/// The subscriptions to a channel of a Pusher app on all nodes. The greater version is the newer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PusherCount {
    pub app: Arc<str>,
    pub channel: Arc<str>,
    pub version: u64,
    pub count: u64,
}

pub fn encode_request(request: &ControlRequest) -> Vec<u8> {
    let action = match &request.action {
        ControlAction::Sessions => ControlActionKind::Sessions(Empty {}),
        ControlAction::Disconnect(disconnect) => ControlActionKind::Disconnect(DisconnectRecord {
            code: disconnect.code.into(),
            reason: disconnect.reason.to_string(),
            except: disconnect.except.iter().map(ToString::to_string).collect(),
            allow_resume: disconnect.allow_resume,
            at: disconnect.at.ms(),
        }),
        ControlAction::Subscribe(channel) => ControlActionKind::Subscribe(channel.to_string()),
        ControlAction::Unsubscribe(channel) => ControlActionKind::Unsubscribe(channel.to_string()),
        ControlAction::Ban(ban) => ControlActionKind::Ban(BanRecord {
            until: (ban.until != Time::NEVER).then_some(ban.until.ms()),
            reason: ban.reason.to_string(),
            at: ban.at.ms(),
        }),
        ControlAction::Unban => ControlActionKind::Unban(Empty {}),
    };
    let ControlRequest { number, shard, user, .. } = request;
    let user = user.to_string();
    let record = ControlRequestRecord { number: *number, shard: *shard, user, action: Some(action) };
    envelope(EnvelopeKind::ControlRequest(record))
}

pub(super) fn read_request(record: ControlRequestRecord) -> Option<ControlRequest> {
    let action = match record.action? {
        ControlActionKind::Sessions(_) => ControlAction::Sessions,
        ControlActionKind::Disconnect(disconnect) => ControlAction::Disconnect(Disconnect {
            code: disconnect.code.try_into().ok()?,
            reason: disconnect.reason.into(),
            except: disconnect.except.iter().map(|client| ClientId::parse(client)).collect::<Option<_>>()?,
            allow_resume: disconnect.allow_resume,
            at: Time(disconnect.at),
        }),
        ControlActionKind::Subscribe(channel) => ControlAction::Subscribe(channel.into()),
        ControlActionKind::Unsubscribe(channel) => ControlAction::Unsubscribe(channel.into()),
        ControlActionKind::Ban(ban) => ControlAction::Ban(Ban {
            until: ban.until.map_or(Time::NEVER, Time),
            reason: ban.reason.into(),
            at: Time(ban.at),
        }),
        ControlActionKind::Unban(_) => ControlAction::Unban,
    };
    let ControlRequestRecord { number, shard, user, .. } = record;
    Some(ControlRequest { number, shard, user: user.into(), action })
}

pub fn encode_reply(reply: &ControlReply) -> Vec<u8> {
    let session = |session: &UserSession| UserSessionRecord {
        client: session.client.to_string(),
        since: session.since.ms(),
        transport: session.transport.as_ref().map(ToString::to_string),
        heard_at: session.heard_at.ms(),
        channels: session.channels,
        moving: session.moving,
    };
    envelope(EnvelopeKind::ControlReply(ControlReplyRecord {
        number: reply.number,
        to_shard: reply.to_shard,
        shard: reply.shard,
        shards: reply.shards,
        count: reply.count,
        failed: reply.failed,
        sessions: reply.sessions.iter().map(session).collect(),
    }))
}

pub(super) fn read_reply(record: ControlReplyRecord) -> Option<ControlReply> {
    let session = |session: UserSessionRecord| {
        Some(UserSession {
            client: ClientId::parse(&session.client)?,
            since: Time(session.since),
            transport: session.transport.map(Into::into),
            heard_at: Time(session.heard_at),
            channels: session.channels,
            moving: session.moving,
        })
    };
    let ControlReplyRecord { number, to_shard, shard, shards, count, failed, sessions } = record;
    let sessions = sessions.into_iter().map(session).collect::<Option<_>>()?;
    Some(ControlReply { number, to_shard, shard, shards, count, failed, sessions })
}

pub fn encode_counts(counts: &NodeCounts) -> Vec<u8> {
    let NodeCounts { users, sessions, websocket, sse, poll, redis, channels } = *counts;
    let record = NodeCountsRecord { users, sessions, websocket, sse, poll, redis, channels };
    envelope(EnvelopeKind::NodeCounts(record))
}

pub(super) fn read_counts(record: message::NodeCountsRecord) -> NodeCounts {
    let NodeCountsRecord { users, sessions, websocket, sse, poll, redis, channels } = record;
    NodeCounts { users, sessions, websocket, sse, poll, redis, channels }
}

pub fn encode_pusher_count(count: &PusherCount) -> Vec<u8> {
    let PusherCount { app, channel, version, count } = count;
    envelope(EnvelopeKind::PusherCount(PusherCountRecord {
        app: app.to_string(),
        channel: channel.to_string(),
        version: *version,
        count: *count,
    }))
}

pub(super) fn read_pusher_count(record: PusherCountRecord) -> PusherCount {
    let PusherCountRecord { app, channel, version, count } = record;
    PusherCount { app: app.into(), channel: channel.into(), version, count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;

    #[test]
    fn a_request_is_read_back_as_it_was_written() {
        let client = ClientId::from_random(7);
        let ban = |until| ControlAction::Ban(Ban { until, reason: "spam ü".into(), at: Time(5) });
        for action in [
            ControlAction::Sessions,
            ControlAction::Disconnect(Disconnect {
                code: 4999,
                reason: "bye".into(),
                except: vec![client],
                allow_resume: true,
                at: Time(9),
            }),
            ControlAction::Subscribe("game#1".into()),
            ControlAction::Unsubscribe("game#1".into()),
            ban(Time::NEVER),
            ban(Time(1)),
            ControlAction::Unban,
        ] {
            let request = ControlRequest { number: u64::MAX, shard: 3, user: "ann".into(), action };
            match BusMessage::decode(&encode_request(&request)) {
                Some(BusMessage::Control(read)) => assert_eq!(read, request),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_reply_is_read_back_as_it_was_written() {
        let session = UserSession {
            client: ClientId::from_random(1),
            since: Time(1),
            transport: Some("sse".into()),
            heard_at: Time(2),
            channels: 3,
            moving: true,
        };
        let sessions = vec![session.clone(), UserSession { transport: None, moving: false, ..session }];
        let reply =
            ControlReply { number: 1, to_shard: 2, shard: 3, shards: 4, count: 5, failed: 6, sessions };
        match BusMessage::decode(&encode_reply(&reply)) {
            Some(BusMessage::ControlReply(read)) => assert_eq!(read, reply),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn counts_are_read_back_as_they_were_written() {
        let counts =
            NodeCounts { users: 1, sessions: 2, websocket: 3, sse: 4, poll: 5, redis: 6, channels: 7 };
        match BusMessage::decode(&encode_counts(&counts)) {
            Some(BusMessage::Counts(read)) => assert_eq!(read, counts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_count_of_a_pusher_channel_is_read_back_as_it_was_written() {
        let count = PusherCount { app: "1".into(), channel: "private-a".into(), version: u64::MAX, count: 3 };
        match BusMessage::decode(&encode_pusher_count(&count)) {
            Some(BusMessage::PusherCount(read)) => assert_eq!(read, count),
            other => panic!("{other:?}"),
        }
    }
}
