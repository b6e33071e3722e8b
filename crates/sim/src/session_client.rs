//! A simulated client for most workloads: a session that it resumes, one connection at a time, one command at a
//! time. It assumes nothing that was not acknowledged.

use crate::cluster::{Cluster, ConnectionId};
use serde_json::Value;
use std::collections::VecDeque;
use tavern_domain::{ClientId, Time};

/// `C` is a command of the workload.
pub struct SessionClient<C> {
    pub user: String,
    /// The secret from hello, and the public id that goes with it.
    pub session: Option<String>,
    pub id: Option<ClientId>,
    /// The node that had the session last, and its process.
    pub home: (usize, u64),
    /// The last sequence number that was received.
    pub seq: u64,
    pub connection: Option<ConnectionId>,
    /// The node of the connection.
    pub node: usize,
    /// Hello was answered on this connection.
    pub greeted: bool,
    pub pending: Option<C>,
    pub todo: VecDeque<C>,
    /// When it retries refused commands.
    pub retry_at: Option<Time>,
    commands: u64,
}

/// The content of the reply to hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub resumed: bool,
    /// The session is in another process than before.
    pub moved: bool,
}

impl<C: Copy> SessionClient<C> {
    pub fn new(user: String) -> SessionClient<C> {
        SessionClient {
            user,
            session: None,
            id: None,
            home: (0, 0),
            seq: 0,
            connection: None,
            node: 0,
            greeted: false,
            pending: None,
            todo: VecDeque::new(),
            retry_at: None,
            commands: 0,
        }
    }

    /// Can send a command now.
    pub fn is_idle(&self) -> bool {
        self.connection.is_some() && self.greeted && self.pending.is_none()
    }

    /// Opens a connection and sends hello with the session it has.
    pub fn connect(&mut self, cluster: &mut Cluster, client: usize, node: usize, shard: usize, hello: C) {
        assert!(self.connection.is_none(), "one connection at a time");
        self.connection = Some(cluster.connect(client, node, shard));
        self.node = node;
        let session = match &self.session {
            Some(session) => format!(r#","session":"{session}","seq":{}"#, self.seq),
            None => String::new(),
        };
        let body = format!(r#""op":"hello","token":"token-of-{}"{session}"#, self.user);
        self.send(cluster, hello, &body);
    }

    /// Sends a command; its answer is expected before the next one.
    pub fn send(&mut self, cluster: &mut Cluster, command: C, body: &str) {
        let Some(connection) = self.connection else { return };
        self.commands += 1;
        self.pending = Some(command);
        cluster.send(connection, format!(r#"{{"id":{},{body}}}"#, self.commands));
    }

    /// The command that a frame answers, if it is an answer and not an event.
    pub fn answered(&mut self, frame: &Value) -> Result<Option<C>, String> {
        let Some(id) = frame.get("id") else { return Ok(None) };
        if id.as_u64() != Some(self.commands) {
            return Err(format!("an answer to {id}, while {} is pending", self.commands));
        }
        self.pending.take().map(Some).ok_or_else(|| format!("a second answer: {frame}"))
    }

    /// Handles the reply to hello.
    pub fn greet(&mut self, ok: &Value, process: u64) -> Result<Greeting, String> {
        let resumed = ok["resumed"] == true;
        if ok["reset"] == true {
            return Err("its sequence numbers were reset".into());
        }
        let id = ok["client"].as_str().and_then(ClientId::parse).ok_or("no client id")?;
        if resumed && self.id != Some(id) {
            return Err("it resumed as another client".into());
        }
        let home = (self.node, process);
        let moved = self.home != home;
        if !resumed {
            self.seq = 0;
        }
        self.session = ok["session"].as_str().map(str::to_owned);
        (self.id, self.home, self.greeted) = (Some(id), home, true);
        Ok(Greeting { resumed, moved })
    }

    /// Checks the next sequence number of its mailbox.
    pub fn number(&mut self, event: &Value) -> Result<(), String> {
        if event["seq"].as_u64() != Some(self.seq + 1) {
            return Err(format!("seq {} arrived after {}", event["seq"], self.seq));
        }
        self.seq += 1;
        Ok(())
    }

    /// The connection is closed, and with it every pending answer. Returns the command that waited for one.
    pub fn cut_off(&mut self) -> Option<C> {
        self.connection = None;
        self.greeted = false;
        self.retry_at = None;
        self.todo.clear();
        self.pending.take()
    }

    /// It logged out: the next hello opens a new session.
    pub fn forget(&mut self) {
        (self.session, self.id, self.seq) = (None, None, 0);
    }
}
