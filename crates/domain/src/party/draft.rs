//! The working copies of one command: loaded on first use, changed here, and collected at the end.
//! Must hold: the facts are never changed; a party that differs from the stored one has a higher version.

use super::event::Actor;
use super::{
    Membership, Party, PartyChanges, PartyEvent, PartyEventKind, PartyFacts, PartyLimits, PartyNeed,
    PartyRefusal, PartyReply, UserId, UserPresence,
};
use crate::sorted::Sorted;
use crate::time::Time;
use alloc::vec::Vec;

/// Why a command ended without a reply of its own.
pub(super) enum PartyStop {
    /// A fact is missing.
    Need,
    /// With the time after which a retry makes sense.
    Refused(PartyRefusal, Option<u64>),
    /// The request was answered before, with this.
    Repeated(PartyReply),
}

impl From<PartyRefusal> for PartyStop {
    fn from(why: PartyRefusal) -> PartyStop {
        PartyStop::Refused(why, None)
    }
}

pub(super) type PartyStep<T = ()> = Result<T, PartyStop>;

pub(super) struct PartyDraft<'a> {
    pub now: Time,
    pub rules: &'a PartyLimits,
    facts: &'a PartyFacts,
    needs: Vec<PartyNeed>,
    parties: Sorted<u64, Option<Party>>,
    records: Sorted<UserId, Membership>,
    pub changes: PartyChanges,
    /// Index of the first message of the command itself, after those of due deadlines.
    command_from: usize,
}

impl<'a> PartyDraft<'a> {
    pub fn new(now: Time, rules: &'a PartyLimits, facts: &'a PartyFacts) -> PartyDraft<'a> {
        PartyDraft {
            now,
            rules,
            facts,
            needs: Vec::new(),
            parties: Sorted::new(),
            records: Sorted::new(),
            changes: PartyChanges::default(),
            command_from: 0,
        }
    }

    /// Stops unless all of these are loaded.
    pub fn require(&mut self, needs: impl IntoIterator<Item = PartyNeed>) -> PartyStep {
        for need in needs {
            if !self.facts.has(&need) && !self.needs.contains(&need) {
                self.needs.push(need);
            }
        }
        if self.needs.is_empty() { Ok(()) } else { Err(PartyStop::Need) }
    }

    /// What must be loaded before the command can be decided.
    pub fn into_needs(self) -> Vec<PartyNeed> {
        assert!(!self.needs.is_empty(), "a command without a result needs another fact");
        self.needs
    }

    /// A user's record as it is stored.
    pub fn stored_record(&mut self, user: &UserId) -> PartyStep<&'a Membership> {
        self.require([PartyNeed::Membership(user.clone())])?;
        Ok(self.facts.membership(user).expect("it is loaded"))
    }

    /// A party as it is stored.
    pub fn stored_party(&mut self, id: u64) -> PartyStep<Option<&'a Party>> {
        self.require([PartyNeed::Party(id)])?;
        Ok(self.facts.party(id).expect("it is loaded"))
    }

    /// The working copy of a user's record.
    pub fn record(&mut self, user: &UserId) -> PartyStep<&mut Membership> {
        if !self.records.contains_key(user) {
            let stored = self.stored_record(user)?.clone();
            self.records.insert(user.clone(), stored);
        }
        Ok(self.records.get_mut(user).expect("it was inserted"))
    }

    pub fn presence(&mut self, user: &UserId) -> PartyStep<&'a UserPresence> {
        self.require([PartyNeed::Presence(user.clone())])?;
        Ok(self.facts.presence(user).expect("it is loaded"))
    }

    /// Whether the invited user is hidden from the caller.
    pub fn invited_hides(&self) -> bool {
        self.facts.invited_hides
    }

    /// A party id that was never used.
    pub fn new_id(&mut self) -> PartyStep<u64> {
        self.require([PartyNeed::Id])?;
        Ok(self.facts.id.expect("it is loaded"))
    }

    /// Makes the working copy of a party. False: there is one already.
    pub fn load(&mut self, id: u64) -> PartyStep<bool> {
        if self.parties.contains_key(&id) {
            return Ok(false);
        }
        let stored = self.stored_party(id)?.cloned();
        self.parties.insert(id, stored);
        Ok(true)
    }

    /// Whether a party that was loaded exists.
    pub fn exists(&self, id: u64) -> bool {
        self.parties.get(&id).is_some_and(Option::is_some)
    }

    pub fn party(&self, id: u64) -> &Party {
        self.parties.get(&id).and_then(Option::as_ref).expect("the party is loaded and exists")
    }

    /// Starts one change of a party: the messages that follow have its new version.
    pub fn change(&mut self, id: u64) -> &mut Party {
        let party = self.parties.get_mut(&id).and_then(Option::as_mut);
        let party = party.expect("the party is loaded and exists");
        party.version += 1;
        party
    }

    pub fn create(&mut self, party: Party) {
        let id = party.id;
        let before = self.parties.insert(id, Some(party));
        assert!(before.flatten().is_none(), "a party id is never reused");
    }

    pub fn remove(&mut self, id: u64) {
        self.parties.insert(id, None);
    }

    /// All checks have passed and every due deadline is applied: what follows is the command itself.
    pub fn begin_command(&mut self) {
        self.command_from = self.changes.events.len();
    }

    pub fn notify(&mut self, id: u64, to: &UserId, actor: &Actor, what: PartyEventKind) {
        let version = self.party(id).version;
        let Actor { user, name } = actor.clone();
        let event =
            PartyEvent { to: to.clone(), party_id: id, version, at: self.now, actor: user, name, kind: what };
        self.changes.events.push(event);
    }

    pub fn notify_members(&mut self, id: u64, actor: &Actor, what: &PartyEventKind) {
        for user in self.party(id).users() {
            self.notify(id, &user, actor, what.clone());
        }
    }

    /// Discards every change.
    pub fn discard(&mut self) {
        self.parties.clear();
        self.records.clear();
        self.changes = PartyChanges::default();
    }

    /// Moves the working copies that differ from what is stored into `changes`.
    pub fn collect(&mut self) {
        // The end of a party comes last, and due deadlines before what the command did.
        let from = self.command_from.min(self.changes.events.len());
        self.changes.events[from..].sort_by_key(|event| matches!(event.kind, PartyEventKind::Disband { .. }));
        self.changes.parties.reserve_exact(self.parties.len());
        for (id, party) in core::mem::take(&mut self.parties) {
            let before = self.facts.party(id).flatten();
            if party.as_ref() != before {
                let older = before.map_or(0, |before| before.version);
                assert!(
                    party.as_ref().is_none_or(|party| party.version > older),
                    "a change raises the version"
                );
                self.changes.parties.push((id, party));
            }
        }
        self.changes.memberships.reserve_exact(self.records.len());
        for (user, mut record) in core::mem::take(&mut self.records) {
            if self.facts.membership(&user) != Some(&record) {
                record.prune(self.now);
                self.changes.memberships.push((user, record));
            }
        }
    }
}
