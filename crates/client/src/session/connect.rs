//! From nothing to an open link: which address, which way, which token, and what the answer to hello means.
//! Must hold: a refusal for good ends the trying; a new session is told what the old one wanted before anything that waits.

use super::Session;
use crate::auth::{Auth, remaining};
use crate::backoff::chance;
use crate::error::OpenError;
use crate::event::Event;
use crate::link::{self, Door, Link, Transport};
use crate::shared::lock;
use crate::{Error, State};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Refusals of a way before the next is tried: of one that never worked, and of one that did.
const REFUSALS: (u32, u32) = (2, 5);
const TOKEN_PATIENCE: Duration = Duration::from_secs(20);
/// Hello refused with one of these: asking again may help. Anything else ends the client.
const RETRY: [&str; 7] = ["rate_limited", "busy", "unavailable", "internal", "gone", "conflict", "blocked"];

impl Session {
    /// Tries until a link is open; each failure may choose another way or address, or end it all.
    pub(super) async fn connect(&mut self) -> Result<Link, Error> {
        let mut failures = 0;
        loop {
            let transport = self.settings.transports[self.way % self.settings.transports.len()];
            let opened = match self.provide_token().await {
                Ok(()) => link::open(transport, self.door()).await,
                Err(why) => Err(OpenError::Lost(why)),
            };
            let mut at_least = None;
            failures += 1;
            let given_up =
                self.worked.is_empty() && self.settings.attempts.is_some_and(|most| failures >= most);
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
                    let most = if self.worked.contains(&transport) { REFUSALS.1 } else { REFUSALS.0 };
                    if self.refusals >= most {
                        (self.way, self.refusals) = (self.way + 1, 0);
                    }
                }
                Err(OpenError::Lost(_)) => {
                    self.at += 1;
                    if self.worked.contains(&self.settings.transports[0]) {
                        // Nobody answered at all: no way is to blame, and the best is the next.
                        (self.way, self.refusals) = (0, 0);
                    }
                }
                Err(OpenError::Refused(error)) => {
                    let source = matches!(self.settings.auth, Some(Auth::Source(_)));
                    if error.code == "unauthenticated" && source && !self.fresh {
                        // With another token, and at once; a new one that is refused is the end.
                        self.stale = true;
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
        let at = self.settings.addresses[self.at % self.settings.addresses.len()].authority();
        Error::new("unreachable", format!("cannot connect to {at}: {why}"))
    }

    fn door(&self) -> Door {
        Door {
            address: self.settings.addresses[self.at % self.settings.addresses.len()].clone(),
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
        if has.is_some_and(|token| !self.stale && remaining(&token).is_none_or(|left| !left.is_zero())) {
            return Ok(());
        }
        let given =
            timeout(TOKEN_PATIENCE, source()).await.unwrap_or_else(|_| Err("no token in time".into()));
        self.credential.replace(given?);
        (self.stale, self.fresh) = (false, true);
        Ok(())
    }

    /// The link is open: the old session goes on, or another has begun.
    fn welcome(&mut self, hello: &Value, transport: Transport) {
        let resumed = hello["resumed"] == true && hello["reset"] != true;
        let before = self.session.is_some();
        self.session = hello["session"].as_str().map(str::to_owned);
        if !resumed {
            self.seq.send_replace(0);
            self.acked = 0;
        }
        self.heartbeat = Duration::from_millis(hello["heartbeat_ms"].as_u64().unwrap_or(15_000).max(100));
        (self.fresh, self.refusals) = (false, 0);
        if !self.worked.contains(&transport) {
            self.worked.push(transport);
        }
        {
            let text = |name: &str| hello[name].as_str().map(str::to_owned);
            let mut face = self.shared.face();
            (face.state, face.transport) = (State::Open, Some(transport));
            (face.user, face.client, face.node) = (text("user"), text("client"), text("node"));
            face.ticket = self.session.clone().map(|session| (session, *self.seq.borrow()));
        }
        self.take_party(hello["party"].clone());
        if before && !resumed {
            self.restore();
        }
        match (resumed, before) {
            (true, _) => self.shared.tell(Event::Resumed),
            (false, false) => self.shared.tell(Event::Open),
            // Told when everything that was wanted is there again.
            (false, true) if !self.restoring.is_empty() => {}
            (false, true) => self.shared.tell(Event::Reset),
        }
    }

    /// What the new session must be told before anything that waits.
    fn restore(&mut self) {
        for (_, live) in self.shared.lives() {
            lock(&live.roster).lose();
        }
        self.restoring.clear();
        let commands = self.wanted.commands();
        for (op, members, note) in commands.into_iter().rev() {
            let command = self.command(op, members, true, note, None);
            self.restoring.insert(command.id);
            self.waiting.push_front(command);
        }
    }

    /// When to get another token.
    pub(super) fn renewal(&self) -> Option<Instant> {
        let Some(Auth::Source(_)) = self.settings.auth else { return None };
        let left = remaining(&self.credential.token()?)?;
        Some(
            Instant::now()
                + left.saturating_sub((left / 4).min(Duration::from_secs(60))).max(Duration::from_millis(50)),
        )
    }
}
