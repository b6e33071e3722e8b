//! The durable inbox of a user, as his sessions here see it: letters are read from the store, put into the mailbox of each
//! session once, and freed when any of them has acknowledged them. The bus carries only the word that there is something.
//! Must hold: a session gets each letter once, in order; what nobody acknowledged stays in the store until its time is over;
//! what was dropped unread is told as a gap.

use crate::listener::ListenerId;
use crate::people::{is_user, own_channel};
use crate::presence::{self, Claim, refusal};
use crate::shard::Shard;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Rumour;
use tavern_engine::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_engine::{
    Answer, Commit, Deadline, Document, DocumentKey, Expect, Found, Freed, Letters, NewLetter, Person, Read,
    Row, RowKey, StoreError, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::letter as json;

/// The kind of deadline under which it is kept when an inbox is looked at again.
pub(crate) const INBOX: &str = "inbox";
/// The kind of document, and of deadline, that says that a request with a key was carried out.
pub(crate) const ONCE: &str = "once";
/// How long that is remembered.
const ONCE_MS: u64 = 24 * 3_600_000;

/// What was asked of the store about inboxes.
pub(crate) enum Task {
    Read {
        user: Arc<str>,
    },
    Post {
        user: Arc<str>,
        claim: Claim,
    },
    /// Whether letters have been kept for long enough: who their user is, and the deadline that asked.
    Keep {
        deadline: Deadline,
    },
}

/// Inboxes that are being read. True: something came meanwhile, it is read again.
#[derive(Default)]
pub(crate) struct Inboxes {
    reading: BTreeMap<Arc<str>, bool>,
    /// What the store did not answer, and when to ask again.
    retries: Vec<(Time, Arc<str>)>,
}

impl Inboxes {
    pub fn next_wake(&self) -> Option<Time> {
        self.retries.iter().map(|(due, _)| *due).min()
    }
}

impl Shard {
    /// Something may be in the inbox of a user.
    pub(crate) fn mail_came(&mut self, user: &Arc<str>) {
        if self.people.sessions(user).is_empty() {
            return;
        }
        if let Some(again) = self.inboxes.reading.get_mut(user) {
            *again = true;
            return;
        }
        self.read_inbox(user);
    }

    fn read_inbox(&mut self, user: &Arc<str>) {
        let sessions = self.people.sessions(user);
        let letters = |id: &ListenerId| Some(self.listeners.get(*id)?.session()?.letters);
        let Some(after) = sessions.iter().filter_map(letters).min() else { return };
        self.inboxes.reading.insert(user.clone(), false);
        let read = Read::Letters { user: user.clone(), after, limit: PAGE_ROWS };
        self.ask_inbox(Task::Read { user: user.clone() }, Work::Read(read));
    }

    fn ask_inbox(&mut self, task: Task, work: Work) {
        self.submit(presence::Task::Inbox(task), work);
    }

    /// The store has answered something about an inbox.
    pub(crate) fn inbox_answered(&mut self, now: Time, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::Read { user }, Answer::Read(Found::Letters(letters))) => {
                self.letters_read(now, &user, &letters);
            }
            (Task::Read { user }, _) => {
                self.inboxes.reading.remove(&user);
                self.inboxes.retries.push((now + RETRY_AFTER_MS, user));
            }
            (Task::Post { user, claim }, Answer::Committed(receipt)) => {
                let letter = receipt.letters.first().copied().unwrap_or(0);
                self.stats.letters_written.add(receipt.letters.len() as u64);
                self.finish(claim, Ok(json::posted(letter)));
                self.spread_rumour(now, &user, Rumour::Mail);
            }
            // Only the key of a request is expected: the letter was posted before.
            (Task::Post { claim, .. }, Answer::Failed(StoreError::Conflict { .. })) => {
                self.finish(claim, Ok(json::posted_before()));
            }
            (Task::Post { claim, .. }, answer) => self.finish(claim, Err(refusal(&answer))),
            (Task::Keep { deadline }, Answer::Read(Found::People(people))) => {
                if let Some(person) = people.first() {
                    self.keep_or_free(now, &deadline, person);
                }
            }
            // Somebody looks again with the next heartbeat.
            (Task::Keep { .. }, _) => {}
        }
    }

    pub(crate) fn settle_inboxes(&mut self, now: Time) {
        if self.inboxes.next_wake().is_none_or(|due| due > now) {
            return;
        }
        for (due, user) in std::mem::take(&mut self.inboxes.retries) {
            match due <= now {
                true => self.mail_came(&user),
                false => self.inboxes.retries.push((due, user)),
            }
        }
    }

    fn letters_read(&mut self, now: Time, user: &Arc<str>, letters: &Letters) {
        for id in self.people.sessions(user).to_vec() {
            self.put_letters(now, id, user, letters);
        }
        let again = self.inboxes.reading.remove(user).unwrap_or(false);
        if again || letters.page.more {
            self.read_inbox(user);
        }
    }

    fn put_letters(&mut self, now: Time, id: ListenerId, user: &str, letters: &Letters) {
        let known = |shard: &Shard| Some(shard.listeners.get(id)?.session()?.letters);
        let Some(had) = known(self) else { return };
        if letters.dropped > had {
            self.put_letter(now, id, letters.dropped, json::gap_tail(&own_channel(user), letters.dropped));
        }
        for letter in letters.page.rows.iter().filter(|letter| letter.n > had) {
            self.put_letter(now, id, letter.n, json::tail(letter.n, &letter.body));
            self.stats.letters_put.add(1);
        }
    }

    fn put_letter(&mut self, now: Time, id: ListenerId, letter: u64, tail: Vec<u8>) {
        self.put_json(now, id, tail.into_boxed_slice());
        // One that never acknowledges must not collect for ever: its inbox forgets the oldest too.
        let most = self.node.settings.inbox.letters;
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let seq = listener.mailbox.last();
        if let Some(session) = listener.session_mut() {
            session.letters = session.letters.max(letter);
            session.post.push_back((seq, letter));
            if session.post.len() > most {
                session.post.pop_front();
            }
        }
    }

    /// A session has everything up to `seq` for good: its letters are freed for all sessions of its user.
    pub(crate) fn acknowledge_letters(&mut self, id: ListenerId, seq: u64) {
        let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        let mut through = 0;
        while let Some((_, letter)) = session.post.pop_front_if(|(at, _)| *at <= seq) {
            through = letter;
        }
        let Some(user) = session.identity.user.clone().filter(|_| through > 0) else { return };
        let freed = vec![Freed { user, through, unread: false }];
        let commit = Commit { writer: Some(self.writer()), freed, ..Commit::default() };
        // If the store does not take it, the letters come again: at least once is the promise.
        self.submit(presence::Task::Tidy, Work::Commit(commit));
    }

    /// A letter from an app; `once` names the request, so that it is carried out once.
    pub(crate) fn post(&mut self, now: Time, user: Arc<str>, data: &str, once: Option<&str>, claim: Claim) {
        let settings = &self.node.settings;
        let body = json::body(data);
        let most = settings.message_bytes.min(settings.inbox.bytes);
        if body.len() > most {
            let message = format!("a letter has {} bytes, at most {most} are allowed", body.len());
            return self.finish(claim, Err(Refusal::new(Code::TooLarge, message)));
        }
        let mut commit = Commit { writer: Some(self.writer()), ..Commit::default() };
        self.add_letter(now, &mut commit, user.clone(), body.into());
        if let Some(once) = once {
            let key = DocumentKey::new(ONCE, once);
            commit.expects.push(Expect { key: RowKey::Document(key.clone()), version: 0 });
            commit.puts.push(Row::Document(Document { key, body: Arc::from(*b"{}") }));
            commit.deadlines.push(Deadline::new(now + ONCE_MS, ONCE, once));
        }
        self.ask_inbox(Task::Post { user, claim }, Work::Commit(commit));
    }

    /// Adds a letter to a commit, and looks after it if nobody comes to read it.
    pub(crate) fn add_letter(&self, now: Time, commit: &mut Commit, user: Arc<str>, body: Arc<[u8]>) {
        let rules = &self.node.settings.inbox;
        let due = Deadline::new(now + rules.keep_ms, INBOX, &user);
        if !commit.deadlines.contains(&due) {
            commit.deadlines.push(due);
        }
        let (most_letters, most_bytes) = (rules.letters, rules.bytes);
        commit.letters.push(NewLetter { user, body, most_letters, most_bytes });
    }

    /// A request may be forgotten.
    pub(crate) fn forget_once(&mut self, deadline: &Deadline) {
        let key = RowKey::Document(DocumentKey::new(ONCE, &deadline.name));
        let deletes = vec![key, deadline.key()];
        let commit = Commit { writer: Some(self.writer()), deletes, ..Commit::default() };
        self.submit(presence::Task::Tidy, Work::Commit(commit));
    }

    /// It is time to look whether somebody still may come for his letters.
    pub(crate) fn inbox_is_due(&mut self, deadline: &Deadline) {
        if !is_user(&deadline.name) {
            return;
        }
        let read = Read::People { users: vec![deadline.name.clone()], viewer: None };
        self.ask_inbox(Task::Keep { deadline: deadline.clone() }, Work::Read(read));
    }

    fn keep_or_free(&mut self, now: Time, deadline: &Deadline, person: &Person) {
        let keep_ms = self.node.settings.inbox.keep_ms;
        let own = own_channel(&person.user);
        let here = person.presences.iter().any(|row| row.row.key.channel == own);
        let seen = person.known.as_ref().and_then(|row| row.row.last_seen);
        // Somebody who never was here has had the time since the letter was written.
        let until = if here { now + keep_ms } else { seen.map_or(now, |seen| seen + keep_ms) };
        let mut commit = Commit {
            writer: Some(self.writer()),
            // Another letter came meanwhile, or somebody else has looked.
            expects: vec![Expect { key: deadline.key(), version: deadline.due.ms() }],
            ..Commit::default()
        };
        if until > now {
            commit.deadlines.push(Deadline::new(until, INBOX, &person.user));
        } else {
            commit.freed.push(Freed { user: person.user.clone(), through: u64::MAX, unread: true });
            commit.deletes.push(deadline.key());
        }
        self.submit(presence::Task::Tidy, Work::Commit(commit));
    }
}
