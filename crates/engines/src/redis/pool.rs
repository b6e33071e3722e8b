//! The connections to the servers: which server has the store, and reconnecting. Must hold: a request is retried only
//! if the server has certainly not executed it, never if its outcome is unknown; a caller waits only briefly for a
//! connection.

use super::address::{RedisAddress, RedisMode};
use super::connection::{RedisConnection, RedisReply};
use super::error::RedisError;
use super::script::ScriptCall;
use super::value::text;
use crate::reconnects::Reconnects;
use crate::remote::{Host, broken};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// For connecting to a server and logging in.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request waits for a connection that was just lost, or for a cluster that moves slots: long enough for a
/// restart.
const GRACE: Duration = Duration::from_secs(2);
/// Between two attempts: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct ConnectionPool {
    address: RedisAddress,
    /// The slot of every key of the store, in a cluster.
    slot: u16,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The server that has the store: in a cluster the one with its slot, else the primary. None: it must be found.
    primary: Option<Host>,
    connections: HashMap<Host, Arc<RedisConnection>>,
    /// No server was reached: requests fail at once until this time; and the backoff before the next attempt.
    down: Option<(Instant, Duration)>,
    reconnects: Arc<Reconnects>,
}

impl ConnectionPool {
    pub fn new(address: RedisAddress, slot: u16, reconnects: Arc<Reconnects>) -> ConnectionPool {
        ConnectionPool { address, slot, state: Mutex::new(PoolState { reconnects, ..PoolState::default() }) }
    }

    /// Connects to the server that has the store, to check the address.
    pub async fn open(&self) -> Result<(), RedisError> {
        self.state.lock().await.connect(&self.address, self.slot).await.map(drop)
    }

    /// Sends a request and retries it while that is safe.
    pub async fn ask(&self, request: &ScriptCall) -> Result<RedisReply, RedisError> {
        self.ask_all(request, &[]).await
    }

