//! One Pusher client: what its frames do. Each becomes commands of its hub sessions, one after the other.
//! Must hold: nothing is done for a signature that does not fit; what the client is told is bounded by what it asked.

use super::connection::SocketEnd;
use super::delivery::{ServedChannel, WatchedUser};
use super::occupancy::{Occupancy, SocketCounts};
use super::registry::PusherServer;
use super::sessions::{LISTENER, SessionFault, SessionNumber, SocketSessions, error_of};
use crate::shard::input::GatewayOutput;
use crate::shard::shared_output::SharedOutput;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::AddressGroup;
use tavern_domain::rate::{Allowance, Bucket};
use tavern_pusher::{
    ChannelAccess, ClientFrame, EVENT_BYTES, EVENT_NAME_BYTES, OutgoingEvent, PusherApp, PusherChannel,
    PusherError, SignInData, SignatureCheck, WATCHLIST_MAX, WebhookEvent, WebhookKind, data_text,
    error_frame, parse_frame, parse_user_data, pong, signin_success, subscription_count, watchlist_event,
    write_message,
};
use tavern_wire::error::Code;
use tavern_wire::gateway::{self, HubReply};
use tavern_wire::json::{JoinRequest, Op, PublishRequest, SubscribeRequest, SubscribeTarget};
use tokio::time::{Instant, sleep};

/// Client events of one socket.
const CLIENT_EVENTS: Allowance = Allowance { per_second: 10, burst: 10 };
/// How long a command waits that is over a rate limit, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// Frames in a row that are refused before the connection is closed.
const REFUSED_MAX: u32 = 1_000;

pub struct PusherClient {
    pub(super) server: Arc<PusherServer>,
    pub(super) app: Arc<PusherApp>,
    pub(super) occupancy: Arc<Occupancy>,
    /// Numbers of subscriptions that the client is to be told.
    pub counts: Arc<SocketCounts>,
    /// The id of the socket.
    pub id: String,
    pub(super) sessions: SocketSessions,
    /// By their names in Tavern.
    pub(super) channels: HashMap<String, ServedChannel>,
    /// The channels of the users of the watchlist.
    pub(super) watched: HashMap<String, WatchedUser>,
    /// The user who signed in, and their session.
    pub(super) user: Option<(String, SessionNumber)>,
    /// It has shown a signature.
    pub is_authenticated: bool,
    /// Frames for the client.
    pub out: Vec<Vec<u8>>,
    client_events: Bucket,
    refused: u32,
}

impl PusherClient {
    pub fn new(
        server: Arc<PusherServer>,
        occupancy: Arc<Occupancy>,
        id: String,
        address: Option<AddressGroup>,
        socket: Option<Arc<SharedOutput>>,
    ) -> PusherClient {
        let app = occupancy.app.clone();
        let output = socket.map(|socket| (socket, id.as_str().into()));
        let sessions = SocketSessions::new(server.clone(), &app, address, output);
        PusherClient {
            server,
            app,
            occupancy,
            counts: Arc::default(),
            id,
            sessions,
            channels: HashMap::new(),
            watched: HashMap::new(),
            user: None,
            is_authenticated: false,
            out: Vec::new(),
            client_events: Bucket::default(),
            refused: 0,
        }
    }

    /// Opens the session that listens.
    pub async fn begin(&mut self) -> Result<(), SocketEnd> {
        match self.open(None).await {
            Ok(_) => Ok(()),
            Err(SessionFault::Ended(error)) => Err(SocketEnd::Told(error)),
            Err(SessionFault::Refused(_)) => Err(SocketEnd::Told(PusherError::BUSY)),
        }
    }

    /// The frames that the client was owed are written.
    pub fn written(&self) {
        self.sessions.finish();
    }

    pub async fn next(&mut self) -> (SessionNumber, Option<GatewayOutput>) {
        self.sessions.next().await
    }

    /// The session of a user.
    pub(super) async fn open(&mut self, user: Option<&str>) -> Result<SessionNumber, SessionFault> {
        let (number, is_new) = self.sessions.take(user).await?;
        if is_new && let Err(fault) = self.reply(number).await {
            self.sessions.release(number);
            return Err(fault);
        }
        Ok(number)
    }

