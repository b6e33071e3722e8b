//! Commands and their answers: sending, success, refusal, retry, and unknown outcomes after a lost link.

use super::{ClientSession, SentCommand};
use crate::Error;
use crate::auth::Auth;
use crate::error::LinkEnd;
use crate::event::{Event, Gap};
use crate::frame::Outgoing;
use crate::shared::{OnSuccess, lock};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Retries of a command that the server refused temporarily, and the first wait.
const TRIES: u32 = 5;
const AGAIN_MS: u64 = 125;

impl ClientSession {
    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(super) fn command(
        &mut self,
        op: &str,
        members: Value,
        safe: bool,
        on_success: OnSuccess,
        reply: Option<oneshot::Sender<Result<Value, Error>>>,
    ) -> SentCommand {
        let id = self.next_id();
        let mut frame = members;
        frame["id"] = json!(id);
        frame["op"] = json!(op);
        SentCommand { id, frame: frame.into(), safe, on_success, reply, tries: 0 }
    }

    /// The next command whose caller still waits.
    pub(super) fn next_frame(&mut self) -> Option<Outgoing> {
        while let Some(command) = self.waiting.pop_front() {
            if command.is_wanted() {
                if command.frame.bytes() > self.frame_bytes {
                    let message = format!("{} has more than {} bytes", command.op(), self.frame_bytes);
                    command.answer(Err(Error::new("too_large", message)));
                    continue;
                }
                let frame = command.frame.clone();
                self.pending.insert(command.id, command);
                return Some(frame);
            }
        }
        None
    }

    pub(super) fn take_answer(&mut self, id: u64, mut frame: Value) -> Result<(), LinkEnd> {
        let Some(command) = self.pending.remove(&id) else { return Ok(()) };
        if let Some(ok @ Value::Object(_)) = frame.get_mut("ok") {
            let ok = ok.take();
            self.granted(&command.on_success, &ok);
            command.answer(Ok(ok));
            self.restored(id);
            return Ok(());
        }
        self.refused(command, Error::from_wire(frame.get("error")))
    }

    fn granted(&mut self, on_success: &OnSuccess, ok: &Value) {
        self.desired.record(on_success);
        match on_success {
            OnSuccess::Subscribe { channel, watch } => {
                if let Some(actual) = ok["channel"].as_str() {
                    self.shared.redirect(channel, actual);
                }
                self.shared.with_cursor(channel, |cursor| cursor.answered(ok));
                if let Some(recovered) = ok["recovered"].as_bool() {
                    self.shared.emit(Event::Recovered { channel: channel.clone(), recovered });
                    if !recovered {
                        self.shared
                            .emit(Event::Gap(Gap { channel: Some(channel.clone()), ..Gap::default() }));
                    }
                }
                if *watch && ok["members"].is_object() {
                    self.show(channel, |map| map.restore(&ok["members"]));
                }
            }
            OnSuccess::Unsubscribe { channel } => {
                lock(&self.shared.live(channel).map).mark_stale();
                self.shared.forget_cursor(channel);
            }
            OnSuccess::Party { .. } if ok.get("party").is_some() => {
                self.party_asked = false;
                self.take_party(ok["party"].clone());
            }
            OnSuccess::Party { changes: true } => self.ask_party(),
            _ => {}
        }
    }

    fn refused(&mut self, mut command: SentCommand, error: Error) -> Result<(), LinkEnd> {
        command.tries += 1;
        if command.tries <= TRIES {
            let can_renew = matches!(self.settings.auth, Some(Auth::Source(_)));
            let expired = error.code == "unauthenticated" && can_renew && command.op() != "hello";
            if error.code == "gone" || expired {
                // It was not executed: send it in the next session, or with a new token.
                self.token_expired |= expired;
                self.waiting.push_front(command);
                return Err(LinkEnd::new("the session has ended"));
            }
            // The rate limit of party commands is for the caller to handle.
            let limited = error.code == "rate_limited" && !command.op().starts_with("party.");
            if command.safe && (limited || error.code == "unavailable") {
                let wait = error.retry_after_ms.unwrap_or(AGAIN_MS << command.tries);
                self.later.push((Instant::now() + Duration::from_millis(wait), command));
                return Ok(());
            }
        }
        if let OnSuccess::Party { .. } = command.on_success {
            self.party_asked = false;
            if let Some(party) = &error.party {
                self.take_party(Value::clone(party));
            }
        }
        let (id, by_itself, op) = (command.id, command.reply.is_none(), command.op().to_owned());
        command.answer(Err(error.clone()));
        if by_itself && op == "hello" {
            return Err(LinkEnd::new(format!("the new token was refused: {error}")));
        }
        if by_itself && op != "ack" && op != "ping" && op != "party.get" {
            self.shared.emit(Event::Refused(error));
        }
        self.restored(id);
        Ok(())
    }

    /// A restored subscription or presence was answered in a new session: with the last one `Reset` is emitted.
    fn restored(&mut self, id: u64) {
        if self.restoring.remove(&id) && self.restoring.is_empty() {
            self.shared.emit(Event::Reset);
        }
    }

    /// Queues the commands whose retry is due.
    pub(super) fn ask_again(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        let due: Vec<(Instant, SentCommand)> = due;
        self.waiting.extend(due.into_iter().map(|(_, command)| command));
    }

    /// After a lost link: safe commands without an answer are sent again, the others have an unknown outcome.
    pub(super) fn requeue(&mut self) {
        for command in std::mem::take(&mut self.pending).into_values().rev() {
            // Our own hello only renewed the token, which the next link sends anyway.
            if ["ack", "ping", "hello"].contains(&command.op()) && command.reply.is_none() {
                continue;
            }
            if command.safe {
                self.waiting.push_front(command);
                continue;
            }
            let why = format!(
                "the connection was lost before the reply to {}; it may have been executed",
                command.op()
            );
            command.answer(Err(Error::new("unknown_outcome", why)));
        }
    }

    /// Requests the party's snapshot, unless a request is pending.
    pub(super) fn ask_party(&mut self) {
        if !std::mem::replace(&mut self.party_asked, true) {
            let command =
                self.command("party.get", json!({}), true, OnSuccess::Party { changes: false }, None);
            self.waiting.push_back(command);
        }
    }
}
