//! One check of the other nodes: the store's time, the nodes, the presences of closed epochs, overdue deadlines and,
//! less often, stale presences. Must hold: one request at a time, so that the check does not flood a slow store.

use super::{Liveness, LivenessEvent, LivenessTask, PendingRequest, TakenOver};
use crate::rows::StaleUser;
use std::collections::VecDeque;
use tavern_domain::presence::{ClientLoss, NodeEpoch, OfflineReason};
use tavern_domain::{Channel, Time};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{
    CloseProof, Deadline, Found, NodeChange, NodeRow, Page, PresenceKey, PresenceRow, Read, StalePresence,
    StoreAnswer, StoreError, Versioned, Work, Writer,
};

/// The node that wrote a deadline handles it; other nodes wait this long before they do.
const OVERDUE_MS: u64 = 1_000;

pub(super) struct NodeCheck {
    /// The store's time when the check started.
    at: Time,
    /// Nodes still to be checked.
    nodes: VecDeque<NodeRow>,
    step: CheckStep,
}

/// A request to the store.
enum CheckStep {
    Time,
    Nodes,
    Close(NodeRow),
    Forget,
    Presences {
        node: NodeRow,
        closed_at: Time,
        /// How many presences of the epoch were found so far.
        found: usize,
    },
    Deadlines,
    Strays,
}

impl Liveness {
    pub(super) fn begin_check(&mut self, now: Time) {
        let check = NodeCheck { at: Time(0), nodes: VecDeque::new(), step: CheckStep::Time };
        self.submit_check(now, check, Work::Read(Read::Time));
    }

    fn submit_check(&mut self, now: Time, check: NodeCheck, work: Work) {
        let ticket = self.submit(work);
        self.check = Some(PendingRequest { ticket, since: now, what: check });
    }

    pub(super) fn check_answered(&mut self, now: Time, mut check: NodeCheck, answer: StoreAnswer) {
        match (&check.step, answer) {
            (CheckStep::Time, StoreAnswer::Read(Found::Time(time))) => {
                check.at = time;
                self.read_nodes(now, check, None);
            }
            (CheckStep::Nodes, StoreAnswer::Read(Found::Nodes(page))) => self.nodes_read(now, check, page),
            (CheckStep::Presences { .. }, StoreAnswer::Read(Found::Presences(page))) => {
                self.presences_read(now, check, page);
            }
            (CheckStep::Deadlines, StoreAnswer::Read(Found::Deadlines(page))) => {
                self.deadlines_read(now, check, page);
            }
            (CheckStep::Strays, StoreAnswer::Read(Found::StalePresences(page))) => {
                self.strays_read(now, page)
            }
            (CheckStep::Close(node), StoreAnswer::Committed(receipt)) => {
                // The node that closed the epoch handles it at once. The others handle at their next heartbeat what
                // is left.
                if receipt.closed_at == Some(receipt.time) {
                    let closed = NodeRow { closed_at: receipt.closed_at, ..node.clone() };
                    check.nodes.push_front(closed);
                }
                self.check_next(now, check);
            }
            (CheckStep::Forget, StoreAnswer::Committed(_)) => self.check_next(now, check),
            // Another node was faster, or the node renewed its lease after all.
            (
                CheckStep::Close(_) | CheckStep::Forget,
                StoreAnswer::Failed(StoreError::Leased { .. } | StoreError::UnknownNode { .. }),
            ) => self.check_next(now, check),
            (_, StoreAnswer::Failed(error)) => {
                self.effects.events.push(LivenessEvent::CheckPostponed(error));
                self.effects.tasks.push(LivenessTask::Compare);
            }
            _ => self.effects.tasks.push(LivenessTask::Compare),
        }
    }

    fn read_nodes(&mut self, now: Time, check: NodeCheck, after: Option<Writer>) {
        let read = Read::Nodes { after, limit: PAGE_ROWS };
        self.submit_check(now, NodeCheck { step: CheckStep::Nodes, ..check }, Work::Read(read));
    }

    fn nodes_read(&mut self, now: Time, mut check: NodeCheck, page: Page<NodeRow>) {
        let last = page.rows.last().map(|node| node.writer.clone());
        let own = self.writer();
        check.nodes.extend(page.rows.into_iter().filter(|node| node.writer != own));
        match last.filter(|_| page.more) {
            Some(last) => self.read_nodes(now, check, Some(last)),
            None => {
                self.schedule_check(now, &check);
                self.check_next(now, check);
            }
        }
    }

    /// The next check runs when the first lease expires, even if that is before the next heartbeat.
    fn schedule_check(&mut self, now: Time, check: &NodeCheck) {
        let open = check.nodes.iter().filter(|node| node.closed_at.is_none() && check.at < node.lease_until);
        let next = open.map(|node| now + node.lease_until.since(check.at)).min();
        self.check_due = next.unwrap_or(Time::NEVER);
    }

