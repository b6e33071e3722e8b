//! A party command as a decision: the rows that the rules ask for are loaded, the rules decide, and the result
//! is one commit. Must hold: every row that was read is expected by the commit.

use crate::core::{CommandReply, ReplyTo};
use crate::held::HeldChange;
use crate::rows::{
    FORGET, MembershipRow, PARTY, add_inbox_message, expected_user, hold_deadline_key, member_key, own_key,
    remove_hold, stored_visibility,
};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need, Pause};
use crate::user::own_channel;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{
    self, PartyChanges, PartyCommand, PartyEvent, PartyEventKind, PartyFacts, PartyNeed, PartyReason,
    PartyRefusal as No, PartyReply, PartyRequest, PartyResult, UserPresence,
};
use tavern_domain::presence::{Attendance, OfflineReason};
use tavern_domain::topic::PARTIES;
use tavern_store::{
    Append, Commit, Deadline, Document, DocumentKey, Expect, PresenceHold, PresenceRow, Row, RowKey,
    StoreAnswer, StoreError, Versioned,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::stored;
use tavern_wire::json::party as json;
use tavern_wire::record::{self, RecordError, read_membership, read_party, write_membership, write_party};

/// How often the presence of an offline user is read again: with a slow store it may not be committed yet.
const RETRIES: u8 = 3;

pub(super) struct PartyDecision {
    pub call: PartyRequest,
    pub claim: Option<ReplyTo>,
    /// The deadline that triggered it; the commit deletes it.
    deadline: Option<(RowKey, Option<Time>)>,
    /// The party of the caller, as far as this shard knows: what the command needs is loaded at once.
    pub party: Option<u64>,
    /// The id of a party that it creates; it stays the same through conflicts.
    pub id: Option<u64>,
}

/// What is known for the rules in one attempt.
#[derive(Default)]
pub(super) struct PartyNotes {
    /// The first rows were asked for.
    begun: bool,
    loaded: PartyFacts,
    /// The rows that the rules asked for and that are being loaded.
    asked: Vec<PartyNeed>,
    /// What the rules decided at this time, while the presences that follow from it are loaded.
    decided: Option<(Time, PartyReply, PartyChanges)>,
}

/// The result of a command once it is committed.
pub(super) struct PartyOutcome {
    pub reply: PartyReply,
    pub changes: PartyChanges,
    /// The messages that the commit adds to inboxes, in its order.
    pub messages: Vec<(Arc<str>, Arc<[u8]>)>,
    /// The documents among the rows that it puts.
    pub documents: Vec<Document>,
    /// The users who enter or leave the channel of a party, by party.
    pub held: Vec<(u64, HeldChange)>,
}

impl PartyOutcome {
    fn of(reply: PartyReply, changes: PartyChanges, commit: &Commit, held: Vec<(u64, HeldChange)>) -> Self {
        let messages =
            commit.inbox_messages.iter().map(|message| (message.user.clone(), message.body.clone()));
        let documents = commit.puts.iter().filter_map(|row| match row {
            Row::Document(document) => Some(document.clone()),
            _ => None,
        });
        PartyOutcome { reply, changes, messages: messages.collect(), documents: documents.collect(), held }
    }
}

/// A held presence that changes, with its party and its attendance before.
type HeldBefore = (u64, HeldChange, Attendance);

impl PartyDecision {
    pub fn new(call: PartyRequest, claim: Option<ReplyTo>) -> PartyDecision {
        PartyDecision { call, claim, deadline: None, party: None, id: None }
    }

    /// A command of the server itself.
    pub fn of_server(command: PartyCommand) -> PartyDecision {
        let call = PartyRequest { user: None, name: None, party: None, if_version: None, rid: None, command };
        PartyDecision::new(call, None)
    }

    /// The commit deletes the deadline that triggered it.
    pub fn settling(self, key: RowKey, due: Option<Time>) -> PartyDecision {
        PartyDecision { deadline: Some((key, due)), ..self }
    }

    /// Whether it probably creates a party.
    pub fn wants_id(&self) -> bool {
        self.party.is_none() && matches!(self.call.command, PartyCommand::Invite { .. })
    }

    /// The rows that hold what the rules need.
    fn rows_of(needs: &[PartyNeed], facts: &Facts) -> Vec<Need> {
        let row = |need: &PartyNeed| match need {
            PartyNeed::Party(id) => Some(Need::Document(party_key(*id))),
            PartyNeed::Membership(user) => Some(Need::Document(MembershipRow::key(user))),
            PartyNeed::Presence(user) if facts.own_presence(user).is_some() => {
                Some(Need::Person(user.clone()))
            }
            PartyNeed::Presence(user) => Some(Need::Presence(own_key(user))),
            PartyNeed::Id => None,
        };
        needs.iter().filter_map(row).collect()
    }

    /// Whether the invited user is hidden from the caller.
    fn invited_hides(&self, context: &DecisionContext<'_>, facts: &Facts) -> bool {
        let (PartyCommand::Invite { user: invited }, Some(caller)) = (&self.call.command, &self.call.user)
        else {
            return false;
        };
        let found = facts.own_presence(invited).flatten();
        found.is_some_and(|found| !context.users.sees(Some(caller), invited, found.row.visibility))
    }

    /// Whether the invited user may be about to come online.
    fn waits_for_user(&self, facts: &Facts, reply: &PartyReply) -> bool {
        let absent = matches!(reply, PartyReply::Refused { why: No::UserNotLogged | No::NoSuchUser, .. });
        absent && facts.resumed() < RETRIES && matches!(self.call.command, PartyCommand::Invite { .. })
    }

    /// Members are in the channel of their party as long as they are in any channel. Returns what changes there, or the
    /// rows that are needed first.
    fn held_changes(
        context: &DecisionContext<'_>,
        facts: &Facts,
        changes: &PartyChanges,
    ) -> Result<Vec<HeldBefore>, Vec<Need>> {
        let (mut held, mut needs) = (Vec::new(), Vec::new());
        for (id, user) in entered(changes) {
            let key = member_key(*id, user);
            let visibility =
                context.users.visibility(user).or_else(|| facts.person(user).map(stored_visibility));
            match (facts.presence(&key), facts.own_presence(user), visibility) {
                (Some(stored), Some(carrier), Some(visibility)) => {
                    let (stored, carrier) = (stored.map(|row| &row.row), carrier.map(|row| &row.row));
                    let change = HeldChange::enter(context.now, key, stored, carrier, visibility);
                    held.extend(change.map(|(change, before)| (*id, change, before)));
                }
                (stored, carrier, visibility) => {
                    needs.extend(visibility.is_none().then(|| Need::Person(user.clone())));
                    needs.extend(carrier.is_none().then(|| Need::Presence(own_key(user))));
                    needs.extend(stored.is_none().then_some(Need::NewPresence(key)));
                }
            }
        }
        for (id, user) in &changes.left {
            let key = member_key(*id, user);
            match facts.presence(&key) {
                Some(stored) => {
                    let change = stored.and_then(|stored| HeldChange::leave(context.now, &stored.row));
                    held.extend(change.map(|(change, before)| (*id, change, before)));
                }
                None => needs.push(Need::Presence(key)),
            }
        }
        if needs.is_empty() { Ok(held) } else { Err(needs) }
    }

    fn commit_of(
        &self,
        context: &DecisionContext<'_>,
        changes: &PartyChanges,
        held: Vec<HeldBefore>,
    ) -> (Commit, Vec<(u64, HeldChange)>) {
        let now = context.now;
        let mut commit = Commit {
            expects: Vec::with_capacity(8),
            puts: Vec::with_capacity(8),
            deletes: Vec::with_capacity(8),
            deadlines: Vec::with_capacity(4),
            ..context.commit()
        };
        if let Some((key, due)) = &self.deadline {
            // If it was set again since, it is another deadline.
            commit.expects.extend(due.map(|due| Expect { key: key.clone(), version: due.ms() }));
            commit.deletes.push(key.clone());
        }
        for (id, party) in &changes.parties {
            let name = id.to_string();
            let key = party_key(*id);
            let due = party.as_ref().and_then(|party| party.next_wake());
            match due {
                Some(due) => commit.deadlines.push(Deadline::new(due, PARTY, &name)),
                None => commit.deletes.push(Deadline::new(now, PARTY, &name).key()),
            }
            match party {
                Some(party) => {
                    commit.puts.push(Row::Document(Document { key, body: write_party(party).into() }));
                }
                None => commit.deletes.push(RowKey::Document(key)),
            }
        }
        for (user, membership) in &changes.memberships {
            let key = MembershipRow::key(user);
            match membership.is_empty() {
                true => commit.deletes.push(RowKey::Document(key)),
                false => {
                    let over = membership.forgotten_at().map(|at| Deadline::new(at, FORGET, user));
                    commit.deadlines.extend(over);
                    commit
                        .puts
                        .push(Row::Document(Document { key, body: write_membership(membership).into() }));
                }
            }
        }
        for event in changes.events.iter().filter(|event| is_update(event, self.call.user.as_deref())) {
            let body = json::stored_event(event, &context.node.node);
            add_inbox_message(&context.settings.inbox, now, &mut commit, event.to.clone(), body.into());
        }
        for (id, user) in entered(changes) {
            commit.puts.push(Row::Hold(hold(*id, user)));
            // They may have just left it: then the end of their earlier hold is still to come.
            let is_new_party = self.id == Some(*id);
            commit.deletes.extend((!is_new_party).then(|| hold_deadline_key(&member_key(*id, user))));
        }
        for (id, user) in &changes.left {
            remove_hold(&mut commit, &member_key(*id, user));
        }
        let mut members = Vec::new();
        for (id, change, before) in held {
            change.add_to(&mut commit, &before);
            members.push((id, change));
        }
        if context.publishes_parties {
            commit.appends = changes.topic_events.iter().map(|event| append(now, event)).collect();
        }
        // A commit must not delete a deadline that it also sets, nor delete one twice.
        let deletes = std::mem::take(&mut commit.deletes);
        for key in deletes {
            let sets = |deadline: &Deadline| matches!(&key, RowKey::Deadline { kind, name } if deadline.is(kind, name));
            if !commit.deadlines.iter().any(sets) && !commit.deletes.contains(&key) {
                commit.deletes.push(key);
            }
        }
        HeldChange::count(&mut members);
        (commit, members)
    }
}

impl Decision for PartyDecision {
    type Outcome = PartyOutcome;
    type Notes = PartyNotes;

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        notes: &mut PartyNotes,
    ) -> DecisionStep<PartyOutcome> {
        if !std::mem::replace(&mut notes.begun, true) {
            notes.asked = party::likely_needs(&self.call, self.party);
            let rows = PartyDecision::rows_of(&notes.asked, facts);
            if !rows.is_empty() {
                return DecisionStep::Need(rows);
            }
        }
        if let Err(error) = notes.take_rows(context, facts) {
            let what = error.to_string();
            return DecisionStep::Fail(StoreAnswer::Failed(StoreError::Corrupt { what, source: None }));
        }
        let loaded = &mut notes.loaded;
        (loaded.id, loaded.invited_hides) = (self.id, self.invited_hides(context, facts));
        let result = match notes.decided.take().filter(|(at, ..)| *at == context.now) {
            Some((_, reply, changes)) => PartyResult::Answered { reply, changes },
            None => party::run(context.now, &context.settings.parties.rules, loaded, &self.call),
        };
        match result {
            PartyResult::Need(needs) => {
                let rows = PartyDecision::rows_of(&needs, facts);
                notes.asked = needs;
                match rows.is_empty() {
                    // A party id.
                    true => DecisionStep::Pause(Pause::Supply),
                    false => DecisionStep::Need(rows),
                }
            }
            PartyResult::Answered { reply, .. }
                if !facts.are_assumed() && self.waits_for_user(facts, &reply) =>
            {
                DecisionStep::Pause(Pause::Change)
            }
            PartyResult::Answered { reply, changes } if changes.is_empty() && self.deadline.is_none() => {
                DecisionStep::Done(PartyOutcome::of(reply, changes, &Commit::default(), Vec::new()))
            }
            PartyResult::Answered { reply, changes } => {
                let held = match PartyDecision::held_changes(context, facts, &changes) {
                    Ok(held) => held,
                    Err(needs) => {
                        notes.decided = Some((context.now, reply, changes));
                        return DecisionStep::Need(needs);
                    }
                };
                let (mut commit, held) = self.commit_of(context, &changes, held);
                let people = entered(&changes).filter(|(_, user)| context.users.visibility(user).is_none());
                let people = people.filter_map(|(_, user)| Some(expected_user(user, facts.person(user)?)));
                commit.expects.extend(people);
                let outcome = PartyOutcome::of(reply, changes, &commit, held);
                DecisionStep::Commit { commit, outcome }
            }
        }
    }

    /// The rows of local users. Not for a command that usually changes nothing: it would be decided twice.
    fn may_assume(&self) -> bool {
        self.call.user.is_some() && self.call.command != PartyCommand::Get
    }
}

