//! Commands and their answers: sending, success, refusal, retry, and unknown outcomes after a lost link.

use super::{ClientSession, SentCommand};
use crate::Error;
use crate::decisions::{AfterLoss, AfterReply, after_loss, after_reply};
use crate::error::LinkEnd;
use crate::event::{Event, Gap};
use crate::frame::Outgoing;
use crate::party_snapshot::PartySnapshot;
use crate::shared::{CommandRequest, OnSuccess, lock};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tokio::time::Instant;

impl ClientSession {
    pub(super) fn command(
        &mut self,
        op: &str,
        members: Value,
        safe: bool,
        on_success: OnSuccess,
        reply: Option<oneshot::Sender<Result<Value, Error>>>,
    ) -> SentCommand {
        self.ids += 1;
        let id = self.ids;
        let mut frame = members;
        frame["id"] = json!(id);
        frame["op"] = json!(op);
        SentCommand {
            id,
            frame: frame.into(),
            safe,
            on_success,
            reply,
            sent: Arc::default(),
            retries: 0,
            _permit: None,
        }
    }

    /// Queues a command of a handle.
    pub(super) fn accept(&mut self, ask: CommandRequest) {
        let CommandRequest { op, members, data, safe, on_success, sent, reply, permit } = ask;
        let mut command = self.command(&op, Value::Object(members), safe, on_success, Some(reply));
        command.frame.data = data;
        (command.sent, command._permit) = (sent, Some(permit));
        self.waiting.push_back(command);
    }

    /// The next command whose caller still waits.
    pub(super) fn next_frame(&mut self) -> Option<Outgoing> {
        while let Some(command) = self.waiting.pop_front() {
            if command.is_wanted() {
                if command.frame.bytes() > self.frame_bytes {
                    let message = format!("{} has more than {} bytes", command.op(), self.frame_bytes);
                    command.answer(Err(Error::TooLarge(message)));
                    continue;
                }
                command.sent.store(true, Ordering::Relaxed);
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
            OnSuccess::Unfollow { user } => {
                self.shared.statuses.send_if_modified(|statuses| statuses.remove(user).is_some());
            }
            OnSuccess::Party { .. } if ok.get("party").is_some() => {
                self.party_asked = false;
                self.shared.take_party_json(&ok["party"]);
            }
            OnSuccess::Party { changes: true } => self.ask_party(),
            _ => {}
        }
    }

    fn refused(&mut self, mut command: SentCommand, error: Error) -> Result<(), LinkEnd> {
        match after_reply(command.op(), command.safe, self.settings.renews(), command.retries, &error) {
            AfterReply::Reconnect => {
                self.token_expired |= error.code() == "unauthenticated";
                command.retries += 1;
                command.sent.store(false, Ordering::Relaxed);
                if !["ack", "ping"].contains(&command.op()) {
                    self.waiting.push_front(command);
                }
                return Err(LinkEnd::new(error.to_string()));
            }
            AfterReply::Retry(wait) => {
                command.retries += 1;
                self.later.push((Instant::now() + wait, command));
                return Ok(());
            }
            AfterReply::Report => {}
        }
        if let OnSuccess::Party { .. } = command.on_success {
            self.party_asked = false;
            if let Error::Refused(refusal) = &error
                && let Some(party) = &refusal.party
            {
                self.shared.take_party(Some(PartySnapshot::clone(party)));
            }
        }
        let (id, by_itself, op) = (command.id, command.reply.is_none(), command.op().to_owned());
        command.answer(Err(error.clone()));
        if let Some(failed) = self.restoring.get_mut(&id) {
            failed.error = error;
            self.failed.push(failed.clone());
        } else if by_itself && !["ack", "ping", "party.get"].contains(&op.as_str()) {
            // A token that is refused leaves the old one, until the server ends the connection.
            self.shared.emit(Event::Error { error, retry_in: None });
        }
        self.restored(id);
        Ok(())
    }

    /// A restored subscription or presence was answered in a new session: with the last one `Reset` is emitted.
    fn restored(&mut self, id: u64) {
        if self.restoring.remove(&id).is_some() && self.restoring.is_empty() {
            self.shared.emit(Event::Reset { failed: std::mem::take(&mut self.failed) });
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

    /// After a lost link: repeatable commands without an answer are sent again, the others have an unknown outcome.
    pub(super) fn requeue(&mut self) {
        self.waiting
            .retain(|command| command.reply.is_some() || command.op() != "ack" && command.op() != "ping");
        for command in std::mem::take(&mut self.pending).into_values().rev() {
            // Our own hello only renewed the token, which the next link sends anyway.
            if command.op() == "hello" && command.reply.is_none() {
                continue;
            }
            match after_loss(command.op(), command.safe, true) {
                AfterLoss::Resend | AfterLoss::Keep => self.waiting.push_front(command),
                AfterLoss::Drop | AfterLoss::UnknownOutcome => command.unknown_outcome(),
            }
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
