//! What tabs and houses say to each other: commands and their answers, events, transports that come and go. Every answer
//! is held against the store at that moment.

use super::plant::Plant;
use super::tab::{Seat, Stand, Watch, Wish};
use super::truth::{Fact, find};
use super::view::View;
use super::world::{Alarm, Street};
use super::{CHANNELS, Outcome};
use serde_json::Value;
use tavern_domain::{ClientId, Time};
use tavern_hub::{Caller, Flow, Format, Link, LinkId};
use tavern_wire::ws;

/// A session lives at least this long without a transport, while its process lives.
const SESSION_MS: u64 = 10_000;

impl Street {
    pub fn connect(&mut self, who: usize, house: usize) -> Outcome {
        assert!(self.tabs[who].seat.is_none() && self.houses[house].is_open());
        let link = self.new_link(who);
        let shard = self.rng.below(self.houses[house].shards);
        let caller = Caller::new(Link { id: link, format: Format::WebSocket }, None);
        self.tabs[who].seat = Some(Seat { house, shard, caller });
        self.ask(who, Wish::Hello)
    }

    fn new_link(&mut self, who: usize) -> LinkId {
        self.links += 1;
        self.links_of.insert(self.links, who);
        LinkId(self.links)
    }

    /// Ends the transport without a word.
    pub fn lose(&mut self, who: usize) -> Outcome {
        let Some(seat) = self.tabs[who].cut_off() else { return Ok(()) };
        let link = seat.caller.link.id;
        self.links_of.remove(&link.0);
        let (house, local) = (seat.house, self.houses[seat.house].local(self.now));
        let forgotten = self.strikes(Plant::ForgetLoss, 30);
        self.say(|| format!("tab {who} is lost at house {house}"));
        self.away(who, local);
        let Some(id) = seat.caller.listener.filter(|_| !forgotten) else { return Ok(()) };
        let Some(running) = self.houses[house].running() else { return Ok(()) };
        if running.asleep {
            // It learns of it when it wakes, and that is the moment of the loss.
            running.gone.push((seat.shard, id, link));
            return Ok(());
        }
        running.shards[seat.shard].detach(local, id, link);
        self.carry_out(house)
    }

    /// The house has closed the transport.
    pub fn closed(&mut self, who: usize, link: LinkId) {
        let current = self.tabs[who].seat.as_ref().is_some_and(|seat| seat.caller.link.id == link);
        if current && let Some(seat) = self.tabs[who].cut_off() {
            let local = self.houses[seat.house].local(self.now);
            self.away(who, local);
        }
    }

    pub fn away(&mut self, who: usize, local: Time) {
        let client = self.tabs[who].client.as_deref().and_then(ClientId::parse);
        if let Some(fact) = client.and_then(|client| self.truth.facts.get_mut(&client)) {
            fact.goes(local);
        }
    }

    /// A node that sleeps learns later that somebody went: until then he was there.
    pub fn went_late(&mut self, client: ClientId, local: Time) {
        if let Some(away) = self.truth.facts.get_mut(&client).and_then(|fact| fact.away.last_mut()) {
            away.from = local;
        }
    }

    /// Asks the next thing, if nothing is under way.
    pub fn pump(&mut self, who: usize) -> Outcome {
        while self.tabs[who].is_idle() && self.is_served(who) {
            let Some(wish) = self.tabs[who].todo.pop_front() else { return Ok(()) };
            self.ask(who, wish)?;
        }
        Ok(())
    }

    fn is_served(&self, who: usize) -> bool {
        self.tabs[who].seat.as_ref().is_some_and(|seat| self.houses[seat.house].is_open())
    }

    pub fn ask(&mut self, who: usize, wish: Wish) -> Outcome {
        let now = self.now;
        self.tabs[who].pending = Some(wish);
        let client = self.tabs[who].client.as_deref().and_then(ClientId::parse);
        if let Some(fact) = client.and_then(|client| self.truth.facts.get_mut(&client)) {
            match wish {
                Wish::Join(channel) => drop(fact.joins.insert(channel, now)),
                Wish::Leave(channel) => drop(fact.leaves.insert(channel)),
                Wish::Bye => fact.leaves.extend(0..CHANNELS.len()),
                _ => {}
            }
        }
        self.run_pending(who)
    }

