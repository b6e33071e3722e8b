//! Inputs of a shard from other threads: messages of other shards, new sockets, HTTP requests that concern a session.

use crate::auth::AuthError;
use crate::connections::AddressSlot;
use crate::shard::conn::Conn;
use crate::shard::queue::{HandoverQueue, Wake, Weigh};
use crate::shard::shared_output::SharedOutput;
use crate::topics::TopicRequest;
use crate::unread_replies::ConnectionReplies;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tavern_domain::trace::TraceContext;
use tavern_domain::{AddressGroup, ClientId, HistoryPosition, HistoryStamp, Identity, SessionKey};
use tavern_hub::PackedSession;
use tavern_hub::node::admission::AdmittedHello;
use tavern_hub::{
    AuthorizeAnswer, AuthorizeQuery, CloseReason, FrameRenderer, GatewayProtocol, LinkId, ServiceCommand,
    ShardEvent, ShardMessage, read_session,
};
use tavern_store::{StoreAnswer, Ticket};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::SessionReport;
use tavern_wire::json::{BadRequest, ParsedCommand};
use tokio::sync::{mpsc, oneshot};

/// The queue of one shard.
pub type ShardQueue = HandoverQueue<ShardInput, mio::Waker>;

impl Wake for mio::Waker {
    fn wake(&self) {
        // Fails only if the poll, and so the shard, has ended.
        let _ = mio::Waker::wake(self);
    }
}

pub enum ShardInput {
    /// Messages published on another shard or node.
    Packets(Vec<ShardMessage>),
    /// The store has answered requests of this shard.
    Answers(Vec<(Ticket, StoreAnswer)>),
    /// For the hub, from another shard, the bus or liveness.
    Hub(ShardEvent),
    /// The authorize hook has answered.
    Authorized(AuthorizeQuery, AuthorizeAnswer),
    /// A connection after its handshake.
    Arrival(Box<NewSocket>),
    /// An `AUTH` with an API key was looked up for this connection.
    Login(LinkId, u64, Result<Identity, AuthError>),
    /// Close a Redis connection (`CLIENT KILL`); the number guards against a reused link.
    Kill(LinkId, u64),
    /// One command over HTTP.
    Command(Box<HttpCommand>),
    Poll(Box<HttpPoll>),
    Stream(Box<HttpStream>),
    /// A stream that was full has room again.
    StreamRoom(LinkId),
    /// A gateway opens a session.
    OpenGateway(Box<OpenGateway>),
    /// A command of a gateway. The client guards against a link that was given out again.
    GatewayCommand(LinkId, ClientId, GatewayCommand),
    /// The queue of a gateway that was full has room again.
    GatewayRoom(LinkId, ClientId),
    /// The client of a gateway went away.
    GatewayClosed(LinkId, ClientId),
    Publish(Box<HttpPublish>),
    /// A command of an app for its users.
    Order(Box<HttpServiceCommand>),
    /// A command about topics.
    Topic(Box<TopicRequest>),
    /// One of these that belongs to a trace.
    Traced(TraceContext, Box<ShardInput>),
    /// Describe the session of a client.
    Inspect(ClientId, oneshot::Sender<Option<SessionReport>>),
    /// Sessions of an earlier process. True: other nodes ran while these were in the store.
    Adopt(Vec<PackedSession>, bool, oneshot::Sender<()>),
    /// Accept no more commands and deliver what is in flight. All shards do this before any packs, so that a counted
    /// message reaches the sessions it was counted for.
    Freeze(oneshot::Sender<()>),
    /// Offer the sessions to these nodes; they have this long to be resumed there.
    Leave(Arc<[Arc<str>]>, u64),
    /// Report how many sessions are still moving.
    Leaving(oneshot::Sender<usize>),
    /// Ask clients to reconnect to another node, pack the sessions, end.
    Stop(oneshot::Sender<Vec<PackedSession>>),
}

impl ShardInput {
    pub fn in_trace(self, trace: Option<TraceContext>) -> ShardInput {
        match trace {
            Some(trace) => ShardInput::Traced(trace, Box::new(self)),
            None => self,
        }
    }

    /// A request of a client that is dropped while the sessions move away; the others are the server's own. A connection with
    /// a poll is answered. Services need no session here: what they ask for is done until the shard stops.
    pub fn is_request(&self) -> bool {
        if let ShardInput::Traced(_, input) = self {
            return input.is_request();
        }
        matches!(
            self,
            ShardInput::Command(_)
                | ShardInput::Poll(_)
                | ShardInput::Stream(_)
                | ShardInput::OpenGateway(_)
                | ShardInput::GatewayCommand(..)
        ) || matches!(self, ShardInput::Arrival(arrival) if !arrival.conn.has_polls())
    }
}

impl Weigh for ShardInput {
    fn weight(&self) -> usize {
        match self {
            ShardInput::Packets(packets) => packets.len().max(1),
            _ => 1,
        }
    }
}

