//! One node with one shard on the in-memory store, without sockets and without a clock that runs.

use std::sync::{Arc, Mutex};
use tavern_domain::{Epoch, HistoryLimits, Identity, Rights, Scopes, Time};
use tavern_hub::{
    Caller, EventFormat, Flow, HistoryRules, KindRules, Link, LinkId, Node, RandomSource, Scratch, Settings,
    Shard, ShardEvent, TokenVerifier,
};
use tavern_store::memory::{MemoryEngine, MemoryStore};
use tavern_store::{AnswerReceiver, Commit, ManualClock, NodeChange, Store, StoreAnswer, Ticket, Work};
use tavern_wire::error::Refusal;

/// Small, so that a mailbox is full after the warm-up: a session that acknowledges nothing keeps this many events.
const MAILBOX_EVENTS: usize = 32;

#[derive(Default)]
struct Answers(Mutex<Vec<(Ticket, StoreAnswer)>>);

impl AnswerReceiver for Answers {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

struct FixedRandom(u128);

impl RandomSource for FixedRandom {
    fn next(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(99);
        self.0
    }
}

/// A token is the name of its user.
struct NamesAsTokens;

impl TokenVerifier for NamesAsTokens {
    fn verify(&self, token: &str, _now: Time) -> Result<Identity, Refusal> {
        Ok(Identity {
            user: Some(token.into()),
            name: None,
            rights: Arc::new(Rights::all()),
            issued_s: 0,
            expires: Time::NEVER,
            unlimited: true,
            scopes: Scopes::NONE,
            key: None,
        })
    }
}

pub struct GuardNode {
    now: Time,
    shard: Shard,
    store: Arc<MemoryStore>,
    answers: Arc<Answers>,
    scratch: Scratch,
    reply: Vec<u8>,
    links: u32,
}

impl GuardNode {
    /// Channels of the kind `chat` keep their last 20 messages.
    pub fn new() -> GuardNode {
        let now = Time(1_000_000);
        let engine = MemoryEngine::new(Arc::new(ManualClock::at(now)));
        let answers: Arc<Answers> = Arc::default();
        let store = engine.store("guard", answers.clone());
        let open = NodeChange::Open { name: "guard".into(), lease_ms: 600_000 };
        store.submit(vec![(Ticket(0), Work::Commit(Commit { node: Some(open), ..Commit::default() }))]);
        let epoch = match answers.0.lock().unwrap().pop() {
            Some((_, StoreAnswer::Committed(receipt))) => receipt.epoch.unwrap_or(Epoch(0)),
            other => panic!("the epoch was not opened: {other:?}"),
        };
        let limits = HistoryLimits { messages: 20, bytes: 1 << 20, ttl_ms: 60_000 };
        let history = Some(HistoryRules { limits, with_subscribe: true });
        let mut settings = Settings {
            node: "guard".into(),
            epoch,
            commands_per_second: 0,
            mailbox_events: MAILBOX_EVENTS,
            ..Settings::default()
        };
        settings.kinds.insert("chat".into(), KindRules { history, ..KindRules::default() });
        let node = Node::new(settings, Box::new(NamesAsTokens));
        let shard = Shard::new(node, 0, Box::new(FixedRandom(7)), now);
        let (scratch, reply) = (Scratch::default(), Vec::new());
        GuardNode { now, shard, store, answers, scratch, reply, links: 0 }
    }

    /// A WebSocket client whose hello was answered.
    pub fn client(&mut self, user: &str) -> Caller {
        self.links += 1;
        let link = Link { id: LinkId(self.links), format: EventFormat::WebSocket };
        let mut caller = Caller::new(link, None);
        self.command(&mut caller, &format!(r#"{{"op":"hello","token":"{user}"}}"#));
        caller
    }

    /// Runs one command until it is answered.
    pub fn command(&mut self, caller: &mut Caller, frame: &str) {
        self.reply.clear();
        let mut flow = self.shard.command(self.now, caller, frame.as_bytes(), &mut self.reply);
        while flow == Flow::Wait {
            self.settle();
            let ready = &mut self.shard.core.effects.ready;
            let Some(at) = ready.iter().position(|link| *link == caller.link.id) else {
                panic!("{frame} waits for something that does not happen");
            };
            ready.swap_remove(at);
            flow = self.shard.resume(self.now, caller, &mut self.reply);
        }
        assert!(
            self.reply.windows(5).any(|part| part == b"\"ok\":"),
            "{frame}: {:?}",
            self.reply.escape_ascii()
        );
        self.settle();
    }

    /// Runs what is due now, does what was submitted to the store, and what follows from it, until there is nothing left.
    fn settle(&mut self) {
        loop {
            self.shard.wake(self.now);
            let work = std::mem::take(&mut self.shard.core.effects.work);
            if work.is_empty() {
                break;
            }
            self.store.submit(work);
            for (ticket, answer) in std::mem::take(&mut *self.answers.0.lock().unwrap()) {
                self.shard.handle(self.now, ShardEvent::Answer(ticket, answer));
            }
        }
        self.shard.core.end_publishing();
    }

    pub fn detach(&mut self, caller: &Caller) {
        let id = caller.listener.expect("a client after its hello");
        self.shard.detach(self.now, id, caller.link.id);
    }

    /// Renders the unread events of a client, who does not read them: they stay unread. Returns the bytes.
    pub fn render(&mut self, caller: &Caller) -> usize {
        let id = caller.listener.expect("a client after its hello");
        self.scratch.clear();
        self.scratch.fill(&mut self.shard.core, id, caller.link.id, usize::MAX);
        self.scratch.bytes.len()
    }

    /// Writes the new events of all clients. Returns how many clients had some.
    pub fn write_events(&mut self, callers: &[Caller]) -> usize {
        let dirty = std::mem::take(&mut self.shard.core.effects.dirty).len();
        for caller in callers {
            let written = self.render(caller);
            let id = caller.listener.expect("a client after its hello");
            self.scratch.settle(&mut self.shard.core, id, written);
        }
        dirty
    }
}
