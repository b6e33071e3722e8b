//! Checks the events that clients receive against the promises to their sessions, and where sessions are.

use super::{KEPT_MS, LIVENESS, LOBBY, MAILBOX_EVENTS, MigrationCommand, MigrationWorkload, RETRY_MS};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::promise::Promise;
use crate::workload::view::View;
use serde_json::Value;
use tavern_domain::Time;

/// How long ago the last fault must be before a session must be found and a command must work: a store that did not answer
/// answers late.
const CALM_MS: u64 = 25_000;
/// The shortest lifetime of a session without a connection.
const SESSION_MS: u64 = 60_000;

impl MigrationWorkload {
    /// The connection is closed.
    pub(super) fn cut_off(&mut self, cluster: &Cluster, who: usize) {
        let client = &mut self.clients[who];
        if client.here_since.take().is_some() {
            client.seen_at = cluster.now;
        }
        client.link.cut_off();
    }

    /// Queues the commands that bring about the state that the user wants.
    pub(super) fn catch_up(&mut self, who: usize) {
        let client = &mut self.clients[who];
        let known = |channel: &usize| client.promise.listens(*channel);
        let missing = client.wants.iter().filter(|channel| !known(channel)).copied();
        client.link.todo = missing.map(MigrationCommand::Subscribe).collect();
        if !client.joined {
            client.link.todo.push_back(MigrationCommand::Join);
        }
        if client.watches && client.view.is_none() {
            client.link.todo.push_back(MigrationCommand::Watch);
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
            MigrationCommand::Hello => return,
            MigrationCommand::Join => format!(r#""op":"join","channel":"{LOBBY}""#),
            MigrationCommand::Watch => format!(r#""op":"subscribe","channel":"{LOBBY}","presence":true"#),
            MigrationCommand::Subscribe(channel) => format!(r#""op":"subscribe","channel":"room#{channel}""#),
            MigrationCommand::Unsubscribe(channel) => {
                client.promise.unsubscribed(channel);
                format!(r#""op":"unsubscribe","channel":"room#{channel}""#)
            }
            MigrationCommand::Publish(channel) => {
                let publisher = client.publisher;
                let count = self.sent.entry((publisher, channel)).or_default();
                *count += 1;
                let data = format!(r#"{{"p":{publisher},"c":{count}}}"#);
                format!(r#""op":"publish","channel":"room#{channel}","data":{data}"#)
            }
        };
        client.link.send(cluster, command, &body);
    }

    pub(super) fn receive_frame(&mut self, cluster: &mut Cluster, who: usize, frame: &Value) -> Outcome {
        cluster.trace.say(cluster.now, || format!("client {who} receives {frame}"));
        let Some(command) = self.clients[who].link.answered(frame)? else {
            return self.event(cluster, who, frame);
        };
        if let Some(error) = frame.get("error") {
            self.refused(cluster, who, command, error)?;
        } else {
            self.done(cluster, who, command, &frame["ok"])
                .map_err(|error| format!("{command:?}: {error}"))?;
        }
        self.pump(cluster, who);
        Ok(())
    }

    fn refused(
        &mut self,
        cluster: &Cluster,
        who: usize,
        command: MigrationCommand,
        error: &Value,
    ) -> Outcome {
        self.count("commands refused");
        if self.last_fault.calm_ms(cluster) >= CALM_MS || error["code"] != "unavailable" {
            return Err(format!("{command:?} was refused: {error}"));
        }
        self.clients[who].link.retry_at.get_or_insert(cluster.now + RETRY_MS + 53 * who as u64);
        Ok(())
    }

    fn done(&mut self, cluster: &mut Cluster, who: usize, command: MigrationCommand, ok: &Value) -> Outcome {
        let client = &mut self.clients[who];
        match command {
            MigrationCommand::Hello => return self.greeted(cluster, who, ok),
            MigrationCommand::Join => client.joined = true,
            MigrationCommand::Watch => client.view = Some(View::begin(&ok["members"])?),
            MigrationCommand::Subscribe(channel) => client.promise.subscribed(channel, &self.sent),
            MigrationCommand::Unsubscribe(_) => {}
            MigrationCommand::Publish(channel) => {
                *self.accepted.entry((client.publisher, channel)).or_default() += 1;
            }
        }
        Ok(())
    }

    fn greeted(&mut self, cluster: &mut Cluster, who: usize, ok: &Value) -> Outcome {
        let calm_ms = self.last_fault.calm_ms(cluster);
        let client = &mut self.clients[who];
        let process = cluster.nodes[client.link.node].process;
        let away_ms = cluster.now.since(client.seen_at);
        // A node that others do not know yet is not waited for, and a session dies with its node.
        let fresh = |started: Time| cluster.now.since(started) < 2 * LIVENESS.heartbeat_ms;
        let owners = client.owners.iter().map(|at| cluster.nodes[*at].started_at);
        let new = owners.chain([client.home_started_at]).any(fresh);
        let excused = client.crashed || new || self.last_fault.at() >= client.greeted_at;
        let known = client.link.session.is_some() && !excused;
        let greeting = client.link.greet(ok, process)?;
        (client.here_since, client.greeted_at, client.crashed) = (Some(cluster.now), cluster.now, false);
        client.away_ms = away_ms;
        client.home_started_at = cluster.nodes[client.link.node].started_at;
        let old = client.old.take();
        cluster.trace.note(u64::from(greeting.resumed));
        match greeting.resumed {
            true => self.count(if greeting.moved { "sessions moved" } else { "sessions resumed" }),
            false => {
                if known && calm_ms >= CALM_MS && away_ms < SESSION_MS {
                    return Err(format!(
                        "its session was lost after {away_ms} ms, {calm_ms} ms after the last fault"
                    ));
                }
                let client = &mut self.clients[who];
                client.promise = Promise::default();
                (client.joined, client.view) = (false, None);
                self.count("sessions lost");
            }
        }
        self.catch_up(who);
        // The connection that was left open is closed.
        old.inspect(|connection| cluster.disconnect(*connection));
        Ok(())
    }

    fn event(&mut self, cluster: &mut Cluster, who: usize, event: &Value) -> Outcome {
        let client = &mut self.clients[who];
        let Some(seq) = event["seq"].as_u64() else { return Ok(()) };
        cluster.trace.note(seq ^ (who as u64) << 32);
        let named = |event: &Value| {
            let name = event["channel"].as_str().or(event["pattern"].as_str())?;
            name.strip_prefix("room#")?.parse::<usize>().ok()
        };
        match event["event"].as_str() {
            Some("gap") if event["from"].is_u64() => {
                let (from, to) = (event["from"].as_u64().unwrap_or(0), event["to"].as_u64().unwrap_or(0));
                let full = to.saturating_sub(from) as usize >= MAILBOX_EVENTS / 2;
                if !full && client.away_ms < KEPT_MS {
                    return Err(format!("a gap although its mailbox had room: {event}"));
                }
                client.promise.gap(from, to)?;
                client.link.seq = to;
                // Presence events of the lobby may be among the lost ones.
                client.view = None;
                self.count("gaps");
                self.catch_up(who);
                self.pump(cluster, who);
                Ok(())
            }
            Some("gap") => {
                client.link.number(event)?;
                client.promise.numbered(seq)?;
                match named(event) {
                    Some(channel) => client.promise.channel_gap(channel),
                    None => client.view = None,
                }
                self.count("channel gaps");
                self.catch_up(who);
                self.pump(cluster, who);
                Ok(())
            }
            Some("message") => {
                client.link.number(event)?;
                client.promise.numbered(seq)?;
                let (publisher, count) = (event["data"]["p"].as_u64(), event["data"]["c"].as_u64());
                let (Some(channel), Some(publisher), Some(count)) = (named(event), publisher, count) else {
                    return Err(format!("an unknown message: {event}"));
                };
                client.promise.message((publisher as usize, channel), count)?;
                self.count("messages received");
                Ok(())
            }
            Some(_) if event["channel"] == LOBBY => {
                client.link.number(event)?;
                client.promise.numbered(seq)?;
                if let Some(view) = &mut client.view
                    && event["event"] != "presence_mode"
                {
                    view.apply(event)?;
                }
                self.count("presence events received");
                self.check_told(cluster, who, event)
            }
            _ => Err(format!("an unknown event: {event}")),
        }
    }

    /// A client that migrates is not reported as lost. A watcher that was disconnected may receive an earlier loss.
    fn check_told(&mut self, cluster: &Cluster, who: usize, event: &Value) -> Outcome {
        let long = |since: Time| cluster.now.since(since) >= CALM_MS;
        let calm = self.last_fault.calm_ms(cluster) >= CALM_MS + LIVENESS.lease_ms;
        if event["event"] != "client_offline" || !calm || !self.clients[who].here_since.is_some_and(long) {
            return Ok(());
        }
        let id = event["client"].as_str().unwrap_or_default();
        let reported =
            self.clients.iter().find(|client| client.link.id.is_some_and(|own| own.to_string() == id));
        let here = reported.and_then(|client| client.here_since);
        match here.filter(|since| long(*since)) {
            Some(_) => Err(format!("it is connected, and others receive {event}")),
            None => Ok(()),
        }
    }

    /// A session is on one node at most.
    pub(super) fn check_owners(&mut self, cluster: &Cluster) -> Outcome {
        for (who, client) in self.clients.iter_mut().enumerate() {
            let owners = client.link.session.as_deref().map_or(Vec::new(), |session| cluster.owners(session));
            if owners != client.owners {
                cluster.trace.say(cluster.now, || format!("the session of client {who} is on {owners:?}"));
                client.owners.clone_from(&owners);
            }
            if owners.len() > 1 {
                return Err(format!("the session of client {who} is on nodes {owners:?}"));
            }
        }
        Ok(())
    }
}
