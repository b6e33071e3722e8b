//! The final state: every follower knows who is online and where, a user is shown in every channel to those they want to
//! be seen by, and offline users were last seen when they left.

use super::PeopleWorkload;
use super::client::{PeopleClient, ReportedStatus};
use super::store_judge::presences;
use super::{CHANNELS, SKEW_MS};
use crate::cluster::Cluster;
use crate::workload::{LIVENESS, Outcome};

/// A node that is cut off from the store keeps its clients, who were last seen when its lease ended: so much earlier.
const CUT_OFF_MS: u64 = 60_000;
/// A node may learn late that a user has left: it slept, or it died and its lease had to expire.
const MISSED_MS: u64 = 2 * LIVENESS.lease_ms + 22_000;

impl PeopleWorkload {
    fn connected(&self) -> impl Iterator<Item = (usize, &PeopleClient)> {
        self.clients.iter().enumerate().filter(|(_, client)| client.link.connection.is_some())
    }

    pub(super) fn check_clients(&self) -> Outcome {
        for (who, client) in self.connected() {
            let link = &client.link;
            if !link.is_idle() || !link.todo.is_empty() || client.change.is_some() {
                return Err(format!("client {who} waits forever: {:?}, then {:?}", link.pending, link.todo));
            }
            let result = self.judge.inbox.check_end(&link.user, client.message_id);
            result.map_err(|error| format!("client {who} of {}: {error}", link.user))?;
        }
        Ok(())
    }

    /// The status of a user, as every user who may see it must know it.
    fn truth(&self, user: &str) -> ReportedStatus {
        let here = self.connected().filter(|(_, client)| client.link.user == user);
        let mut status = ReportedStatus::default();
        for (_, client) in here {
            status.online = true;
            status.channels.extend(client.wants.iter().map(|channel| CHANNELS[*channel].to_owned()));
        }
        status
    }

    pub(super) fn check_statuses(&self) -> Outcome {
        let facts = self.judge.facts();
        for (who, client) in self.connected() {
            let viewer = &client.link.user;
            for user in self.users.iter().filter(|user| facts.follows(viewer, user)) {
                let right =
                    if facts.shows(user, viewer) { self.truth(user) } else { ReportedStatus::default() };
                let known = client.statuses.get(user).cloned().unwrap_or_default();
                if known != right {
                    return Err(format!("client {who} of {viewer} knows {known:?} of {user}, not {right:?}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_visibility(&self, cluster: &Cluster) -> Outcome {
        for (user, channel, shown_to) in presences(cluster) {
            let wanted = self.judge.facts().visibility_of(&user);
            if shown_to != wanted {
                return Err(format!("{user} is shown in {channel} to {shown_to:?}, but wants {wanted:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn check_last_seen(&self, cluster: &Cluster) -> Outcome {
        for (user, (certain, last)) in &self.visit_ends {
            if self.truth(user).online || self.judge.left_hidden.contains(user) {
                continue;
            }
            let seen = self.judge.last_seen.get(user).map_or(0, |seen| seen.ms());
            let (from, to) = (certain.ms() - CUT_OFF_MS - SKEW_MS, last.ms() + MISSED_MS);
            if seen < from || seen > to {
                let now = cluster.now.ms();
                return Err(format!(
                    "{user} left at {} or until {}, and was last seen at {seen}; it is {now}",
                    certain.ms(),
                    last.ms()
                ));
            }
        }
        Ok(())
    }
}
