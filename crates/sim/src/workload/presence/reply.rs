//! The frames that clients receive: answers to their commands and events, each checked against the store at that moment.

use super::client::{PresenceCommand, Stand, Watch};
use super::store_judge::find;
use super::{CHANNELS, PresenceWorkload, RETRY_MS};
use crate::cluster::Cluster;
use crate::planted::PlantedFault;
use crate::workload::Outcome;
use crate::workload::view::View;
use serde_json::Value;

/// The shortest lifetime of a session without a connection, while its process runs.
const SESSION_MS: u64 = 10_000;

impl PresenceWorkload {
    /// Sends the next command, if none is pending.
    pub(super) fn pump(&mut self, cluster: &mut Cluster, who: usize) {
        let client = &mut self.clients[who];
        if !client.link.is_idle() || client.link.todo.is_empty() {
            return;
        }
        if !cluster.nodes[client.link.node].is_open() {
            client.link.retry_at.get_or_insert(cluster.now + RETRY_MS);
            return;
        }
        let Some(command) = client.link.todo.pop_front() else { return };
        let now = cluster.now;
        if let Some(id) = client.link.id {
            let history = self.judge.client(id);
            match command {
                PresenceCommand::Join(channel) => drop(history.joins.insert(channel, now)),
                PresenceCommand::Leave(channel) => drop(history.leaves.insert(channel)),
                PresenceCommand::Bye => history.leaves.extend(0..CHANNELS.len()),
                _ => {}
            }
        }
        let state = |channel| client.wants.get(&channel).copied().unwrap_or_default();
        let named = |op: &str, channel: usize| format!(r#""op":"{op}","channel":"{}""#, CHANNELS[channel].0);
        let body = match command {
            PresenceCommand::Hello => return,
            PresenceCommand::Join(at) => format!(r#"{},"state":{{"s":{}}}"#, named("join", at), state(at)),
            PresenceCommand::Update(at) => {
                format!(r#"{},"state":{{"s":{}}}"#, named("update", at), state(at))
            }
            PresenceCommand::Leave(at) => named("leave", at),
            PresenceCommand::Watch(at) => format!(r#"{},"presence":true"#, named("subscribe", at)),
            PresenceCommand::Unwatch(at) => named("unsubscribe", at),
            PresenceCommand::Who(at) => named("who", at),
            PresenceCommand::Bye => r#""op":"bye""#.into(),
        };
        client.link.send(cluster, command, &body);
    }

    pub(super) fn receive_frame(&mut self, cluster: &mut Cluster, who: usize, frame: &Value) -> Outcome {
        cluster.trace.say(cluster.now, || format!("client {who} receives {frame}"));
        let Some(command) = self.clients[who].link.answered(frame)? else {
            return self.event(cluster, who, frame);
        };
        match frame.get("error") {
            Some(error) => self.refused(cluster, who, command, error),
            None => self.done(cluster, who, command, &frame["ok"]),
        }
        .map_err(|error| format!("{command:?}: {error}"))?;
        self.pump(cluster, who);
        Ok(())
    }

    fn done(&mut self, cluster: &mut Cluster, who: usize, command: PresenceCommand, ok: &Value) -> Outcome {
        match command {
            PresenceCommand::Hello => self.greeted(cluster, who, ok),
            PresenceCommand::Join(channel) | PresenceCommand::Update(channel) => {
                self.joined(cluster, who, channel)
            }
            PresenceCommand::Leave(channel) => self.left(who, channel),
            PresenceCommand::Watch(channel) => {
                let view = View::begin(&ok["members"])?;
                self.check_view(channel, &view)?;
                self.clients[who].watches.insert(channel, Watch::Seen(view));
                Ok(())
            }
            PresenceCommand::Unwatch(channel) => {
                self.clients[who].watches.remove(&channel);
                Ok(())
            }
            PresenceCommand::Who(channel) => {
                let view = View::begin(ok)?;
                self.check_view(channel, &view)
            }
            PresenceCommand::Bye => {
                let client = &mut self.clients[who];
                client.cut_off();
                client.link.forget();
                client.begin_anew();
                Ok(())
            }
        }
    }

    fn refused(
        &mut self,
        cluster: &mut Cluster,
        who: usize,
        command: PresenceCommand,
        error: &Value,
    ) -> Outcome {
        self.count("commands refused");
        let code = error["code"].as_str().unwrap_or_default();
        let current = cluster.is_current(self.clients[who].link.node);
        let client = &mut self.clients[who];
        match (command, code) {
            (
                PresenceCommand::Join(channel)
                | PresenceCommand::Update(channel)
                | PresenceCommand::Leave(channel),
                "unavailable" | "conflict",
            ) => {
                client.stands.insert(channel, Stand::Unknown);
            }
            (PresenceCommand::Update(channel), "not_found") => {
                if matches!(client.stands.get(&channel), Some(Stand::In(_))) && current {
                    return Err(format!("it is present, and was refused: {error}"));
                }
                client.stands.insert(channel, Stand::Unknown);
            }
            (PresenceCommand::Watch(_) | PresenceCommand::Who(_), "unavailable") => {}
            _ => return Err(format!("refused: {error}")),
        }
        client.link.retry_at.get_or_insert(cluster.now + RETRY_MS + 97 * who as u64);
        Ok(())
    }

    fn greeted(&mut self, cluster: &mut Cluster, who: usize, ok: &Value) -> Outcome {
        let node = self.clients[who].link.node;
        let (process, skew) = (cluster.nodes[node].process, cluster.nodes[node].skew);
        if ok["resumed"] != true {
            self.check_forgotten(cluster, who, process)?;
        }
        let client = &mut self.clients[who];
        let greeting = client.link.greet(ok, process)?;
        match greeting.resumed {
            true if greeting.moved => client.doubt(),
            true => {}
            false => client.begin_anew(),
        }
        client.catch_up();
        if let Some(id) = client.link.id {
            let history = self.judge.client(id);
            history.skew = skew;
            history.returns(cluster.local(node));
        }
        if greeting.resumed {
            self.count("sessions resumed");
        }
        Ok(())
    }

    /// It reconnected to the node that should have its session, and the session was not there.
    fn check_forgotten(&mut self, cluster: &Cluster, who: usize, process: u64) -> Outcome {
        let link = &self.clients[who].link;
        if link.session.is_none() || link.home.0 != link.node {
            return Ok(());
        }
        let away = link.id.and_then(|id| self.judge.client(id).away.last().copied());
        let local = cluster.local(link.node);
        let fresh = away.is_none_or(|away| local.since(away.from) < SESSION_MS);
        let same = link.home.1 == process;
        let kept = process == link.home.1 + 1 && cluster.nodes[link.node].stopped == Some(link.home.1);
        if fresh && (same || kept) {
            return Err("its session was forgotten".into());
        }
        Ok(())
    }

    /// An acknowledged join is in the store.
    fn joined(&mut self, cluster: &Cluster, who: usize, channel: usize) -> Outcome {
        let client = &mut self.clients[who];
        let state = client.wants.get(&channel).copied().unwrap_or_default();
        client.stands.insert(channel, Stand::In(state));
        let id = client.link.id.ok_or("no client id")?;
        let row = self.judge.row(channel, &self.clients[who].link.user);
        let kept = row.and_then(|row| find(row, id));
        if kept.is_none() && cluster.is_current(self.clients[who].link.node) {
            return Err("its join was acknowledged, and is not in the store".into());
        }
        Ok(())
    }

    fn left(&mut self, who: usize, channel: usize) -> Outcome {
        let client = &mut self.clients[who];
        client.stands.remove(&channel);
        let id = client.link.id.ok_or("no client id")?;
        let row = self.judge.row(channel, &self.clients[who].link.user);
        match row.and_then(|row| find(row, id)) {
            Some(kept) if kept.lost.is_none() => Err("it left, and the store still has it".into()),
            _ => Ok(()),
        }
    }

    fn event(&mut self, cluster: &mut Cluster, who: usize, event: &Value) -> Outcome {
        self.clients[who].link.number(event)?;
        self.count("events received");
        cluster.trace.note(event["version"].as_u64().unwrap_or(3) ^ (who as u64) << 40);
        if cluster.planted.strikes(PlantedFault::LostEvent, 3) {
            return Ok(());
        }
        self.see(who, event)?;
        if cluster.planted.strikes(PlantedFault::RepeatedEvent, 3) {
            return self.see(who, event);
        }
        Ok(())
    }

    fn see(&mut self, who: usize, event: &Value) -> Outcome {
        let channel = CHANNELS.iter().position(|(name, _)| event["channel"] == *name);
        let channel = channel.ok_or_else(|| format!("an unknown event: {event}"))?;
        let view = match self.clients[who].watches.get_mut(&channel) {
            Some(Watch::Seen(view)) => view,
            Some(Watch::Doubted) => return Ok(()),
            _ => return Err(format!("it does not watch, and received {event}")),
        };
        if event["event"] == "presence_mode" {
            return Ok(());
        }
        view.apply(event)?;
        let view = view.clone();
        self.check_view(channel, &view).map_err(|error| format!("{error} after {event}"))
    }

    /// At a version that the store has had, a view equals the stored members.
    fn check_view(&self, channel: usize, view: &View) -> Outcome {
        match self.judge.history[channel].get(&view.version) {
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