    fn frame(&self, who: usize, wish: Wish) -> String {
        let tab = &self.tabs[who];
        let name = |channel: usize| CHANNELS[channel].0;
        let state = |channel| tab.wants.get(&channel).copied().unwrap_or_default();
        match wish {
            Wish::Hello => match &tab.session {
                Some(session) => format!(
                    r#"{{"op":"hello","token":"token-of-{}","session":"{session}","seq":{}}}"#,
                    tab.user, tab.seq
                ),
                None => format!(r#"{{"op":"hello","token":"token-of-{}"}}"#, tab.user),
            },
            Wish::Join(at) => {
                format!(r#"{{"op":"join","channel":"{}","state":{{"s":{}}}}}"#, name(at), state(at))
            }
            Wish::Update(at) => {
                format!(r#"{{"op":"update","channel":"{}","state":{{"s":{}}}}}"#, name(at), state(at))
            }
            Wish::Leave(at) => format!(r#"{{"op":"leave","channel":"{}"}}"#, name(at)),
            Wish::Watch(at) => format!(r#"{{"op":"subscribe","channel":"{}","presence":true}}"#, name(at)),
            Wish::Unwatch(at) => format!(r#"{{"op":"unsubscribe","channel":"{}"}}"#, name(at)),
            Wish::Who(at) => format!(r#"{{"op":"who","channel":"{}"}}"#, name(at)),
            Wish::Bye => r#"{"op":"bye"}"#.into(),
        }
    }

    /// Runs the command that a tab waits for, as far as it goes.
    pub fn run_pending(&mut self, who: usize) -> Outcome {
        let Some(wish) = self.tabs[who].pending else { return Ok(()) };
        let frame = self.frame(who, wish);
        let Some(seat) = &mut self.tabs[who].seat else { return Ok(()) };
        let house = seat.house;
        let local = self.houses[house].local(self.now);
        let Some(running) = self.houses[house].running() else { return Ok(()) };
        let mut reply = Vec::new();
        let flow = running.shards[seat.shard].command(local, &mut seat.caller, frame.as_bytes(), &mut reply);
        match flow {
            Flow::Wait => {
                self.say(|| format!("tab {who} waits: {frame}"));
                return self.carry_out(house);
            }
            Flow::Move(shard) => {
                seat.shard = shard;
                self.links_of.remove(&seat.caller.link.id.0);
                let link = self.new_link(who);
                if let Some(seat) = &mut self.tabs[who].seat {
                    seat.caller.link.id = link;
                }
                return self.run_pending(who);
            }
            // What was there before the answer is heard before it.
            Flow::Done => self.deliver(who)?,
            Flow::Greeted | Flow::Close(_) => {}
            Flow::Begun => unreachable!("a tab waits for its answer before it asks again"),
        }
        self.tabs[who].pending = None;
        self.say(|| format!("tab {who}: {frame} is answered {}", String::from_utf8_lossy(&reply)));
        let reply: Value = serde_json::from_slice(&reply).map_err(|error| error.to_string())?;
        self.answered(who, wish, &reply).map_err(|error| format!("tab {who}, {wish:?}: {error}"))?;
        self.deliver(who)?;
        self.carry_out(house)?;
        self.pump(who)
    }

    fn answered(&mut self, who: usize, wish: Wish, reply: &Value) -> Outcome {
        if let Some(error) = reply.get("error") {
            self.note(7);
            return self.refused(who, wish, error);
        }
        let ok = &reply["ok"];
        match wish {
            Wish::Hello => self.greeted(who, ok),
            Wish::Join(channel) | Wish::Update(channel) => self.joined(who, channel),
            Wish::Leave(channel) => self.left(who, channel),
            Wish::Watch(channel) => {
                let view = View::begin(&ok["members"])?;
                self.check_view(channel, &view)?;
                self.tabs[who].watches.insert(channel, Watch::Seen(view));
                Ok(())
            }
            Wish::Unwatch(channel) => {
                self.tabs[who].watches.remove(&channel);
                Ok(())
            }
            Wish::Who(channel) => {
                let view = View::begin(ok)?;
                self.check_view(channel, &view)
            }
            Wish::Bye => {
                let tab = &mut self.tabs[who];
                if let Some(seat) = tab.cut_off() {
                    self.links_of.remove(&seat.caller.link.id.0);
                }
                let tab = &mut self.tabs[who];
                (tab.session, tab.client) = (None, None);
                tab.wants.clear();
                tab.begin_anew();
                Ok(())
            }
        }
    }

    fn refused(&mut self, who: usize, wish: Wish, error: &Value) -> Outcome {
        self.refused += 1;
        let code = error["code"].as_str().unwrap_or_default();
        let tab = &mut self.tabs[who];
        match (wish, code) {
            (
                Wish::Join(channel) | Wish::Update(channel) | Wish::Leave(channel),
                "unavailable" | "conflict",
            ) => {
                tab.stands.insert(channel, Stand::Maybe);
            }
            (Wish::Update(channel), "not_found") => {
                if matches!(tab.stands.get(&channel), Some(Stand::In(_))) && self.is_vouched_for(who) {
                    return Err(format!("it is present, and was told: {error}"));
                }
                self.tabs[who].stands.insert(channel, Stand::Maybe);
            }
            (Wish::Watch(_) | Wish::Who(_), "unavailable") => {}
            _ => return Err(format!("refused: {error}")),
        }
        let again = self.now + 400 + self.rng.below(1_200) as u64;
        if !self.alarms.iter().any(|(_, alarm)| *alarm == Alarm::Again(who)) {
            self.alarms.insert((again, Alarm::Again(who)));
        }
        Ok(())
    }

    /// Its node is not taken for dead.
    fn is_vouched_for(&self, who: usize) -> bool {
        let Some(seat) = &self.tabs[who].seat else { return false };
        self.truth.is_current(&self.houses[seat.house])
    }

    fn greeted(&mut self, who: usize, ok: &Value) -> Outcome {
        let resumed = ok["resumed"] == true;
        if ok["reset"] == true {
            return Err("its count was reset".into());
        }
        let client = ok["client"].as_str().unwrap_or_default().to_owned();
        let Some(seat) = &self.tabs[who].seat else { return Ok(()) };
        let house = &self.houses[seat.house];
        let (home, local, skew) = ((seat.house, house.process), house.local(self.now), house.skew);
        self.note(u64::from(resumed));
        if resumed {
            self.resumed += 1;
            if self.tabs[who].client.as_deref() != Some(&client) {
                return Err("it resumed as somebody else".into());
            }
            if self.tabs[who].home != home {
                self.tabs[who].doubt();
            }
        } else {
            self.check_forgotten(who, home)?;
            self.tabs[who].begin_anew();
        }
        let id = ClientId::parse(&client).ok_or("no client id")?;
        let fact = self.truth.facts.entry(id).or_insert_with(|| Fact { skew, ..Fact::default() });
        fact.returns(local);
        let tab = &mut self.tabs[who];
        tab.session = ok["session"].as_str().map(str::to_owned);
        tab.client = Some(client);
        tab.home = home;
        tab.greeted = true;
        tab.catch_up();
        Ok(())
    }

    /// It came back to where its session should be, and the session was not there.
    fn check_forgotten(&self, who: usize, (house, process): (usize, u64)) -> Outcome {
        let tab = &self.tabs[who];
        if tab.session.is_none() || tab.home.0 != house {
            return Ok(());
        }
        let client = tab.client.as_deref().and_then(ClientId::parse);
        let away = client.and_then(|client| self.truth.facts.get(&client)?.away.last().copied());
        let local = self.houses[house].local(self.now);
        let fresh = away.is_none_or(|away| local.since(away.from) < SESSION_MS);
        let same = tab.home.1 == process;
        let kept = process == tab.home.1 + 1 && self.houses[house].left == Some(tab.home.1);
        if fresh && (same || kept) {
            return Err("its session was forgotten".into());
        }
        Ok(())
    }

    /// An answered join is in the store.
    fn joined(&mut self, who: usize, channel: usize) -> Outcome {
        let tab = &mut self.tabs[who];
        let state = tab.wants.get(&channel).copied().unwrap_or_default();
        tab.stands.insert(channel, Stand::In(state));
        let client = tab.client.as_deref().and_then(ClientId::parse).ok_or("no client")?;
        let row = self.truth.row(channel, &self.tabs[who].user);
        let kept = row.and_then(|row| find(row, client));
        if kept.is_none() && self.is_vouched_for(who) {
            return Err("it was told that it is present, and the store does not know it".into());
        }
        Ok(())
    }

    fn left(&mut self, who: usize, channel: usize) -> Outcome {
        let tab = &mut self.tabs[who];
        tab.stands.remove(&channel);
        let client = tab.client.as_deref().and_then(ClientId::parse).ok_or("no client")?;
        let row = self.truth.row(channel, &self.tabs[who].user);
        match row.and_then(|row| find(row, client)) {
            Some(kept) if kept.lost.is_none() => Err("it left, and the store still has it".into()),
            _ => Ok(()),
        }
    }

    /// Brings a tab what it has not heard.
    pub fn deliver(&mut self, who: usize) -> Outcome {
        let Some(seat) = self.tabs[who].seat.as_ref().filter(|_| self.tabs[who].greeted) else {
            return Ok(());
        };
        let (house, shard) = (seat.house, seat.shard);
        let (link, Some(id)) = (seat.caller.link.id, seat.caller.listener) else { return Ok(()) };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        if let Some(running) = self.houses[house].running() {
            scratch.fill(&mut running.shards[shard].core, id, link, usize::MAX);
            scratch.settle(&mut running.shards[shard].core, id, scratch.bytes.len());
        }
        let mut bytes = &scratch.bytes[..];
        while let Ok(Some(head)) = ws::read_head(bytes, ws::Role::Client, 1 << 24) {
            let end = head.head_len + head.payload_len;
            let event: Value =
                serde_json::from_slice(&bytes[head.head_len..end]).map_err(|error| error.to_string())?;
            self.hear(who, &event).map_err(|error| format!("tab {who} at {house}: {error}"))?;
            bytes = &bytes[end..];
        }
        self.scratch = scratch;
        Ok(())
    }

    fn hear(&mut self, who: usize, event: &Value) -> Outcome {
        let tab = &mut self.tabs[who];
        if event["seq"].as_u64() != Some(tab.seq + 1) {
            return Err(format!("{} came after {}", event["seq"], tab.seq));
        }
        tab.seq += 1;
        self.say(|| format!("tab {who} hears {event}"));
        self.heard += 1;
        self.note(event["version"].as_u64().unwrap_or(3) ^ (who as u64) << 40);
        if self.strikes(Plant::LoseEvent, 3) {
            return Ok(());
        }
        self.see(who, event)?;
        if self.strikes(Plant::RepeatEvent, 3) {
            return self.see(who, event);
        }
        Ok(())
    }

    fn see(&mut self, who: usize, event: &Value) -> Outcome {
        let channel = CHANNELS.iter().position(|(name, _)| event["channel"] == *name);
        let channel = channel.ok_or_else(|| format!("a strange event: {event}"))?;
        let view = match self.tabs[who].watches.get_mut(&channel) {
            Some(Watch::Seen(view)) => view,
            Some(Watch::Doubted) => return Ok(()),
            _ => return Err(format!("it does not watch, and was told {event}")),
        };
        if event["event"] == "presence_mode" {
            return Ok(());
        }
        view.hear(event)?;
        let view = view.clone();
        self.check_view(channel, &view).map_err(|error| format!("{error} after {event}"))
    }

    /// At a version that the store has had, a view is what the store had.
    fn check_view(&self, channel: usize, view: &View) -> Outcome {
        let history = &self.truth.history[channel];
        match history.get(&view.version) {
            Some(then) if *then == view.users => Ok(()),
            Some(then) => Err(format!(
                "at {} of {} the store has {then:?}, the watcher {:?}",
                view.version, CHANNELS[channel].0, view.users
            )),
            // In the middle of a commit, or empty.
            None => Ok(()),
        }
    }
}
