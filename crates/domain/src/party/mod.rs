//! Parties: who is a member, who is invited, who leads, and how a whole group goes into a match. Rules only: storage and
//! the delivery of events are elsewhere.
//!
//! One call of [`run`] decides one command. It is given the facts that were loaded, and returns the facts it still needs, or
//! a reply and everything that must be written in one commit. It does not change what it was given.
//! Must hold: a user is in at most one party, and their own record agrees with its members; members and open invites
//! together never exceed `max_members`, and no user is both; no party has one member and no invite; every invite ends once,
//! and each side that did not end it is notified once; a ticket names exactly the members; a refused command changes nothing.

mod commands;
mod document;
mod draft;
mod event;
mod facts;
mod leave;
mod logout;
mod membership;
mod presence;
mod reply;
mod request;
mod settle;
mod ticket;

pub use document::{MatchTicket, MemberDisconnect, Party, PartyInvite, PartyMember, PartyState};
pub use event::{PartyEvent, PartyEventKind, PartyReason, PartyTopicEvent};
pub use facts::{PartyFacts, PartyNeed, UserPresence};
pub use membership::{CompletedRequest, Membership};
pub use reply::{PartyRefusal, PartyReply};
pub use request::{PartyCommand, PartyRequest};

use crate::time::Time;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use draft::{PartyDraft, PartyStep, PartyStop};

/// The id of a user.
pub type UserId = Arc<str>;

/// The limits of parties, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartyLimits {
    /// Members and open invites together, 2 to 64.
    pub max_members: u32,
    /// How long an invite stays open.
    pub invite_ms: u64,
    /// How long members have to confirm that they are ready.
    pub gather_ms: u64,
    /// How long a disconnected member stays after the grace period of their presence.
    pub grace_ms: u64,
    /// How long a user who declined is not invited again by the same user.
    pub reinvite_ms: u64,
    pub invites_per_minute: u32,
    /// Open invites of one user.
    pub max_pending: u32,
    /// True: members must confirm that they are ready. False: every online member is ready.
    pub require_ready: bool,
}

impl Default for PartyLimits {
    fn default() -> PartyLimits {
        PartyLimits {
            max_members: 5,
            invite_ms: 60_000,
            gather_ms: 10_000,
            grace_ms: 30_000,
            reinvite_ms: 30_000,
            invites_per_minute: 20,
            max_pending: 8,
            require_ready: false,
        }
    }
}

/// What must be written in one commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartyChanges {
    /// `None`: the party is deleted.
    pub parties: Vec<(u64, Option<Party>)>,
    /// An empty record is to be deleted.
    pub memberships: Vec<(UserId, Membership)>,
    /// Messages to users, in the order of delivery.
    pub events: Vec<PartyEvent>,
    /// Events for the topic of parties.
    pub topic_events: Vec<PartyTopicEvent>,
    /// Users who became members.
    pub entered: Vec<(u64, UserId)>,
    /// Users who are no longer members.
    pub left: Vec<(u64, UserId)>,
}

impl PartyChanges {
    pub fn is_empty(&self) -> bool {
        *self == PartyChanges::default()
    }
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq)]
pub enum PartyResult {
    /// Load these, add them to the facts and run again. Never empty.
    Need(Vec<PartyNeed>),
    Answered {
        reply: PartyReply,
        changes: PartyChanges,
    },
}

/// Decides one command on the facts that were loaded.
pub fn run(now: Time, rules: &PartyLimits, facts: &PartyFacts, call: &PartyRequest) -> PartyResult {
    assert!((2..=64).contains(&rules.max_members), "a party has 2 to 64 members");
    let mut draft = PartyDraft::new(now, rules, facts);
    let decided = decide(&mut draft, call);
    match conclude(&mut draft, call, decided) {
        Ok(reply) => PartyResult::Answered { reply, changes: draft.changes },
        Err(_) => PartyResult::Need(draft.into_needs()),
    }
}

