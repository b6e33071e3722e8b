//! Parties on one shard: commands of its sessions and of apps, each one transaction (`decision.rs`). Any node serves
//! any command. The rules are in `tavern-domain`; `view.rs` holds the party as a user's sessions see it. Must hold:
//! one command is at most one commit, which includes the inbox messages; notifications follow the commit.

mod cached;
mod command;
mod committed;
mod decision;
mod forget;
mod ids;
mod refusal_limit;
mod snapshot;
mod view;
mod wakes;

pub(crate) use snapshot::Snapshot;

use decision::PartyDecision;
use forget::ForgetMembership;
use ids::ReserveIds;

use crate::connection::LinkId;
use crate::core::{Core, Feature};
use crate::rows::{FORGET, MEMBERSHIP};
use crate::transaction::{Facts, Transactions};
use std::sync::Arc;
use tavern_domain::party::PartyCommand;
use tavern_store::{Deadline, StoreAnswer, Ticket};

pub(crate) struct Parties {
    transactions: Transactions<PartyDecision>,
    reservations: Transactions<ReserveIds>,
    forgets: Transactions<ForgetMembership>,
    ids: ids::PartyIds,
    refusal_limits: refusal_limit::RefusalLimits,
    views: view::PartyViews,
    wakes: wakes::PartyWakes,
}

impl Parties {
    pub fn new() -> Parties {
        Parties {
            transactions: Transactions::new(Feature::Party),
            reservations: Transactions::new(Feature::Party),
            forgets: Transactions::new(Feature::Party),
            ids: ids::PartyIds::default(),
            refusal_limits: refusal_limit::RefusalLimits::default(),
            views: view::PartyViews::new(),
            wakes: wakes::PartyWakes::default(),
        }
    }

    pub fn forget_link(&mut self, link: LinkId) {
        self.views.requests.forget_link(link);
    }

    pub(crate) fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.transactions.owns(ticket) {
            let progress = self.transactions.answered(core, ticket, answer);
            self.progressed(core, progress);
        } else if self.reservations.owns(ticket) {
            let progress = self.reservations.answered(core, ticket, answer);
            self.reserved(core, progress);
        } else if self.forgets.owns(ticket) {
            // If the store does not answer, a node checks again at the next heartbeat.
            self.forgets.answered(core, ticket, answer);
        } else {
            self.view_answered(core, ticket, answer);
        }
    }

    /// A deadline of a party is due.
    pub(crate) fn wake_party(&mut self, core: &mut Core, party: u64) {
        self.wakes.fired(party);
        self.begin(core, PartyDecision::of_server(PartyCommand::Wake { party }));
    }

    /// Handles a deadline that some node stored and that is overdue.
    pub(crate) fn is_due(&mut self, core: &mut Core, deadline: &Deadline) {
        let command = match &*deadline.kind {
            FORGET => {
                self.forgets.begin(core, ForgetMembership(deadline.clone()), Facts::default());
                return;
            }
            MEMBERSHIP => PartyCommand::Check { user: deadline.name.clone() },
            _ => match deadline.name.parse() {
                Ok(party) => PartyCommand::Wake { party },
                Err(_) => return,
            },
        };
        self.begin(core, PartyDecision::of_server(command).settling(deadline.key(), Some(deadline.due)));
    }

    /// A user connected, or connected again: their party checks their presence.
    pub(crate) fn user_connected(&mut self, core: &mut Core, user: &Arc<str>) {
        if self.views.party_of(user).is_some() {
            self.check_membership(core, user, false);
        }
    }

    /// A user's presence changed: their party checks it. `recorded`: the commit deletes the deadline that triggered it.
    pub(crate) fn check_membership(&mut self, core: &mut Core, user: &Arc<str>, recorded: bool) {
        let check = PartyDecision::of_server(PartyCommand::Check { user: user.clone() });
        // The deadline belongs to the user's presence, whose version the transaction expects: every other change of
        // the deadline changes that version too.
        let key = Deadline::new(core.now, MEMBERSHIP, user).key();
        self.begin(core, if recorded { check.settling(key, None) } else { check });
    }
}
