//! The session of a Radar client: each request becomes commands of a hub session, one after the other, and its answer follows
//! theirs. Must hold: requests are carried out in order; an event that the hub gave before a reply is sent before the answer.

use super::hub_sessions::{HubSessions, RadarFailure, RadarResult};
use super::login::LoginStep;
use super::registry::EngineFlags;
use super::scopes::{ListenedScope, ScopeContent, SessionRole};
use crate::shard::input::GatewayCommand;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tavern_domain::limits;
use tavern_wire::error::Code;
use tavern_wire::gateway::{self, HubMembers};
use tavern_wire::json::{
    HelloRequest, HistoryRequest, JoinRequest, Op, PublishRequest, SubscribeRequest, SubscribeTarget,
    WhoRequest,
};
use tavern_wire::radar::{
    self, AnswerVersion, ClientDetails, PresentUsers, RadarOp, RadarRequest, RadarRoom, RadarScope,
    ScopeKind, StatusValues,
};
use tokio::sync::mpsc;

/// Messages in the answer to `sync`, as in the original.
const SYNC_MESSAGES: u64 = 100;
/// Pages of members or history that one request reads.
const PAGES_MAX: usize = 64;
/// Requests that cannot be read before the connection is closed.
const UNREADABLE_MAX: u32 = 1_000;

pub struct RadarSession {
    hub: HubSessions,
    flags: Arc<EngineFlags>,
    unreadable: u32,
}

impl RadarSession {
    pub fn new(hub: HubSessions, flags: Arc<EngineFlags>) -> RadarSession {
        RadarSession { hub, flags, unreadable: 0 }
    }

