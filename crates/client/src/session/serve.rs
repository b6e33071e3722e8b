//! Serving an open link: its frames, the commands of handles, heartbeats, the renewal of the token, and timers.
//! Must hold: nothing here waits for one thing alone.

use super::{ClientSession, LinkExit};
use crate::Error;
use crate::auth::{Auth, TokenFuture, remaining};
use crate::bounds::{KEPT, STAND_IN, TOKEN_TIMEOUT};
use crate::decisions::renew_after;
use crate::error::LinkEnd;
use crate::event::Event;
use crate::fault;
use crate::frame::ServerFrame;
use crate::link::{Link, LinkEvent, Transport};
use crate::random::chance;
use crate::shared::{Control, OnSuccess};
use serde_json::json;
use std::panic::resume_unwind;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Frames taken from a link at once.
const BATCH: usize = 64;
/// How often to check whether a slow reader has caught up (backpressure).
const CATCH_UP: Duration = Duration::from_millis(2);

impl ClientSession {
    pub(super) async fn serve(&mut self, link: &mut Link, control: &mut mpsc::Receiver<Control>) -> LinkExit {
        let mut last_received = Instant::now();
        let mut beat = tokio::time::interval_at(last_received + self.heartbeat, self.heartbeat);
        let mut renew = self.renewal();
        let mut renewing: Option<TokenFuture> = None;
        let preferred = self.stands_in.then(|| Instant::now() + STAND_IN.mul_f64(1.0 + chance()));
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            fault::point("session");
            let due = self.later.iter().map(|(at, _)| *at).min();
            let held = self.held.values().min().copied();
            let soon = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                () = sleep(CATCH_UP), if self.must_wait() => last_received = Instant::now(),
                count = link.incoming.recv_many(&mut batch, BATCH), if !self.must_wait() => {
                    // With SSE the answers to commands use another connection, and say nothing about the stream.
                    let beside = |frame: &ServerFrame| link.transport == Transport::Sse && frame.value.get("id").is_some();
                    if !batch.iter().all(|incoming| matches!(incoming, LinkEvent::Frame(frame) if beside(frame))) {
                        last_received = Instant::now();
                    }
                    let taken = match count {
                        0 => Err(LinkEnd::new("the connection ended")),
                        _ => batch.drain(..).try_for_each(|incoming| match incoming {
                            LinkEvent::Frame(frame) => self.take(frame),
                            LinkEvent::Alive => Ok(()),
                            LinkEvent::End(ending) => Err(ending),
                            // The client ends with the same cause.
                            LinkEvent::Failed(cause) => resume_unwind(Box::new(cause)),
                        }),
                    };
                    if let Err(ending) = taken {
                        return LinkExit::Lost(ending);
                    }
                }
                room = link.outgoing.reserve(), if !self.waiting.is_empty() => match room {
                    Ok(room) => if let Some(frame) = self.next_frame() { room.send(frame) },
                    // The reader reports why.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                },
                ask = self.requests.recv() => match ask {
                    Some(ask) => self.accept(ask),
                    None => return LinkExit::Dropped,
                },
                _ = beat.tick() => if let Err(ending) = self.heartbeat_due(link.transport, last_received) {
                    return LinkExit::Lost(ending);
                },
                () = sleep_until(renew.unwrap_or(soon)), if renew.is_some() => {
                    renew = None;
                    if let Some(Auth::Source(source)) = &self.settings.auth {
                        fault::point("renew");
                        renewing = Some(in_time(source()));
                    }
                }
                token = asked(&mut renewing), if renewing.is_some() => {
                    renewing = None;
                    self.renewed(token);
                    renew = self.renewal();
                }
                () = sleep_until(preferred.unwrap_or(soon)), if preferred.is_some() => {
                    (self.transport, self.refusals) = (0, 0);
                    return LinkExit::Lost(LinkEnd::new("the preferred transport is tried again"));
                }
                () = sleep_until(held.unwrap_or(soon)), if held.is_some() => self.announce_held(),
                () = sleep_until(due.unwrap_or(soon)), if due.is_some() => self.ask_again(),
                request = control.recv() => match request {
                    Some(Control::Open(done)) => {
                        let _ = done.send(Ok(()));
                    }
                    Some(request) => return LinkExit::Requested(request),
                    None => return LinkExit::Dropped,
                },
            }
        }
    }

    /// Sends the new token; without one the old token may still be valid.
    fn renewed(&mut self, token: Result<String, String>) {
        match token {
            Ok(token) => {
                self.credential.replace(token);
                let members = json!({"token": self.credential.token()});
                let command = self.command("hello", members, true, OnSuccess::Nothing, None);
                self.waiting.push_back(command);
            }
            Err(why) => self.shared.emit(Event::Error { error: Error::NoToken(why), retry_in: None }),
        }
    }

    /// When to renew the token.
    fn renewal(&self) -> Option<Instant> {
        if !self.settings.renews() {
            return None;
        }
        Some(Instant::now() + renew_after(remaining(&self.credential.token()?)?))
    }

    /// Whether a reader of events is so far behind that reading from the server must pause.
    fn must_wait(&self) -> bool {
        self.settings.backpressure && self.shared.events.len() > KEPT / 2
    }

    /// Acknowledges at each heartbeat; fails when the link was silent for two of them.
    fn heartbeat_due(&mut self, transport: Transport, last_received: Instant) -> Result<(), LinkEnd> {
        if transport == Transport::Poll {
            // Each poll acknowledges, and has its own timeout.
            return Ok(());
        }
        if last_received.elapsed() > 2 * self.heartbeat {
            return Err(LinkEnd::new("the server sent nothing for two heartbeats"));
        }
        let seq = *self.seq.borrow();
        if seq > self.acked {
            self.acked = seq;
            let command = self.command("ack", json!({"seq": seq}), true, OnSuccess::Nothing, None);
            self.waiting.push_back(command);
        } else if transport == Transport::WebSocket && last_received.elapsed() > self.heartbeat.mul_f64(0.9) {
            let command = self.command("ping", json!({}), true, OnSuccess::Nothing, None);
            self.waiting.push_back(command);
        }
        Ok(())
    }
}

/// What the function that gives tokens gives, in time.
pub(super) fn in_time(asked: TokenFuture) -> TokenFuture {
    let late = || Err("no token within 20 s".to_owned());
    Box::pin(async move { timeout(TOKEN_TIMEOUT, asked).await.unwrap_or_else(|_| late()) })
}

async fn asked(renewing: &mut Option<TokenFuture>) -> Result<String, String> {
    match renewing {
        Some(asked) => asked.await,
        None => std::future::pending().await,
    }
}
