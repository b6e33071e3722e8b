//! The end of a party command: the reply, the view of the local sessions, and notifications for the other members.

use super::Parties;
use super::cached::cache_rows;
use super::decision::{PartyDecision, PartyOutcome, reply_of};
use crate::core::{Core, Notice, ReplyTo, Timer, refusal};
use crate::transaction::{Facts, Pause, TransactionEnd, TransactionProgress};
use std::sync::Arc;
use tavern_domain::party::{Party, PartyChanges, PartyCommand, PartyRefusal, PartyReply};
use tavern_domain::presence::UserUpdate;
use tavern_domain::topic::PARTIES;
use tavern_store::{Receipt, StoreAnswer};

/// The delay before a command that waits for a user to come online checks again.
const RETRY_MS: u64 = 100;

impl Parties {
    pub(super) fn begin(&mut self, core: &mut Core, mut decision: PartyDecision) {
        core.stats.party_commands.add(1);
        decision.party = decision.call.user.as_ref().and_then(|user| self.views.party_of(user));
        if decision.wants_id() {
            decision.id = self.take_id(core, None);
        }
        let progress = self.transactions.begin(core, decision, Facts::default());
        self.progressed(core, progress);
    }

    /// Continues a paused command with the rows that are in the store now.
    pub(crate) fn retry(&mut self, core: &mut Core, number: u64) {
        let progress = self.transactions.resume(core, number);
        self.progressed(core, progress);
    }

    pub(super) fn progressed(&mut self, core: &mut Core, progress: TransactionProgress<PartyDecision>) {
        match progress {
            TransactionProgress::Waits => {}
            // Something that is not stored: a party id.
            TransactionProgress::Paused(number, Pause::Supply) => self.give_id(core, number),
            // A user who may be about to come online.
            TransactionProgress::Paused(number, Pause::Change) => {
                core.agenda.set(core.now + RETRY_MS, Timer::RetryParty(number));
            }
            TransactionProgress::Ended(decision, ended) => self.ended(core, decision, ended),
        }
    }

    /// Gives a party id to a command that waits for one, once there is one.
    pub(super) fn give_id(&mut self, core: &mut Core, number: u64) {
        let Some(id) = self.take_id(core, Some(number)) else { return };
        let progress = self.transactions.supply(core, number, |decision| decision.id = Some(id));
        self.progressed(core, progress);
    }

    /// No party id could be reserved.
    pub(super) fn fail_paused(&mut self, core: &mut Core, number: u64, answer: StoreAnswer) {
        let progress = self.transactions.fail(number, answer);
        self.progressed(core, progress);
    }

    fn ended(&mut self, core: &mut Core, decision: PartyDecision, ended: TransactionEnd<PartyOutcome>) {
        let checked = match &decision.call.command {
            PartyCommand::Check { user } => Some(user.clone()),
            _ => None,
        };
        let unused = decision.id.filter(|id| !may_use(&ended, *id));
        unused.into_iter().for_each(|id| self.ids.give_back(id));
        match ended {
            TransactionEnd::Done(decided) => self.reply(core, &decision, &decided.reply),
            TransactionEnd::Committed(decided, receipt) => self.committed(core, &decision, decided, &receipt),
            TransactionEnd::Failed { answer, unknown } => {
                self.refuse(core, &decision, &answer);
                if let Some(decided) = unknown {
                    // The commit may have happened anyway, and a repeated command is not announced.
                    notify_members(core, &decided.changes);
                }
            }
        }
        if let Some(user) = checked {
            self.checked(core, &user);
        }
    }

    /// The store failed. A due deadline is handled again by the next check.
    fn refuse(&mut self, core: &mut Core, decision: &PartyDecision, answer: &StoreAnswer) {
        if let Some(claim) = decision.claim {
            let refusal = refusal(answer).with_party(self.views.text(decision.call.user.as_deref()));
            core.finish(claim, Err(refusal));
        }
    }

    fn reply(&mut self, core: &mut Core, decision: &PartyDecision, reply: &PartyReply) {
        if let (PartyReply::Refused { why: PartyRefusal::RateLimited, .. }, Some(user)) =
            (reply, &decision.call.user)
        {
            self.refusal_limits.strike(core.now, user, core.node.settings.parties.block_ms);
        }
        if let Some(claim) = decision.claim {
            core.finish(claim, reply_of(reply));
        }
    }

