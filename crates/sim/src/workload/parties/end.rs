//! The final state: connected users know their current party, disconnected users are not in one, nothing is pending,
//! every invite has ended once, and every order was executed once or not at all.

use super::PartiesWorkload;
use crate::cluster::Cluster;
use crate::workload::Outcome;
use serde_json::Value;
use std::collections::BTreeSet;
use tavern_domain::Time;
use tavern_store::{Found, Read};

/// How long a deadline may be overdue: a node checks at each heartbeat.
const OVERDUE_MS: u64 = 6_000;

impl PartiesWorkload {
    pub(super) fn check_clients(&self) -> Outcome {
        for (who, client) in self.clients.iter().enumerate() {
            let (link, user) = (&client.link, &client.link.user);
            if link.connection.is_none() {
                continue;
            }
            if !link.is_idle() || !link.todo.is_empty() || client.order.is_some() {
                return Err(format!("client {who} waits forever: {:?}, {:?}", link.pending, client.order));
            }
            let party = self.judge.party_of(user);
            let known = client.party.as_ref().is_some_and(|known| match (known, &party) {
                (Some(known), Some(party)) => known.is_known_to(user, party),
                (known, party) => known.is_none() && party.is_none(),
            });
            // Users get their own actions only in the reply, and messages until one of their sessions acknowledges them.
            let others = || self.clients.iter().filter(|other| other.link.user == *user);
            let unanswered = others().any(|other| other.link.connection.is_none() && other.order.is_some());
            let missed = client.message_id < client.acknowledged;
            if !known && !unanswered && !missed {
                return Err(format!("client {who} of {user} knows {:?}, not {party:?}", client.party));
            }
            let result = self.judge.inbox.check_end(user, client.message_id);
            result.map_err(|error| format!("client {who} of {user}: {error}"))?;
        }
        Ok(())
    }

    pub(super) fn check_parties(&self, cluster: &Cluster) -> Outcome {
        let here = self.clients.iter().filter(|client| client.link.connection.is_some());
        let here: BTreeSet<&str> = here.map(|client| client.link.user.as_str()).collect();
        for party in self.judge.parties() {
            if !party.pending.is_empty() || party.members.iter().any(|member| !here.contains(&*member.user)) {
                return Err(format!("{here:?} are connected, and this party remains: {party:?}"));
            }
        }
        let by = Time(cluster.now.ms() - OVERDUE_MS);
        let read = Read::DueDeadlines { by, after: None, limit: 10 };
        if let Found::Deadlines(page) = cluster.peek(read)
            && let Some(deadline) = page.rows.first()
        {
            return Err(format!("a deadline is overdue: {deadline:?}"));
        }
        Ok(())
    }

    /// A refused order has had no effect.
    pub(super) fn check_orders(&self) -> Outcome {
        let refused =
            self.orders.iter().filter(|(_, entry)| entry.code.as_ref().is_some_and(|code| code != "ok"));
        for (number, entry) in refused {
            if let Some(trace) = self.judge.traces.get(number) {
                return Err(format!("order {number} was answered {:?}, and left {trace:?}", entry.code));
            }
        }
        Ok(())
    }

    /// An invite that was delivered has one end. The inviter gets one message of it unless they cancelled it
    /// themselves; the invited user gets one unless they answered themselves.
    pub(super) fn check_invites(&self) -> Outcome {
        let all: Vec<(&str, &Value)> = self.judge.inbox.all().collect();
        for (invitee, invite) in all.iter().filter(|(_, message)| message["cmd"] == "invite") {
            let end = end_of(&all, invitee, invite);
            if end.is_empty() {
                return Err(format!("the invite of {invitee} has no end: {invite}"));
            }
            let count = |cmds: &[&str]| {
                end.iter().filter(|(_, message)| cmds.iter().any(|cmd| message["cmd"] == *cmd)).count()
            };
            let reason = end.iter().find_map(|(_, message)| message["reason"].as_str());
            let by_invitee = count(&["accept"]) == 1 || reason == Some("declined");
            // The leader cancels it, who need not be the inviter.
            let closing = count(&["accept", "decline"]);
            let closed = closing == 1 || closing == 0 && reason == Some("cancelled");
            if !closed || count(&["invite_cancel"]) != usize::from(!by_invitee) {
                return Err(format!("the invite of {invitee} ended as {end:?}"));
            }
        }
        Ok(())
    }
}

/// The messages of the change that ended an invite.
fn end_of<'a>(all: &[(&'a str, &'a Value)], invitee: &str, invite: &Value) -> Vec<(&'a str, &'a Value)> {
    let version = |message: &Value| message["version"].as_u64().unwrap_or(0);
    let closes = |to: &str, message: &Value| match message["cmd"].as_str() {
        Some("invite_cancel") => to == invitee,
        Some("accept" | "decline" | "uninvited" | "join") => message["uid"] == *invitee,
        _ => false,
    };
    let later = all.iter().filter(|(to, message)| {
        message["party_id"] == invite["party_id"] && version(message) > version(invite) && closes(to, message)
    });
    let later: Vec<(&str, &Value)> = later.copied().collect();
    let first = later.iter().map(|(_, message)| version(message)).min();
    later.into_iter().filter(|(_, message)| Some(version(message)) == first).collect()
}
