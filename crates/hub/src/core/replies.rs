//! Replies that commands wait for: which connection gets which, and in which order.
//! A connection that pipelines starts commands before its earlier ones are answered, so it waits less for the store.
//! Must hold: replies, refusals included, leave in the order of their commands; the commands in progress are bounded; a command
//! that waits for the store is answered by its deadline, which counts from its arrival wherever it is queued.

use crate::connection::LinkId;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use tavern_domain::Time;
use tavern_wire::error::Refusal;

/// The outcome of a finished command: the body of its reply, or the refusal.
pub type CommandReply = Result<Vec<u8>, Refusal>;

/// Commands in flight per connection: enough to share a commit, few enough to keep in memory.
pub(crate) const PIPELINE_MAX: usize = 64;

/// How long a command waits for the store: a queue in front of it, retries and several round trips included.
pub(crate) const REPLY_MS: u64 = 15_000;

/// The receiver of a reply. Connection numbers are reused, command numbers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyTo {
    Link {
        link: LinkId,
        number: u64,
    },
    /// A command of an app, by its number.
    Service(u64),
}

#[derive(Default)]
pub(crate) struct Replies {
    numbers: u64,
    /// The command that each waiting connection waits for, and its reply once it has arrived.
    waiting: HashMap<LinkId, ClaimedReply, RandomState>,
    /// Commands of connections that pipeline, in order. A connection without any is not in the map.
    pipelined: HashMap<LinkId, VecDeque<PipelinedCommand>, RandomState>,
    /// The commands of apps that have no reply yet.
    services: HashSet<u64, RandomState>,
    /// Commands that wait for the store, in the order of their deadlines. The first one has no reply yet.
    deadlines: VecDeque<(Time, ReplyTo)>,
}

struct ClaimedReply {
    number: u64,
    /// The command is paused and continues when what it waits for arrives; only a refusal is stored as its reply.
    paused: bool,
    reply: Option<CommandReply>,
}

struct PipelinedCommand {
    number: u64,
    /// The command's own id, echoed in its reply.
    id: Option<Box<str>>,
    reply: Option<CommandReply>,
}

impl Replies {
    /// Registers that a connection waits for the reply of a command that arrives now.
    pub fn expect_reply(&mut self, now: Time, link: LinkId) -> ReplyTo {
        let claim = self.wait(link, false);
        self.deadlines.push_back((now + REPLY_MS, claim));
        claim
    }

    /// Registers that an app waits for the reply of a command that arrives now.
    pub fn expect_service(&mut self, now: Time, number: u64) -> ReplyTo {
        self.services.insert(number);
        self.deadlines.push_back((now + REPLY_MS, ReplyTo::Service(number)));
        ReplyTo::Service(number)
    }

    /// An app gets its reply. False: it has one already.
    pub fn answer_service(&mut self, number: u64) -> bool {
        let is_first = self.services.remove(&number);
        self.forget_answered();
        is_first
    }

