//! Replies that commands wait for: who gets which, and in which order.
//! A transport that pipelines has begun commands before its earlier ones were answered, so it does not wait for the store
//! as often. Must hold: replies leave in the order of their commands, refusals too; what one transport has begun is bounded.

use crate::connection::LinkId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use tavern_wire::error::Refusal;

/// What a finished command answers: the body of its reply, or why not.
pub type Reply = Result<Vec<u8>, Refusal>;

/// Commands of one transport that are begun and not answered: enough to share a commit, few enough to hold.
pub(crate) const PIPELINE_MAX: usize = 64;

/// Who gets a reply. A transport's number is used again, the number of its command is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Link {
        link: LinkId,
        number: u64,
    },
    /// A command of an app, by its number.
    Order(u64),
}

#[derive(Default)]
pub(crate) struct Replies {
    numbers: u64,
    /// The command that each waiting transport waits for.
    claims: HashMap<LinkId, u64, RandomState>,
    /// Replies for transports whose command waits; found when the command runs again.
    ready: HashMap<LinkId, Reply, RandomState>,
    /// Commands of transports that pipeline, in their order. A transport without any is not here.
    pipelined: HashMap<LinkId, VecDeque<Pipelined>, RandomState>,
}

struct Pipelined {
    number: u64,
    /// The command's own id, echoed in its reply.
    id: Option<Box<str>>,
    reply: Option<Reply>,
}

impl Replies {
    /// A transport's command waits for a reply from now on.
    pub fn claim(&mut self, link: LinkId) -> Claim {
        self.numbers += 1;
        self.claims.insert(link, self.numbers);
        Claim::Link { link, number: self.numbers }
    }

    /// The reply to a transport's command, if it is there.
    pub fn take(&mut self, link: LinkId) -> Option<Reply> {
        self.ready.remove(&link)
    }

    /// Keeps a reply for the transport that waits for it. False: none does, or an earlier reply must come first.
    pub fn keep(&mut self, link: LinkId, number: u64, reply: Reply) -> bool {
        let pipelined = self.pipelined.get_mut(&link);
        if let Some(pipelined) = pipelined
            && let Ok(at) = pipelined.binary_search_by_key(&number, |begun| begun.number)
        {
            pipelined[at].reply = Some(reply);
            return at == 0;
        }
        let waits = self.claims.get(&link) == Some(&number);
        if waits {
            self.claims.remove(&link);
            self.ready.insert(link, reply);
        }
        waits
    }

    /// The transport is gone, or runs another command: its reply is dropped.
    pub fn forget(&mut self, link: LinkId) {
        self.claims.remove(&link);
        self.ready.remove(&link);
    }

    /// The number of the transport may be used again.
    pub fn release(&mut self, link: LinkId) {
        self.forget(link);
        self.pipelined.remove(&link);
    }

    /// How many commands of a transport are begun and not answered.
    pub fn pipelined(&self, link: LinkId) -> usize {
        self.pipelined.get(&link).map_or(0, VecDeque::len)
    }

    /// The command has begun; its reply comes by `next`.
    pub fn pipeline(&mut self, claim: Claim, id: Option<&str>) {
        let Claim::Link { link, number } = claim else { return };
        let reply = self.take(link);
        self.claims.remove(&link);
        self.push(link, Pipelined { number, id: id.map(Box::from), reply });
    }

    /// A reply that must not overtake those before it.
    pub fn keep_in_turn(&mut self, link: LinkId, id: Option<&str>, reply: Reply) {
        self.numbers += 1;
        let number = self.numbers;
        self.push(link, Pipelined { number, id: id.map(Box::from), reply: Some(reply) });
    }

    fn push(&mut self, link: LinkId, begun: Pipelined) {
        self.pipelined.entry(link).or_default().push_back(begun);
    }

    /// The next reply of a transport that pipelines. None: it is not there yet.
    pub fn next(&mut self, link: LinkId) -> Option<(Option<Box<str>>, Reply)> {
        let pipelined = self.pipelined.get_mut(&link)?;
        let reply = pipelined.front_mut()?.reply.take()?;
        let id = pipelined.pop_front()?.id;
        if pipelined.is_empty() {
            self.pipelined.remove(&link);
        }
        Some((id, reply))
    }
}
