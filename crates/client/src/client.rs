//! The client handle and its builder.

use crate::address::ServerUrl;
use crate::auth::{self, Auth};
use crate::bounds::{COMMAND_TIMEOUT, OPEN_TIMEOUT, WAITING};
use crate::channel::{Channel, Pattern};
use crate::event::Events;
use crate::link::Transport;
use crate::me::Me;
use crate::party::Party;
use crate::session::{ClientSession, DebugLog, SessionSettings};
use crate::shared::{ClientShared, Control, Handle, OnSuccess};
use crate::{ConnectionState, Error, tls};
use rustls::ClientConfig;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Builds a [`Client`].
#[derive(Clone)]
pub struct Builder {
    urls: Vec<String>,
    auth: Option<Auth>,
    transports: Vec<Transport>,
    statuses: bool,
    resume: Option<(String, u64)>,
    attempts: Option<u32>,
    backpressure: bool,
    echo: bool,
    command_timeout: Duration,
    connect_timeout: Duration,
    tls: Option<Arc<ClientConfig>>,
    debug: Option<DebugLog>,
}

impl Builder {
    /// Adds an address of the same cluster, tried when another does not answer.
    pub fn or_url(mut self, url: impl Into<String>) -> Builder {
        self.urls.push(url.into());
        self
    }

    /// The credential.
    pub fn auth(mut self, auth: Auth) -> Builder {
        self.auth = Some(auth);
        self
    }

    /// The transports in the order in which they are tried. The next one is tried when one fails twice without having
    /// worked before.
    pub fn transports(mut self, transports: impl IntoIterator<Item = Transport>) -> Builder {
        self.transports = transports.into_iter().collect();
        self
    }

    /// Each new session starts with [`Event::Statuses`](crate::Event::Statuses).
    pub fn statuses(mut self) -> Builder {
        self.statuses = true;
        self
    }

    /// Resumes a session of another client, with what its [`Client::ticket`] returned.
    pub fn resume(mut self, session: impl Into<String>, seq: u64) -> Builder {
        self.resume = Some((session.into(), seq));
        self
    }

    /// Gives up after so many failures to open the first session: `connect` then fails with `unreachable` or with the
    /// server's refusal. By default it retries for as long as it is awaited. A session that was open once is always
    /// resumed.
    pub fn attempts(mut self, attempts: u32) -> Builder {
        self.attempts = Some(attempts);
        self
    }

    /// Stops reading from the server while the slowest reader of events is behind. Without it a slow reader gets the error
    /// `overflow`; with it nothing is lost here, the server's own limits apply and a `gap` reports what it dropped. Every
    /// [`Events`] and [`Messages`](crate::Messages) must then be read or dropped, or the whole client stops.
    pub fn backpressure(mut self) -> Builder {
        self.backpressure = true;
        self
    }

    /// Leaves out the messages that this client has published itself.
    pub fn no_echo(mut self) -> Builder {
        self.echo = false;
        self
    }

    /// How long a command may take, reconnects included: 30 s by default.
    pub fn command_timeout(mut self, timeout: Duration) -> Builder {
        self.command_timeout = timeout;
        self
    }

    /// How long an attempt to open a connection may take: 10 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.connect_timeout = timeout;
        self
    }

    /// The TLS configuration; by default the authorities of the features `webpki-roots`
    /// and `native-roots` are trusted. See [`trust_pem`](crate::trust_pem).
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Builder {
        self.tls = Some(config);
        self
    }

    /// Calls this function with a line for each step of the connection. The lines contain no secrets.
    pub fn debug(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Builder {
        self.debug = Some(Arc::new(log));
        self
    }

    /// A client that is not connected yet. Needs a tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        if self.transports.is_empty() {
            return Err(Error::Invalid("at least one transport is needed".to_owned()));
        }
        auth::check(self.auth.as_ref())?;
        let addresses = self.urls.iter().map(|url| ServerUrl::parse(url)).collect::<Result<Vec<_>, _>>()?;
        let tls = tls::configured(self.tls, addresses.iter().any(|address| address.secure))?;
        let settings = SessionSettings {
            addresses,
            transports: self.transports,
            auth: self.auth,
            statuses: self.statuses,
            attempts: self.attempts,
            backpressure: self.backpressure,
            echo: self.echo,
            connect_timeout: self.connect_timeout,
            tls,
            debug: self.debug,
        };
        let shared = Arc::new(ClientShared::new(self.resume, self.command_timeout));
        let (requests, asked) = mpsc::channel(WAITING);
        let (control, controls) = mpsc::channel(4);
        let session = ClientSession::new(settings, shared.clone(), asked);
        // Ends when the last handle is dropped.
        tokio::spawn(session.supervise(controls));
        Ok(Client { handle: Handle { shared, requests, control } })
    }

    /// Builds the client and connects it.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.open().await?;
        Ok(client)
    }
}