    /// When the next command must be answered.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.front().map(|(due, _)| *due)
    }

    /// The commands that have waited for too long.
    pub fn take_late(&mut self, now: Time) -> Vec<ReplyTo> {
        let mut late = Vec::new();
        while let Some((_, claim)) = self.deadlines.pop_front_if(|(due, _)| *due <= now) {
            late.extend(self.is_open(claim).then_some(claim));
        }
        late
    }

    fn forget_answered(&mut self) {
        while let Some((_, claim)) = self.deadlines.front()
            && !self.is_open(*claim)
        {
            self.deadlines.pop_front();
        }
    }

    /// Whether a command has no reply yet.
    fn is_open(&self, claim: ReplyTo) -> bool {
        let ReplyTo::Link { link, number } = claim else {
            return matches!(claim, ReplyTo::Service(number) if self.services.contains(&number));
        };
        let waiting = self.waiting.get(&link).filter(|waiting| waiting.number == number);
        let pipelined = || {
            let begun = self.pipelined.get(&link)?;
            Some(&begun[begun.binary_search_by_key(&number, |begun| begun.number).ok()?].reply)
        };
        waiting.map(|waiting| &waiting.reply).or_else(pipelined).is_some_and(Option::is_none)
    }

    /// Registers that a connection's paused command waits for something; it is refused if that cannot be obtained in time.
    pub fn expect_refusal(&mut self, now: Time, link: LinkId) -> ReplyTo {
        let claim = self.wait(link, true);
        self.deadlines.push_back((now + REPLY_MS, claim));
        claim
    }

    fn wait(&mut self, link: LinkId, paused: bool) -> ReplyTo {
        self.numbers += 1;
        let number = self.numbers;
        self.waiting.insert(link, ClaimedReply { number, paused, reply: None });
        ReplyTo::Link { link, number }
    }

    /// The reply to a connection's waiting command. None: it has not arrived, or the command was paused and can
    /// continue.
    pub fn take(&mut self, link: LinkId) -> Option<CommandReply> {
        self.waiting.get(&link)?.reply.as_ref()?;
        let waiting = self.waiting.remove(&link)?;
        waiting.reply.filter(|reply| reply.is_err() || !waiting.paused)
    }

    /// Stores a reply for the connection that waits for it. False: no command waits for it, or an earlier reply must
    /// come first.
    pub fn keep(&mut self, link: LinkId, number: u64, reply: CommandReply) -> bool {
        let is_wanted = self.store(link, number, reply);
        self.forget_answered();
        is_wanted
    }

    fn store(&mut self, link: LinkId, number: u64, reply: CommandReply) -> bool {
        let pipelined = self.pipelined.get_mut(&link);
        if let Some(pipelined) = pipelined
            && let Ok(at) = pipelined.binary_search_by_key(&number, |begun| begun.number)
        {
            pipelined[at].reply = Some(reply);
            return at == 0;
        }
        let Some(waiting) = self.waiting.get_mut(&link).filter(|waiting| waiting.number == number) else {
            return false;
        };
        waiting.reply = Some(reply);
        true
    }

    /// Whether a connection still waits for a reply.
    pub fn is_expected(&self, claim: ReplyTo) -> bool {
        match claim {
            ReplyTo::Link { link, number } => {
                self.waiting.get(&link).is_some_and(|waiting| waiting.number == number)
            }
            ReplyTo::Service(_) => true,
        }
    }

    /// The connection is closed, or runs another command: drops its reply.
    pub fn forget(&mut self, link: LinkId) {
        self.waiting.remove(&link);
    }

    /// The number of the connection may be reused.
    pub fn release(&mut self, link: LinkId) {
        self.forget(link);
        self.pipelined.remove(&link);
    }

    /// How many pipelined commands of a connection are in flight.
    pub fn pipelined(&self, link: LinkId) -> usize {
        self.pipelined.get(&link).map_or(0, VecDeque::len)
    }

    /// The command is in flight; its reply is returned by `next`.
    pub fn pipeline(&mut self, claim: ReplyTo, id: Option<&str>) {
        let ReplyTo::Link { link, number } = claim else { return };
        let reply = self.waiting.remove(&link).and_then(|waiting| waiting.reply);
        self.push(link, PipelinedCommand { number, id: id.map(Box::from), reply });
    }

    /// A reply that must not overtake earlier ones.
    pub fn keep_in_turn(&mut self, link: LinkId, id: Option<&str>, reply: CommandReply) {
        self.numbers += 1;
        let number = self.numbers;
        self.push(link, PipelinedCommand { number, id: id.map(Box::from), reply: Some(reply) });
    }

    fn push(&mut self, link: LinkId, begun: PipelinedCommand) {
        self.pipelined.entry(link).or_default().push_back(begun);
    }

    /// The next reply of a connection that pipelines. None: it has not arrived yet.
    pub fn next(&mut self, link: LinkId) -> Option<(Option<Box<str>>, CommandReply)> {
        let pipelined = self.pipelined.get_mut(&link)?;
        let reply = pipelined.front_mut()?.reply.take()?;
        let id = pipelined.pop_front()?.id;
        if pipelined.is_empty() {
            self.pipelined.remove(&link);
        }
        Some((id, reply))
    }
}
