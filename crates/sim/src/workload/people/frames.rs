//! The commands that clients send, and the frames they receive, checked against the store.

use super::client::{PeopleChange, PeopleCommand, ReportedStatus};
use super::store_judge::StoredPeople;
use super::{CALM_MS, CHANNELS, PeopleWorkload, RETRY_MS, VISIBILITIES};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::inbox::MESSAGE_ID;
use serde_json::Value;
use tavern_domain::Time;

/// How late a client may receive an outdated status.
const LATE_MS: u64 = 40_000;

impl PeopleWorkload {
    /// Sends the next command, if none is pending.
    pub(super) fn pump(&mut self, cluster: &mut Cluster, who: usize) {
        let client = &mut self.clients[who];
        if !client.link.is_idle() {
            return;
        }
        let Some(command) = client.link.todo.pop_front() else { return };
        let body = match command {
            PeopleCommand::Hello => return,
            PeopleCommand::Bye => r#""op":"bye""#.into(),
            PeopleCommand::Join(channel) => format!(r#""op":"join","channel":"{}""#, CHANNELS[channel]),
            PeopleCommand::Leave(channel) => format!(r#""op":"leave","channel":"{}""#, CHANNELS[channel]),
            PeopleCommand::Refresh => {
                format!(r#""op":"hello","token":"token-of-{}","status":true"#, client.link.user)
            }
            PeopleCommand::Statuses => {
                let names: Vec<String> = self.users.iter().map(|user| format!("{user:?}")).collect();
                format!(r#""op":"status","users":[{}]"#, names.join(","))
            }
            PeopleCommand::Ack => {
                self.judge.inbox.acknowledge(&client.link.user, client.message_id);
                format!(r#""op":"ack","seq":{}"#, client.link.seq)
            }
            PeopleCommand::Change(change) => {
                client.change = Some(change);
                match change {
                    PeopleChange::Follow(user) => format!(r#""op":"follow","user":"user{user}""#),
                    PeopleChange::Unfollow(user) => format!(r#""op":"unfollow","user":"user{user}""#),
                    PeopleChange::Show(value) => {
                        format!(r#""op":"visibility","value":"{}""#, VISIBILITIES[value].0)
                    }
                }
            }
        };
        client.sent_at = cluster.now;
        client.link.send(cluster, command, &body);
    }

    pub(super) fn receive_frame(&mut self, cluster: &mut Cluster, who: usize, frame: &Value) -> Outcome {
        cluster.trace.say(cluster.now, || format!("client {who} receives {frame}"));
        let Some(command) = self.clients[who].link.answered(frame)? else {
            return self.event(cluster, who, frame);
        };
        match frame.get("error") {
            Some(error) if error["code"] == "unavailable" && self.last_fault.calm_ms(cluster) < CALM_MS => {
                self.count("commands unavailable");
                let retry_at = cluster.now + RETRY_MS + 41 * who as u64;
                self.clients[who].doubt(command);
                self.clients[who].link.retry_at.get_or_insert(retry_at);
                Ok(())
            }
            Some(error) => Err(format!("refused: {error}")),
            None => self.done(cluster, who, command, &frame["ok"]),
        }
        .map_err(|error| format!("{command:?}: {error}"))?;
        self.pump(cluster, who);
        Ok(())
    }

    fn done(&mut self, cluster: &mut Cluster, who: usize, command: PeopleCommand, ok: &Value) -> Outcome {
        let client = &mut self.clients[who];
        match command {
            PeopleCommand::Hello => return self.greeted(cluster, who, ok),
            PeopleCommand::Ack => {}
            PeopleCommand::Join(channel) => {
                client.stands.insert(channel);
                client.doubts.remove(&channel);
            }
            PeopleCommand::Leave(channel) => {
                client.stands.remove(&channel);
                client.doubts.remove(&channel);
            }
            PeopleCommand::Bye => {
                self.leave(cluster, who);
                let client = &mut self.clients[who];
                client.link.forget();
                client.begin_anew();
            }
            PeopleCommand::Refresh => client.knows = true,
            PeopleCommand::Statuses => {
                for status in ok["statuses"].as_array().into_iter().flatten() {
                    self.check_shown(cluster, who, status)?;
                }
            }
            PeopleCommand::Change(change) => {
                client.change = None;
                let (user, since) = (client.link.user.clone(), client.sent_at);
                let whom = |whom: usize| format!("user{whom}");
                let kept = self.judge.was(since, |facts: &StoredPeople| match change {
                    PeopleChange::Follow(other) => facts.follows(&user, &whom(other)),
                    PeopleChange::Unfollow(other) => !facts.follows(&user, &whom(other)),
                    PeopleChange::Show(value) => {
                        facts.visibility.get(&user).copied().unwrap_or_default() == VISIBILITIES[value].1
                    }
                });
                if !kept {
                    return Err("it was answered ok, and the store never had it".into());
                }
                self.count("changes");
            }
        }
        Ok(())
    }

    fn greeted(&mut self, cluster: &mut Cluster, who: usize, ok: &Value) -> Outcome {
        let client = &mut self.clients[who];
        let process = cluster.nodes[client.link.node].process;
        let greeting = client.link.greet(ok, process)?;
        client.here_since = Some(cluster.now);
        if !greeting.resumed {
            client.begin_anew();
        }
        client.catch_up();
        cluster.trace.note(u64::from(greeting.resumed));
        self.count(if greeting.resumed { "sessions resumed" } else { "sessions begun" });
        Ok(())
    }

    fn event(&mut self, cluster: &Cluster, who: usize, event: &Value) -> Outcome {
        if event["seq"].is_null() {
            return Ok(());
        }
        let client = &mut self.clients[who];
        client.link.number(event)?;
        match event["event"].as_str() {
            Some("status") => {
                self.count("statuses received");
                self.learn(cluster, who, &event["status"])
            }
            Some("statuses") => {
                let statuses = event["statuses"].as_array().into_iter().flatten();
                statuses.into_iter().try_for_each(|status| self.learn(cluster, who, status))
            }
            _ if event[MESSAGE_ID].is_u64() => {
                let user = client.link.user.clone();
                client.message_id = self.judge.check_message(&user, client.message_id, event)?;
                self.count("inbox messages received");
                Ok(())
            }
            _ => Err(format!("an unknown event: {event}")),
        }
    }

    fn learn(&mut self, cluster: &Cluster, who: usize, status: &Value) -> Outcome {
        let about = status["user"].as_str().unwrap_or_default();
        self.clients[who].statuses.insert(about.to_owned(), ReportedStatus::read(status));
        self.check_shown(cluster, who, status)
    }

    /// A status was received: a user is never shown to users they hide from.
    fn check_shown(&self, cluster: &Cluster, who: usize, status: &Value) -> Outcome {
        let about = status["user"].as_str().ok_or_else(|| format!("whose status? {status}"))?;
        let reported = ReportedStatus::read(status);
        let client = &self.clients[who];
        let viewer = client.link.user.clone();
        let settled = client.here_since.is_some_and(|since| cluster.now.since(since) >= LATE_MS);
        let since = Time(cluster.now.ms().saturating_sub(LATE_MS));
        let hidden = about != viewer && !self.judge.was(since, |facts| facts.shows(about, &viewer));
        match reported.online && settled && hidden {
            true => Err(format!("{about} hides from {viewer}, who receives {status}")),
            false => Ok(()),
        }
    }
}
