//! Orders of apps about a user: list, disconnect, subscribe and unsubscribe their sessions, and ban them. The shard that gets
//! an order asks every shard of every node and collects what they did (`asking`); a shard does its part in `orders`; bans
//! are decided against the store in `ban`, and a user is forgotten in `forget`. An order is repeated until it is answered, so it may arrive more than once.
//! Must hold: every order is answered, at the latest when `ANSWER_MS` are over; a node that did not answer is named.

mod asking;
mod ban;
mod ban_list;
mod forget;
mod orders;

use crate::core::{Core, Feature, ReplyTo, Timer, refusal};
use crate::node::ControlMessage;
use crate::replica::Replicas;
use crate::transaction::{Facts, TransactionEnd, TransactionProgress, Transactions};
use asking::{AskedOrder, CollectedReplies};
use ban::BanDecision;
use ban_list::{BanChange, BanReplica};
use forget::ForgetUser;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_store::{Deadline, StoreAnswer, Ticket};
use tavern_wire::bus::control::{Ban, ControlAction, ControlReply, ControlRequest};

pub(crate) use ban::BAN;

/// When an order that was not answered by every shard is sent again.
const REPEAT_MS: u64 = 100;
/// How long all of them may take.
const ANSWER_MS: u64 = 2_000;

/// The name of the only list of bans.
const ALL_BANS: &str = "";

pub(crate) struct UserControl {
    asked: BTreeMap<u64, AskedOrder>,
    numbers: u64,
    bans: Transactions<BanDecision>,
    forgets: Transactions<ForgetUser>,
    /// Empty on all shards but one.
    ban_list: Replicas<BanReplica>,
}

impl UserControl {
    pub fn new() -> UserControl {
        let (bans, forgets) = (Transactions::new(Feature::Control), Transactions::new(Feature::Control));
        let ban_list = Replicas::new(Feature::Control);
        UserControl { asked: BTreeMap::new(), numbers: 0, bans, forgets, ban_list }
    }

    /// An order of an app.
    pub fn order(&mut self, core: &mut Core, user: Arc<str>, action: ControlAction, claim: ReplyTo) {
        match action {
            ControlAction::Ban(ban) => self.decide(core, BanDecision::set(user, Some(ban), claim)),
            ControlAction::Unban => self.decide(core, BanDecision::set(user, None, claim)),
            action => self.ask(core, user, action, Some(claim)),
        }
    }

    /// An order or a reply of another shard or node.
    pub fn message(&mut self, core: &mut Core, message: ControlMessage) {
        match message {
            ControlMessage::Request { from, request } => {
                let ban = match &request.action {
                    ControlAction::Ban(ban) => Some(Some(ban.clone())),
                    ControlAction::Unban => Some(None),
                    _ => None,
                };
                if let Some(ban) = ban {
                    let change = BanChange { user: request.user.clone(), ban };
                    self.ban_list.update(core, ALL_BANS, &change);
                }
                if let Some(reply) = orders::carry_out(core, &request) {
                    answer(core, from, reply);
                }
            }
            ControlMessage::Reply { from, reply } => self.replied(core, &from, reply),
        }
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.ban_list.owns(ticket) {
            self.ban_list.answered(core, ticket, answer);
            return;
        }
        if self.forgets.owns(ticket) {
            let progress = self.forgets.answered(core, ticket, answer);
            return forgotten(core, progress);
        }
        let progress = self.bans.answered(core, ticket, answer);
        self.decided(core, progress);
    }

    /// From now on this shard keeps the bans of its node up to date.
    pub fn keep_bans(&mut self, core: &mut Core) {
        self.ban_list.make(&ALL_BANS.into());
        core.agenda.set(core.now, Timer::Replica(Feature::Control, ALL_BANS.into()));
    }

    pub fn replica_is_due(&mut self, core: &mut Core, name: &Arc<str>) {
        self.ban_list.due(core, name);
    }

    /// Deletes what is stored about a user.
    pub fn forget(&mut self, core: &mut Core, user: Arc<str>, claim: ReplyTo) {
        let progress = self.forgets.begin(core, ForgetUser { user, claim }, Facts::default());
        forgotten(core, progress);
    }

    /// A ban may be over.
    pub fn is_due(&mut self, core: &mut Core, deadline: &Deadline) {
        self.decide(core, BanDecision::expired(deadline));
    }

