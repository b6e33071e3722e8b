//! The socket of a Pusher client: frames in and out, pings, the end. It knows nothing of what the frames mean.
//! Must hold: a client that does not read makes its sessions wait, not the memory grow; a silent one is noticed.

use super::client::PusherClient;
use super::occupancy::Occupancy;
use super::registry::PusherServer;
use super::sessions::SessionNumber;
use crate::gateway::{GatewaySocket, SocketEvent};
use crate::random::random_bits;
use crate::shard::input::GatewayOutput;
use crate::shard::shared_output::SharedOutput;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::AddressGroup;
use tavern_pusher::{PusherError, connection_established, error_frame};
use tokio::time::{Instant, sleep_until, timeout};

/// A client that has heard nothing for this long asks whether the server is there.
const ACTIVITY_TIMEOUT_S: u64 = 120;
/// The largest frame: an event of 10 KiB, escaped, or the data of a user with a signature.
const FRAME_BYTES: usize = 64 * 1024;
/// The time in which a connection has to show a signature, where the app asks for one.
const AUTHENTICATION: Duration = Duration::from_secs(30);
/// The time that the last frames have to be written.
const GOODBYE: Duration = Duration::from_secs(1);

/// How a connection ends.
#[derive(Debug)]
pub enum SocketEnd {
    /// The client has closed it, or is gone.
    Gone,
    Told(PusherError),
}

/// What a connection waited for.
enum SocketWaited {
    Socket(SocketEvent),
    Output(SessionNumber, Option<GatewayOutput>),
    Counts(BTreeMap<Arc<str>, u64>),
    /// The socket has not taken all that the shard wrote: the next turn writes it.
    Stuck,
    Timer,
}

/// Tells a client why it is not served.
pub async fn refuse(mut socket: GatewaySocket, error: &PusherError) {
    let goodbye = async {
        if socket.write(&[error_frame(error)]).await.is_ok() {
            socket.close_with(error.close_code(), &error.message).await;
        }
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

pub async fn serve(
    server: Arc<PusherServer>,
    occupancy: Arc<Occupancy>,
    address: Option<AddressGroup>,
    mut socket: GatewaySocket,
) {
    let heartbeat = Duration::from_millis(server.sources.config.sessions.heartbeat_ms);
    let needs_login = occupancy.app.user_authentication;
    let mut client = PusherClient::new(server, occupancy, socket_id(), address, socket.shared_output());
    let mut connection = Connection {
        heartbeat,
        login_by: needs_login.then(|| Instant::now() + AUTHENTICATION),
        pinged: None,
    };
    if let SocketEnd::Told(error) = connection.run(&mut socket, &mut client).await {
        refuse(socket, &error).await;
    }
}

/// Two numbers: clients sign with it, so it must not be guessed.
fn socket_id() -> String {
    let bits = random_bits();
    // Numbers that every language holds exactly.
    let number = |bits: u128| (bits as u64) >> 12;
    format!("{}.{}", number(bits), number(bits >> 64))
}

async fn stuck(shared: Option<&SharedOutput>) {
    match shared {
        Some(shared) => shared.stuck().await,
        None => std::future::pending().await,
    }
}

struct Connection {
    heartbeat: Duration,
    login_by: Option<Instant>,
    /// When the client was last asked whether it is there.
    pinged: Option<Instant>,
}

impl Connection {
    async fn run(&mut self, socket: &mut GatewaySocket, client: &mut PusherClient) -> SocketEnd {
        if let Err(end) = client.begin().await {
            return end;
        }
        client.out.push(connection_established(&client.id, ACTIVITY_TIMEOUT_S));
        loop {
            if let Err(end) = self.turn(socket, client).await {
                // What was written before the end, such as why.
                let _ = timeout(GOODBYE, socket.write(&std::mem::take(&mut client.out))).await;
                return end;
            }
        }
    }

    async fn turn(&mut self, socket: &mut GatewaySocket, client: &mut PusherClient) -> Result<(), SocketEnd> {
        let frames = std::mem::take(&mut client.out);
        // A client that does not read for so long would not answer a ping either.
        match timeout(self.heartbeat, socket.write(&frames)).await {
            Ok(Ok(())) => client.written(),
            _ => return Err(SocketEnd::Gone),
        }
        let (wake, counts, shared) = (self.next_wake(socket), client.counts.clone(), socket.shared_output());
        let waited = tokio::select! {
            event = socket.next(FRAME_BYTES) => SocketWaited::Socket(event),
            (number, output) = client.next() => SocketWaited::Output(number, output),
            counts = counts.next() => SocketWaited::Counts(counts),
            () = stuck(shared.as_deref()) => SocketWaited::Stuck,
            () = sleep_until(wake) => SocketWaited::Timer,
        };
        match waited {
            SocketWaited::Socket(SocketEvent::Text(text)) => client.frame(&text).await?,
            SocketWaited::Socket(SocketEvent::Control) => {}
            SocketWaited::Socket(SocketEvent::Closed) => return Err(SocketEnd::Gone),
            SocketWaited::Output(number, output) => client.output(number, output)?,
            SocketWaited::Counts(counts) => client.tell_counts(&counts),
            SocketWaited::Stuck => {}
            SocketWaited::Timer => self.timer(socket, client)?,
        }
        client.read_stale().await
    }

    fn next_wake(&self, socket: &GatewaySocket) -> Instant {
        let silent = if self.is_asked(socket) { self.heartbeat * 2 } else { self.heartbeat };
        let wake = socket.heard() + silent;
        self.login_by.map_or(wake, |login_by| login_by.min(wake))
    }

    fn timer(&mut self, socket: &mut GatewaySocket, client: &PusherClient) -> Result<(), SocketEnd> {
        if client.is_authenticated {
            self.login_by = None;
        }
        if self.login_by.is_some_and(|by| Instant::now() >= by) {
            return Err(SocketEnd::Told(PusherError::UNAUTHORIZED));
        }
        let silent = socket.heard().elapsed();
        if silent >= self.heartbeat && !self.is_asked(socket) {
            self.pinged = Some(Instant::now());
            socket.ping();
        } else if silent >= self.heartbeat * 2 {
            return Err(SocketEnd::Told(PusherError::NO_PONG));
        }
        Ok(())
    }

    /// It was asked since it was last heard.
    fn is_asked(&self, socket: &GatewaySocket) -> bool {
        self.pinged.is_some_and(|at| at >= socket.heard())
    }
}
