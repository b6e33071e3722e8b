//! Frames from the server: updates of the live state, and events for the app. Must hold: no event and no inbox message is
//! delivered twice.

use super::ClientSession;
use crate::Error;
use crate::desired;
use crate::error::LinkEnd;
use crate::event::{Event, Gap, Message, Revoked};
use crate::frame::ServerFrame;
use crate::history::{ChannelPosition, MessageTurn};
use crate::link::SUPERSEDED;
use crate::party_snapshot::after_event;
use crate::presence_map::{self, Applied, PresenceMap};
use crate::shared::lock;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

impl ClientSession {
    pub(super) fn take(&mut self, frame: ServerFrame) -> Result<(), LinkEnd> {
        let ServerFrame { value: frame, text } = frame;
        if frame["event"].is_string() {
            return self.take_event(frame, &text);
        }
        match frame.get("id").map(Value::as_u64) {
            Some(Some(id)) => return self.take_answer(id, frame),
            Some(None) => {}
            None if frame.get("party").is_some() => self.take_party(frame["party"].clone()),
            None => {}
        }
        Ok(())
    }

    fn take_event(&mut self, frame: Value, json: &Arc<str>) -> Result<(), LinkEnd> {
        if let Some(seq) = frame["seq"].as_u64() {
            if seq <= *self.seq.borrow() {
                return Ok(());
            }
            self.seq.send_replace(seq);
            if let Some(ticket) = &mut self.shared.view().ticket {
                ticket.1 = seq;
            }
        }
        if let Some(message_id) = frame["message_id"].as_u64() {
            if message_id <= self.message_id {
                return Ok(());
            }
            self.message_id = message_id;
        }
        let text = |name: &str| frame[name].as_str().map(str::to_owned);
        match frame["event"].as_str().unwrap_or_default() {
            "message" => self.message(frame, json),
            "status" => self.emit_parsed(frame, Event::Status, json),
            "statuses" => self.emit_parsed(frame["statuses"].clone(), Event::Statuses, json),
            "inbox" => {
                let message = Event::Inbox { message_id: self.message_id, data: frame["data"].clone() };
                self.shared.emit_received(message, json);
            }
            "party" => self.party_event(frame, json),
            "gap" => {
                let number = |name: &str| frame[name].as_u64();
                let gap = Gap {
                    channel: text("channel"),
                    pattern: text("pattern"),
                    from: number("from"),
                    to: number("to"),
                };
                self.gap(gap, json);
            }
            "revoked" => {
                let verb = text("verb").unwrap_or_default();
                let revoked = Revoked { verb, channel: text("channel"), pattern: text("pattern") };
                self.revoked(revoked, json);
            }
            "closing" => {
                let reconnect_after_ms = frame["reconnect_after_ms"].as_u64().unwrap_or(0);
                self.closing_ms = Some(reconnect_after_ms);
                self.shared.emit_received(Event::Closing { reconnect_after_ms }, json);
                return Err(LinkEnd::new("the server is stopping"));
            }
            "superseded" => return Err(LinkEnd::coded(SUPERSEDED, "superseded")),
            event if presence_map::concerns(event) => {
                let channel = self.shared.asked(frame["channel"].as_str().unwrap_or_default());
                self.show(&channel, |map| map.apply(&frame));
            }
            // Unknown events of newer servers are ignored.
            _ => {}
        }
        Ok(())
    }

    /// Emits an event whose content has its own type. An unexpected shape is reported and does not end the session.
    fn emit_parsed<T: DeserializeOwned>(&self, content: Value, event: fn(T) -> Event, json: &Arc<str>) {
        match serde_json::from_value(content) {
            Ok(content) => self.shared.emit_received(event(content), json),
            Err(error) => {
                self.shared.emit(Event::Refused(Error::new("unexpected_answer", error.to_string())))
            }
        }
    }

