//! Opening a link: which address, which transport, which token, and what the answer to hello means.
//! Must hold: a permanent refusal ends the client; a new session restores subscriptions and presences before queued commands.

use super::serve::in_time;
use super::{ClientSession, OWN_CLIENTS};
use crate::auth::{Auth, remaining};
use crate::bounds::REFUSALS;
use crate::decisions::{AfterHello, after_hello};
use crate::error::OpenError;
use crate::event::{Event, FailedRestore};
use crate::fault;
use crate::history::HistoryCursor;
use crate::link::{self, Link, LinkRequest, Transport};
use crate::shared::{OnSuccess, lock};
use crate::{ConnectionState, Error};
use serde_json::{Value, json};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The longest heartbeat and pause that a server can ask for.
const MAX_MS: u64 = 3_600_000;

impl ClientSession {
    /// Retries until a link is open; a failure may select another transport or address, or end the client.
    pub(super) async fn connect(&mut self) -> Result<Link, Error> {
        let mut failures = 0;
        loop {
            fault::point("connect");
            let address = &self.settings.addresses[self.address % self.settings.addresses.len()];
            let at = address.authority();
            let unreachable = |why: &str| Error::Unreachable(format!("cannot connect to {at}: {why}"));
            let transport = self.settings.transports[self.transport % self.settings.transports.len()];
            let given = self.provide_token().await;
            let began = Instant::now();
            let opened = match given {
                Ok(()) => link::open(transport, self.request()).await,
                Err(why) => Err(OpenError::NoToken(why)),
            };
            let failed = match opened {
                Ok((hello, link)) => {
                    self.welcome(&hello, transport);
                    return Ok(link);
                }
                Err(failed) => failed,
            };
            let mut at_least = None;
            let error = match failed {
                OpenError::Failed(cause) => resume_unwind(Box::new(cause)),
                OpenError::NoToken(why) => Error::NoToken(why),
                OpenError::Blocked(ending) => {
                    let error = unreachable(&ending.why);
                    self.check_reconnect(&ending)?;
                    if began.elapsed() >= self.settings.connect_timeout {
                        // No answer in time: perhaps it is the server that hangs.
                        self.address += 1;
                    }
                    self.refusals += 1;
                    let max = if self.worked.contains(&transport) { REFUSALS.1 } else { REFUSALS.0 };
                    if self.refusals >= max {
                        (self.transport, self.refusals) = (self.transport + 1, 0);
                    }
                    error
                }
                OpenError::Lost(why) => {
                    let error = unreachable(&why);
                    self.address += 1;
                    // No answer at all: the transport is not to blame, go back to the preferred one.
                    (self.transport, self.refusals) = (0, 0);
                    error
                }
                OpenError::Refused(error) => {
                    match after_hello(&error, self.settings.renews(), self.token_is_new) {
                        AfterHello::NewToken => {
                            self.token_expired = true;
                            continue;
                        }
                        AfterHello::Close => return Err(error),
                        AfterHello::Retry(retry_after_ms) => {
                            at_least = retry_after_ms.map(|ms| ms.min(MAX_MS))
                        }
                    }
                    error
                }
            };
            failures += 1;
            if self.worked.is_empty() && self.settings.attempts.is_some_and(|max| failures >= max) {
                return Err(error);
            }
            let wait = self.next_wait(at_least);
            self.settings.log(|| {
                format!("not connected ({}): {}; again in {wait:?}", transport.as_str(), error.message())
            });
            self.shared.view().last_failure = Some(error.message());
            self.shared.emit(Event::Error { error, retry_in: Some(wait) });
            sleep(wait).await;
        }
    }

    fn request(&self) -> LinkRequest {
        LinkRequest {
            address: self.settings.addresses[self.address % self.settings.addresses.len()].clone(),
            tls: self.settings.tls.clone(),
            credential: self.credential.clone(),
            resume: self.session.clone().map(|session| (session, *self.seq.borrow())),
            statuses: self.settings.statuses,
            taken: self.seq.subscribe(),
            timeout: self.settings.connect_timeout,
            reached: Arc::default(),
        }
    }

    pub(super) async fn provide_token(&mut self) -> Result<(), String> {
        let Some(Auth::Source(source)) = &self.settings.auth else { return Ok(()) };
        let has = self.credential.token();
        if has
            .is_some_and(|token| !self.token_expired && remaining(&token).is_none_or(|left| !left.is_zero()))
        {
            return Ok(());
        }
        self.credential.replace(in_time(source()).await?);
        (self.token_expired, self.token_is_new) = (false, true);
        Ok(())
    }

    /// The link is open: the session was resumed, or a new one was opened.
    fn welcome(&mut self, hello: &Value, transport: Transport) {
        let resumed = hello["resumed"] == true && hello["reset"] != true;
        let before = std::mem::replace(&mut self.had_session, true);
        self.settings.log(|| format!("connected ({}), resumed: {resumed}", transport.as_str()));
        self.session = hello["session"].as_str().map(str::to_owned);
        if !resumed {
            self.seq.send_replace(0);
            self.acked = 0;
        }
        self.frame_bytes = hello["frame_bytes"].as_u64().map_or(usize::MAX, |max| max as usize);
        self.heartbeat =
            Duration::from_millis(hello["heartbeat_ms"].as_u64().unwrap_or(15_000).clamp(100, MAX_MS));
        (self.token_is_new, self.refusals) = (false, 0);
        let first = self.settings.transports[0];
        let is_new = !self.worked.contains(&transport);
        self.stands_in = is_new && transport != first && self.worked.contains(&first);
        if is_new {
            self.worked.push(transport);
        }
        {
            let text = |name: &str| hello[name].as_str().map(str::to_owned);
            let mut view = self.shared.view();
            (view.state, view.transport) = (ConnectionState::Open, Some(transport));
            (view.user, view.client, view.node) = (text("user"), text("client"), text("node"));
            view.last_failure = None;
            if let Some(client) = view.client.clone().filter(|client| !self.own.contains(client)) {
                self.own.drain(..(self.own.len() + 1).saturating_sub(OWN_CLIENTS));
                self.own.push(client);
            }
            view.ticket = self.session.clone().map(|session| (session, *self.seq.borrow()));
        }
        if let Some(party) = hello.get("party") {
            self.shared.take_party_json(party);
        }
        if before && !resumed {
            self.restore();
        }
        match (resumed, before) {
            (true, _) => self.shared.emit(Event::Resumed),
            (false, false) => self.shared.emit(Event::Open),
            // Emitted when everything is restored.
            (false, true) if !self.restoring.is_empty() => {}
            (false, true) => self.shared.emit(Event::Reset { failed: Vec::new() }),
        }
    }

    /// Queues what the new session needs, before all waiting commands.
    fn restore(&mut self) {
        for (_, live) in self.shared.lives() {
            lock(&live.map).mark_stale();
        }
        self.restoring.clear();
        self.failed.clear();
        self.held.clear();
        let commands = self.desired.commands();
        for (op, mut members, on_success) in commands.into_iter().rev() {
            if let OnSuccess::Subscribe { channel, .. } = &on_success
                && let Some(since) = self.shared.with_cursor(channel, HistoryCursor::restart)
            {
                members["since"] = json!(since);
            }
            let command = self.command(op, members, true, on_success, None);
            let name = |name: &str| command.frame.members[name].as_str().map(str::to_owned);
            let (channel, pattern) = (name("channel"), name("pattern"));
            let failed = FailedRestore { verb: op.to_owned(), channel, pattern, error: Error::closed() };
            self.restoring.insert(command.id, failed);
            self.waiting.push_front(command);
        }
    }
}
