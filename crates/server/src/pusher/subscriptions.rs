//! Subscribing and unsubscribing of a Pusher client. A presence channel is joined first and watched afterwards, so that the
//! list of members has the client itself, and every later change follows it.

use super::client::PusherClient;
use super::connection::SocketEnd;
use super::delivery::ServedChannel;
use super::occupancy::Seat;
use super::sessions::{LISTENER, SessionFault, SessionNumber};
use std::time::Duration;
use tavern_domain::limits::PAGE_ENTRIES;
use tavern_pusher::{
    ChannelAccess, PresenceMembers, PusherChannel, PusherError, SignatureCheck, SubscribeData, WebhookEvent,
    WebhookKind, channel_event, parse_channel_data, read_message, subscribed_to_presence, subscription_error,
    subscription_succeeded,
};
use tavern_wire::error::Code;
use tavern_wire::gateway;
use tavern_wire::json::{HistoryRequest, JoinRequest, Op, SubscribeRequest, SubscribeTarget, WhoRequest};
use tokio::time::timeout;

/// Messages of a cache channel that are searched for the last event of a server.
const CACHE_MESSAGES: u64 = 16;
/// How long a subscription waits until its channel is announced.
const SEAT: Duration = Duration::from_secs(2);
/// Pages of members that are read.
const PAGES_MAX: usize = 64;

/// Why a subscription is refused.
enum SubscriptionRefusal {
    Signature,
    Data(&'static str),
    Code(Code),
}

type Checked<T> = Result<T, SubscriptionRefusal>;

/// What a subscription needs beyond its channel.
struct PresentMember {
    user_id: String,
    user: String,
    state: Option<String>,
}

impl PusherClient {
    pub(super) async fn subscribe(&mut self, data: SubscribeData) -> Result<(), SocketEnd> {
        let Some(channel) = PusherChannel::parse(&data.channel) else {
            let message = "a channel name has 1 to 200 letters, digits and _-=@,.;";
            return self.refuse(&PusherError::refusal(message));
        };
        let Some(name) = channel.in_tavern(&self.app) else {
            return self
                .refuse_subscription(channel.name, SubscriptionRefusal::Data("the user id is not allowed"));
        };
        if self.channels.contains_key(&name) {
            let message = format!("Existing subscription to channel {}", channel.name);
            return self.refuse(&PusherError::refusal(message));
        }
        if channel.access != ChannelAccess::User && !self.has_room() {
            return self.refuse_subscription(channel.name, SubscriptionRefusal::Code(Code::TooLarge));
        }
        let done = match self.check(&channel, &data) {
            Ok(member) => self.begin_subscription(&channel, &name, member).await,
            Err(refused) => Err(SubscribeFault::Refused(refused)),
        };
        match done {
            Ok(()) => {
                self.accept();
                Ok(())
            }
            Err(SubscribeFault::Refused(refused)) => self.refuse_subscription(channel.name, refused),
            Err(SubscribeFault::End(end)) => Err(end),
        }
    }

    fn refuse_subscription(&mut self, channel: &str, refused: SubscriptionRefusal) -> Result<(), SocketEnd> {
        let (kind, message, status) = match refused {
            SubscriptionRefusal::Signature => {
                ("AuthError", "the signature does not fit socket, channel and data", 401)
            }
            SubscriptionRefusal::Data(message) => ("DataError", message, 400),
            SubscriptionRefusal::Code(code) => match code {
                Code::RateLimited => ("LimitReached", "too many commands per second; retry later", 429),
                Code::TooLarge => ("LimitReached", "too many channels or users, or too much user_info", 413),
                code => ("ServerError", code.description(), code.http_status()),
            },
        };
        self.refuse_with(subscription_error(channel, kind, message, status))
    }

    /// Checks the signature, and who the member of a presence channel is.
    fn check(&mut self, channel: &PusherChannel<'_>, data: &SubscribeData) -> Checked<Option<PresentMember>> {
        if let Some(id) = channel.user_id() {
            let is_own = self.user.as_ref().is_some_and(|(own, _)| own == id);
            return if is_own { Ok(None) } else { Err(SubscriptionRefusal::Signature) };
        }
        if !channel.needs_signature() {
            return Ok(None);
        }
        let is_presence = channel.access == ChannelAccess::Presence;
        let text = data.channel_data.as_deref();
        let signed = SignatureCheck::subscription(&self.id, channel.name, text);
        if !data.auth.as_deref().is_some_and(|auth| self.app.has_signed(auth, &signed)) {
            return Err(SubscriptionRefusal::Signature);
        }
        self.is_authenticated = true;
        if !is_presence {
            return Ok(None);
        }
        let Some(found) = text.and_then(parse_channel_data) else {
            return Err(SubscriptionRefusal::Data("channel_data is not JSON with a user_id"));
        };
        match self.app.user(&found.user_id) {
            Some(user) => {
                let state = found.user_info.map(|info| info.get().to_owned());
                Ok(Some(PresentMember { user_id: found.user_id, user, state }))
            }
            None => Err(SubscriptionRefusal::Data(
                "the user_id is not allowed: it has control characters, or is too long",
            )),
        }
    }

