//! A party command as a decision: the rows that the rules ask for are loaded, the rules decide, and the result
//! is one commit. Must hold: every row that was read is expected by the commit.

use crate::core::{CommandReply, Core, ReplyTo};
use crate::rows::{
    FORGET, MembershipRow, PARTY, add_inbox_message, hold_deadline, hold_deadline_key, member_key, own_key,
};
use crate::transaction::{Decision, DecisionStep, Facts, Need};
use crate::user::own_channel;
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{
    self, PartyChanges, PartyCommand, PartyEvent, PartyEventKind, PartyFacts, PartyNeed, PartyReason,
    PartyRefusal as No, PartyReply, PartyRequest, PartyResult, UserPresence,
};
use tavern_domain::presence::OfflineReason;
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
    loaded: PartyFacts,
    /// The rows that the rules asked for and that are being loaded.
    asked: Vec<PartyNeed>,
    retries: u8,
    /// Why it is paused.
    pub waits_for: Option<PartyPause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartyPause {
    /// A party id.
    Id,
    /// A user who may be about to come online.
    User,
}

/// The result of a command once it is committed.
pub(super) struct PartyOutcome {
    pub reply: PartyReply,
    pub changes: PartyChanges,
    /// The messages that the commit adds to inboxes, in its order.
    pub messages: Vec<(Arc<str>, Arc<[u8]>)>,
    /// The memberships and holds among the rows that it puts, each with its place there.
    pub memberships: Vec<(usize, Document)>,
    pub holds: Vec<(usize, PresenceHold)>,
}

impl PartyOutcome {
    fn of(reply: PartyReply, changes: PartyChanges, commit: &Commit) -> PartyOutcome {
        let messages =
            commit.inbox_messages.iter().map(|message| (message.user.clone(), message.body.clone()));
        let (mut memberships, mut holds) = (Vec::new(), Vec::new());
        for (at, row) in commit.puts.iter().enumerate() {
            match row {
                Row::Document(document) if document.key.kind() == record::MEMBERSHIP => {
                    memberships.push((at, document.clone()));
                }
                Row::Hold(hold) => holds.push((at, hold.clone())),
                _ => {}
            }
        }
        PartyOutcome { reply, changes, messages: messages.collect(), memberships, holds }
    }
}

impl PartyDecision {
    pub fn new(call: PartyRequest, claim: Option<ReplyTo>) -> PartyDecision {
        PartyDecision {
            call,
            claim,
            deadline: None,
            loaded: PartyFacts::default(),
            asked: Vec::new(),
            retries: 0,
            waits_for: None,
        }
    }

    /// The cached memberships that the command needs, unless it usually changes nothing.
    pub fn cached_facts(&self, core: &Core) -> Facts {
        let Some(user) = self.call.user.as_ref().filter(|_| self.call.command != PartyCommand::Get) else {
            return Facts::default();
        };
        let cached = |user: &Arc<str>| {
            let key = MembershipRow::key(user);
            let found = core.documents.get(&key)?.as_ref();
            let document = |body: &Arc<[u8]>| Document { key: key.clone(), body: body.clone() };
            let found = found.map(|found| Versioned { version: found.version, row: document(&found.row) });
            Some((key, found))
        };
        Facts::cached(
            [Some(user), self.call.command.target()].into_iter().flatten().filter_map(cached).collect(),
        )
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

    /// A party id was found for it; it stays the same through conflicts.
    pub fn give_id(&mut self, id: u64) {
        self.loaded.id = Some(id);
    }

    /// Adds the loaded rows to the facts of the command.
    fn add_facts(&mut self, facts: &Facts) -> Result<(), RecordError> {
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
                        let membership = found.map(|found| read_membership(&found.row.body)).transpose()?;
                        self.loaded.put_membership(user, membership.unwrap_or_default());
                    }
                }
                PartyNeed::Presence(user) => match (facts.presence(&own_key(&user)), facts.person(&user)) {
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

    /// The rows that hold what the rules need.
    fn rows_of(needs: &[PartyNeed], facts: &Facts) -> Vec<Need> {
        let row = |need: &PartyNeed| match need {
            PartyNeed::Party(id) => Some(Need::Document(party_key(*id))),
            PartyNeed::Membership(user) => Some(Need::Document(MembershipRow::key(user))),
            PartyNeed::Presence(user) if facts.presence(&own_key(user)).is_some() => {
                Some(Need::Person(user.clone()))
            }
            PartyNeed::Presence(user) => Some(Need::Presence(own_key(user))),
            PartyNeed::Id => None,
        };
        needs.iter().filter_map(row).collect()
    }

    /// Whether the invited user is hidden from the caller.
    fn invited_hides(&self, core: &Core, facts: &Facts) -> bool {
        let (PartyCommand::Invite { user: invited }, Some(caller)) = (&self.call.command, &self.call.user)
        else {
            return false;
        };
        let found = facts.presence(&own_key(invited)).flatten();
        found.is_some_and(|found| !core.users.sees(Some(caller), invited, found.row.visibility))
    }

    /// Whether the invited user may be about to come online.
    fn waits_for_user(&mut self, reply: &PartyReply) -> bool {
        let absent = matches!(reply, PartyReply::Refused { why: No::UserNotLogged | No::NoSuchUser, .. });
        let again =
            absent && self.retries < RETRIES && matches!(self.call.command, PartyCommand::Invite { .. });
        self.retries += u8::from(again);
        again
    }

    fn commit_of(&self, core: &Core, changes: &PartyChanges) -> Commit {
        let now = core.now;
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
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
            let body = json::stored_event(event, &core.node.name);
            add_inbox_message(&core.node.settings.inbox, now, &mut commit, event.to.clone(), body.into());
        }
        // Members are in the party's channel as long as they are in any channel, and no longer than they are members.
        for (id, user) in &changes.entered {
            commit.puts.push(Row::Hold(hold(*id, user, None)));
            // They may have just left it: then the end of their earlier hold is still to come.
            let is_new_party = self.loaded.id == Some(*id);
            commit.deletes.extend((!is_new_party).then(|| hold_deadline_key(&member_key(*id, user))));
        }
        for (id, user) in &changes.left {
            commit.puts.push(Row::Hold(hold(*id, user, Some(now))));
            commit.deadlines.push(hold_deadline(now, &member_key(*id, user)));
        }
        if core.node.publishes_parties() {
            commit.appends = changes.topic_events.iter().map(|event| append(core, event)).collect();
        }
        // A commit must not delete a deadline that it also sets, nor delete one twice.
        let mut named: BTreeSet<RowKey> = commit.deadlines.iter().map(Deadline::key).collect();
        commit.deletes.retain(|key| named.insert(key.clone()));
        commit
    }
}

