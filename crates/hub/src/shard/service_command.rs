//! Commands of an app on behalf of its users, through the server API.

use super::Shard;
use crate::history::{self, HistoryPublish, MessageAuthor, PublisherReply};
use crate::presence::NodeAttendance;
use crate::rows::hold_of;
use crate::user::is_user;
use std::sync::Arc;
use tavern_domain::Channel;
use tavern_domain::party::PartyRequest;
use tavern_domain::presence::Visibility;
use tavern_store::{NewHistoryMessage, PresenceKey};
use tavern_wire::bus::control::ControlAction;
use tavern_wire::error::{Code, Refusal};

#[derive(Clone, Debug)]
pub enum ServiceCommand {
    Follow {
        follower: Arc<str>,
        followee: Arc<str>,
        on: bool,
    },
    SetVisibility {
        user: Arc<str>,
        value: Visibility,
    },
    /// Holds the user in a channel as long as their clients are in another one, or in any if none is named, or until a
    /// time.
    Hold {
        channel: Arc<str>,
        user: Arc<str>,
        with: Option<Arc<str>>,
        ttl_ms: Option<u64>,
    },
    /// A command about parties, of a user or of the app itself.
    Party {
        call: Box<PartyRequest>,
        /// It is sent by the user themselves: the limit on refused commands applies.
        limited: bool,
    },
    /// An inbox message for a user, as JSON.
    InboxMessage {
        user: Arc<str>,
        data: Arc<str>,
        /// The idempotency key of the request.
        once: Option<Arc<str>>,
    },
    /// Publishes to a channel with history, or a message to retain.
    Publish {
        channel: Arc<str>,
        data: Arc<[u8]>,
        /// The API key.
        key: Option<Arc<str>>,
        /// Makes it once-only among the messages of this key.
        message_id: Option<Arc<str>>,
    },
    /// Removes the history of a channel.
    ClearHistory {
        channel: Arc<str>,
    },
    /// An order about all sessions of a user.
    Control {
        user: Arc<str>,
        action: ControlAction,
    },
    /// Deletes what is stored about a user who is offline.
    Forget {
        user: Arc<str>,
    },
    /// This node is present in a channel, or leaves it.
    Attend(NodeAttendance),
    /// Removes the user from a channel.
    Release {
        channel: Arc<str>,
        user: Arc<str>,
    },
}

impl Shard {
    /// Runs a command of an app. `Effects::service_replies` has its reply under this number.
    pub(super) fn service_command(&mut self, number: u64, order: ServiceCommand) {
        let core = &mut self.core;
        let now = core.now;
        let claim = core.replies.expect_service(now, number);
        if let Err(refusal) = check(&order) {
            return core.finish(claim, Err(refusal));
        }
        match order {
            ServiceCommand::Follow { follower, followee, on } => {
                self.people.commands().follow(core, follower, followee, on, claim);
            }
            ServiceCommand::SetVisibility { user, value } => {
                self.people.commands().set_visibility(core, user, value, claim)
            }
            ServiceCommand::Hold { channel, user, with, ttl_ms } => {
                self.presence.hold(core, hold_of(now, &channel, &user, with, ttl_ms), claim);
            }
            ServiceCommand::Party { call, limited } => {
                self.party.service_command(core, *call, limited, claim)
            }
            ServiceCommand::InboxMessage { user, data, once } => {
                self.inbox.post(core, user, &data, once.as_deref(), claim);
            }
            ServiceCommand::Publish { channel, data, key, message_id } => {
                let limits = core.node.history_limits(channel.as_bytes());
                let Some(keep) = limits.or_else(|| core.node.retained_limits(channel.as_bytes())) else {
                    let message = "the channel belongs to the server and keeps no message";
                    return core.finish(claim, Err(Refusal::new(Code::NotAllowed, message)));
                };
                core.node.note_retained();
                let author = MessageAuthor::Key(key.as_deref());
                let id = message_id.map(|id| history::message_id(author, &id));
                let message = NewHistoryMessage { channel, id, sender: None, json: true, body: data, keep };
                let reply = PublisherReply::Json { other_channel: None, is_numbered: limits.is_some() };
                self.history.publish(core, HistoryPublish { message, to: claim, reply });
            }
            ServiceCommand::Attend(attend) => self.presence.attend(core, attend, claim),
            ServiceCommand::Control { user, action } => self.control.order(core, user, action, claim),
            ServiceCommand::Forget { user } => self.control.forget(core, user, claim),
            ServiceCommand::ClearHistory { channel } => self.history.clear(core, channel, claim),
            ServiceCommand::Release { channel, user } => {
                self.presence.release(core, PresenceKey { channel, user }, claim);
            }
        }
    }
}

fn check(order: &ServiceCommand) -> Result<(), Refusal> {
    let users: &[&Arc<str>] = match order {
        ServiceCommand::Follow { follower, followee, .. } => &[follower, followee],
        ServiceCommand::Party { .. }
        | ServiceCommand::Publish { .. }
        | ServiceCommand::ClearHistory { .. } => &[],
        ServiceCommand::Attend(attend) => &[&attend.key.user],
        ServiceCommand::SetVisibility { user, .. }
        | ServiceCommand::Hold { user, .. }
        | ServiceCommand::InboxMessage { user, .. }
        | ServiceCommand::Control { user, .. }
        | ServiceCommand::Forget { user }
        | ServiceCommand::Release { user, .. } => &[user],
    };
    if !users.iter().all(|user| is_user(user)) {
        return Err(bad_user());
    }
    if let ServiceCommand::Party { call, .. } = order
        && !call.user.iter().all(|user| is_user(user))
    {
        return Err(bad_user());
    }
    let channels: &[&Arc<str>] = match order {
        ServiceCommand::Hold { channel, with: Some(with), .. } => &[channel, with],
        ServiceCommand::Hold { channel, .. }
        | ServiceCommand::Release { channel, .. }
        | ServiceCommand::Publish { channel, .. }
        | ServiceCommand::Control { action: ControlAction::Subscribe(channel), .. }
        | ServiceCommand::ClearHistory { channel } => &[channel],
        ServiceCommand::Attend(attend) => &[&attend.key.channel],
        _ => &[],
    };
    for channel in channels {
        check_channel(channel)?;
    }
    match order {
        ServiceCommand::Hold { channel, with: Some(with), .. } if channel == with => Err(Refusal::new(
            Code::BadRequest,
            "the field `with` must name another channel than the one to hold the user in",
        )),
        ServiceCommand::Follow { follower, followee, on: true } if follower == followee => {
            Err(Refusal::new(Code::BadRequest, "users cannot follow themselves"))
        }
        _ => Ok(()),
    }
}

fn bad_user() -> Refusal {
    Refusal::new(Code::BadRequest, "a user id must have 1 to 128 bytes and no control characters")
}

fn check_channel(name: &str) -> Result<(), Refusal> {
    let channel = Channel::parse(name).map_err(|error| Refusal::new(Code::BadRequest, error.to_string()))?;
    if channel.is_reserved() {
        let message = format!("channels of kind {:?} belong to the server", channel.kind);
        return Err(Refusal::new(Code::NotAllowed, message));
    }
    Ok(())
}