    async fn begin_subscription(
        &mut self,
        channel: &PusherChannel<'_>,
        name: &str,
        member: Option<PresentMember>,
    ) -> Result<(), SubscribeFault> {
        let session = match (channel.access, &self.user) {
            (ChannelAccess::User, Some((_, session))) => *session,
            _ => LISTENER,
        };
        let seat = match channel.access {
            ChannelAccess::User => None,
            _ => Some(self.take_seat(channel.name).await),
        };
        let user_id = member.as_ref().map(|member| member.user_id.clone());
        let joined = match member {
            None => None,
            Some(member) => Some(self.join(name, member).await?),
        };
        let mut served = ServedChannel::new(channel, session, joined.unwrap_or(LISTENER));
        (served.user_id, served.seat) = (user_id, seat);
        let target = SubscribeTarget::Channel(name.to_owned().into());
        let subscribe = SubscribeRequest { target, presence: joined.is_some(), since: None, last: None };
        self.channels.insert(name.to_owned(), served);
        let done = match self.run(session, Op::Subscribe(subscribe)).await {
            Ok(body) => self.tell_subscribed(channel, name, &body).await,
            Err(fault) => Err(fault.into()),
        };
        if let Err(SubscribeFault::Refused(_)) = done {
            self.undo_subscription(name).await?;
        }
        done
    }

    /// Tells the client that it is subscribed, who is there, and the last event. What happens meanwhile follows.
    async fn tell_subscribed(
        &mut self,
        channel: &PusherChannel<'_>,
        name: &str,
        body: &str,
    ) -> Result<(), SubscribeFault> {
        let at = self.out.len();
        let mut frames = Vec::new();
        if channel.access == ChannelAccess::Presence {
            let members = self.load_members(name, body).await?;
            frames.push(subscribed_to_presence(channel.name, &members));
            self.begin_members(name, members);
        } else {
            frames.push(subscription_succeeded(channel.name));
        }
        if channel.is_cache {
            frames.push(self.cached_event(channel.name, name, gateway::read_page(body).offset).await?);
        }
        self.out.splice(at..at, frames);
        Ok(())
    }

    /// The subscription counts. A webhook hears of the channel before it hears of its members.
    async fn take_seat(&self, channel: &str) -> Seat {
        let (seat, announced) = self.occupancy.enter(channel, &self.counts);
        let is_posted = self.server.webhooks.wants(&self.app, WebhookKind::ChannelOccupied, channel);
        if let Some(announced) = announced.filter(|_| is_posted) {
            // A store that does not answer must not keep clients out.
            let _ = timeout(SEAT, announced).await;
        }
        seat
    }

    async fn join(&mut self, name: &str, member: PresentMember) -> Result<SessionNumber, SubscribeFault> {
        let session = self.open(Some(&member.user)).await?;
        let join = JoinRequest { channel: name.to_owned().into(), state: member.state.map(Into::into) };
        match self.run(session, Op::Join(join)).await {
            Ok(_) => Ok(session),
            Err(fault) => {
                self.sessions.release(session);
                Err(fault.into())
            }
        }
    }

    async fn leave(&mut self, name: &str, session: SessionNumber) -> Result<(), SubscribeFault> {
        let left = self.run(session, Op::Leave { channel: name.to_owned().into() }).await;
        self.sessions.release(session);
        match left {
            Err(SessionFault::Ended(error)) => Err(SubscribeFault::End(SocketEnd::Told(error))),
            // One that is refused still happens, or there was nothing to leave.
            _ => Ok(()),
        }
    }

    /// The members, from the first page on. Changes that come between the pages are applied to those that were read.
    async fn load_members(&mut self, name: &str, body: &str) -> Result<PresenceMembers, SubscribeFault> {
        let mut after = self.read_page(name, body, true);
        for _ in 0..PAGES_MAX {
            let Some(last) = after.take() else { break };
            let body = self.run(LISTENER, who(name, Some(last))).await?;
            after = self.read_page(name, &body, false);
        }
        Ok(self.channels.get_mut(name).and_then(|served| served.reading.take()).unwrap_or_default())
    }