    /// Committed: the caller gets the reply, then others are notified.
    fn committed(
        &mut self,
        core: &mut Core,
        decision: &PartyDecision,
        mut decided: PartyOutcome,
        receipt: &Receipt,
    ) {
        let parties: Vec<(u64, Option<Arc<Party>>)> = std::mem::take(&mut decided.changes.parties)
            .into_iter()
            .map(|(id, party)| (id, party.map(Arc::new)))
            .collect();
        let PartyOutcome { reply, changes, .. } = &decided;
        // The caller may use the channel as soon as they have the reply.
        for (id, user) in &changes.left {
            let left = parties.iter().find(|(party, _)| party == id);
            let version = left.and_then(|(_, party)| party.as_ref()).map_or(u64::MAX, |party| party.version);
            self.has_become(core, user, (*id, version), None);
        }
        for (id, party) in &parties {
            let Some(party) = party else { continue };
            for member in &party.members {
                self.has_become(core, &member.user, (*id, party.version), Some(party));
            }
        }
        cache_rows(core, &self.views, &decided, &parties, receipt);
        self.reply(core, decision, reply);
        core.stats.inbox_messages_stored.add(receipt.inbox_numbers.len() as u64);
        if !receipt.appended.is_empty() {
            core.effects.topics.push(PARTIES.into());
        }
        for (id, party) in &parties {
            self.wakes.set(core, *id, party.as_ref().and_then(|party| party.next_wake()));
        }
        let actor = decision.call.user.clone();
        announce(core, actor.clone(), &decided, &parties, receipt);
        for (_, held) in decided.held {
            let receipt = held.receipt(receipt);
            core.notify(Notice::HeldCommitted { held: Box::new(held), receipt });
        }
        // An app may act for a user who is offline: their party must notice.
        if let Some(actor) = actor.filter(|_| matches!(decision.claim, Some(ReplyTo::Service(_)))) {
            self.check_membership(core, &actor, false);
        }
    }
}

/// Whether a party may have got this id.
fn may_use(ended: &TransactionEnd<PartyOutcome>, id: u64) -> bool {
    match ended {
        TransactionEnd::Committed(decided, _) | TransactionEnd::Failed { unknown: Some(decided), .. } => {
            decided.changes.parties.iter().any(|(party, _)| *party == id)
        }
        TransactionEnd::Done(_) | TransactionEnd::Failed { unknown: None, .. } => false,
    }
}

/// Local sessions of all members and former members get their party and their messages; sessions on other nodes read
/// both.
fn announce(
    core: &mut Core,
    actor: Option<Arc<str>>,
    decided: &PartyOutcome,
    parties: &[(u64, Option<Arc<Party>>)],
    receipt: &Receipt,
) {
    let parties = parties.iter().filter_map(|(_, party)| party.as_deref());
    for user in concerned(actor, &decided.changes, parties) {
        let numbered = decided.messages.iter().zip(&receipt.inbox_numbers).filter(|((to, _), _)| *to == user);
        let messages = numbered.map(|((_, body), number)| (*number, body.clone())).collect();
        core.notify(Notice::PartyCommitted { user, messages });
    }
}

/// Makes the sessions of all members and former members read their inbox and party.
fn notify_members(core: &mut Core, changes: &PartyChanges) {
    let parties = changes.parties.iter().filter_map(|(_, party)| party.as_ref());
    for user in concerned(None, changes, parties) {
        core.notify(Notice::StatusUpdate { user, update: UserUpdate::Inbox });
    }
}

/// Everyone whose inbox or party a command has changed, and who sent it.
fn concerned<'a>(
    actor: Option<Arc<str>>,
    changes: &PartyChanges,
    parties: impl Iterator<Item = &'a Party>,
) -> Vec<Arc<str>> {
    let mut concerned: Vec<Arc<str>> = changes.events.iter().map(|event| event.to.clone()).collect();
    concerned.extend(actor);
    // Members who were away for too long get no message, and their sessions may come back.
    concerned.extend(changes.left.iter().map(|(_, user)| user.clone()));
    concerned.extend(parties.flat_map(|party| &party.members).map(|member| member.user.clone()));
    concerned.sort();
    concerned.dedup();
    concerned
}
