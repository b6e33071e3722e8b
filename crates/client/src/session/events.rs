//! Frames from the server: updates of the live state, and events for the app. Must hold: no event and no inbox message is
//! delivered twice.

use super::ClientSession;
use crate::bounds::SECOND_HALF;
use crate::desired;
use crate::error::LinkEnd;
use crate::event::{Event, Gap, Message, Revoked};
use crate::frame::ServerFrame;
use crate::history::{ChannelPosition, MessageTurn};
use crate::link::SUPERSEDED;
use crate::party_snapshot::{PartyEvent, after_event};
use crate::presence::{Status, StatusUpdate};
use crate::presence_map::{self, Applied, PresenceMap};
use crate::shared::{OnSuccess, lock};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

/// The longest pause that a stopping server can ask for.
const MAX_CLOSING_MS: u64 = 3_600_000;

impl ClientSession {
    pub(super) fn take(&mut self, frame: ServerFrame) -> Result<(), LinkEnd> {
        let ServerFrame { value: frame, text } = frame;
        if frame["event"].is_string() {
            return self.take_event(frame, &text);
        }
        match frame.get("id").map(Value::as_u64) {
            Some(Some(id)) => return self.take_answer(id, frame),
            Some(None) => {}
            None if frame.get("party").is_some() => self.shared.take_party_json(&frame["party"]),
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
            "status" => self.shared.take_parsed(frame, json, |update: StatusUpdate| {
                let (user, status) = (update.user.clone(), update.status.clone());
                self.shared.statuses.send_modify(|known| drop(known.insert(user, status)));
                Event::Status(update)
            }),
            "statuses" => self.shared.take_parsed(frame["statuses"].clone(), json, |all: Vec<Status>| {
                let by_user = all.iter().map(|one| (one.user.clone(), one.clone())).collect();
                self.shared.statuses.send_replace(by_user);
                Event::Statuses(all)
            }),
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
                self.closing_ms = Some(reconnect_after_ms.min(MAX_CLOSING_MS));
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
        let is_own = message.client.as_ref().is_some_and(|client| self.own.contains(client));
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
            _ if is_own && !self.settings.echo => {}
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
        if whole && self.settings.statuses {
            let command = self.command("hello", json!({"status": true}), true, OnSuccess::Nothing, None);
            self.waiting.push_back(command);
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

    /// Changes a live map; if events are missing, subscribes again, which gives a snapshot. A change of which the other half
    /// follows is announced with that, or a little later.
    pub(super) fn show(&mut self, channel: &str, change: impl FnOnce(&mut PresenceMap) -> Applied) {
        let Some(live) = self.shared.known_live(channel) else { return };
        let applied = change(&mut lock(&live.map));
        let was_held = self.held.remove(channel).is_some();
        match applied {
            Applied::Nothing if !was_held => return,
            Applied::Nothing | Applied::Changed => {}
            Applied::Missing => self.watch_again(channel),
            Applied::Half => {
                self.held.insert(channel.to_owned(), Instant::now() + SECOND_HALF);
                if !was_held {
                    return;
                }
            }
        }
        self.shared.announce(channel);
    }

    /// The other half of these changes did not come.
    pub(super) fn announce_held(&mut self) {
        let now = Instant::now();
        let due: Vec<String> =
            self.held.iter().filter(|(_, at)| **at <= now).map(|(channel, _)| channel.clone()).collect();
        for channel in due {
            self.held.remove(&channel);
            self.shared.announce(&channel);
        }
    }

    fn watch_again(&mut self, channel: &str) {
        let (op, members, on_success) = desired::subscribe(channel, true);
        let command = self.command(op, members, true, on_success, None);
        self.waiting.push_back(command);
    }

    fn party_event(&mut self, event: Value, json: &Arc<str>) {
        let event: PartyEvent = match serde_json::from_value(event) {
            Ok(event) => event,
            Err(_) => return self.ask_party(),
        };
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
