//! One look at the other nodes: the store's time, who is there, what of the dead is left, what is overdue, and now and
//! then what went astray. One question at a time, so a look never asks more of the store than the store gives.

use super::{Asked, Chore, Notice, Vigil};
use crate::rows::Astray;
use std::collections::VecDeque;
use tavern_domain::presence::{Departure, Home, Loss};
use tavern_domain::{Channel, Time};
use tavern_engine::limits::PAGE_ROWS;
use tavern_engine::{
    Answer, Deadline, Found, Node, NodeChange, Page, Presence, Proof, Read, StoreError, Stray, Versioned,
    Work, Writer,
};

/// Whoever wrote a deadline down settles it; others wait this long for that.
const OVERDUE_MS: u64 = 1_000;

pub(super) struct Round {
    /// The store's time when the look began.
    at: Time,
    /// Nodes that are still to be looked at.
    nodes: VecDeque<Node>,
    asks: Question,
}

enum Question {
    Time,
    Nodes,
    Close(Node),
    Forget,
    Presences {
        node: Node,
        closed_at: Time,
        /// What of it was found so far.
        left: usize,
    },
    Deadlines,
    Strays,
}

impl Vigil {
    pub(super) fn begin_round(&mut self, now: Time) {
        let round = Round { at: Time(0), nodes: VecDeque::new(), asks: Question::Time };
        self.ask_round(now, round, Work::Read(Read::Time));
    }

    fn ask_round(&mut self, now: Time, round: Round, work: Work) {
        let ticket = self.submit(work);
        self.round = Some(Asked { ticket, since: now, what: round });
    }

    pub(super) fn round_answered(&mut self, now: Time, mut round: Round, answer: Answer) {
        match (&round.asks, answer) {
            (Question::Time, Answer::Read(Found::Time(time))) => {
                round.at = time;
                self.ask_nodes(now, round, None);
            }
            (Question::Nodes, Answer::Read(Found::Nodes(page))) => self.nodes_found(now, round, page),
            (Question::Presences { .. }, Answer::Read(Found::Presences(page))) => {
                self.presences_found(now, round, page);
            }
            (Question::Deadlines, Answer::Read(Found::Deadlines(page))) => {
                self.deadlines_found(now, round, page);
            }
            (Question::Strays, Answer::Read(Found::Strays(page))) => self.strays_found(now, page),
            (Question::Close(node), Answer::Committed(receipt)) => {
                // Whoever closed it goes on at once. Others leave it to him, and see at their next look what is left.
                if receipt.closed_at == Some(receipt.time) {
                    let closed = Node { closed_at: receipt.closed_at, ..node.clone() };
                    round.nodes.push_front(closed);
                }
                self.look_after_next(now, round);
            }
            (Question::Forget, Answer::Committed(_)) => self.look_after_next(now, round),
            // Somebody else was quicker, or it lives after all.
            (
                Question::Close(_) | Question::Forget,
                Answer::Failed(StoreError::Leased { .. } | StoreError::UnknownNode { .. }),
            ) => self.look_after_next(now, round),
            (_, Answer::Failed(error)) => {
                self.duties.notices.push(Notice::PutOff(error));
                self.duties.orders.push(Chore::Look);
            }
            _ => self.duties.orders.push(Chore::Look),
        }
    }

    fn ask_nodes(&mut self, now: Time, round: Round, after: Option<Writer>) {
        let read = Read::Nodes { after, limit: PAGE_ROWS };
        self.ask_round(now, Round { asks: Question::Nodes, ..round }, Work::Read(read));
    }

    fn nodes_found(&mut self, now: Time, mut round: Round, page: Page<Node>) {
        let last = page.rows.last().map(|node| node.writer.clone());
        let own = self.writer();
        round.nodes.extend(page.rows.into_iter().filter(|node| node.writer != own));
        match last.filter(|_| page.more) {
            Some(last) => self.ask_nodes(now, round, Some(last)),
            None => {
                self.expect_ends(now, &round);
                self.look_after_next(now, round);
            }
        }
    }

    /// Who does not renew its lease is looked at when it ends, not only when the heart beats again.
    fn expect_ends(&mut self, now: Time, round: &Round) {
        let open = round.nodes.iter().filter(|node| node.closed_at.is_none() && round.at < node.lease_until);
        let next = open.map(|node| now + node.lease_until.since(round.at)).min();
        self.look_due = next.unwrap_or(Time::NEVER);
    }