/// A client with one session. Clones share it; when the last is dropped without [`Client::close`], the session ends after its
/// grace period.
#[derive(Clone)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Starts building a client for this address.
    pub fn builder(url: impl Into<String>) -> Builder {
        let transports = Transport::ALL.to_vec();
        Builder {
            urls: vec![url.into()],
            auth: None,
            transports,
            statuses: false,
            resume: None,
            attempts: None,
            backpressure: false,
            echo: true,
            command_timeout: COMMAND_TIMEOUT,
            connect_timeout: OPEN_TIMEOUT,
            tls: None,
            debug: None,
        }
    }

    /// Returns when the session is open. A refusal is an error; a server that cannot be reached is retried for as long as this is
    /// awaited.
    pub async fn connect(url: impl Into<String>, auth: Auth) -> Result<Client, Error> {
        Client::builder(url).auth(auth).connect().await
    }

    /// Connects a client that was built, suspended or closed.
    pub async fn open(&self) -> Result<(), Error> {
        match self.handle.control(Control::Open).await {
            Some(opened) => opened,
            None => Err(self.handle.why_ended().await),
        }
    }

    /// Ends the session at once, and its presence in all channels.
    pub async fn close(&self) {
        self.handle.control(Control::Close).await;
    }

    /// Closes the connection and keeps the session: [`Client::open`] resumes it while the server has it.
    pub async fn suspend(&self) {
        self.handle.control(Control::Suspend).await;
    }

    /// Drops the connection as a network failure would; the client reconnects automatically. For tests.
    pub async fn drop_link(&self) {
        let _ = self.handle.control.send(Control::Drop).await;
    }

    /// A handle for one channel.
    pub fn channel(&self, name: impl Into<String>) -> Channel {
        Channel::new(self.handle.clone(), name.into())
    }

    /// All channels that match a Redis glob.
    pub fn pattern(&self, glob: impl Into<String>) -> Pattern {
        Pattern::new(self.handle.clone(), glob.into())
    }

    /// The user of this session.
    pub fn me(&self) -> Me {
        Me::new(self.handle.clone())
    }

    /// The user's party.
    pub fn party(&self) -> Party {
        Party::new(self.handle.clone())
    }

    /// All events from now on.
    pub fn events(&self) -> Events {
        Events::new(self.handle.shared.events.subscribe())
    }

    /// Any command of the protocol, with its members as an object. `safe`: it is idempotent and may be sent again after a lost connection.
    pub async fn command(&self, op: &str, members: Value, safe: bool) -> Result<Value, Error> {
        self.handle.ask(op, members, safe, OnSuccess::Nothing).await
    }

    /// The state of the connection.
    pub fn state(&self) -> ConnectionState {
        self.handle.shared.view().state
    }

    /// The transport of the connection, if there is one.
    pub fn transport(&self) -> Option<Transport> {
        self.handle.shared.view().transport
    }

    /// The node that has the session.
    pub fn node(&self) -> Option<String> {
        self.handle.shared.view().node.clone()
    }

    /// The session secret and the number of the last event, for [`Builder::resume`] elsewhere.
    pub fn ticket(&self) -> Option<(String, u64)> {
        self.handle.shared.view().ticket.clone()
    }
}
