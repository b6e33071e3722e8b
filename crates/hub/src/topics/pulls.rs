//! The clients of this shard that pull: each sends a request, and waits for events or its timeout.
//! Must hold: events published while a client's queue is read are not missed; however much is published, a waiting client
//! reads no more often than every few milliseconds; no client waits when there are events.

use super::command::TopicCaller;
use super::outcome::PulledPage;
use super::pull::Pull;
use crate::core::{Core, Timer};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::LogMark;

/// The longest wait.
const WAIT_MAX_MS: u64 = 30_000;
/// How often the store is read while a client waits: other nodes publish too.
const READ_MS: u64 = 500;
/// The shortest pause between two reads.
const PAUSE_MS: u64 = 5;
/// How many subscriptions' last replies are remembered.
const LAST_REPLIES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Pulls {
    waiting: BTreeMap<u64, WaitingPull>,
    /// The end of the last reply by subscription, with the version of its marks.
    last_replies: HashMap<Arc<str>, (u64, LogMark), RandomState>,
}

struct WaitingPull {
    caller: TopicCaller,
    name: Arc<str>,
    after: Option<u64>,
    limit: u32,
    until: Time,
    read_at: Time,
    /// The topics of its subscription. None: not known yet.
    topics: Option<Vec<Arc<str>>>,
    state: PullState,
}

enum PullState {
    /// Its queue is being read. `published`: an event was published during the read.
    Reading { published: bool },
    /// There were no events; it reads again at `due`.
    Parked { due: Time },
}

impl WaitingPull {
    fn hears(&self, topic: &Arc<str>) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.contains(topic))
    }
}

/// A decision to start for a client.
pub(super) type Begin = (u64, TopicCaller, Pull);

impl Pulls {
    pub fn ask(
        &mut self,
        core: &Core,
        number: u64,
        caller: TopicCaller,
        question: (Arc<str>, Option<u64>, u32, u64),
    ) -> Option<Begin> {
        let (name, after, limit, wait_ms) = question;
        let until = core.now + wait_ms.min(WAIT_MAX_MS);
        let state = PullState::Reading { published: false };
        let waiting =
            WaitingPull { caller, name, after, limit, until, read_at: core.now, topics: None, state };
        self.waiting.insert(number, waiting);
        core.node.count_pull(core.index);
        self.start_read(core, number)
    }

    /// Its timer is due, or an event was published.
    pub fn start_read(&mut self, core: &Core, number: u64) -> Option<Begin> {
        let waiting = self.waiting.get_mut(&number)?;
        waiting.state = PullState::Reading { published: false };
        waiting.read_at = core.now;
        let last_reply = self.last_replies.get(&waiting.name).copied();
        let pull = Pull::new(waiting.name.clone(), waiting.after, waiting.limit, last_reply);
        Some((number, waiting.caller.clone(), pull))
    }

    /// The result of a read. None: the client keeps waiting.
    pub fn read_done(&mut self, core: &mut Core, number: u64, page: PulledPage) -> Option<PulledPage> {
        let waiting = self.waiting.get_mut(&number)?;
        if page.pulled.count > 0 {
            let name = waiting.name.clone();
            self.keep(name, (page.marks_version, page.last));
        } else if core.now < waiting.until {
            let published = matches!(waiting.state, PullState::Reading { published: true });
            let pause_ms = if published { PAUSE_MS } else { READ_MS };
            let due = (waiting.read_at + pause_ms).min(waiting.until);
            (waiting.state, waiting.topics) = (PullState::Parked { due }, Some(page.topics));
            core.agenda.set(due, Timer::Pull(number));
            return None;
        }
        self.end(core, number);
        Some(page)
    }

    /// It has its reply.
    pub fn end(&mut self, core: &mut Core, number: u64) {
        if let Some(waiting) = self.waiting.remove(&number) {
            core.node.uncount_pull(core.index);
            if let PullState::Parked { due } = waiting.state {
                core.agenda.cancel(due, Timer::Pull(number));
            }
        }
    }

    /// A topic has new events.
    pub fn published(&mut self, core: &mut Core, topic: &Arc<str>) {
        for (number, waiting) in self.waiting.iter_mut().filter(|(_, waiting)| waiting.hears(topic)) {
            match &mut waiting.state {
                PullState::Reading { published } => *published = true,
                PullState::Parked { due } => {
                    let soon = (waiting.read_at + PAUSE_MS).max(core.now);
                    if soon < *due {
                        core.agenda.cancel(*due, Timer::Pull(*number));
                        core.agenda.set(soon, Timer::Pull(*number));
                        *due = soon;
                    }
                }
            }
        }
    }

    fn keep(&mut self, name: Arc<str>, last_reply: (u64, LogMark)) {
        if self.last_replies.len() >= LAST_REPLIES_MAX && !self.last_replies.contains_key(&name) {
            self.last_replies.clear();
        }
        self.last_replies.insert(name, last_reply);
    }
}