    /// Reads one page of members, and returns where the next one begins.
    fn read_page(&mut self, name: &str, body: &str, first: bool) -> Option<String> {
        let page = gateway::read_members(body);
        let reading = self.channels.get_mut(name)?.reading.get_or_insert_default();
        reading.load(&self.app, &page, first);
        page.next.map(|next| next.into_owned())
    }

    /// The last event of a cache channel, or that there is none.
    async fn cached_event(
        &mut self,
        channel: &str,
        name: &str,
        offset: u64,
    ) -> Result<Vec<u8>, SubscribeFault> {
        let history = HistoryRequest {
            channel: name.to_owned().into(),
            after: None,
            before: Some(offset.saturating_add(1)),
            limit: Some(CACHE_MESSAGES),
        };
        let body = match self.run(LISTENER, Op::History(history)).await {
            Ok(body) => body,
            // The kind keeps no history: there is never a last event.
            Err(SessionFault::Refused(Code::NotFound)) => String::new(),
            Err(fault) => return Err(fault.into()),
        };
        let page = gateway::read_page(&body);
        let messages = page.messages.iter().rev().map(|message| read_message(message.data));
        Ok(match messages.into_iter().find(|event| !event.event.starts_with("client-")) {
            Some(event) => channel_event(&event.event, channel, &event.data, None),
            None => {
                let missed = WebhookEvent::new(WebhookKind::CacheMiss, channel);
                self.server.webhooks.put(&self.app, &missed).await;
                channel_event("pusher:cache_miss", channel, "{}", None)
            }
        })
    }

    pub(super) async fn unsubscribe(&mut self, channel: &str) -> Result<(), SocketEnd> {
        let name = PusherChannel::parse(channel).and_then(|channel| channel.in_tavern(&self.app));
        match name {
            Some(name) => match self.undo_subscription(&name).await {
                Err(SubscribeFault::End(end)) => Err(end),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Ends a subscription, whole or in part.
    async fn undo_subscription(&mut self, name: &str) -> Result<(), SubscribeFault> {
        let Some(served) = self.channels.remove(name) else { return Ok(()) };
        let target = SubscribeTarget::Channel(name.to_owned().into());
        let done = self.run(served.session, Op::Unsubscribe(target)).await;
        if served.access == ChannelAccess::Presence {
            self.leave(name, served.member).await?;
        }
        if let Some(seat) = served.seat {
            seat.leave();
        }
        match done {
            Err(SessionFault::Ended(error)) => Err(SubscribeFault::End(SocketEnd::Told(error))),
            _ => Ok(()),
        }
    }

    /// Reads the members of channels again whose events were lost.
    pub async fn read_stale(&mut self) -> Result<(), SocketEnd> {
        while let Some((name, served)) = self.channels.iter_mut().find(|(_, served)| served.is_stale) {
            served.is_stale = false;
            let name = name.clone();
            let read = match self.run(LISTENER, who(&name, None)).await {
                Ok(body) => self.load_members(&name, &body).await,
                Err(fault) => Err(fault.into()),
            };
            match read {
                Ok(fresh) => self.replace_members(&name, fresh),
                // A client that cannot be told what it missed has to begin again.
                Err(SubscribeFault::Refused(_)) => return Err(SocketEnd::Told(PusherError::RECONNECT)),
                Err(SubscribeFault::End(end)) => return Err(end),
            }
        }
        Ok(())
    }
}

enum SubscribeFault {
    Refused(SubscriptionRefusal),
    End(SocketEnd),
}

impl From<SessionFault> for SubscribeFault {
    fn from(fault: SessionFault) -> SubscribeFault {
        match fault {
            // The store or the bus is out. The libraries repeat no subscription, but they connect again and begin anew.
            SessionFault::Refused(Code::Unavailable) => {
                SubscribeFault::End(SocketEnd::Told(PusherError::BUSY))
            }
            SessionFault::Refused(code) => SubscribeFault::Refused(SubscriptionRefusal::Code(code)),
            SessionFault::Ended(error) => SubscribeFault::End(SocketEnd::Told(error)),
        }
    }
}

fn who(name: &str, after: Option<String>) -> Op<'static> {
    Op::Who(WhoRequest {
        channel: name.to_owned().into(),
        counts_only: false,
        after: after.map(Into::into),
        limit: Some(PAGE_ENTRIES),
    })
}