    /// Closes the epoch of a dead node, or reads the presences of a closed epoch. After the last node, reads the overdue
    /// deadlines.
    fn check_next(&mut self, now: Time, mut check: NodeCheck) {
        while let Some(node) = check.nodes.pop_front() {
            if let Some(closed_at) = node.closed_at {
                let step = CheckStep::Presences { node, closed_at, found: 0 };
                return self.read_presences(now, NodeCheck { step, ..check }, None);
            }
            if check.at >= node.lease_until && self.may_close(now) {
                self.effects.events.push(LivenessEvent::LeaseEnded(node.writer.clone()));
                let close = NodeChange::Close { node: node.writer.clone(), proof: CloseProof::LeaseEnded };
                let check = NodeCheck { step: CheckStep::Close(node), ..check };
                return self.submit_check(now, check, self.commit(close));
            }
        }
        let by = check.at - OVERDUE_MS;
        let read = Read::DueDeadlines { by, after: self.overdue_after.take(), limit: PAGE_ROWS };
        self.submit_check(now, NodeCheck { step: CheckStep::Deadlines, ..check }, Work::Read(read));
    }

    /// Not during a store outage, and not right after one.
    fn may_close(&self, now: Time) -> bool {
        now >= self.lenient_until && !self.is_out_of_touch(now)
    }

    fn read_presences(&mut self, now: Time, check: NodeCheck, after: Option<PresenceKey>) {
        let CheckStep::Presences { node, .. } = &check.step else { return };
        let read = Read::PresencesAt { node: node.writer.clone(), after, limit: PAGE_ROWS };
        self.submit_check(now, check, Work::Read(read));
    }

    /// Marks presences of a closed epoch as lost; deletes an epoch without presences.
    fn presences_read(&mut self, now: Time, mut check: NodeCheck, page: Page<Versioned<PresenceRow>>) {
        let at = check.at;
        let CheckStep::Presences { node, closed_at, found } = &mut check.step else { return };
        *found += page.rows.len();
        let last = page.rows.last().map(|row| row.row.key.clone());
        for row in page.rows {
            self.take_over(at, node, *closed_at, row.row);
        }
        if let Some(last) = last.filter(|_| page.more) {
            return self.read_presences(now, check, Some(last));
        }
        let long_gone = at >= *closed_at + self.rules.drain_ms + self.rules.lease_ms;
        let own_earlier_epoch = *node.writer.node == *self.node.settings.node;
        if *found == 0 && (own_earlier_epoch || long_gone) {
            let forget = NodeChange::Forget { node: node.writer.clone() };
            let check = NodeCheck { step: CheckStep::Forget, ..check };
            return self.submit_check(now, check, self.commit(forget));
        }
        self.check_next(now, check);
    }

    /// A node that stopped cleanly left its sessions in the store: its clients have the whole grace period to
    /// reconnect before watchers are notified. The clients of a dead node are lost at once.
    fn take_over(&mut self, at: Time, node: &NodeRow, closed_at: Time, presence: PresenceRow) {
        let kind = Channel::parse(&presence.key.channel).map_or("", |channel| channel.kind);
        let grace_ms = self.node.settings.kind(kind).grace_ms;
        if node.clean && at < closed_at + grace_ms.max(self.rules.drain_ms) {
            return;
        }
        let reason = if node.clean { OfflineReason::Lost } else { OfflineReason::NodeDown };
        let node_epoch = NodeEpoch::from(&node.writer);
        let loss = ClientLoss { at: closed_at, grace_ms, reason };
        // The grace period begins when the epoch is closed: until then clients may have had no server to reconnect to.
        let seen = if node.clean { closed_at } else { node.lease_until.min(closed_at) };
        let taken = TakenOver { presence, node: node_epoch, loss, seen };
        self.effects.tasks.push(LivenessTask::TakeOver(Box::new(taken)));
    }

    /// One page per heartbeat. The next one starts after it: deadlines that must wait do not hold up the others.
    fn deadlines_read(&mut self, now: Time, check: NodeCheck, overdue: Page<Deadline>) {
        self.overdue_after = overdue.rows.last().filter(|_| overdue.more).cloned();
        self.effects.tasks.extend(overdue.rows.into_iter().map(LivenessTask::Overdue));
        if now < self.sweep_due {
            return self.effects.tasks.push(LivenessTask::Compare);
        }
        let read = Read::StalePresences { before: check.at - self.rules.sweep_age_ms, limit: PAGE_ROWS };
        self.submit_check(now, NodeCheck { step: CheckStep::Strays, ..check }, Work::Read(read));
    }

    /// One page per heartbeat: the next page is read when these presences are removed.
    fn strays_read(&mut self, now: Time, page: Page<StalePresence>) {
        self.sweep_due = if page.more { now } else { now + self.rules.sweep_ms };
        let mut users: Vec<StaleUser> = Vec::new();
        for StalePresence { key, nodes } in page.rows {
            match users.last_mut().filter(|stale| stale.user == key.user) {
                Some(stale) => stale.nodes.extend(nodes),
                None => users.push(StaleUser { user: key.user.clone(), nodes }),
            }
            self.effects.events.push(LivenessEvent::StalePresence(key));
        }
        if page.more && users.len() > 1 {
            // The next page may hold more presences of the last user, and a user is swept in one commit.
            users.pop();
        }
        self.effects.tasks.extend(users.into_iter().map(LivenessTask::Sweep));
        self.effects.tasks.push(LivenessTask::Compare);
    }
}
