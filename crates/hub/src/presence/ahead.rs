//! Commands that a transport has begun before its earlier ones were answered: whoever sends several at once does not
//! wait for the store as often. Only changes of presence run ahead; everything else waits for them.
//! Must hold: replies leave in the order of their commands, refusals too; what one transport has begun is bounded.

use super::{Claim, Outcome};
use crate::command::{Caller, Flow};
use crate::listener::LinkId;
use crate::shard::Shard;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use tavern_wire::json::Op;

/// Commands of one transport that are begun and not answered: enough to share a commit, few enough to hold.
const AHEAD_MAX: usize = 64;

/// By transport, in the order of the commands. A transport without any is not here.
#[derive(Default)]
pub(super) struct Ahead {
    begun: HashMap<LinkId, VecDeque<Begun>, RandomState>,
}

struct Begun {
    number: u64,
    /// The command's own, echoed in its reply.
    id: Option<Box<str>>,
    outcome: Option<Outcome>,
}

impl Ahead {
    fn len(&self, link: LinkId) -> usize {
        self.begun.get(&link).map_or(0, VecDeque::len)
    }

    fn push(&mut self, link: LinkId, begun: Begun) {
        self.begun.entry(link).or_default().push_back(begun);
    }

    /// Keeps an answer. None: this claim is not of a command that runs ahead; else whether it can be told at once.
    pub fn keep(&mut self, link: LinkId, number: u64, outcome: &mut Option<Outcome>) -> Option<bool> {
        let begun = self.begun.get_mut(&link)?;
        let at = begun.binary_search_by_key(&number, |begun| begun.number).ok()?;
        begun[at].outcome = outcome.take();
        Some(at == 0)
    }

    fn take(&mut self, link: LinkId) -> Option<(Option<Box<str>>, Outcome)> {
        let begun = self.begun.get_mut(&link)?;
        let outcome = begun.front_mut()?.outcome.take()?;
        let id = begun.pop_front()?.id;
        if begun.is_empty() {
            self.begun.remove(&link);
        }
        Some((id, outcome))
    }

    pub fn forget(&mut self, link: LinkId) {
        self.begun.remove(&link);
    }
}

impl Shard {
    /// Whether earlier commands of this transport have no answer yet.
    pub(crate) fn has_begun(&self, link: LinkId) -> bool {
        self.presences.ahead.len(link) > 0
    }

    /// Whether a command may begin while earlier ones of its transport have no answer yet.
    pub(crate) fn may_run_ahead(&self, caller: &Caller, op: &Op<'_>) -> bool {
        let ahead = self.presences.ahead.len(caller.link.id);
        let session = caller.listener.and_then(|id| self.listeners.get(id)?.session());
        let user = session.and_then(|session| session.identity.user.as_ref());
        if user.is_some_and(|user| self.people.visibility(user).is_none()) {
            // Its arrivals wait until it is known to whom its user shows himself.
            return false;
        }
        let changes = match op {
            Op::Update(_) | Op::Leave { .. } => true,
            // Near the bound it must be known how many there are.
            Op::Join(_) => session.is_some_and(|session| {
                session.present.joined() + ahead < self.node.settings.channels_per_session
            }),
            _ => false,
        };
        changes && ahead < AHEAD_MAX
    }

    /// The command has begun; its reply comes by `next_reply`.
    pub(crate) fn run_ahead(&mut self, claim: Claim, id: Option<&str>) {
        let Claim::Link { link, number } = claim else { return };
        let outcome = self.presences.take_outcome(link);
        self.presences.claims.remove(&link);
        self.presences.ahead.push(link, Begun { number, id: id.map(Box::from), outcome });
    }

    /// A reply that must not overtake those before it.
    pub(crate) fn reply_in_turn(&mut self, link: LinkId, id: Option<&str>, outcome: Outcome) {
        self.presences.tickets += 1;
        let number = self.presences.tickets;
        self.presences.ahead.push(link, Begun { number, id: id.map(Box::from), outcome: Some(outcome) });
    }

    /// The next reply of a transport whose commands run ahead, appended to `out`. None: it is not there yet.
    pub fn next_reply(&mut self, caller: &mut Caller, out: &mut Vec<u8>) -> Option<Flow> {
        let (id, outcome) = self.presences.ahead.take(caller.link.id)?;
        Some(self.reply(caller, id.as_deref(), outcome, out))
    }
}
