//! One command about parties on its way: what the rules need is read, the rules decide, what they say is one commit.
//! Must hold: everything that was read is expected by the commit; a conflict begins it anew; whoever waits gets one answer.

use super::{Parties, Task};
use crate::core::{Claim, Core, Notice, Reply as CommandReply, refusal};
use crate::rows::{FORGET, PARTY, add_inbox_message, hold_deadline, member_key, own_key};
use crate::user::own_channel;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{
    self, Call, Changes, Command, Guest, Letter, Need, Refusal as No, Reply, Standing, Table, Turn, Word,
};
use tavern_domain::presence::{Departure, Rumour};
use tavern_domain::topic::PARTIES;
use tavern_engine::{
    Answer, Append, Commit, Deadline, Document, DocumentKey, Expect, Found, Hold, Presence, Read, Receipt,
    Row, RowKey, StoreError, Versioned, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::stored;
use tavern_wire::json::party as json;
use tavern_wire::record::{self, read_guest, read_party, write_guest, write_party};

/// Conflicts in a row after which a command gives up.
const TRIES: u8 = 32;
/// Somebody who said hello a moment ago may not be written down as present yet: looked at again, so often and so soon.
const LOOKS: u8 = 3;
const LOOK_MS: u64 = 100;

pub(crate) struct Case {
    pub call: Call,
    pub claim: Option<Claim>,
    /// The deadline that asked for it; it goes with the commit.
    deadline: Option<(RowKey, Option<Time>)>,
    table: Table,
    /// What was read, and in which version.
    read: BTreeMap<RowKey, u64>,
    /// Readings that were not answered yet.
    open: usize,
    failed: Option<Answer>,
    tries: u8,
    looks: u8,
}

/// A commit under way, and what it means.
pub(crate) struct Written {
    reply: Reply,
    changes: Changes,
}

impl Case {
    pub fn new(call: Call, claim: Option<Claim>) -> Case {
        Case {
            call,
            claim,
            deadline: None,
            table: Table::default(),
            read: BTreeMap::new(),
            open: 0,
            failed: None,
            tries: 0,
            looks: 0,
        }
    }

    /// What the server asks for itself.
    pub fn of_server(command: Command) -> Case {
        let call = Call { user: None, name: None, party: None, if_version: None, rid: None, command };
        Case::new(call, None)
    }

    /// The deadline that asked for it goes with it.
    pub fn settling(self, key: RowKey, due: Option<Time>) -> Case {
        Case { deadline: Some((key, due)), ..self }
    }

    /// What was read is forgotten. A number that was taken stays taken.
    fn forget(&mut self) {
        let id = self.table.id;
        self.table = Table::default();
        self.table.id = id;
        self.read.clear();
        self.failed = None;
    }
}

impl Parties {
    pub(crate) fn open_case(&mut self, core: &mut Core, case: Case) {
        self.opened += 1;
        core.stats.party_commands.add(1);
        let number = self.opened;
        self.cases.insert(number, Box::new(case));
        self.run_case(core, number);
    }

    /// Begins it again from what is there now.
    pub(super) fn run_anew(&mut self, core: &mut Core, number: u64) {
        if let Some(case) = self.cases.get_mut(&number) {
            case.forget();
            self.run_case(core, number);
        }
    }

    pub(super) fn run_case(&mut self, core: &mut Core, number: u64) {
        let now = core.now;
        let Some(case) = self.cases.get_mut(&number) else { return };
        match party::run(now, &core.node.settings.parties.rules, &case.table, &case.call) {
            Turn::Need(needs) => self.load_case(core, number, needs),
            Turn::Answered { reply, changes } => self.decided(core, number, reply, changes),
        }
    }

    fn load_case(&mut self, core: &mut Core, number: u64, needs: Vec<Need>) {
        let mut wants_id = false;
        for need in needs {
            let read = match &need {
                Need::Party(id) => Read::Document(DocumentKey::new(record::PARTY, &id.to_string())),
                Need::Guest(user) => Read::Document(DocumentKey::new(record::GUEST, user)),
                Need::Standing(user) => Read::Presence(own_key(user)),
                Need::Id => {
                    wants_id = true;
                    continue;
                }
            };
            self.ask_for_case(core, number, need, read);
        }
        if wants_id
            && let Some(id) = self.take_id(core, number)
            && let Some(case) = self.cases.get_mut(&number)
        {
            case.table.id = Some(id);
            if case.open == 0 {
                self.run_case(core, number);
            }
        }
    }

    fn ask_for_case(&mut self, core: &mut Core, number: u64, need: Need, read: Read) {
        if let Some(case) = self.cases.get_mut(&number) {
            case.open += 1;
        }
        let task = Task::Load { case: number, need };
        self.ask_store(core, task, Work::Read(read));
    }

    pub(super) fn case_loaded(&mut self, core: &mut Core, number: u64, need: Need, answer: Answer) {
        let Some(case) = self.cases.get_mut(&number) else { return };
        case.open -= 1;
        match (need, answer) {
            (Need::Party(id), Answer::Read(Found::Document(found))) => {
                let key = DocumentKey::new(record::PARTY, &id.to_string());
                case.note(key, found, |body| read_party(id, body))
                    .map(|party| case.table.put_party(id, party))
            }
            (Need::Guest(user), Answer::Read(Found::Document(found))) => {
                let key = DocumentKey::new(record::GUEST, &user);
                let guest = case.note(key, found, read_guest).map(Option::unwrap_or_default);
                guest.map(|guest: Guest| case.table.put_guest(user, guest))
            }
            (Need::Standing(user), Answer::Read(Found::Presence(found))) => {
                let version = found.as_ref().map_or(0, |found| found.version);
                case.read.insert(RowKey::Presence(own_key(&user)), version);
                match found {
                    Some(found) => {
                        case.table.put_standing(user, standing_of(&found));
                        Some(())
                    }
                    None => {
                        let read = Read::People { users: vec![user.clone()], viewer: None };
                        self.ask_for_case(core, number, Need::Standing(user), read);
                        return;
                    }
                }
            }
            (Need::Standing(user), Answer::Read(Found::People(people))) => {
                let known = people.first().is_some_and(|person| person.known.is_some());
                let standing = if known { Standing::Absent } else { Standing::Never };
                case.table.put_standing(user, standing);
                Some(())
            }
            (_, answer) => {
                case.failed = Some(answer);
                Some(())
            }
        };
        let Some(case) = self.cases.get_mut(&number).filter(|case| case.open == 0) else { return };
        match case.failed.take() {
            Some(answer) => self.fail_case(core, number, &answer),
            None => self.run_case(core, number),
        }
    }

    /// The store does not do what it must: whoever waits hears so. What is due is looked at again by its deadline.
    pub(super) fn fail_case(&mut self, core: &mut Core, number: u64, answer: &Answer) {
        let Some(case) = self.cases.remove(&number) else { return };
        if let Some(claim) = case.claim {
            let refusal = refusal(answer).with_party(self.party_text(case.call.user.as_deref()));
            core.finish(claim, Err(refusal));
        }
    }

    fn decided(&mut self, core: &mut Core, number: u64, reply: Reply, changes: Changes) {
        let now = core.now;
        let Some(case) = self.cases.get_mut(&number) else { return };
        let absent = matches!(reply, Reply::Refused { why: No::UserNotLogged | No::NoSuchUser, .. });
        if absent && case.looks < LOOKS && matches!(case.call.command, Command::Invite { .. }) {
            case.looks += 1;
            return self.later.push((now + LOOK_MS, number));
        }
        if changes.is_empty() && case.deadline.is_none() {
            return self.end_case(core, number, &reply);
        }
        let commit = self.written(core, number, &changes);
        let task = Task::Commit { case: number, commit: Box::new(Written { reply, changes }) };
        self.ask_store(core, task, Work::Commit(commit));
    }

    fn written(&self, core: &Core, number: u64, changes: &Changes) -> Commit {
        let now = core.now;
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        let Some(case) = self.cases.get(&number) else { return commit };
        let expect = |(key, version): (&RowKey, &u64)| Expect { key: key.clone(), version: *version };
        commit.expects = case.read.iter().map(expect).collect();
        if let Some((key, due)) = &case.deadline {
            // If it was set anew meanwhile, it means something else.
            commit.expects.extend(due.map(|due| Expect { key: key.clone(), version: due.ms() }));
            commit.deletes.push(key.clone());
        }
        for (id, party) in &changes.parties {
            let name = id.to_string();
            let key = DocumentKey::new(record::PARTY, &name);
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
        for (user, guest) in &changes.guests {
            let key = DocumentKey::new(record::GUEST, user);
            match guest.is_empty() {
                true => commit.deletes.push(RowKey::Document(key)),
                false => {
                    let over = guest.forgotten_at().map(|at| Deadline::new(at, FORGET, user));
                    commit.deadlines.extend(over);
                    commit.puts.push(Row::Document(Document { key, body: write_guest(guest).into() }));
                }
            }
        }
        for letter in changes.letters.iter().filter(|letter| is_news(letter, case.call.user.as_deref())) {
            let body = json::letter(letter, &core.node.name);
            add_inbox_message(&core.node.settings.inbox, now, &mut commit, letter.to.clone(), body.into());
        }
        // Members are in the party's channel as long as they are anywhere, and no longer than they are members.
        for (id, user) in &changes.entered {
            commit.puts.push(Row::Hold(hold(*id, user, None)));
        }
        for (id, user) in &changes.left {
            commit.puts.push(Row::Hold(hold(*id, user, Some(now))));
            commit.deadlines.push(hold_deadline(now, &member_key(*id, user)));
        }
        if core.node.tells_parties() {
            commit.appends = changes.told.iter().map(|told| self.append(core, told)).collect();
        }
        // A deadline that another part of this commit sets is not deleted by it, and nothing twice.
        let mut named: BTreeSet<RowKey> = commit.deadlines.iter().map(Deadline::key).collect();
        commit.deletes.retain(|key| named.insert(key.clone()));
        commit
    }

    fn append(&self, core: &Core, told: &party::Told) -> Append {
        let (kind, data) = json::told(told);
        let body = stored(kind, None, core.now.ms(), &String::from_utf8_lossy(&data));
        Append { topic: PARTIES.into(), id: None, body: body.into() }
    }

    pub(super) fn case_committed(&mut self, core: &mut Core, number: u64, written: &Written, answer: Answer) {
        match answer {
            Answer::Committed(receipt) => self.committed_party(core, number, written, &receipt),
            Answer::Failed(StoreError::Conflict { key, .. })
                if !matches!(key, RowKey::Deadline { .. })
                    && self.cases.get(&number).is_some_and(|case| case.tries < TRIES) =>
            {
                if let Some(case) = self.cases.get_mut(&number) {
                    case.tries += 1;
                }
                core.stats.party_conflicts.add(1);
                self.run_anew(core, number);
            }
            answer => {
                self.fail_case(core, number, &answer);
                // It may have happened all the same, and whoever asks again is only told that it did.
                self.spread_mail(core, None, &written.changes);
            }
        }
    }

    /// Everybody looks into his inbox, and at his party.
    fn spread_mail(&mut self, core: &mut Core, actor: Option<Arc<str>>, changes: &Changes) {
        let mut concerned: BTreeSet<Arc<str>> =
            changes.letters.iter().map(|letter| letter.to.clone()).collect();
        concerned.extend(actor);
        // Who was away for too long gets no letter, and his sessions may come back.
        concerned.extend(changes.left.iter().map(|(_, user)| user.clone()));
        let parties = changes.parties.iter().filter_map(|(_, party)| party.as_ref());
        concerned.extend(parties.flat_map(|party| &party.members).map(|member| member.user.clone()));
        for user in concerned {
            core.notify(Notice::StatusUpdate { user, update: Rumour::Mail });
        }
    }

    /// It is so: whoever waits is told, then everybody whom it concerns.
    fn committed_party(&mut self, core: &mut Core, number: u64, written: &Written, receipt: &Receipt) {
        let Written { reply, changes } = written;
        let case = self.cases.get(&number);
        let actor = case.and_then(|case| case.call.user.clone());
        // An app may speak for somebody who is not there: his party must notice.
        let ordered = case.is_some_and(|case| matches!(case.claim, Some(Claim::Order(_))));
        // Whoever is answered may speak of it at once.
        for (id, user) in &changes.left {
            self.has_become(core, user, *id, None);
        }
        for (id, party) in &changes.parties {
            for member in party.iter().flat_map(|party| &party.members) {
                self.has_become(core, &member.user, *id, party.as_ref());
            }
        }
        self.end_case(core, number, reply);
        core.stats.letters_written.add(receipt.letters.len() as u64);
        if !receipt.appended.is_empty() {
            core.effects.topics.push(PARTIES);
        }
        for (id, party) in &changes.parties {
            let Some(party) = party else { continue };
            self.wakes.extend(party.next_wake().map(|due| (due, *id)));
        }
        for (id, user) in changes.entered.iter().chain(&changes.left) {
            core.notify(Notice::HoldChanged { key: member_key(*id, user) });
        }
        self.spread_mail(core, actor.clone(), changes);
        if let Some(actor) = actor.filter(|_| ordered) {
            self.look_at_guest(core, &actor, false);
        }
    }

    fn end_case(&mut self, core: &mut Core, number: u64, reply: &Reply) {
        let now = core.now;
        let Some(case) = self.cases.remove(&number) else { return };
        if let (Reply::Refused { why: No::RateLimited, .. }, Some(user)) = (reply, &case.call.user) {
            self.floods.strike(now, user, core.node.settings.parties.block_ms);
        }
        if let Some(claim) = case.claim {
            core.finish(claim, outcome(reply));
        }
    }
}

impl Case {
    /// Notes what was read of a document. None: it cannot be understood.
    fn note<T>(
        &mut self,
        key: DocumentKey,
        found: Option<Versioned<Document>>,
        read: impl FnOnce(&[u8]) -> Result<T, record::RecordError>,
    ) -> Option<Option<T>> {
        let version = found.as_ref().map_or(0, |found| found.version);
        self.read.insert(RowKey::Document(key), version);
        match found.map(|found| read(&found.row.body)).transpose() {
            Ok(document) => Some(document),
            Err(error) => {
                let what = error.to_string();
                self.failed = Some(Answer::Failed(StoreError::Corrupt { what, source: None }));
                None
            }
        }
    }
}

/// What somebody did himself he knows from the answer; that he is away or back he knows too.
fn is_news(letter: &Letter, caller: Option<&str>) -> bool {
    match letter.what {
        Word::Invited { .. } | Word::Uninvited { .. } | Word::Ready { .. } => Some(&*letter.to) != caller,
        Word::Offline | Word::Online => letter.to != letter.actor,
        _ => true,
    }
}

fn outcome(reply: &Reply) -> CommandReply {
    Ok(match reply {
        Reply::Nothing => Vec::new(),
        Reply::Party(party) => {
            let mut body = b"{\"party\":".to_vec();
            json::snapshot(&mut body, party.as_deref());
            body.push(b'}');
            body
        }
        Reply::Invited { party_id } => format!("{{\"party_id\":{party_id}}}").into_bytes(),
        Reply::Gone { go_id } => format!("{{\"go_id\":{go_id}}}").into_bytes(),
        Reply::Refused { why, retry_after_ms, party } => {
            let code = Code::parse(why.as_str()).unwrap_or(Code::Internal);
            let mut text = Vec::new();
            json::snapshot(&mut text, party.as_deref());
            let party = String::from_utf8(text).unwrap_or_default().into_boxed_str();
            let refusal = Refusal { retry_after_ms: *retry_after_ms, ..Refusal::from(code) };
            return Err(refusal.with_party(party));
        }
    })
}

fn hold(party: u64, user: &Arc<str>, until: Option<Time>) -> Hold {
    Hold { key: member_key(party, user), carrier: Some(own_channel(user)), until }
}

/// Where somebody is, by his own channel.
fn standing_of(found: &Versioned<Presence>) -> Standing {
    let attendance = &found.row.attendance;
    if attendance.living().next().is_some() {
        return Standing::Online { name: found.row.name.clone() };
    }
    let lost = attendance.clients().iter().filter_map(|client| client.lost);
    let (since, until) =
        lost.fold((Time(0), Time(0)), |(since, until), lost| (since.max(lost.at), until.max(lost.until)));
    let node_down = attendance.departed().is_some_and(|departed| departed.reason == Departure::NodeDown);
    Standing::Lost { since, until, node_down }
}
