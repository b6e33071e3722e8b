//! Publishing to channels with history: the messages of one turn, and those that arrive while a commit is under way, are
//! stored together, then delivered in the order in which they were published here.
//! Must hold: at most one commit of a shard is under way, so that the messages of one publisher keep their order; every
//! message is answered once.

use crate::core::publish::{StampedPublish, publish_message};
use crate::core::{CommandReply, Core, Feature, REPLY_MS, ReplyTo, Timer, refusal};
use crate::event::{Author, Namespace};
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::{HistoryStamp, Time};
use tavern_store::{
    Commit, HistoryAppended, HistorySender, NewHistoryMessage, Receipt, StoreAnswer, Ticket, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::history::{PublishedAt, published};
use tavern_wire::resp;

/// Messages and bytes in one commit: enough to share an fsync, few enough for the engine to stay responsive.
const BATCH_MESSAGES: usize = 1_000;
const BATCH_BYTES: usize = 4 << 20;
/// What may wait for the store on one shard. Beyond this, publishers are asked to retry.
const QUEUE_MESSAGES: usize = 65_536;
const QUEUE_BYTES: usize = 64 << 20;

/// A message to store and deliver, and who waits for it.
pub(crate) struct HistoryPublish {
    pub message: NewHistoryMessage,
    pub to: ReplyTo,
    pub reply: PublisherReply,
}

/// The form of the answer to a publisher.
pub(crate) enum PublisherReply {
    /// The channel, if it is not the one that was named; whether its place is shown.
    Json { other_channel: Option<Arc<str>>, is_numbered: bool },
    /// How many subscriptions matched.
    Redis,
}

#[derive(Default)]
pub(super) struct HistoryWriter {
    /// Until when the publisher waits: a message whose publisher was refused is not stored later.
    queue: VecDeque<(Time, HistoryPublish)>,
    queued_bytes: usize,
    under_way: Option<(Ticket, Vec<HistoryPublish>)>,
    /// The queue is committed at the end of this turn.
    is_due: bool,
}

impl HistoryWriter {
    pub fn publish(&mut self, core: &mut Core, publish: HistoryPublish) {
        let bytes = publish.message.body.len();
        if self.queue.len() >= QUEUE_MESSAGES || self.queued_bytes + bytes > QUEUE_BYTES {
            let refused = Refusal::new(Code::Busy, "too many messages are waiting to be stored; retry");
            return core.finish(publish.to, Err(refused.retry_after(tavern_store::limits::RETRY_AFTER_MS)));
        }
        self.queued_bytes += bytes;
        self.queue.push_back((core.now + REPLY_MS, publish));
        if self.under_way.is_none() && !self.is_due {
            // The commands behind this one are read first: one commit, and one write to each subscriber.
            self.is_due = true;
            core.agenda.set(core.now, Timer::HistoryCommit);
        }
    }

    /// The turn ends.
    pub fn commit(&mut self, core: &mut Core) {
        self.is_due = false;
        self.submit(core);
    }

    fn submit(&mut self, core: &mut Core) {
        if self.under_way.is_some() || self.queue.is_empty() {
            return;
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((until, next)) = self.queue.front() {
            let is_late = *until <= core.now;
            bytes += if is_late { 0 } else { next.message.body.len() };
            if batch.len() == BATCH_MESSAGES || (bytes > BATCH_BYTES && !batch.is_empty()) {
                break;
            }
            self.queued_bytes -= next.message.body.len();
            batch.extend(self.queue.pop_front().filter(|_| !is_late).map(|(_, publish)| publish));
        }
        if batch.is_empty() {
            return;
        }
        let history = batch.iter().map(|publish| publish.message.clone()).collect();
        let commit = Commit { writer: Some(core.writer()), history, ..Commit::default() };
        let ticket = core.submit(Feature::History, Work::Commit(commit));
        self.under_way = Some((ticket, batch));
    }

    pub fn owns(&self, ticket: Ticket) -> bool {
        self.under_way.as_ref().is_some_and(|(under_way, _)| *under_way == ticket)
    }

    /// The store has answered. Returns the channels whose messages may be stored although the store failed.
    pub fn answered(&mut self, core: &mut Core, answer: StoreAnswer) -> Vec<Arc<str>> {
        let Some((_, batch)) = self.under_way.take() else { return Vec::new() };
        let mut unknown = Vec::new();
        match answer {
            StoreAnswer::Committed(receipt) => stored(core, batch, &receipt),
            failed => {
                let is_refusal = matches!(&failed, StoreAnswer::Failed(error) if error.is_refusal());
                for publish in batch {
                    core.finish(publish.to, Err(refusal(&failed)));
                    if !is_refusal {
                        unknown.push(publish.message.channel);
                    }
                }
            }
        }
        self.submit(core);
        unknown
    }
}

fn stored(core: &mut Core, batch: Vec<HistoryPublish>, receipt: &Receipt) {
    for (publish, appended) in batch.into_iter().zip(&receipt.history) {
        let receivers = match appended.duplicate {
            true => 0,
            false => deliver(core, &publish, appended, receipt.time),
        };
        let reply = answer(&publish.reply, receivers, appended, receipt.time);
        core.finish(publish.to, reply);
    }
}

fn deliver(core: &mut Core, publish: &HistoryPublish, appended: &HistoryAppended, at: Time) -> u32 {
    let message = &publish.message;
    let author = message.sender.as_ref().map(|sender| {
        let HistorySender { user, client } = sender.clone();
        Author { user, client }
    });
    let publication = StampedPublish {
        space: Namespace::Channel,
        channel: message.channel.as_bytes(),
        payload: &message.body,
        json: message.json,
        author,
        history: Some(HistoryStamp { position: appended.position, at }),
    };
    publish_message(core, core.now, publication)
}

fn answer(form: &PublisherReply, receivers: u32, appended: &HistoryAppended, at: Time) -> CommandReply {
    let mut body = Vec::new();
    match form {
        PublisherReply::Redis => resp::int(&mut body, i64::from(receivers)),
        PublisherReply::Json { other_channel, is_numbered: false } => {
            tavern_wire::json::reply::published(&mut body, receivers, other_channel.as_deref());
        }
        PublisherReply::Json { other_channel, is_numbered: true } => {
            let other_channel = other_channel.as_deref();
            let stamp = HistoryStamp { position: appended.position, at };
            published(
                &mut body,
                &PublishedAt { receivers, other_channel, stamp, duplicate: appended.duplicate },
            );
        }
    }
    Ok(body)
}
