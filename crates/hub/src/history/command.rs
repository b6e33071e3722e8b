//! The commands about history: `subscribe` to a channel that has one, `history`, and clearing it.

use super::reader::{HistoryReader, ReaderStart, Subscribed};
use super::{History, SubscribeAnswer};
use crate::core::authorize::{self, Permission};
use crate::core::command::{Caller, CommandResult, not_allowed, refuse, run_again};
use crate::core::listener::ListenerId;
use crate::core::publish::take_unread_of;
use crate::core::{CommandReply, Core, ReplyTo, refusal};
use std::sync::Arc;
use tavern_domain::{Channel, ClientId, HistoryLimits, Verb};
use tavern_store::{Commit, Found, HistoryClear, HistoryMessage, HistoryPage, Read, StoreAnswer, Work};
use tavern_wire::error::Code;
use tavern_wire::json::history::{self as json, HistoryEntry};
use tavern_wire::json::{HistoryRequest, MessageSender, Payload, SubscribeRequest};

/// Messages in one answer to `history`, unless it asks for fewer.
const PAGE: u64 = 100;
const PAGE_MAX: u64 = 1_000;

impl History {
    /// The session is subscribed. Answers from where it gets messages; it waits until that is known.
    pub fn op_subscribe(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        channel: &Arc<str>,
        subscribe: &SubscribeRequest<'_>,
        limits: &HistoryLimits,
    ) -> CommandResult<Subscribed> {
        let link = caller.link.id;
        if let Some(answer) = self.answers.get(&link) {
            return Ok(answer.subscribed);
        }
        let start = match (subscribe.since, subscribe.last) {
            (Some(_), Some(_)) => {
                return refuse(Code::BadRequest, "give the field `since` or the field `last`, not both");
            }
            (Some(since), None) => ReaderStart::Since(since),
            (None, Some(last)) => ReaderStart::Last(last.min(limits.messages)),
            (None, None) => ReaderStart::Now,
        };
        // A session that is subscribed already gets what it has not read once, after the answer.
        let taken = core
            .listeners
            .get_mut(id)
            .and_then(|listener| take_unread_of(listener, channel.as_bytes()).before);
        let tracker = self.tracker(core, channel);
        if let Some(reader) = tracker.waiting(id) {
            (reader.claim, reader.link) = (Some(core.replies.expect_refusal(core.now, link)), link);
            return run_again();
        }
        let known = [taken, tracker.position_of_reader(id)].into_iter().flatten().min();
        let reader = match known {
            Some(position) if start == ReaderStart::Now => HistoryReader::again(id, link, position),
            _ => HistoryReader::new(id, link, start),
        };
        if let Some(subscribed) = tracker.subscribe(core, reader) {
            self.answers.insert(link, SubscribeAnswer { id, channel: channel.clone(), subscribed });
            self.go_on(core, channel);
            return Ok(subscribed);
        }
        if let Some(reader) = self.tracker(core, channel).waiting(id) {
            reader.claim = Some(core.replies.expect_refusal(core.now, link));
        }
        self.go_on(core, channel);
        run_again()
    }

    pub fn op_history(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        request: &HistoryRequest<'_>,
        channel: &Arc<str>,
        limits: &HistoryLimits,
    ) {
        let limit = request.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
        let to = core.replies.expect_reply(core.now, caller.link.id);
        let (read, ttl_ms) = (read_of(channel, request.after, request.before, limit), limits.ttl_ms);
        core.ask_store(Work::Read(read), to, move |core, answer| page_reply(core, ttl_ms, answer));
    }

    /// Removes the history of a channel.
    pub fn clear(&mut self, core: &mut Core, channel: Arc<str>, to: ReplyTo) {
        let history_clears = vec![HistoryClear { channel, only_at: None }];
        let commit =
            Commit { writer: Some(core.writer()), history_clears, erases: true, ..Commit::default() };
        core.ask_store(Work::Commit(commit), to, |_, answer| match answer {
            StoreAnswer::Committed(_) => Ok(Vec::new()),
            failed => Err(refusal(&failed)),
        });
    }
}