impl Decision for PartyDecision {
    type Outcome = PartyOutcome;

    fn decide(&mut self, core: &Core, facts: &Facts) -> DecisionStep<PartyOutcome> {
        if facts.is_empty() {
            let id = self.loaded.id;
            self.loaded = PartyFacts::default();
            self.loaded.id = id;
            self.asked.clear();
        }
        if let Err(error) = self.add_facts(facts) {
            let what = error.to_string();
            return DecisionStep::Fail(StoreAnswer::Failed(StoreError::Corrupt { what, source: None }));
        }
        self.loaded.invited_hides = self.invited_hides(core, facts);
        self.waits_for = None;
        match party::run(core.now, &core.node.settings.parties.rules, &self.loaded, &self.call) {
            PartyResult::Need(needs) if needs.iter().any(|need| is_known(need, facts)) => {
                self.asked = needs.into_iter().filter(|need| is_known(need, facts)).collect();
                self.decide(core, facts)
            }
            PartyResult::Need(needs) => {
                let rows = PartyDecision::rows_of(&needs, facts);
                self.asked = needs;
                if rows.is_empty() {
                    self.waits_for = Some(PartyPause::Id);
                    return DecisionStep::Pause;
                }
                DecisionStep::Need(rows)
            }
            PartyResult::Answered { reply, .. } if !facts.are_assumed() && self.waits_for_user(&reply) => {
                self.waits_for = Some(PartyPause::User);
                DecisionStep::Pause
            }
            PartyResult::Answered { reply, changes } if changes.is_empty() && self.deadline.is_none() => {
                DecisionStep::Done(PartyOutcome::of(reply, changes, &Commit::default()))
            }
            PartyResult::Answered { reply, changes } => {
                let commit = self.commit_of(core, &changes);
                let outcome = PartyOutcome::of(reply, changes, &commit);
                DecisionStep::Commit { commit, outcome }
            }
        }
    }
}

/// Whether a row that the rules ask for is known from the cache.
fn is_known(need: &PartyNeed, facts: &Facts) -> bool {
    match need {
        PartyNeed::Membership(user) => facts.document(&MembershipRow::key(user)).is_some(),
        PartyNeed::Party(_) | PartyNeed::Presence(_) | PartyNeed::Id => false,
    }
}

fn party_key(id: u64) -> DocumentKey {
    DocumentKey::new(record::PARTY, &id.to_string())
}

fn append(core: &Core, event: &party::PartyTopicEvent) -> Append {
    let (kind, data) = json::topic_event(event);
    let body = stored(kind, None, core.now.ms(), &String::from_utf8_lossy(&data));
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

fn hold(party: u64, user: &Arc<str>, until: Option<Time>) -> PresenceHold {
    PresenceHold { key: member_key(party, user), held_with: Some(own_channel(user)), until }
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
