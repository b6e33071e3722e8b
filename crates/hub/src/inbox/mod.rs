//! The durable inbox of a user, as their sessions on this node see it: inbox messages are read from the store, put into the
//! mailbox of each session once, and freed when any session has acknowledged them. The bus only announces that there are new
//! ones. Must hold: a session gets each inbox message once, in order; an unacknowledged message stays in the store until it
//! expires; messages dropped unread are reported as a gap.

mod unread;

use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Notice, ReplyTo, refusal};
use crate::replica::Replicas;
use crate::rows::{INBOX, ONCE, add_inbox_message};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need, Transactions};
use crate::user::{is_user, own_channel};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::presence::UserUpdate;
use tavern_store::{
    Commit, Deadline, Document, DocumentKey, Expect, FreedMessages, Row, RowKey, StoreAnswer, StoreError,
    Ticket, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::inbox as json;
use unread::{UnreadInbox, deliver};

/// How long an idempotency key is kept.
const ONCE_MS: u64 = 24 * 3_600_000;

/// A message that is being stored.
struct InboxPost {
    user: Arc<str>,
    claim: ReplyTo,
}

pub(crate) struct Inbox {
    frees: Transactions<FreeInbox>,
    posts: HashMap<Ticket, InboxPost, RandomState>,
    unread: Replicas<UnreadInbox>,
}

impl Inbox {
    pub fn new() -> Inbox {
        let (frees, unread) = (Transactions::new(Feature::Inbox), Replicas::new(Feature::Inbox));
        Inbox { frees, posts: HashMap::default(), unread }
    }

    /// There may be new messages in the inbox of a user.
    pub(crate) fn check(&mut self, core: &mut Core, user: &Arc<str>) {
        if !core.users.sessions(user).is_empty() {
            self.unread.refresh(core, user);
        }
    }

    /// A read that failed is due again.
    pub(crate) fn replica_is_due(&mut self, core: &mut Core, user: &Arc<str>) {
        self.unread.due(core, user);
    }

    /// A commit of this shard has added messages to the inbox of a user. A session that has the message before them gets
    /// them without a read.
    pub(crate) fn deliver_committed(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        messages: &[(u64, Arc<[u8]>)],
    ) {
        let Some((first, _)) = messages.first() else { return };
        if self.unread.is_reading(user) {
            return self.check(core, user);
        }
        let mut behind = false;
        for id in core.users.sessions(user).to_vec() {
            // The numbers of an inbox grow by one while it has messages: nothing is in between.
            if core.session(id).is_none_or(|session| session.last_inbox_message + 1 != *first) {
                behind = true;
                continue;
            }
            for (number, body) in messages {
                deliver(core, id, *number, json::tail(*number, body));
                core.stats.inbox_messages_delivered.add(1);
            }
        }
        if behind {
            self.unread.refresh(core, user);
        }
    }

    /// The store has answered something about an inbox.
    pub(crate) fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.frees.owns(ticket) {
            // If the store does not answer, a node checks again at the next heartbeat.
            self.frees.answered(core, ticket, answer);
            return;
        }
        let Some(InboxPost { user, claim }) = self.posts.remove(&ticket) else {
            self.unread.answered(core, ticket, answer);
            return;
        };
        match answer {
            StoreAnswer::Committed(receipt) => {
                let message_id = receipt.inbox_numbers.first().copied().unwrap_or(0);
                core.stats.inbox_messages_stored.add(receipt.inbox_numbers.len() as u64);
                core.finish(claim, Ok(json::posted(message_id)));
                core.notify(Notice::StatusUpdate { user, update: UserUpdate::Inbox });
            }
            // The commit expects only the idempotency key: the message was stored before.
            StoreAnswer::Failed(StoreError::Conflict { .. }) => {
                core.finish(claim, Ok(json::posted_before()));
            }
            answer => core.finish(claim, Err(refusal(&answer))),
        }
    }

    /// A session has acknowledged everything up to `seq`: frees the inbox messages among it for all sessions of its
    /// user.
    pub(crate) fn acknowledge(&mut self, core: &mut Core, id: ListenerId, seq: u64) {
        let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        let Some(unacked) = &mut session.unacked_inbox else { return };
        let mut through = 0;
        while let Some((_, message_id)) = unacked.pop_front_if(|(at, _)| *at <= seq) {
            through = message_id;
        }
        if unacked.is_empty() {
            session.unacked_inbox = None;
        }
        let Some(user) = session.identity.user.clone().filter(|_| through > 0) else { return };
        let freed = vec![FreedMessages { user, through, unread: false }];
        let commit = Commit { writer: Some(core.writer()), freed_messages: freed, ..Commit::default() };
        // If the commit fails, the messages are delivered again: delivery is at least once.
        core.submit(Feature::None, Work::Commit(commit));
    }

    /// Stores an inbox message from an app; `once` is the idempotency key of the request.
    pub(crate) fn post(
        &mut self,
        core: &mut Core,
        user: Arc<str>,
        data: &str,
        once: Option<&str>,
        claim: ReplyTo,
    ) {
        let now = core.now;
        let settings = &core.node.settings;
        let body = json::body(data);
        let max = settings.message_bytes.min(settings.inbox.bytes);
        if body.len() > max {
            let message = format!("an inbox message has {} bytes, at most {max} are allowed", body.len());
            return core.finish(claim, Err(Refusal::new(Code::TooLarge, message)));
        }
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        add_inbox_message(&core.node.settings.inbox, now, &mut commit, user.clone(), body.into());
        if let Some(once) = once {
            let key = DocumentKey::new(ONCE, once);
            commit.expects.push(Expect { key: RowKey::Document(key.clone()), version: 0 });
            commit.puts.push(Row::Document(Document { key, body: Arc::from(*b"{}") }));
            commit.deadlines.push(Deadline::new(now + ONCE_MS, ONCE, once));
        }
        let ticket = core.submit(Feature::Inbox, Work::Commit(commit));
        self.posts.insert(ticket, InboxPost { user, claim });
    }

    /// The idempotency key of a request has expired: deletes it.
    pub(crate) fn forget_once(&mut self, core: &mut Core, deadline: &Deadline) {
        let key = RowKey::Document(DocumentKey::new(ONCE, &deadline.name));
        let deletes = vec![key, deadline.key()];
        let commit = Commit { writer: Some(core.writer()), deletes, ..Commit::default() };
        core.submit(Feature::None, Work::Commit(commit));
    }

    /// The deadline of an inbox is due: frees it unless its user was seen since.
    pub(crate) fn is_due(&mut self, core: &mut Core, deadline: &Deadline) {
        if !is_user(&deadline.name) {
            return;
        }
        self.frees.begin(core, FreeInbox(deadline.clone()), Facts::default());
    }
}