impl PartyNotes {
    /// Takes the rows that were loaded for the rules.
    fn take_rows(&mut self, context: &DecisionContext<'_>, facts: &Facts) -> Result<(), RecordError> {
        for need in std::mem::take(&mut self.asked) {
            match need {
                PartyNeed::Party(id) => {
                    if let Some(found) = facts.document(&party_key(id)) {
                        let party = found.map(|found| read_party(id, &found.row.body)).transpose()?;
                        self.loaded.put_party(id, party);
                    }
                }
                PartyNeed::Membership(user) => {
                    if let Some(found) = facts.document(&MembershipRow::key(&user)) {
                        let version = found.map(|found| found.version);
                        let decoded = context.cache.memberships.get(&user);
                        let membership = match decoded.filter(|known| Some(known.version) == version) {
                            Some(known) => Some(known.row.clone()),
                            None => found.map(|found| read_membership(&found.row.body)).transpose()?,
                        };
                        self.loaded.put_membership(user, membership.unwrap_or_default());
                    }
                }
                PartyNeed::Presence(user) => match (facts.own_presence(&user), facts.person(&user)) {
                    (Some(Some(found)), _) => self.loaded.put_presence(user, presence_of(found)),
                    (Some(None), Some(person)) => {
                        let known = person.known.is_some();
                        self.loaded.put_presence(
                            user,
                            if known { UserPresence::Absent } else { UserPresence::Never },
                        );
                    }
                    _ => {}
                },
                PartyNeed::Id => {}
            }
        }
        Ok(())
    }
}

