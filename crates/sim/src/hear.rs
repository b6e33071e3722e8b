//! What a client hears: bytes that a socket took, frames in them, answers to polls; each event held against its promise.

use crate::client::Transport;
use crate::world::{Outcome, Sabotage, World};
use serde_json::Value;
use tavern_hub::{PollFlags, read_session};
use tavern_wire::ws;

impl World {
    /// Writes what is unread; a stalled socket takes nothing, a slow one a part.
    pub fn write(&mut self, who: usize) -> Outcome {
        let slow = self.rng.chance(30);
        let part = self.rng.below(200);
        let client = &mut self.clients[who];
        let Transport::Socket(socket) = &mut client.transport else { return Ok(()) };
        if client.stalled {
            return Ok(());
        }
        let shard = &mut self.shards[socket.shard];
        self.scratch.begin(&socket.out);
        if let Some(id) = socket.caller.listener {
            self.scratch.fill(&mut shard.core, id, socket.caller.link.id, 4096);
        }
        let all = self.scratch.bytes.len();
        let taken = if slow { part.min(all) } else { all };
        client.inbox.extend_from_slice(&self.scratch.bytes[..taken]);
        let too_much = self.sabotage == Sabotage::SettleTooMuch && taken < all;
        let settled = if too_much { all } else { taken };
        let own = self.scratch.own();
        let end = match socket.caller.listener {
            Some(id) => self.scratch.settle(&mut shard.core, id, settled),
            None => settled,
        };
        if taken < own {
            socket.out.drain(..taken);
        } else {
            socket.out.clear();
            socket.out.extend_from_slice(&self.scratch.bytes[taken..end.min(all)]);
        }
        if too_much {
            self.sabotaged |= taken >= own && all > end.min(taken) && all > taken;
            socket.out.truncate(0);
            client.inbox.truncate(whole_frames(&client.inbox));
        }
        if self.sabotage == Sabotage::ForgetRefused && taken >= own && end > taken {
            self.sabotaged = true;
            socket.out.clear();
            client.inbox.truncate(whole_frames(&client.inbox));
        }
        self.read_frames(who)
    }

    fn read_frames(&mut self, who: usize) -> Outcome {
        let mut at = 0;
        let inbox = std::mem::take(&mut self.clients[who].inbox);
        while let Ok(Some(head)) = ws::read_head(&inbox[at..], ws::Role::Client, 1 << 20) {
            let begin = at + head.head_len;
            let end = begin + head.payload_len;
            if end > inbox.len() {
                break;
            }
            at = end;
            let frame: Value =
                serde_json::from_slice(&inbox[begin..end]).map_err(|error| error.to_string())?;
            if self.may_sabotage(Sabotage::LoseFrame) && frame["seq"].is_u64() {
                continue;
            }
            self.hear(who, &frame)?;
            if self.may_sabotage(Sabotage::RepeatFrame) && frame["seq"].is_u64() {
                self.hear(who, &frame)?;
            }
        }
        self.clients[who].inbox = inbox[at..].to_vec();
        Ok(())
    }

    fn hear(&mut self, who: usize, frame: &Value) -> Outcome {
        self.note(frame["seq"].as_u64().unwrap_or(7) ^ (who as u64) << 32);
        let named = |error: String| format!("client {who}: {error}");
        if let Some(session) = frame["ok"]["session"].as_str() {
            let session = session.to_owned();
            if frame["ok"]["resumed"] == true {
                self.resumed += 1;
            } else {
                self.forget(who)?;
            }
            let client = &mut self.clients[who];
            client.session = Some(session);
            client.greeted = true;
            client.alive_at = self.now.ms();
            return Ok(());
        }
        if frame["error"].is_object() {
            return Err(named(format!("refused: {}", frame["error"])));
        }
        let promise = &mut self.clients[who].promise;
        let Some(seq) = frame["seq"].as_u64() else { return Ok(()) };
        if frame["event"] == "gap" {
            self.gaps += 1;
            let (from, to) = (frame["from"].as_u64().unwrap_or(0), frame["to"].as_u64().unwrap_or(0));
            return promise.gap(from, to).map_err(named);
        }
        self.heard += 1;
        promise.numbered(seq).map_err(named)?;
        let channel = frame["channel"].as_str().and_then(|name| name.strip_prefix("room#")?.parse().ok());
        let (publisher, count) = (frame["data"]["p"].as_u64(), frame["data"]["c"].as_u64());
        match (channel, publisher, count) {
            (Some(channel), Some(publisher), Some(count)) => {
                promise.message((publisher as usize, channel), count).map_err(named)
            }
            _ => Err(named(format!("a strange event: {frame}"))),
        }
    }

    pub(crate) fn answer_poll(&mut self, who: usize, shard: usize) -> Outcome {
        let Some(session) = self.clients[who].session.clone() else { return Ok(()) };
        let Some((key, _)) = read_session(&session) else { return Ok(()) };
        let Some(id) = self.shards[shard].find_session(key) else { return Ok(()) };
        let mut body = Vec::new();
        self.shards[shard].render_poll(self.now, id, PollFlags::default(), &mut body);
        self.clients[who].transport = Transport::None;
        self.clients[who].alive_at = self.now.ms();
        if self.rng.chance(15) {
            // The answer is lost; the same events must come again.
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        for event in body["events"].as_array().into_iter().flatten() {
            self.hear(who, event)?;
        }
        if body["cursor"].as_u64() != Some(self.clients[who].promise.seq) {
            return Err(format!(
                "client {who}: cursor {} after {}",
                body["cursor"], self.clients[who].promise.seq
            ));
        }
        Ok(())
    }

    /// The session is gone. That is right only when its time was over.
    pub fn forget(&mut self, who: usize) -> Outcome {
        let client = &mut self.clients[who];
        let away = self.now.ms() - client.alive_at;
        if client.session.take().is_some() && away < 60_000 {
            return Err(format!("client {who}: its session was lost after {away} ms"));
        }
        client.promise = crate::promise::Promise::default();
        Ok(())
    }
}

/// How many bytes of the buffer are whole frames.
fn whole_frames(buffer: &[u8]) -> usize {
    let mut at = 0;
    while let Ok(Some(head)) = ws::read_head(&buffer[at..], ws::Role::Client, 1 << 20) {
        let end = at + head.head_len + head.payload_len;
        if end > buffer.len() {
            break;
        }
        at = end;
    }
    at
}