    fn message(&mut self, mut frame: Value, json: &Arc<str>) {
        let from = |name: &str| frame["from"][name].as_str().map(str::to_owned);
        let (user, client) = (from("user"), from("client"));
        let channel = frame["channel"].as_str().unwrap_or_default().to_owned();
        let encoding = frame["encoding"].as_str().map(str::to_owned);
        let seq = frame["seq"].as_u64();
        let asked = self.shared.asked(&channel);
        let position = ChannelPosition::of(&frame);
        let message = Message { data: frame["data"].take(), channel, user, client, seq, encoding, position };
        if message.channel.starts_with("party#") {
            // The server subscribes members automatically.
            self.shared.emit_received(Event::PartyMessage(message), json);
            return;
        }
        let turn = match self.desired.is_subscribed(&asked) {
            true => self.shared.with_cursor(&asked, |cursor| cursor.take(position)),
            // Over HTTP the first messages may arrive before the answer.
            false => self.shared.with_cursor(&asked, |cursor| match cursor.awaited {
                true => cursor.take(position),
                false => MessageTurn::Drop,
            }),
        };
        match turn {
            MessageTurn::Heal(known) => self.ask_since(&asked, known),
            MessageTurn::Drop if !self.desired.matches_pattern(&message.channel) => {}
            _ => self.shared.emit_received(Event::Message(message), json),
        }
    }

    /// Messages of a channel are missing: they come again.
    fn ask_since(&mut self, channel: &str, known: ChannelPosition) {
        let (op, mut members, on_success) = desired::subscribe(channel, false);
        members["since"] = json!(known);
        let command = self.command(op, members, true, on_success, None);
        self.waiting.push_back(command);
    }

    fn gap(&mut self, gap: Gap, json: &Arc<str>) {
        let whole = gap.channel.is_none() && gap.pattern.is_none();
        let concerned: Vec<String> = match &gap.channel {
            Some(channel) => vec![self.shared.asked(channel)],
            None if whole => self.shared.lives().into_iter().map(|(name, _)| name).collect(),
            None => Vec::new(),
        };
        if let Some(channel) = &gap.channel {
            let asked = self.shared.asked(channel);
            self.shared.with_cursor(&asked, |cursor| cursor.jumps |= cursor.position.is_some());
        }
        self.shared.emit_received(Event::Gap(gap), json);
        for channel in concerned {
            if self.desired.is_watching(&channel) && lock(&self.shared.live(&channel).map).mark_stale() {
                self.watch_again(&channel);
            }
        }
        if whole && self.shared.party.borrow().is_some() {
            self.ask_party();
        }
    }

    fn revoked(&mut self, revoked: Revoked, json: &Arc<str>) {
        let Revoked { verb, channel, pattern } = &revoked;
        let asked = channel.as_ref().map(|channel| self.shared.asked(channel));
        self.desired.revoke(verb, asked.as_deref(), pattern.as_deref());
        if let Some(channel) = asked.filter(|channel| !self.desired.is_watching(channel)) {
            lock(&self.shared.live(&channel).map).mark_stale();
        }
        self.shared.emit_received(Event::Revoked(revoked), json);
    }

    /// Changes a live map; if events are missing, subscribes again, which gives a snapshot.
    pub(super) fn show(&mut self, channel: &str, change: impl FnOnce(&mut PresenceMap) -> Applied) {
        let live = self.shared.live(channel);
        let applied = change(&mut lock(&live.map));
        match applied {
            Applied::Nothing => return,
            Applied::Missing => self.watch_again(channel),
            Applied::Changed => {}
        }
        live.changes.send_modify(|changes| *changes += 1);
        self.shared.emit(Event::Presence { channel: channel.to_owned() });
    }

    fn watch_again(&mut self, channel: &str) {
        let (op, members, on_success) = desired::subscribe(channel, true);
        let command = self.command(op, members, true, on_success, None);
        self.waiting.push_back(command);
    }

    pub(super) fn take_party(&mut self, party: Value) {
        let party = Some(party).filter(Value::is_object);
        self.shared.party.send_if_modified(|current| {
            // A snapshot older than the events received since.
            let older = match (&party, &*current) {
                (Some(new), Some(old)) => {
                    new["party_id"] == old["party_id"] && new["version"].as_u64() < old["version"].as_u64()
                }
                _ => false,
            };
            let changed = !older && *current != party;
            if changed {
                *current = party;
            }
            changed
        });
    }

    fn party_event(&mut self, event: Value, json: &Arc<str>) {
        let me = self.shared.view().user.clone();
        let old = self.shared.party.borrow().clone();
        let (new, certain) = after_event(old.as_ref(), &event, me.as_deref());
        if new != old {
            self.shared.party.send_replace(new);
        }
        if !certain {
            self.ask_party();
        }
        self.shared.emit_received(Event::Party(event), json);
    }
}
