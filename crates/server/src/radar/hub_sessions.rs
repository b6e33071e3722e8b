//! The hub sessions of one Radar connection, and what it has to receive. One session is the user's; in dev mode another one, without
//! a user, may listen before the user is known.
//! Must hold: one command is under way at a time; what the hub gives first is sent first.

use super::login::{LoginStep, RadarLogin};
use super::registry::RadarServer;
use super::scopes::{RadarScopes, SessionRole};
use crate::gateway::HubLink;
use crate::random::random_bits;
use crate::shard::input::{GatewayCommand, GatewayOutput};
use std::sync::Arc;
use tavern_domain::{AddressGroup, ClientId};
use tavern_hub::GatewayProtocol;
use tavern_wire::error::Code;
use tavern_wire::gateway::{self, HubReply};
use tavern_wire::json::{Op, ParsedCommand};
use tavern_wire::radar::{RadarFrames, RadarRequest, StampSource};
use tokio::sync::mpsc;

pub struct HubSessions {
    server: Arc<RadarServer>,
    /// The id of the connection, and of the user's client.
    sid: ClientId,
    sid_text: Arc<str>,
    address: Option<AddressGroup>,
    login: RadarLogin,
    user: Option<HubLink>,
    unnamed: Option<HubLink>,
    pub scopes: RadarScopes,
    out: Vec<Vec<u8>>,
    frames: mpsc::Sender<Vec<u8>>,
}

/// Why a request is not carried out.
pub enum RadarFailure {
    Refused(Code),
    /// The session has ended, and the connection with it.
    Ended,
}

pub type RadarResult<T> = Result<T, RadarFailure>;

impl HubSessions {
    pub fn new(
        server: Arc<RadarServer>,
        sid: ClientId,
        address: Option<AddressGroup>,
        frames: mpsc::Sender<Vec<u8>>,
    ) -> HubSessions {
        HubSessions {
            server,
            sid,
            sid_text: sid.to_string().into(),
            address,
            login: RadarLogin::default(),
            user: None,
            unnamed: None,
            scopes: RadarScopes::default(),
            out: Vec::new(),
            frames,
        }
    }

    pub fn log_in(&mut self, request: &RadarRequest<'_>) -> LoginStep {
        self.login.check(&self.server.sources, self.address, request)
    }

    /// Whether the session of the user is open.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// The next output of either session.
    pub async fn next(&mut self) -> Option<GatewayOutput> {
        let HubSessions { user, unnamed, .. } = self;
        tokio::select! {
            output = next_of(user) => output,
            output = next_of(unnamed) => output,
        }
    }

    /// The session that listens, and publishes where no user is needed.
    pub fn listening_role(&self) -> SessionRole {
        if self.login.identity().is_some() { SessionRole::User } else { SessionRole::Unnamed }
    }

    pub async fn run_in(&mut self, role: SessionRole, op: Op<'static>) -> RadarResult<String> {
        self.run_command(role, GatewayCommand::Run(ParsedCommand { id: None, op })).await
    }

    /// Runs a command, and returns the body of its reply.
    pub async fn run_command(&mut self, role: SessionRole, command: GatewayCommand) -> RadarResult<String> {
        self.open(role).await?;
        match self.link(role) {
            Some(link) if link.send(command) => self.reply(role).await,
            Some(_) => Err(RadarFailure::Refused(Code::Unavailable)),
            None => Err(RadarFailure::Ended),
        }
    }

    async fn open(&mut self, role: SessionRole) -> RadarResult<()> {
        if self.link(role).is_some() {
            return Ok(());
        }
        let sources = &self.server.sources;
        let identity = match role {
            SessionRole::User => self.login.identity().cloned(),
            SessionRole::Unnamed => sources.authenticator.admit_unnamed().ok(),
        };
        let Some(identity) = identity else { return Err(RadarFailure::Refused(Code::Unauthenticated)) };
        // Only the user's client is seen by others, under the id of the connection.
        let client = match role {
            SessionRole::User => self.sid,
            SessionRole::Unnamed => ClientId::from_random(random_bits()),
        };
        let Some(link) =
            HubLink::open(sources, GatewayProtocol::Radar, identity, self.address, client, None).await
        else {
            return Err(RadarFailure::Refused(Code::Unavailable));
        };
        match role {
            SessionRole::User => self.user = Some(link),
            SessionRole::Unnamed => self.unnamed = Some(link),
        }
        let greeted = self.reply(role).await;
        if greeted.is_err() {
            match role {
                SessionRole::User => self.user = None,
                SessionRole::Unnamed => self.unnamed = None,
            }
        }
        greeted.map(drop)
    }

    fn link(&mut self, role: SessionRole) -> Option<&mut HubLink> {
        match role {
            SessionRole::User => self.user.as_mut(),
            SessionRole::Unnamed => self.unnamed.as_mut(),
        }
    }

    /// The reply to the command under way; events that come before it are sent first.
    async fn reply(&mut self, role: SessionRole) -> RadarResult<String> {
        loop {
            let Some(link) = self.link(role) else { return Err(RadarFailure::Ended) };
            match link.next().await {
                Some(GatewayOutput::Reply(reply)) => {
                    return match gateway::read_reply(&reply) {
                        HubReply::Done(body) => Ok(body.to_owned()),
                        HubReply::Refused(code) => Err(RadarFailure::Refused(code)),
                    };
                }
                output => {
                    self.output(output)?;
                    self.flush().await?;
                }
            }
        }
    }

    pub fn output(&mut self, output: Option<GatewayOutput>) -> RadarResult<()> {
        match output {
            Some(GatewayOutput::Events(bytes)) => {
                self.write_with(|scopes, out| {
                    gateway::read_events(&bytes, |event| scopes.apply(&event, out))
                });
                Ok(())
            }
            Some(GatewayOutput::Ended(reason)) => {
                tracing::debug!(reason = reason.reason(), "Radar session ended");
                Err(RadarFailure::Ended)
            }
            // A reply that nothing waits for cannot be.
            Some(GatewayOutput::Reply(_)) | None => Err(RadarFailure::Ended),
        }
    }

    pub fn write(&mut self, write: impl FnOnce(&mut RadarFrames<'_>)) {
        self.write_with(|_, out| write(out));
    }

    pub fn write_with(&mut self, write: impl FnOnce(&mut RadarScopes, &mut RadarFrames<'_>)) {
        let sources = &self.server.sources;
        let (client, sentry) = (self.sid_text.clone(), sources.config.clone());
        let now_ms = sources.now().ms();
        let stamps = StampSource { client: &client, sentry: &sentry.node, now_ms, random: &random_bits };
        let mut out = RadarFrames::new(stamps);
        write(&mut self.scopes, &mut out);
        self.out.append(&mut out.frames);
    }

    /// Gives the connection what was written; waits while its client does not read.
    pub async fn flush(&mut self) -> RadarResult<()> {
        for frame in std::mem::take(&mut self.out) {
            self.frames.send(frame).await.map_err(|_| RadarFailure::Ended)?;
        }
        Ok(())
    }
}

async fn next_of(link: &mut Option<HubLink>) -> Option<GatewayOutput> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}