/// The facts that a command of a user probably needs if the user is in this party: usually one run is enough with them.
/// If the party is outdated, the run asks for what is missing.
pub fn likely_needs(call: &PartyRequest, party: Option<u64>) -> Vec<PartyNeed> {
    let Some(user) = call.user.as_ref().filter(|_| call.is_sound()) else { return Vec::new() };
    let mut needs = commands::prefetch(user, call);
    needs.extend(party.map(PartyNeed::Party));
    if matches!(call.command, PartyCommand::Invite { .. }) && party.is_none() {
        // They create a party.
        needs.push(PartyNeed::Presence(user.clone()));
    }
    let mut known = Vec::with_capacity(needs.len());
    for need in needs {
        if !known.contains(&need) {
            known.push(need);
        }
    }
    known
}

fn decide(draft: &mut PartyDraft<'_>, call: &PartyRequest) -> PartyStep<PartyReply> {
    if let Some(user) = call.user.as_ref().filter(|_| call.is_sound()) {
        // Before the request id is looked up, so that both are loaded in one round trip.
        draft.require(commands::prefetch(user, call))?;
    }
    if let Some(reply) = answered_before(draft, call)? {
        return Err(PartyStop::Repeated(reply));
    }
    if !call.is_sound() {
        return Err(PartyRefusal::BadRequest.into());
    }
    match &call.user {
        Some(user) => commands::of_user(draft, user, call),
        None => commands::of_server(draft, call),
    }
}

/// The stored reply, if a request with this id was answered before.
fn answered_before(draft: &mut PartyDraft<'_>, call: &PartyRequest) -> PartyStep<Option<PartyReply>> {
    let (Some(user), Some(rid)) = (&call.user, &call.rid) else { return Ok(None) };
    let now = draft.now;
    Ok(draft.stored_record(user)?.answered(now, rid).cloned())
}

/// The final reply. A command that was refused or repeated changes nothing but the list of answered requests.
fn conclude(
    draft: &mut PartyDraft<'_>,
    call: &PartyRequest,
    decided: PartyStep<PartyReply>,
) -> PartyStep<PartyReply> {
    let reply = match decided {
        Ok(reply) => {
            remember(draft, call, &reply)?;
            draft.collect();
            return Ok(reply);
        }
        Err(PartyStop::Need) => return Err(PartyStop::Need),
        Err(PartyStop::Repeated(reply)) => {
            let party = stored_party(draft, call)?;
            return Ok(reply.with_party(party));
        }
        Err(PartyStop::Refused(why, retry_after_ms)) => {
            PartyReply::Refused { why, retry_after_ms, party: stored_party(draft, call)? }
        }
    };
    // Deadlines that are due are dropped too: they are applied when their own timer fires.
    draft.discard();
    remember(draft, call, &reply)?;
    draft.collect();
    Ok(reply)
}

/// The caller's party as it is stored, without deadlines that are due: clients apply later messages to it.
fn stored_party(draft: &mut PartyDraft<'_>, call: &PartyRequest) -> PartyStep<Option<Box<Party>>> {
    let Some(user) = &call.user else { return Ok(None) };
    let Some(id) = draft.stored_record(user)?.party else { return Ok(None) };
    let party = draft.stored_party(id)?.filter(|party| party.member(user).is_some());
    Ok(party.cloned().map(Box::new))
}

/// Stores the reply to a request with an id, so that it is executed once. A request that was not executed may be retried
/// with the same id, and a flood of them writes nothing.
fn remember(draft: &mut PartyDraft<'_>, call: &PartyRequest, reply: &PartyReply) -> PartyStep {
    let (Some(user), Some(rid)) = (&call.user, &call.rid) else { return Ok(()) };
    let executed = match reply {
        PartyReply::Refused { why, .. } => {
            !matches!(why, PartyRefusal::BadRequest | PartyRefusal::RateLimited)
        }
        _ => call.command != PartyCommand::Get,
    };
    if executed {
        let now = draft.now;
        draft.record(user)?.remember(now, Arc::clone(rid), reply.without_party());
    }
    Ok(())
}