pub(super) fn party_key(id: u64) -> DocumentKey {
    DocumentKey::shared(record::PARTY, id.to_string().into())
}

fn append(now: Time, event: &party::PartyTopicEvent) -> Append {
    let (kind, data) = json::topic_event(event);
    let body = stored(kind, None, now.ms(), &String::from_utf8_lossy(&data));
    Append { topic: PARTIES.into(), id: None, body: body.into() }
}

/// Users know their own actions from the reply, and whether they themselves are online.
fn is_update(event: &PartyEvent, caller: Option<&str>) -> bool {
    match event.kind {
        // Not an action of a user: the user whose command found it expired must get it too.
        PartyEventKind::Uninvited { reason: PartyReason::Expired } => true,
        PartyEventKind::Invited { .. } | PartyEventKind::Uninvited { .. } | PartyEventKind::Ready { .. } => {
            Some(&*event.to) != caller
        }
        PartyEventKind::Offline | PartyEventKind::Online => event.to != event.actor,
        _ => true,
    }
}

/// The reply as JSON.
pub(super) fn reply_of(reply: &PartyReply) -> CommandReply {
    Ok(match reply {
        PartyReply::Nothing => Vec::new(),
        PartyReply::Party(party) => json::party_reply(party.as_deref()),
        PartyReply::Invited { party_id } => json::invited_reply(*party_id),
        PartyReply::Gone { go_id } => json::going_reply(*go_id),
        PartyReply::Refused { why, retry_after_ms, party } => {
            let code = Code::parse(why.as_str()).unwrap_or(Code::Internal);
            let mut text = Vec::new();
            json::snapshot(&mut text, party.as_deref());
            let party = String::from_utf8(text).unwrap_or_default().into_boxed_str();
            let refusal = Refusal { retry_after_ms: *retry_after_ms, ..Refusal::from(code) };
            return Err(refusal.with_party(party));
        }
    })
}

/// The users who become members and do not leave at once.
fn entered(changes: &PartyChanges) -> impl Iterator<Item = &(u64, Arc<str>)> {
    changes.entered.iter().filter(|one| !changes.left.contains(one))
}

fn hold(party: u64, user: &Arc<str>) -> PresenceHold {
    PresenceHold { key: member_key(party, user), held_with: Some(own_channel(user)), until: None }
}

/// Whether a user is online, by the presence in their own channel.
fn presence_of(found: &Versioned<PresenceRow>) -> UserPresence {
    let attendance = &found.row.attendance;
    if attendance.connected().next().is_some() {
        return UserPresence::Online { name: found.row.name.clone() };
    }
    let lost = attendance.clients().iter().filter_map(|client| client.lost);
    let (since, until) =
        lost.fold((Time(0), Time(0)), |(since, until), lost| (since.max(lost.at), until.max(lost.until)));
    let node_down = attendance.departed().is_some_and(|departed| departed.reason == OfflineReason::NodeDown);
    UserPresence::Lost { since, until, node_down }
}