/// A socket and what was read from it so far.
pub struct NewSocket {
    pub conn: Conn,
    pub input: Vec<u8>,
    /// Commands to run before the input, in lines: they arrived together with a hello for a session of this shard.
    pub commands: Vec<u8>,
    /// The hello of a client whose token came with its connection.
    pub hello: Option<ParsedCommand<'static>>,
}

/// A session as its client names it.
#[derive(Clone, Debug)]
pub struct SessionName {
    pub key: SessionKey,
    /// The node that gave the name.
    pub node: Box<str>,
}

impl SessionName {
    pub fn read(text: &str) -> Option<SessionName> {
        read_session(text).map(|(key, node)| SessionName { key, node: node.into() })
    }
}

/// The answer to an HTTP request: the body, and the code of the refusal in it, which determines the status; or a
/// refusal that must still be encoded.
pub type CommandAnswer = Result<(Option<Code>, Vec<u8>), Refusal>;

/// A session for a gateway.
pub struct OpenGateway {
    pub protocol: GatewayProtocol,
    pub identity: Identity,
    /// Where its client comes from, as it counts in limits.
    pub address: Option<AddressGroup>,
    /// The public id of the session.
    pub client: ClientId,
    /// The reply to its hello comes first.
    pub output: mpsc::Sender<GatewayOutput>,
    pub wants_room: Arc<AtomicBool>,
    /// The client's socket, if the shard may write to it.
    pub direct: Option<DirectOutput>,
    pub opened: oneshot::Sender<LinkId>,
}

/// How a shard writes messages to a client without its task.
pub struct DirectOutput {
    pub socket: Arc<SharedOutput>,
    /// The client, as messages name it that it must not get.
    pub name: Box<str>,
    pub render: FrameRenderer,
}

pub enum GatewayCommand {
    Run(ParsedCommand<'static>),
    /// The client is lost in this channel, while its session lives on.
    Lose(Box<str>),
}

/// What a gateway gets, in order.
pub enum GatewayOutput {
    /// The reply to the command that is under way.
    Reply(Vec<u8>),
    /// Events, each followed by a comma.
    Events(Vec<u8>),
    /// The session has ended.
    Ended(CloseReason),
}

pub struct HttpCommand {
    pub command: Result<ParsedCommand<'static>, BadRequest<'static>>,
    pub session: Option<SessionName>,
    pub identity: Option<Identity>,
    /// The client's address, for limits.
    pub address: Option<AddressGroup>,
    pub answer: oneshot::Sender<CommandAnswer>,
}

/// A poll whose answer is sent by the HTTP server.
pub struct HttpPoll {
    pub poll: SessionPoll,
    /// Its place in the count of its address, behind a proxy.
    pub counted: Option<AddressSlot>,
    pub answer: oneshot::Sender<CommandAnswer>,
}

/// A long-poll by an authenticated client.
pub struct SessionPoll {
    pub session: Option<SessionName>,
    /// It named a session, readable or not.
    pub named: bool,
    pub identity: Option<Identity>,
    /// The client's address, for limits.
    pub address: Option<AddressGroup>,
    pub cursor: Option<u64>,
    pub timeout_ms: u64,
    /// Its session is not here, and its hello is in progress.
    pub admitted: Option<Arc<AdmittedHello>>,
}

pub struct HttpStream {
    pub session: Option<SessionName>,
    /// Its hello is in progress.
    pub admitted: Option<Arc<AdmittedHello>>,
    /// The hello that it stands for.
    pub hello: ParsedCommand<'static>,
    pub identity: Option<Identity>,
    /// The client's address, for limits.
    pub address: Option<AddressGroup>,
    /// Channels to subscribe to at once, for clients that can only open a URL.
    pub channels: Vec<String>,
    /// Send this many of the last messages of each channel first.
    pub last: Option<u64>,
    /// The position after which each channel begins, or none at all.
    pub since: Vec<HistoryPosition>,
    pub events: mpsc::Sender<bytes::Bytes>,
    /// Counts the pieces until they are sent.
    pub replies: Arc<ConnectionReplies>,
    /// Set while the shard waits for room; the body then sends `StreamRoom`.
    pub wants_room: Arc<AtomicBool>,
    /// The link of the stream, or why it was refused.
    pub started: oneshot::Sender<Result<LinkId, Refusal>>,
}

pub struct HttpPublish {
    pub channel: Arc<str>,
    pub data: Vec<u8>,
    /// Its place, when it is stored already.
    pub history: Option<HistoryStamp>,
    pub answer: oneshot::Sender<u32>,
}

pub struct HttpServiceCommand {
    pub order: ServiceCommand,
    /// The body of the response, or the refusal.
    pub answer: oneshot::Sender<Result<Vec<u8>, Refusal>>,
}
