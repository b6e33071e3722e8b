//! Judges the store as it changes, commit by commit. Each change of a presence is checked against what really happened
//! to the clients: which of them asked to join or leave, whose connection closed when, whose node was closed when.
//! Must hold: no client is lost without a disconnect, or before the time for resuming is over; a deadline is the loss
//! plus the grace period and never moves; no client is removed before its deadline; clients are present under open
//! epochs only; two states of a channel never have one version.

use super::{CHANNELS, RESUME_MS, SKEW_MS};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::view::{ChannelSnapshot, roster, snapshot_of};
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::presence::{Attendance, ChannelClient, LostClient, NodeEpoch};
use tavern_domain::{ClientId, Time};
use tavern_store::{Found, NodeRow, PresenceKey, Read, Writer};

/// How long the store may take for a client's command.
const PATIENCE_MS: u64 = 10_000;

#[derive(Default)]
pub struct PresenceJudge {
    rows: BTreeMap<(usize, String), Attendance>,
    pub history: [BTreeMap<u64, ChannelSnapshot>; CHANNELS.len()],
    pub clients: BTreeMap<ClientId, ClientHistory>,
    nodes: BTreeMap<Writer, NodeRow>,
    /// Presences that were ended because their node died, and grace periods that ran out: a campaign needs some.
    pub taken_over: u64,
    pub expired: u64,
}

/// The true history of one client.
#[derive(Clone, Debug, Default)]
pub struct ClientHistory {
    /// How far the clock of its node is ahead.
    pub skew: i64,
    /// The channels that it asked to join, and when last, by the clock of the store.
    pub joins: BTreeMap<usize, Time>,
    pub leaves: BTreeSet<usize>,
    /// When it had no connection, by the clock of its node.
    pub away: Vec<Away>,
    /// When it last connected to resume its session, by the clock of the store. Its node may count it as back before it
    /// has answered.
    pub connected: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
pub struct Away {
    pub from: Time,
    pub until: Option<Time>,
}

impl ClientHistory {
    pub fn goes(&mut self, local: Time) {
        if self.away.last().is_none_or(|away| away.until.is_some()) {
            self.away.push(Away { from: local, until: None });
        }
    }

    pub fn returns(&mut self, local: Time) {
        if let Some(away) = self.away.last_mut().filter(|away| away.until.is_none()) {
            away.until = Some(local);
        }
    }
}

impl PresenceJudge {
    /// Checks the changes of the last commit.
    pub fn observe(&mut self, cluster: &Cluster) -> Outcome {
        let Found::Nodes(nodes) = cluster.peek(Read::Nodes { after: None, limit: 1000 }) else {
            return Ok(());
        };
        self.nodes = nodes.rows.into_iter().map(|node| (node.writer.clone(), node)).collect();
        for channel in 0..CHANNELS.len() {
            self.observe_channel(cluster, channel)?;
        }
        self.check_deadlines(cluster)
    }

    fn observe_channel(&mut self, cluster: &Cluster, channel: usize) -> Outcome {
        let now = cluster.now;
        let (version, rows) = roster(cluster, CHANNELS[channel].0);
        let mut users: BTreeSet<String> = rows.keys().cloned().collect();
        let known = self.rows.keys().filter(|(of, _)| *of == channel);
        users.extend(known.map(|(_, user)| user.clone()));
        let absent = Attendance::default();
        for user in users {
            let key = (channel, user);
            let before = self.rows.get(&key).unwrap_or(&absent).clone();
            let after = rows.get(&key.1).unwrap_or(&absent);
            if before != *after {
                let context =
                    |error| format!("{} in {} at {}: {error}", key.1, CHANNELS[channel].0, now.ms());
                let name = CHANNELS[channel].0;
                cluster.trace.say(now, || format!("store: {name} {} at {version}: {after:?}", key.1));
                self.audit(now, channel, &before, after).map_err(context)?;
            }
            match after.is_present() {
                true => drop(self.rows.insert(key, after.clone())),
                false => drop(self.rows.remove(&key)),
            }
        }
        self.remember(channel, version, snapshot_of(&rows))
    }