    /// Runs until the connection closes, or the hub ends the session.
    pub async fn run(mut self, mut requests: mpsc::Receiver<String>) {
        loop {
            let step = tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.request(&request).await,
                    None => return,
                },
                output = self.hub.next() => self.hub.output(output),
            };
            let step = match step {
                Ok(()) => self.read_stale().await,
                failed => failed,
            };
            if matches!(step, Err(RadarFailure::Ended)) || self.hub.flush().await.is_err() {
                return;
            }
        }
    }

    async fn request(&mut self, text: &str) -> RadarResult<()> {
        let Ok(request) = radar::parse_request(text) else { return self.skip() };
        if request.op != RadarOp::Batch {
            return self.single(text, &request).await;
        }
        let Ok(parts) = radar::parse_batch(text) else { return self.skip() };
        for part in parts {
            match radar::parse_request(part) {
                Ok(request) if request.op != RadarOp::Batch => self.single(part, &request).await?,
                _ => self.skip()?,
            }
        }
        Ok(())
    }

    /// The original ignores what it cannot read.
    fn skip(&mut self) -> RadarResult<()> {
        self.unreadable += 1;
        if self.unreadable > UNREADABLE_MAX { Err(RadarFailure::Ended) } else { Ok(()) }
    }

    /// Carries out a request, or answers why not.
    async fn single(&mut self, text: &str, request: &RadarRequest<'_>) -> RadarResult<()> {
        let Some(scope) = RadarScope::parse(&request.to) else {
            self.hub.write(|out| out.err("unknown_type", text));
            return Ok(());
        };
        let done = match self.log_in(request).await {
            Ok(()) => self.perform(request, &scope).await,
            failed => failed,
        };
        match done {
            Err(RadarFailure::Refused(code)) => {
                let value = match code {
                    Code::Unauthenticated | Code::NotAllowed => "auth",
                    code => code.as_str(),
                };
                self.hub.write(|out| out.err(value, text));
                Ok(())
            }
            done => done,
        }
    }

    async fn log_in(&mut self, request: &RadarRequest<'_>) -> RadarResult<()> {
        match self.hub.log_in(request) {
            LoginStep::Same => {}
            LoginStep::Refused => return Err(RadarFailure::Refused(Code::Unauthenticated)),
            LoginStep::Renewed(token) => {
                if self.hub.has_user() {
                    let token = Some(token.into());
                    let hello = Op::Hello(HelloRequest { token, session: None, seq: None, status: false });
                    self.hub.run_in(SessionRole::User, hello).await?;
                }
            }
        }
        self.flags.authenticated.store(true, Ordering::Release);
        Ok(())
    }

    async fn perform(&mut self, request: &RadarRequest<'_>, scope: &RadarScope<'_>) -> RadarResult<()> {
        let channel = scope.channel();
        match (scope.kind, request.op) {
            (ScopeKind::Control, RadarOp::NameSync) => {}
            (ScopeKind::Presence, RadarOp::Set) => self.set_presence(request, &channel).await?,
            (ScopeKind::Presence, RadarOp::Get) => return self.get_presence(request, &channel).await,
            (ScopeKind::Presence, RadarOp::Sync) => return self.sync_presence(request, &channel).await,
            (ScopeKind::Presence, RadarOp::Subscribe) => {
                self.watch(request, &channel).await?;
            }
            (ScopeKind::Status, RadarOp::Set) => self.set_status(request, &channel).await?,
            (ScopeKind::Status, RadarOp::Get) => return self.get_status(request, &channel).await,
            (ScopeKind::Status, RadarOp::Sync) => {
                self.subscribe(request, &channel, ScopeContent::Status).await?;
                return self.get_status(request, &channel).await;
            }
            (ScopeKind::Status, RadarOp::Subscribe) => {
                self.subscribe(request, &channel, ScopeContent::Status).await?;
            }
            (ScopeKind::Message, RadarOp::Publish) => self.publish(request, &channel).await?,
            (ScopeKind::Message, RadarOp::Sync) => return self.sync_messages(request, &channel).await,
            (ScopeKind::Message, RadarOp::Subscribe) => {
                self.subscribe(request, &channel, ScopeContent::Messages(0)).await?;
            }
            (ScopeKind::Presence | ScopeKind::Status | ScopeKind::Message, RadarOp::Unsubscribe) => {
                self.unsubscribe(&channel).await?;
            }
            // The original ignores these too.
            _ => return Ok(()),
        }
        self.hub.write(|out| out.ack(request.ack));
        Ok(())
    }

    async fn set_presence(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        let Some(key) = request.key.filter(|_| request.user.is_some()) else {
            return Err(RadarFailure::Refused(Code::BadRequest));
        };
        if request.value == Some("\"offline\"") {
            // Nothing to do for a client that never was there.
            if self.hub.scopes.leave(channel) {
                let leave = Op::Leave { channel: channel.to_owned().into() };
                self.hub.run_in(SessionRole::User, leave).await?;
            }
            return Ok(());
        }
        if self.hub.scopes.is_repeated(channel, request.client_data) {
            return Ok(());
        }
        let details = ClientDetails {
            user_id: key.into(),
            user_type: request.user_type.unwrap_or("0").into(),
            user_data: request.user_data.map(Box::from),
            client_data: request.client_data.map(Box::from),
        };
        let state = Some(details.write().into());
        let join = Op::Join(JoinRequest { channel: channel.to_owned().into(), state });
        self.hub.run_in(SessionRole::User, join).await?;
        self.hub.scopes.enter(channel, request.client_data);
        Ok(())
    }

    async fn get_presence(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        let role = self.hub.listening_role();
        let mut after: Option<String> = None;
        let mut users = PresentUsers::new(request.version);
        for _ in 0..PAGES_MAX {
            let who = Op::Who(WhoRequest {
                channel: channel.to_owned().into(),
                counts_only: false,
                after: after.take().map(Into::into),
                limit: Some(limits::PAGE_ENTRIES),
            });
            let body = self.hub.run_in(role, who).await?;
            let members = gateway::read_members(&body);
            self.add_members(&mut users, channel, &members);
            after = members.next.map(|next| next.into_owned());
            if after.is_none() {
                break;
            }
        }
        self.hub.write(|out| out.get(&request.to, &users.write()));
        Ok(())
    }

    /// Announces who is there, then answers with all of them.
    async fn sync_presence(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        let body = self.watch(request, channel).await?;
        let members = gateway::read_members(&body);
        let mut users = PresentUsers::new(request.version);
        self.add_members(&mut users, channel, &members);
        self.hub.write(|out| out.ack(request.ack));
        self.hub.write_with(|scopes, out| {
            if let Some(room) = scopes.room(channel) {
                room.announce(out);
            }
            match request.version {
                AnswerVersion::One => out.sync_version_one(&request.to, &users.write()),
                AnswerVersion::Two => out.get(&request.to, &users.write()),
            }
        });
        Ok(())
    }

    /// The types of users without clients are those that the client has received.
    fn add_members(&mut self, users: &mut PresentUsers, channel: &str, members: &HubMembers<'_>) {
        let room = self.hub.scopes.room(channel);
        users.add(members, |user| room.as_ref().and_then(|room| room.type_of(user)));
    }

    /// Watches the presence of a channel. Users who are there already are not announced; changes since an earlier reading are.
    async fn watch(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<String> {
        let role = match self.hub.scopes.listened(channel) {
            Some(scope) => scope.role,
            None => self.hub.listening_role(),
        };
        let body = self.hub.run_in(role, subscribe_op(channel, true)).await?;
        let members = gateway::read_members(&body);
        let is_known = self.hub.scopes.room(channel).is_some();
        if !is_known {
            let mut room = Box::new(RadarRoom::new(&request.to));
            room.load_silently(&members);
            let content = ScopeContent::Presence(room);
            self.hub
                .scopes
                .listen(channel.to_owned(), ListenedScope { to: request.to.to_string(), role, content });
        } else {
            self.hub.write_with(|scopes, out| {
                if let Some(room) = scopes.room(channel) {
                    room.load(&members, out);
                }
            });
        }
        Ok(body)
    }

    /// Reads the scopes again whose events were lost.
    async fn read_stale(&mut self) -> RadarResult<()> {
        while let Some(channel) = self.hub.scopes.take_stale() {
            let Some(role) = self.hub.scopes.listened(&channel).map(|scope| scope.role) else { continue };
            let body = match self.hub.run_in(role, subscribe_op(&channel, true)).await {
                Ok(body) => body,
                Err(RadarFailure::Refused(_)) => continue,
                Err(ended) => return Err(ended),
            };
            let members = gateway::read_members(&body);
            self.hub.write_with(|scopes, out| {
                if let Some(room) = scopes.room(&channel) {
                    room.load(&members, out);
                }
            });
        }
        Ok(())
    }

    /// Listens to messages or statuses.
    async fn subscribe(
        &mut self,
        request: &RadarRequest<'_>,
        channel: &str,
        content: ScopeContent,
    ) -> RadarResult<()> {
        if self.hub.scopes.listened(channel).is_some() {
            return Ok(());
        }
        let role = self.hub.listening_role();
        let body = self.hub.run_in(role, subscribe_op(channel, false)).await?;
        let used = gateway::read_substitute(&body).unwrap_or_else(|| channel.to_owned());
        self.hub.scopes.listen(used, ListenedScope { to: request.to.to_string(), role, content });
        Ok(())
    }

    /// Stops listening. In a presence scope the client is lost, as in the original.
    async fn unsubscribe(&mut self, channel: &str) -> RadarResult<()> {
        if self.hub.scopes.leave(channel) {
            self.hub.run_command(SessionRole::User, GatewayCommand::Lose(channel.into())).await?;
        }
        if let Some(scope) = self.hub.scopes.unlisten(channel) {
            let target = SubscribeTarget::Channel(channel.to_owned().into());
            self.hub.run_in(scope.role, Op::Unsubscribe(target)).await?;
        }
        Ok(())
    }

    async fn set_status(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        let Some(key) = request.key.filter(|_| request.user.is_some()) else {
            return Err(RadarFailure::Refused(Code::BadRequest));
        };
        let value = request.value.unwrap_or("null");
        let data = radar::status_payload(key, request.user_type, value, request.user_data);
        self.hub.run_in(SessionRole::User, publish_op(channel, data)).await.map(drop)
    }

    /// The last value of each user in the history of the channel.
    async fn get_status(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        let role = self.hub.listening_role();
        let mut values = StatusValues::default();
        let mut after = 0;
        for _ in 0..PAGES_MAX {
            let body =
                match self.hub.run_in(role, history_op(channel, Some(after), limits::PAGE_ENTRIES)).await {
                    Ok(body) => body,
                    // No history is kept: there is no status.
                    Err(RadarFailure::Refused(Code::NotFound)) => break,
                    Err(failed) => return Err(failed),
                };
            let page = gateway::read_page(&body);
            page.messages.iter().for_each(|message| values.add(message.data, message.from.as_ref()));
            match page.messages.last().filter(|_| page.more) {
                Some(last) => after = last.offset,
                None => break,
            }
        }
        self.hub.write(|out| out.get(&request.to, &values.write()));
        Ok(())
    }

    async fn publish(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        let data = radar::message_payload(request.value.unwrap_or("null"), request.user_data);
        let role = self.hub.listening_role();
        self.hub.run_in(role, publish_op(channel, data)).await.map(drop)
    }

    /// Listens, then answers with the messages that are kept; those do not come again.
    async fn sync_messages(&mut self, request: &RadarRequest<'_>, channel: &str) -> RadarResult<()> {
        self.subscribe(request, channel, ScopeContent::Messages(0)).await?;
        self.hub.write(|out| out.ack(request.ack));
        let role = self.hub.listening_role();
        let body = match self.hub.run_in(role, history_op(channel, None, SYNC_MESSAGES)).await {
            Ok(body) => body,
            Err(RadarFailure::Refused(Code::NotFound)) => String::new(),
            Err(failed) => return Err(failed),
        };
        let page = gateway::read_page(&body);
        if let Some(ListenedScope { content: ScopeContent::Messages(known), .. }) =
            self.hub.scopes.listened(channel)
        {
            *known = page.offset.max(*known);
        }
        self.hub.write(|out| out.sync(&request.to, &page.messages));
        Ok(())
    }
}

fn subscribe_op(channel: &str, presence: bool) -> Op<'static> {
    let target = SubscribeTarget::Channel(channel.to_owned().into());
    Op::Subscribe(SubscribeRequest { target, presence, since: None, last: None })
}

fn publish_op(channel: &str, data: String) -> Op<'static> {
    Op::Publish(PublishRequest {
        channel: channel.to_owned().into(),
        data: data.into(),
        message_id: None,
        retain: false,
    })
}

fn history_op(channel: &str, after: Option<u64>, limit: u64) -> Op<'static> {
    Op::History(HistoryRequest {
        channel: channel.to_owned().into(),
        after,
        before: None,
        limit: Some(limit),
    })
}
