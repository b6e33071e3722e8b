//! Checks what clients receive against the history in the store.

use super::client::{HistoryOp, NumberedPublish};
use super::log::{Place, channel_name, words_of};
use super::{CHANNELS, HistoryWorkload, KEEP, RETRY_MS};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use serde_json::Value;

impl HistoryWorkload {
    /// The connection is closed.
    pub(super) fn cut_off(&mut self, who: usize) {
        let client = &mut self.clients[who];
        if let Some(HistoryOp::Publish(publication)) = client.link.cut_off() {
            // Without an id a repeated message would be another one.
            client.unanswered = Some(publication).filter(has_id);
        }
    }

    /// Sends the next command, if none is pending.
    pub(super) fn pump(&mut self, cluster: &mut Cluster, who: usize) {
        let client = &mut self.clients[who];
        if !client.link.is_idle() {
            return;
        }
        let Some(command) = client.link.todo.pop_front() else { return };
        let body = match command {
            HistoryOp::Hello => return,
            HistoryOp::Subscribe { channel, last } => {
                let name = channel_name(channel);
                let listening = client.channels.get_mut(&channel);
                // A message that was cleared may still be on its way to a node, and arrive as a new one.
                let delivered = self.delivered.get(&(client.link.node, channel)).copied().unwrap_or_default();
                let cleared = self.cleared[channel % CHANNELS].min(delivered);
                let place = listening.and_then(|listening| {
                    listening.cleared = cleared;
                    listening.named = listening.place;
                    listening.named
                });
                let how = match (place, last) {
                    (Some((epoch, offset)), _) => {
                        format!(r#","since":{{"epoch":{epoch},"offset":{offset}}}"#)
                    }
                    (None, Some(last)) => format!(r#","last":{last}"#),
                    (None, None) => String::new(),
                };
                format!(r#""op":"subscribe","channel":"{name}"{how}"#)
            }
            HistoryOp::Unsubscribe(channel) => {
                client.channels.remove(&channel);
                format!(r#""op":"unsubscribe","channel":"{}""#, channel_name(channel))
            }
            HistoryOp::Publish(publication) => publish_body(who, publication),
            HistoryOp::Page { channel, limit } => {
                format!(r#""op":"history","channel":"{}","limit":{limit}"#, channel_name(channel))
            }
            HistoryOp::Ack if client.link.seq == 0 => return self.pump(cluster, who),
            HistoryOp::Ack => format!(r#""op":"ack","seq":{}"#, client.link.seq),
        };
        client.link.send(cluster, command, &body);
    }

    pub(super) fn received(&mut self, cluster: &mut Cluster, who: usize, frame: &Value) -> Outcome {
        cluster.trace.say(cluster.now, || format!("client {who} receives {frame}"));
        let Some(command) = self.clients[who].link.answered(frame)? else {
            return self.event(cluster, who, frame);
        };
        match frame.get("error") {
            Some(error) => self.refused(cluster, who, command, error)?,
            None => self
                .done(cluster, who, command, &frame["ok"])
                .map_err(|error| format!("{command:?}: {error}"))?,
        }
        self.pump(cluster, who);
        Ok(())
    }

    fn refused(&mut self, cluster: &Cluster, who: usize, command: HistoryOp, error: &Value) -> Outcome {
        self.count("commands refused");
        if error["code"] != "unavailable" {
            return Err(format!("{command:?} was refused: {error}"));
        }
        let client = &mut self.clients[who];
        if let HistoryOp::Publish(publication) = command {
            client.unanswered = Some(publication).filter(has_id);
        }
        client.link.retry_at.get_or_insert(cluster.now + RETRY_MS + 53 * who as u64);
        Ok(())
    }

    fn done(&mut self, cluster: &mut Cluster, who: usize, command: HistoryOp, ok: &Value) -> Outcome {
        match command {
            HistoryOp::Hello => self.greeted(cluster, who, ok),
            HistoryOp::Subscribe { channel, last } => self.subscribed(cluster, who, channel, last, ok),
            HistoryOp::Publish(publication) => self.published(who, publication, ok),
            HistoryOp::Page { channel, limit } => self.page(channel, limit, ok),
            HistoryOp::Unsubscribe(_) | HistoryOp::Ack => Ok(()),
        }
    }

    fn greeted(&mut self, cluster: &mut Cluster, who: usize, ok: &Value) -> Outcome {
        let client = &mut self.clients[who];
        let process = cluster.nodes[client.link.node].process;
        let greeting = client.link.greet(ok, process)?;
        cluster.trace.note(u64::from(greeting.resumed));
        let old = client.old.take();
        if !greeting.resumed {
            client.session_lost();
        }
        client.catch_up();
        self.count(match (greeting.resumed, greeting.moved) {
            (true, true) => "sessions moved",
            (true, false) => "sessions resumed",
            (false, _) => "sessions begun",
        });
        // The connection that was left open is closed.
        old.inspect(|connection| cluster.disconnect(*connection));
        Ok(())
    }

    fn subscribed(
        &mut self,
        cluster: &Cluster,
        who: usize,
        channel: usize,
        last: Option<u64>,
        ok: &Value,
    ) -> Outcome {
        let place = place_of(ok).ok_or_else(|| format!("no place: {ok}"))?;
        let since = self.clients[who].channels.get(&channel).and_then(|listening| listening.named);
        if place > self.log.last(channel) {
            return Err(format!("{ok} is after the end of the history, {:?}", self.log.last(channel)));
        }
        let cleared = self.clients[who].channels.get(&channel).map_or((0, 0), |one| one.cleared);
        let repeats = since.is_none() && last.is_some() || ok["recovered"] == true;
        // At (0, 0) nothing was stored: nothing can be repeated.
        if repeats && place.0 > 0 && place < cleared {
            return Err(format!("everything up to {cleared:?} was cleared before it asked: {ok}"));
        }
        match (since, ok["recovered"].as_bool()) {
            (Some(since), Some(true)) => {
                // It was there before the first message: it gets everything from the beginning of an epoch.
                let is_from_start = since == (0, 0) && place.1 == 0;
                if place != since && !is_from_start {
                    return Err(format!("it has {since:?} and goes on after {place:?}"));
                }
                self.count("recoveries");
            }
            (Some(since), Some(false)) => {
                if self.log.is_recoverable(cluster, channel, since) {
                    return Err(format!("everything after {since:?} is stored: {ok}"));
                }
                self.count("recoveries refused");
            }
            (None, None) => self.check_rewind(cluster, channel, place, last.unwrap_or(0))?,
            _ => return Err(format!("since {since:?}: {ok}")),
        }
        if let Some(listening) = self.clients[who].channels.get_mut(&channel) {
            (listening.confirmed, listening.place, listening.open) = (true, Some(place), false);
        }
        Ok(())
    }

    /// At least so many of the last messages must follow, if they are there.
    fn check_rewind(&mut self, cluster: &Cluster, channel: usize, place: Place, last: u64) -> Outcome {
        let head = self.log.head(channel);
        let least = last.min(KEEP).min(self.log.count_fresh(cluster, channel));
        if head.0 == place.0 && place.1 + least > head.1 {
            return Err(format!("the last {last} were asked for at {head:?}, and {place:?} was answered"));
        }
        self.count("rewinds");
        Ok(())
    }

    fn published(&mut self, who: usize, publication: NumberedPublish, ok: &Value) -> Outcome {
        let client = &mut self.clients[who];
        client.unanswered = None;
        let place = place_of(ok).ok_or_else(|| format!("no place: {ok}"))?;
        let words = self.log.words(publication.channel, place);
        if words != Some((who as u64, publication.count)) {
            return Err(format!("it was answered {ok}, and the store had {words:?}"));
        }
        self.count(if ok["duplicate"] == true { "messages known before" } else { "messages published" });
        Ok(())
    }

    fn page(&mut self, channel: usize, limit: u64, ok: &Value) -> Outcome {
        self.count("pages");
        let messages = ok["messages"].as_array().ok_or("no messages")?;
        if messages.len() as u64 > limit {
            return Err(format!("{} messages, {limit} were asked for", messages.len()));
        }
        let epoch = ok["epoch"].as_u64().unwrap_or(0);
        let mut before: Option<u64> = None;
        for message in messages {
            let offset = message["offset"].as_u64().ok_or("no offset")?;
            if before.is_some_and(|before| before + 1 != offset) {
                return Err(format!("{offset} follows {before:?}"));
            }
            before = Some(offset);
            let words = self.log.words(channel, (epoch, offset));
            if words.is_none() || words != words_of(&message["data"]) {
                return Err(format!("{message} is {words:?} in the store"));
            }
        }
        Ok(())
    }

    fn event(&mut self, cluster: &mut Cluster, who: usize, event: &Value) -> Outcome {
        let Some(seq) = event["seq"].as_u64() else { return Ok(()) };
        cluster.trace.note(seq ^ (who as u64) << 32);
        let name =
            event["channel"].as_str().and_then(|name| name.strip_prefix("chat#")?.parse::<usize>().ok());
        let client = &mut self.clients[who];
        match (event["event"].as_str(), name) {
            (Some("message"), Some(channel)) => {
                client.link.number(event)?;
                // What was on its way when it unsubscribed may still arrive.
                // A session whose answer was lost subscribes again: until it is answered, its place is not known.
                let listening = client.channels.get_mut(&channel).filter(|listening| listening.confirmed);
                if let Some(listening) = listening {
                    listening.message(&self.log, channel, event)?;
                }
                let delivered = self.delivered.entry((client.link.node, channel)).or_default();
                *delivered = (*delivered).max(place_of(event).unwrap_or_default());
                self.count("messages received");
                Ok(())
            }
            (Some("gap"), Some(channel)) => {
                client.link.number(event)?;
                let listening = client.channels.get_mut(&channel).filter(|listening| listening.confirmed);
                let Some(listening) = listening else { return Ok(()) };
                let place = listening.place.unwrap_or_default();
                if self.log.is_recoverable(cluster, channel, place) {
                    return Err(format!("a gap, and everything after {place:?} is stored"));
                }
                listening.open = true;
                self.count("channel gaps");
                Ok(())
            }
            (Some("gap"), None) => self.missed(cluster, who, event),
            _ => Err(format!("an event that cannot be: {event}")),
        }
    }

    /// Events are missing that are no messages: here only gaps of channels. Messages are recovered.
    fn missed(&mut self, cluster: &Cluster, who: usize, event: &Value) -> Outcome {
        let client = &mut self.clients[who];
        let (from, to) = (event["from"].as_u64().unwrap_or(0), event["to"].as_u64().unwrap_or(0));
        if from != client.link.seq + 1 || to < from {
            return Err(format!("{event} after {}", client.link.seq));
        }
        client.link.seq = to;
        for (channel, listening) in &mut client.channels {
            let place = listening.place.unwrap_or_default();
            listening.open |= !self.log.is_recoverable(cluster, *channel, place);
        }
        self.count("gaps");
        Ok(())
    }
}

/// Every other message has an id.
fn has_id(publication: &NumberedPublish) -> bool {
    publication.count.is_multiple_of(2)
}

fn publish_body(who: usize, publication: NumberedPublish) -> String {
    let NumberedPublish { channel, count } = publication;
    let id = match has_id(&publication) {
        true => format!(r#","message_id":"{who}-{count}""#),
        false => String::new(),
    };
    let name = channel_name(channel);
    format!(r#""op":"publish","channel":"{name}","data":{{"p":{who},"c":{count}}}{id}"#)
}

fn place_of(ok: &Value) -> Option<Place> {
    Some((ok["epoch"].as_u64()?, ok["offset"].as_u64()?))
}