    fn remember(&mut self, channel: usize, version: u64, snapshot: ChannelSnapshot) -> Outcome {
        let history = &mut self.history[channel];
        if version == 0 {
            return if snapshot.is_empty() { Ok(()) } else { Err("a user is there at version 0".into()) };
        }
        let name = CHANNELS[channel].0;
        match history.last_key_value() {
            Some((last, before)) if *last == version && *before != snapshot => {
                return Err(format!("two states of {name} have the version {version}"));
            }
            Some((last, _)) if *last == version => {}
            Some((last, before)) if *last < version => {
                let changes = version - last;
                if visible(before, &snapshot) > changes {
                    return Err(format!(
                        "{name} changed more between {last} and {version} than is sent to watchers"
                    ));
                }
            }
            Some((last, _)) => return Err(format!("{name} went back from {last} to {version}")),
            None => {}
        }
        history.insert(version, snapshot);
        Ok(())
    }

    /// The deadline of a client in its grace period is in the store.
    fn check_deadlines(&self, cluster: &Cluster) -> Outcome {
        let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 1000 };
        let Found::Deadlines(kept) = cluster.peek(read) else { return Ok(()) };
        let kept: BTreeMap<&str, Time> = kept.rows.iter().map(|row| (&*row.name, row.due)).collect();
        for ((channel, user), row) in &self.rows {
            let name = PresenceKey::new(CHANNELS[*channel].0, user).to_string();
            if let Some(due) = row.next_wake()
                && kept.get(&*name) != Some(&due)
            {
                return Err(format!("the deadline of {name} at {} is not kept", due.ms()));
            }
        }
        Ok(())
    }

    fn audit(&mut self, now: Time, channel: usize, before: &Attendance, after: &Attendance) -> Outcome {
        let arrived = after.connected().any(|client| {
            find(before, client.client).is_none_or(|was| was.lost.is_some() || was.node != client.node)
        });
        let ids: BTreeSet<ClientId> =
            before.clients().iter().chain(after.clients()).map(|client| client.client).collect();
        for id in ids {
            let (was, is) = (find(before, id), find(after, id));
            self.audit_client(now, channel, (was, is), arrived, after)
                .map_err(|error| format!("client {id}: {error}"))?;
        }
        self.expired += u64::from(before.is_leaving() && !after.is_present());
        Ok(())
    }

    fn audit_client(
        &mut self,
        now: Time,
        channel: usize,
        (was, is): (Option<&ChannelClient>, Option<&ChannelClient>),
        arrived: bool,
        after: &Attendance,
    ) -> Outcome {
        let lost = |client: Option<&ChannelClient>| client.and_then(|client| client.lost);
        match (was, is) {
            (_, Some(is)) if is.lost.is_none() => {
                if was.is_none_or(|was| was.node != is.node) {
                    self.check_home(&is.node)?;
                }
                let asked =
                    self.clients.get(&is.client).is_some_and(|fact| fact.joins.contains_key(&channel));
                if asked { Ok(()) } else { Err("is present without having joined".into()) }
            }
            (Some(was), Some(is)) => match (was.lost, is.lost) {
                (None, Some(loss)) => self.check_loss(now, channel, was, loss),
                (before, after) if before != after => Err("its loss was written again".into()),
                _ => Ok(()),
            },
            (None, Some(_)) => Err("was lost before it joined".into()),
            (Some(was), None) => match lost(Some(was)) {
                Some(lost) if arrived || self.joined_since(channel, after, lost) => Ok(()),
                Some(lost) if now + SKEW_MS >= lost.until => Ok(()),
                Some(lost) => Err(format!("went before its deadline at {}", lost.until.ms())),
                None => self.check_departure(now, channel, was, after.is_present()),
            },
            (None, None) => Ok(()),
        }
    }

    /// A join that changes nothing else also means that the user is back. A node that begins an epoch joins its clients
    /// again.
    fn joined_since(&self, channel: usize, row: &Attendance, lost: LostClient) -> bool {
        let moved = |client: &ChannelClient| {
            let fact = self.clients.get(&client.client)?;
            let returned = fact.away.iter().filter_map(|away| away.until).max();
            let home = Writer { node: client.node.node.clone(), epoch: client.node.epoch };
            let announced = self.nodes.get(&home).map(|node| node.opened_at);
            fact.joins.get(&channel).copied().max(returned).max(fact.connected).max(announced)
        };
        row.connected().filter_map(moved).any(|moved| moved + PATIENCE_MS >= lost.at)
    }