    /// Runs a command, and returns the body of its reply. Over a rate limit it is repeated, and the frames of the client
    /// wait: its library would not send them again.
    pub(super) async fn run(
        &mut self,
        number: SessionNumber,
        op: Op<'static>,
    ) -> Result<String, SessionFault> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.sessions.send(number, op.clone())?;
            match self.reply(number).await {
                Err(SessionFault::Refused(Code::RateLimited)) if Instant::now() < until => {
                    sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    /// The reply to the command under way; what comes before it is for the client already.
    async fn reply(&mut self, number: SessionNumber) -> Result<String, SessionFault> {
        loop {
            match self.sessions.next_of(number).await {
                Some(GatewayOutput::Reply(reply)) => {
                    return match gateway::read_reply(&reply) {
                        HubReply::Done(body) => Ok(body.to_owned()),
                        HubReply::Refused(code) => Err(SessionFault::Refused(code)),
                    };
                }
                Some(GatewayOutput::Events(bytes)) => self.deliver(number, &bytes),
                Some(GatewayOutput::Ended(reason)) => return Err(SessionFault::Ended(error_of(&reason))),
                None => return Err(SessionFault::Ended(PusherError::RECONNECT)),
            }
        }
    }

    pub fn output(&mut self, number: SessionNumber, output: Option<GatewayOutput>) -> Result<(), SocketEnd> {
        match output {
            Some(GatewayOutput::Events(bytes)) => {
                self.deliver(number, &bytes);
                Ok(())
            }
            Some(GatewayOutput::Ended(reason)) => Err(SocketEnd::Told(error_of(&reason))),
            // A reply that nothing waits for cannot be.
            Some(GatewayOutput::Reply(_)) | None => Err(SocketEnd::Told(PusherError::RECONNECT)),
        }
    }

    pub async fn frame(&mut self, text: &str) -> Result<(), SocketEnd> {
        let done = match parse_frame(text) {
            Ok(ClientFrame::Ping) => {
                self.out.push(pong());
                Ok(())
            }
            Ok(ClientFrame::Pong) => Ok(()),
            Ok(ClientFrame::Subscribe(data)) => return self.subscribe(data).await,
            Ok(ClientFrame::Unsubscribe { channel }) => return self.unsubscribe(&channel).await,
            Ok(ClientFrame::SignIn(data)) => return self.sign_in(data).await,
            Ok(ClientFrame::ClientEvent { event, channel, data }) => {
                let data = data.map(data_text).unwrap_or_default();
                match self.client_event(&event, &channel, &data).await {
                    Ok(refused) => refused,
                    Err(end) => return Err(end),
                }
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => self.accept(),
            Err(error) => self.refuse(&error)?,
        }
        Ok(())
    }

    /// A frame was carried out.
    pub(super) fn accept(&mut self) {
        self.refused = 0;
    }

    /// An error about one frame; the connection goes on.
    pub(super) fn refuse(&mut self, error: &PusherError) -> Result<(), SocketEnd> {
        self.refuse_with(error_frame(error))
    }

    pub(super) fn refuse_with(&mut self, frame: Vec<u8>) -> Result<(), SocketEnd> {
        self.out.push(frame);
        self.refused += 1;
        if self.refused > REFUSED_MAX { Err(SocketEnd::Told(PusherError::BUSY)) } else { Ok(()) }
    }

    /// New numbers of subscriptions, for channels that the client has not left meanwhile.
    pub fn tell_counts(&mut self, counts: &BTreeMap<Arc<str>, u64>) {
        for (name, count) in counts {
            let channel = PusherChannel::parse(name).and_then(|channel| channel.in_tavern(&self.app));
            if channel.is_some_and(|channel| self.channels.contains_key(&channel)) {
                self.out.push(subscription_count(name, *count));
            }
        }
    }

    async fn client_event(
        &mut self,
        event: &str,
        channel: &str,
        data: &str,
    ) -> Result<Result<(), PusherError>, SocketEnd> {
        let (name, session) = match self.check_client_event(event, channel, data) {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let message = write_message(&OutgoingEvent { event, data, except: Some(&self.id) });
        let publish =
            PublishRequest { channel: name.into(), data: message.into(), message_id: None, retain: false };
        match self.run(session, Op::Publish(publish)).await {
            Ok(_) => {
                self.post_client_event(event, channel, data).await;
                Ok(Ok(()))
            }
            Err(SessionFault::Refused(Code::RateLimited)) => Ok(Err(PusherError::CLIENT_EVENT_RATE)),
            Err(SessionFault::Refused(code)) => Ok(Err(PusherError::client_event(code.description()))),
            Err(SessionFault::Ended(error)) => Err(SocketEnd::Told(error)),
        }
    }

    async fn post_client_event(&self, event: &str, channel: &str, data: &str) {
        let served = self.channels.values().find(|served| served.name == channel);
        let posted = WebhookEvent {
            event: Some(event),
            data: Some(data),
            socket_id: Some(&self.id),
            user_id: served.and_then(|served| served.user_id.as_deref()).map(Into::into),
            ..WebhookEvent::new(WebhookKind::ClientEvent, channel)
        };
        self.server.webhooks.put(&self.app, &posted).await;
    }

    /// The channel in Tavern, and the session that publishes.
    fn check_client_event(
        &mut self,
        event: &str,
        channel: &str,
        data: &str,
    ) -> Result<(String, SessionNumber), PusherError> {
        if !self.app.client_events {
            return Err(PusherError::NO_CLIENT_EVENTS);
        }
        if event.len() > EVENT_NAME_BYTES || data.len() > EVENT_BYTES {
            let message = format!(
                "a client event has a name of {EVENT_NAME_BYTES} and data of {EVENT_BYTES} bytes at most"
            );
            return Err(PusherError::client_event(message));
        }
        let Some((name, served)) = self.channels.iter().find(|(_, served)| served.name == channel) else {
            return Err(PusherError::client_event("a client event needs a subscription to its channel"));
        };
        let session = match served.access {
            ChannelAccess::Private => LISTENER,
            ChannelAccess::Presence => served.member,
            _ => {
                return Err(PusherError::client_event("client events are for private and presence channels"));
            }
        };
        let name = name.clone();
        let now = self.server.sources.now();
        self.client_events.take(now, CLIENT_EVENTS).map_err(|_| PusherError::CLIENT_EVENT_RATE)?;
        Ok((name, session))
    }

    async fn sign_in(&mut self, data: SignInData) -> Result<(), SocketEnd> {
        let signed = SignatureCheck::sign_in(&self.id, &data.user_data);
        let user_data = parse_user_data(&data.user_data);
        let user = user_data.as_ref().and_then(|found| self.app.user(&found.id));
        let (Some(user_data), Some(user), true) = (user_data, user, self.app.has_signed(&data.auth, &signed))
        else {
            return Err(SocketEnd::Told(PusherError::UNAUTHORIZED));
        };
        if self.user.is_some() {
            return self.refuse(&PusherError::refusal("the connection has signed in already"));
        }
        let session = match self.open(Some(&user)).await {
            Ok(session) => session,
            Err(fault) => return self.fail_sign_in(fault),
        };
        self.user = Some((user_data.id.clone(), session));
        self.is_authenticated = true;
        // Those who watch this user see them here.
        let channel = self.user_channel(&user_data.id);
        if let Err(fault) =
            self.run(session, Op::Join(JoinRequest { channel: channel.into(), state: None })).await
        {
            return self.fail_sign_in(fault);
        }
        self.out.push(signin_success(&data.user_data));
        let is_too_long = user_data.watchlist.len() > WATCHLIST_MAX;
        let mut is_whole = !is_too_long;
        for watched in user_data.watchlist.into_iter().take(WATCHLIST_MAX) {
            is_whole &= self.watch(watched).await?;
        }
        if !is_whole {
            self.refuse(&PusherError::watchlist(is_too_long))?;
        }
        let online: Vec<&str> =
            self.watched.values().filter(|user| user.is_online).map(|user| &*user.user_id).collect();
        if !online.is_empty() {
            let frame = watchlist_event(true, &online);
            self.out.push(frame);
        }
        Ok(())
    }

    fn fail_sign_in(&mut self, fault: SessionFault) -> Result<(), SocketEnd> {
        Err(SocketEnd::Told(match fault {
            SessionFault::Ended(error) => error,
            SessionFault::Refused(code) if code.retry() && code != Code::Blocked => PusherError::BUSY,
            SessionFault::Refused(_) => PusherError::UNAUTHORIZED,
        }))
    }

    /// Hears when a user of the app comes online or goes offline. Nothing is stored. False: they cannot be watched.
    async fn watch(&mut self, user_id: String) -> Result<bool, SocketEnd> {
        let Some(user) = self.app.user(&user_id) else { return Ok(false) };
        let channel = self.user_channel(&user_id);
        if self.watched.contains_key(&channel) {
            return Ok(true);
        }
        if !self.has_room() {
            return Ok(false);
        }
        let target = SubscribeTarget::Channel(channel.clone().into());
        let subscribe = SubscribeRequest { target, presence: true, since: None, last: None };
        match self.run(LISTENER, Op::Subscribe(subscribe)).await {
            Ok(body) => {
                self.watched.insert(channel, WatchedUser::new(user_id, user, &gateway::read_members(&body)));
                Ok(true)
            }
            Err(SessionFault::Refused(_)) => Ok(false),
            Err(SessionFault::Ended(error)) => Err(SocketEnd::Told(error)),
        }
    }

    /// Whether the socket may have one channel more.
    pub(super) fn has_room(&self) -> bool {
        // The channel of the user belongs to another session.
        let own = self.channels.values().filter(|served| served.access != ChannelAccess::User).count();
        own + self.watched.len() < self.server.sources.config.limits.gateway_channels
    }

    pub(super) fn user_channel(&self, user_id: &str) -> String {
        let [_, _, kind] = tavern_pusher::app_kinds(&self.app.id);
        format!("{kind}#{user_id}")
    }
}