/// Checks whether a user may still read the messages in their inbox, and frees them if not.
struct FreeInbox(Deadline);

impl Decision for FreeInbox {
    type Outcome = ();
    type Notes = ();

    fn decide(&self, context: &DecisionContext<'_>, facts: &Facts, (): &mut ()) -> DecisionStep<()> {
        let (now, deadline) = (context.now, &self.0);
        let Some(person) = facts.person(&deadline.name) else {
            return DecisionStep::Need(vec![Need::Person(deadline.name.clone())]);
        };
        let keep_ms = context.settings.inbox.keep_ms;
        let own = own_channel(&person.user);
        let here = person.presences.iter().any(|row| row.row.key.channel == own);
        let seen = person.known.as_ref().and_then(|row| row.row.last_seen);
        // For a user who never connected, the time counts from when the message was written.
        let until = if here { now + keep_ms } else { seen.map_or(now, |seen| seen + keep_ms) };
        let mut commit = Commit {
            // If another message has arrived or another node has checked, there is nothing to do.
            expects: vec![Expect { key: deadline.key(), version: deadline.due.ms() }],
            ..context.commit()
        };
        if until > now {
            commit.deadlines.push(Deadline::new(until, INBOX, &person.user));
        } else {
            commit.freed_messages.push(FreedMessages {
                user: person.user.clone(),
                through: u64::MAX,
                unread: true,
            });
            commit.deletes.push(deadline.key());
        }
        DecisionStep::Commit { commit, outcome: () }
    }
}