    /// Only an open epoch writes.
    fn check_home(&self, home: &NodeEpoch) -> Outcome {
        let writer = Writer { node: home.node.clone(), epoch: home.epoch };
        match self.nodes.get(&writer) {
            Some(node) if node.closed_at.is_none() => Ok(()),
            _ => Err(format!("it is present under {writer}, which is closed")),
        }
    }

    fn check_loss(&mut self, now: Time, channel: usize, was: &ChannelClient, loss: LostClient) -> Outcome {
        let grace = CHANNELS[channel].1;
        if loss.until != loss.at + grace {
            return Err(format!("lost at {} and kept until {}", loss.at.ms(), loss.until.ms()));
        }
        if let Some((closed_at, clean)) = self.closed(&was.node)
            && loss.at.ms().abs_diff(closed_at.ms()) <= SKEW_MS
        {
            self.taken_over += 1;
            let early = clean && now + SKEW_MS < closed_at + grace;
            return if early { Err("lost before the grace of a clean stop was over".into()) } else { Ok(()) };
        }
        let Some(fact) = self.clients.get(&was.client) else {
            return Err("no client with this id ever sent hello".into());
        };
        let local = Time(now.ms().saturating_add_signed(fact.skew));
        let Some(away) = fact.away.iter().rev().find(|away| away.from == loss.at) else {
            return Err(format!("lost at {} without a disconnect", loss.at.ms()));
        };
        let window = away.from + RESUME_MS;
        if local < window || away.until.is_some_and(|until| until < window) {
            return Err(format!(
                "a loss at {} that was shorter than the time for resuming was written",
                loss.at.ms()
            ));
        }
        Ok(())
    }

    /// A client that was present is removed, in one step.
    fn check_departure(&self, now: Time, channel: usize, was: &ChannelClient, present: bool) -> Outcome {
        let fact = self.clients.get(&was.client);
        if fact.is_some_and(|fact| fact.leaves.contains(&channel)) {
            return Ok(());
        }
        let closed = self.closed(&was.node).map(|(closed_at, _)| closed_at);
        // It may have reconnected: the store may commit late what was decided while it was disconnected.
        let lately = |away: &&Away| {
            away.until.is_none_or(|until| until >= away.from + RESUME_MS && until + PATIENCE_MS >= now)
        };
        let detached = fact.and_then(|fact| fact.away.iter().find(lately)).map(|away| away.from);
        let grace = CHANNELS[channel].1;
        let over = |since: Time| now + SKEW_MS >= since + grace;
        if [closed, detached].into_iter().flatten().any(over) || !self.knows(&was.node) {
            return Ok(());
        }
        let rest = if present { "its user stays" } else { "its user too" };
        Err(format!("is gone, {rest}, and neither left nor was lost long enough"))
    }

    fn closed(&self, home: &NodeEpoch) -> Option<(Time, bool)> {
        let node = self.nodes.get(&Writer { node: home.node.clone(), epoch: home.epoch })?;
        Some((node.closed_at?, node.clean))
    }

    fn knows(&self, home: &NodeEpoch) -> bool {
        self.nodes.contains_key(&Writer { node: home.node.clone(), epoch: home.epoch })
    }

    /// The record of a client, also of one that never got the answer to its hello.
    pub fn client(&mut self, id: ClientId) -> &mut ClientHistory {
        self.clients.entry(id).or_default()
    }

    pub fn row(&self, channel: usize, user: &str) -> Option<&Attendance> {
        self.rows.get(&(channel, user.to_owned()))
    }

    pub fn rows(&self) -> impl Iterator<Item = (usize, &String, &Attendance)> {
        self.rows.iter().map(|((channel, user), row)| (*channel, user, row))
    }

    pub fn is_home_open(&self, home: &NodeEpoch) -> bool {
        self.check_home(home).is_ok()
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeRow> {
        self.nodes.values()
    }
}

pub fn find(row: &Attendance, client: ClientId) -> Option<&ChannelClient> {
    row.clients().iter().find(|attendee| attendee.client == client)
}

/// The smallest number of events that describe the difference.
fn visible(before: &ChannelSnapshot, after: &ChannelSnapshot) -> u64 {
    let mut count = 0;
    let none = BTreeMap::new();
    let users: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for user in users {
        count += u64::from(before.contains_key(user) != after.contains_key(user));
        let (old, new) = (before.get(user).unwrap_or(&none), after.get(user).unwrap_or(&none));
        let clients: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        count += clients.into_iter().filter(|client| old.get(*client) != new.get(*client)).count() as u64;
    }
    count
}