/// Without an offset: the last messages.
fn read_of(channel: &Arc<str>, after: Option<u64>, before: Option<u64>, limit: u64) -> Read {
    Read::History {
        channel: channel.clone(),
        after: after.unwrap_or(0),
        before: before.unwrap_or(u64::MAX),
        newest: after.is_none(),
        limit: limit as u32,
    }
}

/// The body of the answer to `history`.
fn page_reply(core: &Core, ttl_ms: u64, answer: StoreAnswer) -> CommandReply {
    match answer {
        StoreAnswer::Read(Found::History(found)) => {
            let mut body = Vec::new();
            write_page(&mut body, &found, core.now.ms().saturating_sub(ttl_ms));
            Ok(body)
        }
        failed => Err(refusal(&failed)),
    }
}

/// A page as JSON, without the messages up to a time: they are too old.
pub fn write_page(out: &mut Vec<u8>, found: &HistoryPage, expired: u64) {
    let rows = found.page.rows.iter().filter(|row| row.at.ms() > expired);
    let clients: Vec<Option<String>> =
        rows.clone().map(|row| row.sender.as_ref().map(|sender| sender.client.to_string())).collect();
    let entries = rows.zip(&clients).map(|(row, client)| entry(row, client.as_deref()));
    json::page(out, found.head, entries, found.page.more);
}

fn entry<'a>(row: &'a HistoryMessage, client: Option<&'a str>) -> HistoryEntry<'a> {
    let user = row.sender.as_ref().and_then(|sender| sender.user.as_deref());
    HistoryEntry {
        offset: row.offset,
        at: row.at.ms(),
        message_id: row.id.as_deref().map(given_id),
        payload: if row.json { Payload::Json(&row.body) } else { Payload::Bytes(&row.body) },
        from: client.map(|client| MessageSender { user, client: Some(client) }),
    }
}

/// Who gave an id to a message. Ids of different authors never meet: nobody can take the id of another one's message.
#[derive(Clone, Copy)]
pub(crate) enum MessageAuthor<'a> {
    User(&'a str),
    /// Services without an API key, which dev mode has, are one author.
    Key(Option<&'a str>),
    Client(ClientId),
}

/// Separates the author in a stored id; neither part has control characters.
const AUTHOR_ENDS: char = '\n';

/// The id that a publisher gave to a message, as it is stored: with its author.
pub(crate) fn message_id(author: MessageAuthor<'_>, id: &str) -> Arc<str> {
    let author = match author {
        MessageAuthor::User(user) => format!("u{user}"),
        MessageAuthor::Key(key) => format!("k{}", key.unwrap_or_default()),
        MessageAuthor::Client(client) => format!("c{client}"),
    };
    format!("{author}{AUTHOR_ENDS}{id}").into()
}

/// The id as its publisher gave it.
fn given_id(stored: &str) -> &str {
    stored.rsplit(AUTHOR_ENDS).next().unwrap_or(stored)
}

/// The channel whose history a session may read, and how much it keeps.
pub(crate) fn readable(
    core: &mut Core,
    caller: &Caller,
    id: ListenerId,
    name: &str,
) -> CommandResult<HistoryLimits> {
    let Some(limits) = core.node.history_limits(name.as_bytes()) else {
        return refuse(Code::NotFound, format!("the channel {name:?} keeps no history"));
    };
    let channel = Channel::parse(name).or_else(|error| refuse(Code::BadRequest, error.to_string()))?;
    let rules = core.node.settings.kind(channel.kind).history;
    let verbs: &[Verb] = match rules {
        Some(rules) if rules.with_subscribe => &[Verb::Subscribe, Verb::History],
        _ => &[Verb::History],
    };
    for &verb in verbs {
        let Some(session) = core.session(id) else {
            return refuse(Code::Gone, "the session has ended; send hello again");
        };
        match authorize::permit(core, &session.identity, verb, &channel) {
            Permission::Yes => return Ok(limits),
            // A substitute has its own history; what was asked for may not be read.
            Permission::No | Permission::Instead(_) => {}
            Permission::Ask(question) => {
                authorize::ask(core, question, caller.link.id);
                return run_again();
            }
        }
    }
    not_allowed(core, id, Verb::History, name)
}
