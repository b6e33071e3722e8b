//! The hub sessions of one socket. The first one has no user and listens; each user that the socket acts for has another: the
//! one who signed in, and those of its presence channels, who may be different ones.
//! Must hold: a session ends when nothing needs it any more; sessions of one socket are bounded.

use super::delivery;
use super::registry::PusherServer;
use crate::gateway::HubLink;
use crate::random::random_bits;
use crate::shard::input::{DirectOutput, GatewayCommand, GatewayOutput};
use crate::shard::shared_output::SharedOutput;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tavern_domain::rights::Grant;
use tavern_domain::{AddressGroup, ClientId, Identity, Rights, Scopes, Time, Verbs};
use tavern_hub::{CloseReason, GatewayProtocol};
use tavern_pusher::{PusherApp, PusherError, app_kinds};
use tavern_wire::error::Code;
use tavern_wire::json::{Op, ParsedCommand};

/// Users that one socket may act for.
const USERS_MAX: usize = 16;

pub type SessionNumber = u32;
/// The session without a user.
pub const LISTENER: SessionNumber = 0;

pub struct SocketSessions {
    server: Arc<PusherServer>,
    rights: Arc<Rights>,
    address: Option<AddressGroup>,
    /// The socket and its id, for the session that listens.
    output: Option<(Arc<SharedOutput>, Box<str>)>,
    open: BTreeMap<SessionNumber, SocketSession>,
    next: SessionNumber,
}

struct SocketSession {
    user: Option<String>,
    /// The channels and the sign-in that need it.
    uses: usize,
    link: HubLink,
}

/// Why a command is not carried out.
#[derive(Debug)]
pub enum SessionFault {
    Refused(Code),
    /// The socket ends.
    Ended(PusherError),
}

impl SocketSessions {
    pub fn new(
        server: Arc<PusherServer>,
        app: &PusherApp,
        address: Option<AddressGroup>,
        output: Option<(Arc<SharedOutput>, Box<str>)>,
    ) -> SocketSessions {
        let grant =
            |kind: String| Grant { pattern: format!("{kind}#*").into_bytes().into(), verbs: Verbs::ALL };
        let rights = Arc::new(Rights { grants: app_kinds(&app.id).map(grant).into() });
        SocketSessions { server, rights, address, output, open: BTreeMap::new(), next: LISTENER }
    }

    /// The session of a user, or the one that listens. The reply to its hello is its first output if it is new.
    pub async fn take(&mut self, user: Option<&str>) -> Result<(SessionNumber, bool), SessionFault> {
        let own = self.open.iter_mut().find(|(_, session)| session.user.as_deref() == user);
        if let Some((number, session)) = own {
            session.uses += 1;
            return Ok((*number, false));
        }
        if self.open.len() > USERS_MAX {
            return Err(SessionFault::Refused(Code::TooLarge));
        }
        let sources = &self.server.sources;
        if sources.node.blocks.refusal(user, sources.now()).is_some() {
            return Err(SessionFault::Refused(Code::Blocked));
        }
        let identity = Identity {
            user: user.map(Arc::from),
            name: None,
            rights: self.rights.clone(),
            expires: Time::NEVER,
            issued_s: 0,
            unlimited: false,
            scopes: Scopes::NONE,
            key: None,
        };
        // Without a user a session counts for its address, which may be that of many: connections are counted instead.
        let address = user.and(self.address);
        let client = ClientId::from_random(random_bits());
        let output = if user.is_none() { self.output.take() } else { None };
        let direct = output.map(|(socket, name)| DirectOutput { socket, name, render: delivery::render });
        let Some(link) =
            HubLink::open(sources, GatewayProtocol::Pusher, identity, address, client, direct).await
        else {
            return Err(SessionFault::Refused(Code::Unavailable));
        };
        let number = self.next;
        self.next += 1;
        self.open.insert(number, SocketSession { user: user.map(str::to_owned), uses: 1, link });
        Ok((number, true))
    }

    /// What followed from the outputs of the session that listens is written.
    pub fn finish(&self) {
        if let Some(listener) = self.open.get(&LISTENER) {
            listener.link.finish();
        }
    }

    /// Something needs a session no more.
    pub fn release(&mut self, number: SessionNumber) {
        if let Some(session) = self.open.get_mut(&number) {
            session.uses -= 1;
            if session.uses == 0 {
                self.open.remove(&number);
            }
        }
    }

    pub fn send(&self, number: SessionNumber, op: Op<'static>) -> Result<(), SessionFault> {
        let command = GatewayCommand::Run(ParsedCommand { id: None, op });
        match self.open.get(&number) {
            Some(session) if session.link.send(command) => Ok(()),
            Some(_) => Err(SessionFault::Refused(Code::Unavailable)),
            None => Err(SessionFault::Ended(PusherError::RECONNECT)),
        }
    }

    /// The next output of one session.
    pub async fn next_of(&mut self, number: SessionNumber) -> Option<GatewayOutput> {
        self.open.get_mut(&number)?.link.next().await
    }

    /// The next output of any session.
    pub async fn next(&mut self) -> (SessionNumber, Option<GatewayOutput>) {
        poll_fn(|context| {
            for (number, session) in &mut self.open {
                if let Poll::Ready(output) = session.link.poll_next(context) {
                    return Poll::Ready((*number, output));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// What a client is told when one of its sessions has ended.
pub fn error_of(reason: &CloseReason) -> PusherError {
    match reason {
        CloseReason::Disconnected { .. } | CloseReason::Banned { .. } | CloseReason::Abuse => {
            PusherError::UNAUTHORIZED
        }
        _ => PusherError::RECONNECT,
    }
}
