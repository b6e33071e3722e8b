//! The final state: connected clients are present where they joined, all others have left, every watcher sees the
//! members that the store has, and no deadline or epoch remains.

use super::client::{Stand, Watch};
use super::store_judge::find;
use super::{CHANNELS, NODES, PresenceWorkload};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::view::{ChannelSnapshot, roster, snapshot_of};
use std::collections::BTreeSet;
use tavern_domain::{ClientId, Time};
use tavern_store::{Found, Read};

impl PresenceWorkload {
    /// Connected clients have every answer, and are where they want to be.
    pub(super) fn check_clients(&self) -> Outcome {
        let connected = |who: &usize| self.clients[*who].link.connection.is_some();
        for who in (0..self.clients.len()).filter(connected) {
            let client = &self.clients[who];
            let link = &client.link;
            if !link.is_idle() || !link.todo.is_empty() {
                return Err(format!("client {who} waits forever: {:?}, then {:?}", link.pending, link.todo));
            }
            let id = link.id.ok_or("no client id")?;
            for (channel, state) in &client.wants {
                let name = CHANNELS[*channel].0;
                if client.stands.get(channel) != Some(&Stand::In(*state)) {
                    return Err(format!("client {who} joined {name} and never got an answer"));
                }
                let row = self.judge.row(*channel, &link.user);
                let kept = row.and_then(|row| find(row, id)).filter(|kept| kept.lost.is_none());
                let kept =
                    kept.ok_or_else(|| format!("client {who} is connected and not present in {name}"))?;
                let text = kept.state.as_ref().map(|state| state.text.to_string());
                if text != Some(format!("{{\"s\":{state}}}")) {
                    return Err(format!("client {who} is present with {text:?}, not {state}"));
                }
                if !self.judge.is_home_open(&kept.node) {
                    return Err(format!("client {who} is present under a node that is not alive"));
                }
            }
        }
        Ok(())
    }

    /// Only connected clients are present.
    pub(super) fn check_rows(&self) -> Outcome {
        let mut right: BTreeSet<(usize, ClientId)> = BTreeSet::new();
        for client in self.clients.iter().filter(|client| client.link.connection.is_some()) {
            right.extend(client.wants.keys().filter_map(|channel| Some((*channel, client.link.id?))));
        }
        for (channel, user, row) in self.judge.rows() {
            for client in row.clients() {
                if client.lost.is_some() || !right.contains(&(channel, client.client)) {
                    return Err(format!("{user} is still in {}: {client:?}", CHANNELS[channel].0));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_views(&self, cluster: &Cluster) -> Outcome {
        for (channel, (name, _)) in CHANNELS.iter().enumerate() {
            let there: ChannelSnapshot = snapshot_of(&roster(cluster, name).1);
            for (who, client) in self.clients.iter().enumerate() {
                let Some(watch) = client.watches.get(&channel).filter(|_| client.link.connection.is_some())
                else {
                    continue;
                };
                if !matches!(watch, Watch::Seen(view) if view.users == there) {
                    return Err(format!("client {who} sees {watch:?} in {name}, the store has {there:?}"));
                }
            }
        }
        Ok(())
    }

    /// No deadline is left but those of forwards, which outlive their sessions; no closed epoch remains.
    pub(super) fn check_store(&self, cluster: &Cluster) -> Outcome {
        let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 1000 };
        if let Found::Deadlines(page) = cluster.peek(read)
            && let Some(deadline) = page.rows.iter().find(|deadline| &*deadline.kind != "moved")
        {
            return Err(format!("a deadline remains: {deadline:?}"));
        }
        let open = self.judge.nodes().filter(|node| node.closed_at.is_none()).count();
        let running = cluster.nodes.iter().filter(|node| node.is_open()).count();
        let known = self.judge.nodes().count();
        if (open, running, known) != (NODES, NODES, NODES) {
            return Err(format!("{open} epochs are open, {known} known, {running} nodes run"));
        }
        Ok(())
    }
}