    /// The same, followed by `more` on the same connection; then the reply is the list of all replies.
    pub async fn ask_all(
        &self,
        request: &ScriptCall,
        more: &[bytes::Bytes],
    ) -> Result<RedisReply, RedisError> {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let (host, connection) = self.connection().await?;
            let error = match send(&connection, request, more).await {
                Err(error) if error.code() == "ASK" => {
                    match self.follow(&error, &host, request, more).await {
                        Err(error) => error,
                        done => return done,
                    }
                }
                Err(error) => error,
                done => return done,
            };
            if error.ends_connection() {
                self.state.lock().await.lose(&host, &connection);
            }
            if !error.is_transient() || begin.elapsed() > GRACE {
                return Err(error);
            }
            match error.code() {
                "NOSCRIPT" => {
                    let Some(script) = request.script else { return Err(error) };
                    connection.send(script.load()).reply().await?;
                }
                "MOVED" => self.state.lock().await.primary = Some(redirection(&error, &host)?),
                _ => {
                    self.state.lock().await.primary = None;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn connection(&self) -> Result<(Host, Arc<RedisConnection>), RedisError> {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let mut state = self.state.lock().await;
            if state.down.is_some_and(|(until, _)| Instant::now() < until) {
                return Err(RedisError::NotConnected);
            }
            let error = match state.connect(&self.address, self.slot).await {
                Ok(found) => {
                    if state.down.take().is_some() {
                        tracing::info!("redis reconnected");
                    }
                    return Ok(found);
                }
                Err(error) => error,
            };
            if state.down.is_some() || begin.elapsed() > GRACE {
                let wait = state.down.map_or(FIRST_PAUSE, |(_, wait)| (wait * 2).min(LONGEST_PAUSE));
                state.down = Some((Instant::now() + wait, wait));
                let retry_ms = wait.as_millis();
                tracing::warn!(error = &error as &dyn std::error::Error, retry_ms, "redis unreachable");
                return Err(error);
            }
            drop(state);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The slot is being moved: sends this one request to the server that will have it.
    async fn follow(
        &self,
        error: &RedisError,
        asked: &Host,
        request: &ScriptCall,
        more: &[bytes::Bytes],
    ) -> Result<RedisReply, RedisError> {
        let host = redirection(error, asked)?;
        let connection = self.state.lock().await.connect_to(&self.address, &host).await?;
        let asking = connection.send((&b"*1\r\n$6\r\nASKING\r\n"[..]).into());
        let outcome = send(&connection, request, more).await;
        asking.reply().await?;
        if outcome.as_ref().is_err_and(|error| error.code() == "NOSCRIPT")
            && let Some(script) = request.script
        {
            connection.send(script.load()).reply().await?;
        }
        outcome
    }
}

async fn send(
    connection: &RedisConnection,
    request: &ScriptCall,
    more: &[bytes::Bytes],
) -> Result<RedisReply, RedisError> {
    let first = connection.send(request.command.clone());
    let rest: Vec<_> = more.iter().map(|command| connection.send(command.clone())).collect();
    let reply = first.reply().await?;
    let mut answers = vec![reply];
    for pending in rest {
        answers.push(pending.reply().await?);
    }
    Ok(if more.is_empty() { answers.remove(0) } else { RedisReply::List(answers) })
}

/// `MOVED 42 host:port`, and the same with ASK. Without a name it is a port of the server that sent it.
fn redirection(error: &RedisError, asked: &Host) -> Result<Host, RedisError> {
    let RedisError::Refused(text) = error else { return Err(RedisError::Unexpected("not a redirection")) };
    let place = text.split(' ').nth(2).and_then(|place| place.rsplit_once(':'));
    let (name, port) = place.ok_or(RedisError::Unexpected("a redirection without an address"))?;
    let port = port.parse().map_err(|_| RedisError::Unexpected("a redirection without an address"))?;
    let name = if name.is_empty() { &asked.name } else { name };
    Ok(Host { name: name.to_owned(), port })
}

impl PoolState {
    async fn connect(
        &mut self,
        address: &RedisAddress,
        slot: u16,
    ) -> Result<(Host, Arc<RedisConnection>), RedisError> {
        if address.kind == RedisMode::Cluster {
            let host = match self.primary.clone() {
                Some(host) => host,
                None => find_slot(self, address, slot).await?,
            };
            let connection = self.connect_to(address, &host).await;
            // If it failed, its replica may have been promoted.
            self.primary = connection.is_ok().then(|| host.clone());
            return Ok((host, connection?));
        }
        if let Some(host) = self.primary.clone()
            && let Some(connection) = self.open_connection(&host)
        {
            return Ok((host, connection));
        }
        let mut outcome = Err(RedisError::NotConnected);
        for host in &address.hosts {
            outcome = self.find_primary(address, host).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn find_primary(
        &mut self,
        address: &RedisAddress,
        host: &Host,
    ) -> Result<(Host, Arc<RedisConnection>), RedisError> {
        let host = within(address.primary(host)).await?;
        let connection = self.connect_to(address, &host).await?;
        // A login that is not allowed to read the role does not learn it; a replica will refuse writes.
        if let Ok(role) = connection.ask(&[b"ROLE"]).await
            && role.list()?.first().is_some_and(|role| role.text().is_ok_and(|role| role != "master"))
        {
            self.connections.remove(&host);
            return Err(RedisError::Refused("READONLY this server is a replica".into()));
        }
        self.primary = Some(host.clone());
        Ok((host, connection))
    }

    fn open_connection(&self, host: &Host) -> Option<Arc<RedisConnection>> {
        self.connections.get(host).filter(|connection| !connection.is_closed()).cloned()
    }

    async fn connect_to(
        &mut self,
        address: &RedisAddress,
        host: &Host,
    ) -> Result<Arc<RedisConnection>, RedisError> {
        if let Some(connection) = self.open_connection(host) {
            return Ok(connection);
        }
        let (mut socket, mut early) = within(address.log_in(host)).await?;
        self.reconnects.note(within(address.run_id(&mut socket, &mut early)).await.unwrap_or_default());
        if !early.is_empty() {
            return Err(broken("the server sent something unasked").into());
        }
        let connection = Arc::new(RedisConnection::new(socket));
        self.connections.insert(host.clone(), connection.clone());
        Ok(connection)
    }

    fn lose(&mut self, host: &Host, connection: &Arc<RedisConnection>) {
        if self.connections.get(host).is_some_and(|known| Arc::ptr_eq(known, connection)) {
            self.connections.remove(host);
            self.primary = None;
            tracing::warn!("redis connection lost");
        }
    }
}

async fn within<T>(reaching: impl Future<Output = io::Result<T>>) -> Result<T, RedisError> {
    let reached = tokio::time::timeout(CONNECT_TIMEOUT, reaching).await;
    Ok(reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
}

/// Asks any server of a cluster which one has a slot, connected ones before those of the address.
async fn find_slot(state: &mut PoolState, address: &RedisAddress, slot: u16) -> Result<Host, RedisError> {
    let mut outcome = Err(RedisError::NotConnected);
    let known: Vec<Host> = state.connections.keys().cloned().collect();
    for host in known.iter().chain(&address.hosts) {
        let asked = async {
            let connection = state.connect_to(address, host).await?;
            let map = connection.ask(&[b"CLUSTER", b"SLOTS"]).await?.list()?;
            let ranges: Vec<(u16, u16, Host)> =
                map.into_iter().map(|range| slot_range(range, host)).collect::<Result<_, RedisError>>()?;
            let found = ranges.into_iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
            let missing = || RedisError::Refused("CLUSTERDOWN no server has the slot of the store".into());
            found.map(|(.., host)| host).ok_or_else(missing)
        };
        outcome = asked.await;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn slot_range(range: RedisReply, asked: &Host) -> Result<(u16, u16, Host), RedisError> {
    let mut parts = range.list()?.into_iter();
    let mut next = || parts.next().ok_or(RedisError::Unexpected("slots without servers"));
    let slot =
        |reply: RedisReply| u16::try_from(reply.number()?).map_err(|_| RedisError::Unexpected("not a slot"));
    let (from, to) = (slot(next()?)?, slot(next()?)?);
    let master = next()?.list()?;
    let [name, port, ..] = &master[..] else { return Err(RedisError::Unexpected("slots without servers")) };
    // A server that does not know its own name has the name under which it was asked.
    let name = match name {
        RedisReply::Text(name) if !name.is_empty() && name != "?" => text(name)?.to_owned(),
        _ => asked.name.clone(),
    };
    let port = u16::try_from(port.number()?).map_err(|_| RedisError::Unexpected("not a port"))?;
    Ok((from, to, Host { name, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_a_server() {
        let asked = Host { name: "here".into(), port: 1 };
        for (received, name, port) in [
            ("MOVED 42 10.0.0.1:7000", "10.0.0.1", 7000),
            ("ASK 42 ::1:7000", "::1", 7000),
            ("MOVED 42 :7001", "here", 7001),
        ] {
            let host = redirection(&RedisError::Refused(received.into()), &asked).unwrap();
            assert_eq!(host, Host { name: name.into(), port }, "{received}");
        }
        for received in ["MOVED", "MOVED 42", "MOVED 42 there", "MOVED 42 there:x"] {
            assert!(redirection(&RedisError::Refused(received.into()), &asked).is_err(), "{received}");
        }
    }
}
