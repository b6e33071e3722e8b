//! Opening a link: which address, which transport, which token, and what the answer to hello means.
//! Must hold: a permanent refusal ends the client; a new session restores subscriptions and presences before queued commands.

use super::ClientSession;
use crate::auth::{Auth, remaining};
use crate::backoff::chance;
use crate::error::OpenError;
use crate::event::Event;
use crate::history::HistoryCursor;
use crate::link::{self, Link, LinkRequest, Transport};
use crate::shared::{OnSuccess, lock};
use crate::{ConnectionState, Error};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Failures of a transport before the next is tried: of one that never worked, and of one that did.
const REFUSALS: (u32, u32) = (2, 5);
const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Refusals of hello that are retried. Any other ends the client.
const RETRY: [&str; 7] = ["rate_limited", "busy", "unavailable", "internal", "gone", "conflict", "blocked"];

impl ClientSession {
    /// Retries until a link is open; a failure may select another transport or address, or end the client.
    pub(super) async fn connect(&mut self) -> Result<Link, Error> {
        let mut failures = 0;
        loop {
            let transport = self.settings.transports[self.transport % self.settings.transports.len()];
            let opened = match self.provide_token().await {
                Ok(()) => link::open(transport, self.request()).await,
                Err(why) => Err(OpenError::Lost(why)),
            };
            let mut at_least = None;
            failures += 1;
            let given_up =
                self.worked.is_empty() && self.settings.attempts.is_some_and(|max| failures >= max);
            match opened {
                Ok((hello, link)) => {
                    self.welcome(&hello, transport);
                    return Ok(link);
                }
                Err(OpenError::Blocked(why) | OpenError::Lost(why)) if given_up => {
                    return Err(self.unreachable(&why));
                }
                Err(OpenError::Refused(error)) if given_up => return Err(error),
                Err(OpenError::Blocked(_)) => {
                    self.refusals += 1;
                    let max = if self.worked.contains(&transport) { REFUSALS.1 } else { REFUSALS.0 };
                    if self.refusals >= max {
                        (self.transport, self.refusals) = (self.transport + 1, 0);
                    }
                }
                Err(OpenError::Lost(_)) => {
                    self.address += 1;
                    if self.worked.contains(&self.settings.transports[0]) {
                        // No answer at all: the transport is not to blame, go back to the preferred one.
                        (self.transport, self.refusals) = (0, 0);
                    }
                }
                Err(OpenError::Refused(error)) => {
                    let source = matches!(self.settings.auth, Some(Auth::Source(_)));
                    if error.code == "unauthenticated" && source && !self.token_is_new {
                        // Retry at once with a new token; if that is refused too, give up.
                        self.token_expired = true;
                        continue;
                    } else if !RETRY.contains(&error.code.as_str()) {
                        return Err(error);
                    }
                    at_least = error.retry_after_ms;
                }
            }
            sleep(self.backoff.next(chance(), at_least)).await;
        }
    }

    fn unreachable(&self, why: &str) -> Error {
        let at = self.settings.addresses[self.address % self.settings.addresses.len()].authority();
        Error::new("unreachable", format!("cannot connect to {at}: {why}"))
    }

    fn request(&self) -> LinkRequest {
        LinkRequest {
            address: self.settings.addresses[self.address % self.settings.addresses.len()].clone(),
            tls: self.settings.tls.clone(),
            credential: self.credential.clone(),
            resume: self.session.clone().map(|session| (session, *self.seq.borrow())),
            statuses: self.settings.statuses,
            taken: self.seq.subscribe(),
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
        let given = timeout(TOKEN_TIMEOUT, source()).await.unwrap_or_else(|_| Err("no token in time".into()));
        self.credential.replace(given?);
        (self.token_expired, self.token_is_new) = (false, true);
        Ok(())
    }

    /// The link is open: the session was resumed, or a new one was opened.
    fn welcome(&mut self, hello: &Value, transport: Transport) {
        let resumed = hello["resumed"] == true && hello["reset"] != true;
        let before = self.session.is_some();
        self.session = hello["session"].as_str().map(str::to_owned);
        if !resumed {
            self.seq.send_replace(0);
            self.acked = 0;
        }
        self.frame_bytes = hello["frame_bytes"].as_u64().map_or(usize::MAX, |max| max as usize);
        self.heartbeat = Duration::from_millis(hello["heartbeat_ms"].as_u64().unwrap_or(15_000).max(100));
        (self.token_is_new, self.refusals) = (false, 0);
        if !self.worked.contains(&transport) {
            self.worked.push(transport);
        }
        {
            let text = |name: &str| hello[name].as_str().map(str::to_owned);
            let mut view = self.shared.view();
            (view.state, view.transport) = (ConnectionState::Open, Some(transport));
            (view.user, view.client, view.node) = (text("user"), text("client"), text("node"));
            view.ticket = self.session.clone().map(|session| (session, *self.seq.borrow()));
        }
        self.take_party(hello["party"].clone());
        if before && !resumed {
            self.restore();
        }
        match (resumed, before) {
            (true, _) => self.shared.emit(Event::Resumed),
            (false, false) => self.shared.emit(Event::Open),
            // Emitted when everything is restored.
            (false, true) if !self.restoring.is_empty() => {}
            (false, true) => self.shared.emit(Event::Reset),
        }
    }

    /// Queues what the new session needs, before all waiting commands.
    fn restore(&mut self) {
        for (_, live) in self.shared.lives() {
            lock(&live.map).mark_stale();
        }
        self.restoring.clear();
        let commands = self.desired.commands();
        for (op, mut members, on_success) in commands.into_iter().rev() {
            if let OnSuccess::Subscribe { channel, .. } = &on_success
                && let Some(since) = self.shared.with_cursor(channel, HistoryCursor::restart)
            {
                members["since"] = json!(since);
            }
            let command = self.command(op, members, true, on_success, None);
            self.restoring.insert(command.id);
            self.waiting.push_front(command);
        }
    }

    /// When to renew the token.
    pub(super) fn renewal(&self) -> Option<Instant> {
        let Some(Auth::Source(_)) = self.settings.auth else { return None };
        let left = remaining(&self.credential.token()?)?;
        Some(
            Instant::now()
                + left.saturating_sub((left / 4).min(Duration::from_secs(60))).max(Duration::from_millis(50)),
        )
    }
}
