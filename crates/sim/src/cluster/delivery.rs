//! Topics on a node: the commands of publishers, and the delivery worker of a process, driven as in the server. A
//! post of the worker is a signal; the workload decides how the endpoint responds.

use super::Cluster;
use super::node::Running;
use super::port::Asker;
use super::signal::Signal;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::EndpointReply;
use tavern_hub::topics::delivery::{DeliveryNotice, DeliverySettings, DeliveryWorker};
use tavern_hub::topics::{TopicCaller, TopicCommand};
use tavern_hub::{Node as HubNode, RandomSource, ShardEvent};
use tavern_store::{Commit, Store, Ticket, Work};

/// The worker of a process.
pub struct SimDelivery {
    pub worker: DeliveryWorker,
    /// The nodes that were alive at its last check.
    other_nodes: Arc<[Arc<str>]>,
    /// Answers of endpoints that arrived while the process slept.
    answers: Vec<(Arc<str>, u64, EndpointReply<String>)>,
}

impl SimDelivery {
    pub fn new(
        hub: &Arc<HubNode>,
        settings: DeliverySettings,
        pick: Box<dyn RandomSource + Send>,
        local: Time,
    ) -> SimDelivery {
        let worker = DeliveryWorker::new(hub.clone(), settings, pick, local);
        SimDelivery { worker, other_nodes: hub.other_nodes(), answers: Vec::new() }
    }

    /// Does what is due, and checks all subscriptions when another node has stopped.
    pub fn wake(&mut self, hub: &HubNode, local: Time) {
        self.worker.wake(local);
        let living = hub.other_nodes();
        if self.other_nodes.iter().any(|known| !living.contains(known)) {
            self.worker.check_all(local);
        }
        self.other_nodes = living;
    }

    /// The process wakes up.
    pub fn take_answers(&mut self, local: Time) {
        for (name, batch, reply) in std::mem::take(&mut self.answers) {
            self.worker.posted(local, &name, batch, reply.into());
        }
    }
}

impl Cluster {
    /// A publisher sends a command to a node. False: the node accepts none.
    pub fn command_topic(
        &mut self,
        at: usize,
        number: u64,
        caller: TopicCaller,
        command: TopicCommand,
    ) -> bool {
        let local = self.nodes[at].local(self.now);
        let open = self.nodes[at].is_open();
        let Some(running) = self.nodes[at].running().filter(|_| open) else { return false };
        running.shards[0].handle(local, ShardEvent::Topic { number, caller, command });
        self.carry_out(at);
        true
    }

    /// An endpoint has answered a post of a process, if the process still runs.
    pub fn answer_post(
        &mut self,
        (at, process): (usize, u64),
        subscription: &Arc<str>,
        batch: u64,
        reply: EndpointReply<String>,
    ) {
        let (local, same) = (self.nodes[at].local(self.now), self.nodes[at].process == process);
        let Some(running) = self.nodes[at].running().filter(|_| same) else { return };
        let asleep = running.asleep;
        let Some(delivery) = &mut running.delivery else { return };
        match asleep {
            true => delivery.answers.push((subscription.clone(), batch, reply)),
            false => delivery.worker.posted(local, subscription, batch, reply.into()),
        }
        self.carry_out(at);
    }

    /// An operator writes to the store, without any node.
    pub fn commit_by_operator(&mut self, commit: Commit) {
        let store = self.engine.store("operator", Arc::new(super::port::PortInbox::default()));
        store.submit(vec![(Ticket(0), Work::Commit(commit))]);
    }
}

/// The replies to commands become signals.
fn take_replies(running: &mut Running, signals: &mut Vec<Signal>) {
    for shard in &mut running.shards {
        for (number, reply) in shard.topic_effects().replies.drain(..) {
            let reply = reply.map_err(|refusal| refusal.code.as_str().to_owned());
            signals.push(Signal::TopicAnswered { number, reply: Arc::new(reply) });
        }
    }
}

/// The topics that have new events, and the subscriptions that have changed.
fn take_changes(running: &mut Running) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
    let (mut published, mut changed) = (Vec::new(), Vec::new());
    for shard in &mut running.shards {
        published.append(&mut shard.core.effects.topics);
        let effects = shard.topic_effects();
        published.extend(effects.published.drain(..).map(|(topic, ..)| topic));
        changed.append(&mut effects.changed);
    }
    (published, changed)
}

/// The topic effects of the shards, and the requests of the worker. True: there were none.
pub(super) fn carry_out_delivery(cluster: &mut Cluster, at: usize) -> bool {
    let local = cluster.nodes[at].local(cluster.now);
    let process = cluster.nodes[at].process;
    let Some(running) = cluster.nodes[at].running() else { return true };
    let mut signals = Vec::new();
    take_replies(running, &mut signals);
    let (published, changed) = take_changes(running);
    let Running { delivery: Some(SimDelivery { worker, .. }), hub, port, .. } = running else {
        cluster.signals.extend(signals);
        return true;
    };
    let mut quiet = signals.is_empty() && published.is_empty() && changed.is_empty();
    changed.iter().for_each(|name| worker.changed(name));
    if !changed.is_empty() {
        hub.nudge("");
    }
    published.iter().for_each(|topic| worker.published(local, topic));
    let effects = std::mem::take(worker.effects());
    quiet &= effects.work.is_empty() && effects.posts.is_empty() && effects.nudges.is_empty();
    for (ticket, mut work) in effects.work {
        if let Work::Commit(commit) = &mut work {
            super::tamper_topics::delivery_commit(&mut cluster.planted, commit);
        }
        port.submit(Asker::SimDelivery, ticket, work);
    }
    for post in effects.posts {
        signals.push(Signal::Posted { node: at, process, post: Box::new(post) });
    }
    for name in effects.nudges {
        hub.nudge(&name);
    }
    for notice in effects.notices {
        if let DeliveryNotice::Trouble { subscription, what } = notice {
            signals.push(Signal::Broken(format!("subscription {subscription}: {what}")));
        }
    }
    cluster.signals.extend(signals);
    quiet
}
