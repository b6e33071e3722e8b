//! Commands and their answers: what is sent, what an ok means, what a refusal means, what nobody knows.

use super::{Command, Session};
use crate::Error;
use crate::error::Ending;
use crate::event::Event;
use crate::frame::Outgoing;
use crate::shared::{Note, lock};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How often a command is asked again when the server says that it could not, and how long to wait the first time.
const TRIES: u32 = 5;
const AGAIN_MS: u64 = 125;

impl Session {
    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(super) fn command(
        &mut self,
        op: &str,
        members: Value,
        safe: bool,
        note: Note,
        reply: Option<oneshot::Sender<Result<Value, Error>>>,
    ) -> Command {
        let id = self.next_id();
        let mut frame = members;
        frame["id"] = json!(id);
        frame["op"] = json!(op);
        Command { id, frame: frame.into(), safe, note, reply, tries: 0 }
    }

    /// The next command that somebody still wants.
    pub(super) fn next_frame(&mut self) -> Option<Outgoing> {
        while let Some(command) = self.waiting.pop_front() {
            if command.is_wanted() {
                let frame = command.frame.clone();
                self.pending.insert(command.id, command);
                return Some(frame);
            }
        }
        None
    }

    pub(super) fn take_answer(&mut self, id: u64, mut frame: Value) -> Result<(), Ending> {
        let Some(command) = self.pending.remove(&id) else { return Ok(()) };
        if let Some(ok @ Value::Object(_)) = frame.get_mut("ok") {
            let ok = ok.take();
            self.granted(&command.note, &ok);
            command.answer(Ok(ok));
            self.restored(id);
            return Ok(());
        }
        self.refused(command, Error::from_wire(frame.get("error")))
    }

    fn granted(&mut self, note: &Note, ok: &Value) {
        self.wanted.note(note);
        match note {
            Note::Subscribe { channel, watch } => {
                if let Some(actual) = ok["channel"].as_str() {
                    self.shared.redirect(channel, actual);
                }
                if *watch && ok["members"].is_object() {
                    self.show(channel, |roster| roster.restore(&ok["members"]));
                }
            }
            Note::Unsubscribe { channel } => {
                lock(&self.shared.live(channel).roster).lose();
            }
            Note::Party { .. } if ok.get("party").is_some() => {
                self.party_asked = false;
                self.take_party(ok["party"].clone());
            }
            Note::Party { changes: true } => self.ask_party(),
            _ => {}
        }
    }

    fn refused(&mut self, mut command: Command, error: Error) -> Result<(), Ending> {
        command.tries += 1;
        if command.tries <= TRIES {
            if error.code == "gone" {
                // It was not carried out: in another session it will be.
                self.waiting.push_front(command);
                return Err(Ending::new("the session is gone"));
            }
            // A party says itself how often it wants to be asked.
            let limited = error.code == "rate_limited" && !command.op().starts_with("party.");
            if command.safe && (limited || error.code == "unavailable") {
                let wait = error.retry_after_ms.unwrap_or(AGAIN_MS << command.tries);
                self.later.push((Instant::now() + Duration::from_millis(wait), command));
                return Ok(());
            }
        }
        if let Note::Party { .. } = command.note {
            self.party_asked = false;
            if let Some(party) = &error.party {
                self.take_party(Value::clone(party));
            }
        }
        let (id, by_itself, op) = (command.id, command.reply.is_none(), command.op().to_owned());
        command.answer(Err(error.clone()));
        if by_itself && op == "hello" {
            return Err(Ending::new(format!("the new token was not taken: {error}")));
        }
        if by_itself && op != "ack" && op != "ping" && op != "party.get" {
            self.shared.tell(Event::Refused(error));
        }
        self.restored(id);
        Ok(())
    }

    /// Something that was wanted before is answered in another session: with the last of it that session is told.
    fn restored(&mut self, id: u64) {
        if self.restoring.remove(&id) && self.restoring.is_empty() {
            self.shared.tell(Event::Reset);
        }
    }

    /// Those whose time has come.
    pub(super) fn ask_again(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        let due: Vec<(Instant, Command)> = due;
        self.waiting.extend(due.into_iter().map(|(_, command)| command));
    }

    /// After a link: what was not answered is asked again, or nobody knows.
    pub(super) fn requeue(&mut self) {
        for command in std::mem::take(&mut self.pending).into_values().rev() {
            // A hello of our own was for the token, which the next link shows anyway.
            if ["ack", "ping", "hello"].contains(&command.op()) && command.reply.is_none() {
                continue;
            }
            if command.safe {
                self.waiting.push_front(command);
                continue;
            }
            let why =
                format!("the link was lost before the answer to {}: it may have happened", command.op());
            command.answer(Err(Error::new("unknown_outcome", why)));
        }
    }

    /// Asks for the party's snapshot, once for all that want to know.
    pub(super) fn ask_party(&mut self) {
        if !std::mem::replace(&mut self.party_asked, true) {
            let command = self.command("party.get", json!({}), true, Note::Party { changes: false }, None);
            self.waiting.push_back(command);
        }
    }
}