    /// Closes a dead node's epoch; of an epoch that is closed, looks for what it vouched for. After the last node comes
    /// what is overdue.
    fn look_after_next(&mut self, now: Time, mut round: Round) {
        while let Some(node) = round.nodes.pop_front() {
            if let Some(closed_at) = node.closed_at {
                let asks = Question::Presences { node, closed_at, left: 0 };
                return self.ask_presences(now, Round { asks, ..round }, None);
            }
            if round.at >= node.lease_until && self.may_judge(now) {
                self.duties.notices.push(Notice::Ended(node.writer.clone()));
                let close = NodeChange::Close { node: node.writer.clone(), proof: Proof::LeaseEnded };
                return self.ask_round(
                    now,
                    Round { asks: Question::Close(node), ..round },
                    self.change(close),
                );
            }
        }
        let by = round.at - OVERDUE_MS;
        let read = Read::DueDeadlines { by, after: None, limit: PAGE_ROWS };
        self.ask_round(now, Round { asks: Question::Deadlines, ..round }, Work::Read(read));
    }

    /// Not while the store was silent, and not right after.
    fn may_judge(&self, now: Time) -> bool {
        now >= self.lenient_until && !self.is_out_of_touch(now)
    }

    fn ask_presences(&mut self, now: Time, round: Round, after: Option<tavern_engine::PresenceKey>) {
        let Question::Presences { node, .. } = &round.asks else { return };
        let read = Read::PresencesAt { home: node.writer.clone(), after, limit: PAGE_ROWS };
        self.ask_round(now, round, Work::Read(read));
    }

    /// What an epoch vouched for is marked as lost; when nothing is left, the epoch is forgotten.
    fn presences_found(&mut self, now: Time, mut round: Round, page: Page<Versioned<Presence>>) {
        let at = round.at;
        let Question::Presences { node, closed_at, left } = &mut round.asks else { return };
        *left += page.rows.len();
        let last = page.rows.last().map(|row| row.row.key.clone());
        for row in page.rows {
            self.take_over(at, node, *closed_at, row.row);
        }
        if let Some(last) = last.filter(|_| page.more) {
            return self.ask_presences(now, round, Some(last));
        }
        let long_gone = at >= *closed_at + self.rules.drain_ms + self.rules.lease_ms;
        let own_past = *node.writer.node == *self.node.settings.node;
        if *left == 0 && (own_past || long_gone) {
            let forget = NodeChange::Forget { node: node.writer.clone() };
            return self.ask_round(now, Round { asks: Question::Forget, ..round }, self.change(forget));
        }
        self.look_after_next(now, round);
    }

    /// Who said goodbye left its sessions in the store: their clients have the whole grace to come back before anybody
    /// is told. Who died is told at once.
    fn take_over(&mut self, at: Time, node: &Node, closed_at: Time, presence: Presence) {
        let kind = Channel::parse(&presence.key.channel).map_or("", |channel| channel.kind);
        let grace_ms = self.node.settings.kind(kind).grace_ms;
        if node.clean && at < closed_at + grace_ms.max(self.rules.drain_ms) {
            return;
        }
        let reason = if node.clean { Departure::Lost } else { Departure::NodeDown };
        let home = Home::from(&node.writer);
        let taken = (presence, home, Loss { at: closed_at, grace_ms, reason });
        self.duties.orders.push(Chore::TakeOver(Box::new(taken)));
    }

    fn deadlines_found(&mut self, now: Time, round: Round, overdue: Page<Deadline>) {
        self.duties.orders.extend(overdue.rows.into_iter().map(Chore::Overdue));
        if now < self.sweep_due {
            return self.duties.orders.push(Chore::Look);
        }
        let read = Read::Strays { before: round.at - self.rules.sweep_age_ms, limit: PAGE_ROWS };
        self.ask_round(now, Round { asks: Question::Strays, ..round }, Work::Read(read));
    }

    /// One page at a time: the rest is looked for with the next heartbeat, when these are gone.
    fn strays_found(&mut self, now: Time, page: Page<Stray>) {
        self.sweep_due = if page.more { now } else { now + self.rules.sweep_ms };
        let mut users: Vec<Astray> = Vec::new();
        for Stray { key, homes } in page.rows {
            match users.last_mut().filter(|astray| astray.user == key.user) {
                Some(astray) => astray.homes.extend(homes),
                None => users.push(Astray { user: key.user.clone(), homes }),
            }
            self.duties.notices.push(Notice::Astray(key));
        }
        if page.more && users.len() > 1 {
            // More of the last one may stand on the next page, and a user goes as a whole.
            users.pop();
        }
        self.duties.orders.extend(users.into_iter().map(Chore::Sweep));
        self.duties.orders.push(Chore::Look);
    }
}