    /// Not everybody has answered an order.
    pub fn repeat(&mut self, core: &mut Core, number: u64) {
        let Some(asked) = self.asked.get(&number) else { return };
        if core.now >= asked.until {
            return self.finish(core, number);
        }
        let request = asked.request.clone();
        send(core, &request);
        core.agenda.set(core.now + REPEAT_MS, Timer::Control(number));
    }

    fn decide(&mut self, core: &mut Core, decision: BanDecision) {
        let progress = self.bans.begin(core, decision, Facts::default());
        self.decided(core, progress);
    }

    fn decided(&mut self, core: &mut Core, progress: TransactionProgress<BanDecision>) {
        let TransactionProgress::Ended(decision, end) = progress else { return };
        match end {
            TransactionEnd::Committed(Ok(change), _) | TransactionEnd::Done(Ok(change)) => {
                if let Some(action) = change {
                    self.ask(core, decision.user, action, decision.claim);
                } else if let Some(claim) = decision.claim {
                    core.finish(claim, Ok(Vec::new()));
                }
            }
            TransactionEnd::Committed(Err(refused), _) | TransactionEnd::Done(Err(refused)) => {
                if let Some(claim) = decision.claim {
                    core.finish(claim, Err(refused));
                }
            }
            TransactionEnd::Failed { answer, .. } => {
                if let Some(claim) = decision.claim {
                    core.finish(claim, Err(refusal(&answer)));
                }
            }
        }
    }

    /// Asks every shard of every node.
    fn ask(&mut self, core: &mut Core, user: Arc<str>, action: ControlAction, claim: Option<ReplyTo>) {
        self.numbers += 1;
        // Numbers of a process that ran before must not be taken for these.
        let number = core.now.ms() << 20 | self.numbers & 0xf_ffff;
        let request = ControlRequest { number, shard: core.index as u32, user, action };
        let until = core.now + ANSWER_MS;
        let replies = CollectedReplies::new(core.node.name.clone(), core.node.settings.shards);
        self.asked.insert(number, AskedOrder { request: request.clone(), claim, until, replies });
        send(core, &request);
        core.agenda.set(core.now + REPEAT_MS, Timer::Control(number));
    }

    fn replied(&mut self, core: &mut Core, from: &Arc<str>, reply: ControlReply) {
        let Some(asked) = self.asked.get_mut(&reply.number) else { return };
        let number = reply.number;
        asked.replies.add(from, reply);
        if asked.replies.missing(&core.node.other_nodes()).is_empty() {
            self.finish(core, number);
        }
    }

    fn finish(&mut self, core: &mut Core, number: u64) {
        let Some(asked) = self.asked.remove(&number) else { return };
        let missing = asked.replies.missing(&core.node.other_nodes());
        if let Some(claim) = asked.claim {
            core.finish(claim, Ok(asked.replies.body(&asked.request.action, &missing)));
        }
    }
}

fn forgotten(core: &mut Core, progress: TransactionProgress<ForgetUser>) {
    let TransactionProgress::Ended(decision, end) = progress else { return };
    let reply = match end {
        TransactionEnd::Committed(outcome, _) | TransactionEnd::Done(outcome) => outcome.map(|()| Vec::new()),
        TransactionEnd::Failed { answer, .. } => Err(refusal(&answer)),
    };
    core.finish(decision.claim, reply);
}

/// Sends an order to every shard of this node, and to all other nodes.
fn send(core: &mut Core, request: &ControlRequest) {
    let from = core.node.name.clone();
    for shard in 0..core.node.settings.shards {
        let message = ControlMessage::Request { from: from.clone(), request: request.clone() };
        core.effects.control.push((shard, message));
    }
    if core.node.bus_interests.reaches_others() {
        core.effects.bus_messages.extend(core.node.control_packet(request));
    }
}

fn answer(core: &mut Core, to: Arc<str>, reply: ControlReply) {
    if to == core.node.name {
        let shard = reply.to_shard as usize;
        core.effects.control.push((shard, ControlMessage::Reply { from: to, reply }));
    } else {
        core.effects.bus_messages.extend(core.node.control_reply_packet(&to, &reply));
    }
}

/// What a ban is applied as on every shard.
fn applied(ban: Option<Ban>) -> ControlAction {
    ban.map_or(ControlAction::Unban, ControlAction::Ban)
}
