//! What an app holds: a client, and how one is made.

use crate::address::Address;
use crate::auth::{self, Auth};
use crate::channel::{Channel, Pattern};
use crate::event::Events;
use crate::link::Transport;
use crate::me::Me;
use crate::party::Party;
use crate::session::{Session, Settings};
use crate::shared::{Control, Handle, Note, Shared};
use crate::{Error, State, tls};
use rustls::ClientConfig;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Commands between the handles and the session.
const ASKS: usize = 1_024;

/// How a client is to be.
#[derive(Clone)]
pub struct Builder {
    urls: Vec<String>,
    auth: Option<Auth>,
    transports: Vec<Transport>,
    statuses: bool,
    resume: Option<(String, u64)>,
    attempts: Option<u32>,
    backpressure: bool,
    tls: Option<Arc<ClientConfig>>,
}

impl Builder {
    /// One more address of the same cluster: the next is tried when one does not answer.
    pub fn or_url(mut self, url: impl Into<String>) -> Builder {
        self.urls.push(url.into());
        self
    }

    pub fn auth(mut self, auth: Auth) -> Builder {
        self.auth = Some(auth);
        self
    }

    /// The ways in the order in which they are tried; the next when one is refused twice without having worked.
    pub fn transports(mut self, transports: impl IntoIterator<Item = Transport>) -> Builder {
        self.transports = transports.into_iter().collect();
        self
    }

    /// Each new session begins with [`Event::Statuses`](crate::Event::Statuses).
    pub fn statuses(mut self) -> Builder {
        self.statuses = true;
        self
    }

    /// Goes on with a session that was begun elsewhere: what [`Client::ticket`] gave there.
    pub fn resume(mut self, session: impl Into<String>, seq: u64) -> Builder {
        self.resume = Some((session.into(), seq));
        self
    }

    /// Gives up after so many failures to open the first session: `connect` then fails with `unreachable` or with the
    /// server's refusal. By default it goes on for as long as it is awaited. A session that was open once is always
    /// tried again.
    pub fn attempts(mut self, attempts: u32) -> Builder {
        self.attempts = Some(attempts);
        self
    }

    /// Stops reading from the server while the slowest reader of events is behind. Without it a slow reader gets the error
    /// `overflow`; with it nothing is lost here, the server's own limits apply and a `gap` says what it dropped. Every
    /// [`Events`] and [`Messages`](crate::Messages) must then be read or dropped, or the whole client stands still.
    pub fn backpressure(mut self) -> Builder {
        self.backpressure = true;
        self
    }

    /// How servers are recognised; by default as browsers do. See [`trust_pem`](crate::trust_pem).
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Builder {
        self.tls = Some(config);
        self
    }

    /// A client that is not connected yet. Needs a tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        if self.transports.is_empty() {
            return Err(Error::new("bad_request", "at least one transport is needed"));
        }
        auth::check(self.auth.as_ref())?;
        let addresses = self.urls.iter().map(|url| Address::parse(url)).collect::<Result<Vec<_>, _>>()?;
        let tls = self.tls.unwrap_or_else(tls::default_tls);
        let settings = Settings {
            addresses,
            transports: self.transports,
            auth: self.auth,
            statuses: self.statuses,
            attempts: self.attempts,
            backpressure: self.backpressure,
            tls,
        };
        let shared = Arc::new(Shared::new(self.resume));
        let (asks, asked) = mpsc::channel(ASKS);
        let (control, told) = mpsc::channel(4);
        let session = Session::new(settings, shared.clone(), asked);
        // Ends when the last handle is dropped.
        tokio::spawn(session.run(told));
        Ok(Client { handle: Handle { shared, asks, control } })
    }

    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.open().await?;
        Ok(client)
    }
}

/// A client of one session. Clones are the same client; when the last is dropped without [`Client::close`] the session is left to its grace.
#[derive(Clone)]
pub struct Client {
    handle: Handle,
}

impl Client {
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
            tls: None,
        }
    }

    /// Returns when the session is there. A refusal is an error; a server that cannot be reached is tried for as long as this is awaited.
    pub async fn connect(url: impl Into<String>, auth: Auth) -> Result<Client, Error> {
        Client::builder(url).auth(auth).connect().await
    }

    /// Connects a client that was built, suspended or closed.
    pub async fn open(&self) -> Result<(), Error> {
        self.handle.control(Control::Open).await.unwrap_or_else(|| Err(self.ended()))
    }

    /// Goodbye: present nowhere at once, the session ended.
    pub async fn close(&self) {
        self.handle.control(Control::Close).await;
    }

    /// Drops the transport and keeps the session: [`Client::open`] goes on with it while the server has it.
    pub async fn suspend(&self) {
        self.handle.control(Control::Suspend).await;
    }

    /// Ends the transport as a network would; the client comes back by itself.
    pub async fn drop_link(&self) {
        let _ = self.handle.control.send(Control::Drop).await;
    }

    pub fn channel(&self, name: impl Into<String>) -> Channel {
        Channel::new(self.handle.clone(), name.into())
    }

    /// All channels that match, as Redis globs do.
    pub fn pattern(&self, glob: impl Into<String>) -> Pattern {
        Pattern::new(self.handle.clone(), glob.into())
    }

    pub fn me(&self) -> Me {
        Me::new(self.handle.clone())
    }

    pub fn party(&self) -> Party {
        Party::new(self.handle.clone())
    }

    /// Everything that happens from now on.
    pub fn events(&self) -> Events {
        Events::new(self.handle.shared.events.subscribe())
    }

    /// Any command of the protocol, with its members as an object. `safe`: it may be repeated after a lost link.
    pub async fn command(&self, op: &str, members: Value, safe: bool) -> Result<Value, Error> {
        self.handle.ask(op, members, safe, Note::Nothing).await
    }

    pub fn state(&self) -> State {
        self.handle.shared.face().state
    }

    pub fn transport(&self) -> Option<Transport> {
        self.handle.shared.face().transport
    }

    /// The server that has the session.
    pub fn node(&self) -> Option<String> {
        self.handle.shared.face().node.clone()
    }

    /// What resumes this session from elsewhere: a secret, and the number of the last event.
    pub fn ticket(&self) -> Option<(String, u64)> {
        self.handle.shared.face().ticket.clone()
    }

    fn ended(&self) -> Error {
        self.handle.shared.face().ended.clone().unwrap_or_else(Error::closed)
    }
}
