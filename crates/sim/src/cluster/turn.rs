//! One turn of a node: takes the inputs from store, bus and other shards, and performs the effects of the hub, as the
//! server does: requests to the store, messages to the bus and between shards, liveness tasks, bytes to sockets.

use super::Cluster;
use super::adoption;
use super::node::{InFlightInput, Life, Running};
use super::port::{Arrived, Asker};
use super::process;
use super::signal::Signal;
use super::tamper;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_hub::node::registry::shards_of;
use tavern_hub::topics::delivery::DELIVERY;
use tavern_hub::{Effects, LivenessTask, ReceivedMessage, ServiceCommand, ShardEvent, ShardMessage};
use tavern_store::{BusLoss, BusPacket, Ticket, Work};

impl Cluster {
    /// A service sends a command to a node. False: the node accepts none.
    pub fn order(&mut self, at: usize, number: u64, order: ServiceCommand) -> bool {
        let local = self.nodes[at].local(self.now);
        let open = self.nodes[at].is_open();
        let Some(running) = self.nodes[at].running().filter(|_| open) else { return false };
        running.shards[0].handle(local, ShardEvent::Service { number, order });
        self.carry_out(at);
        true
    }

    /// Takes the inputs from the store and the bus. False: there were none.
    pub(super) fn take_in(&mut self, at: usize) -> bool {
        let port = match &mut self.nodes[at].life {
            Life::Down => return false,
            Life::Starting(starting) => &starting.port,
            Life::Stopping(stopping) => &stopping.port,
            Life::Up(running) if running.asleep => return false,
            Life::Up(running) => &running.port,
        };
        if port.is_empty() {
            return false;
        }
        match &self.nodes[at].life {
            Life::Starting(_) => process::continue_start(self, at),
            Life::Stopping(_) => process::continue_stop(self, at),
            _ => {
                take_answers(self, at);
                take_messages(self, at);
                self.carry_out(at);
            }
        }
        true
    }

    /// Runs the timers that are due on a node.
    pub(super) fn wake_due(&mut self, at: usize) -> bool {
        let now = self.now;
        // Once per moment: timers that become due at once wait for the next.
        if self.nodes[at].woken_at == now || self.nodes[at].next_wake().is_none_or(|due| due > now) {
            return false;
        }
        self.nodes[at].woken_at = now;
        let local = self.nodes[at].local(now);
        let Some(running) = self.nodes[at].awake() else { return false };
        for index in 0..running.shards.len() {
            deliver_mail(running, index, now, local);
        }
        for shard in &mut running.shards {
            if shard.next_wake().is_some_and(|due| due <= local) {
                shard.wake(local);
            }
        }
        if let Some(delivery) = &mut running.delivery {
            delivery.wake(&running.hub, local);
        }
        running.liveness.wake(now);
        if running.adoption.next_wake().is_some_and(|due| due <= now) {
            adoption::look_for_sessions(self, at);
        }
        self.carry_out(at);
        process::continue_leaving(self, at);
        true
    }

    /// Does what a server does after each turn, until nothing remains to do.
    pub(super) fn carry_out(&mut self, at: usize) {
        if self.nodes[at].awake().is_none() {
            return;
        }
        loop {
            let mut quiet = carry_out_tasks(self, at) & super::delivery::carry_out_delivery(self, at);
            for shard in 0..self.nodes[at].shards {
                quiet &= self.carry_out_shard(at, shard);
            }
            if quiet {
                return process::continue_leaving(self, at);
            }
        }
    }

    /// True: there was nothing to do.
    fn carry_out_shard(&mut self, at: usize, shard: usize) -> bool {
        let Some(running) = self.nodes[at].running() else { return true };
        let effects = &mut running.shards[shard].core.effects;
        let mut in_flight: Vec<(usize, InFlightInput)> = Vec::new();
        for (to, messages) in effects.shard_messages.iter_mut().enumerate() {
            in_flight.extend(messages.drain(..).map(|message| (to, InFlightInput::Message(message))));
        }
        in_flight.extend(
            effects.channel_updates.drain(..).map(|(to, update)| (to, InFlightInput::Presence(update))),
        );
        in_flight
            .extend(effects.user_updates.drain(..).map(|(to, update)| (to, InFlightInput::Status(update))));
        let Effects { dirty, closes, bus_messages, work, ready, service_replies: orders, .. } = effects;
        for (number, reply) in orders.drain(..) {
            let reply = match reply {
                Ok(body) if body.is_empty() => Ok(serde_json::Value::Null),
                Ok(body) => serde_json::from_slice(&body).map_err(|error| error.to_string()),
                Err(refusal) => Err(refusal.code.as_str().to_owned()),
            };
            self.signals.push_back(Signal::Ordered { number, reply });
        }
        let quiet = dirty.is_empty() && closes.is_empty() && bus_messages.is_empty() && work.is_empty();
        if quiet && ready.is_empty() && in_flight.is_empty() {
            return true;
        }
        let (dirty, closes) = (std::mem::take(dirty), std::mem::take(closes));
        let (work, ready) = (std::mem::take(work), std::mem::take(ready));
        running.shards[shard].core.end_publishing();
        for (to, in_flight) in in_flight {
            send_between_shards(self, at, shard, to, in_flight);
        }
        for (ticket, work) in work {
            submit(self, at, shard, ticket, work);
        }
        for id in dirty {
            let Some(running) = self.nodes[at].running() else { return true };
            let link = running.shards[shard].core.listener(id).and_then(|listener| listener.link);
            link.inspect(|link| self.write(*link));
        }
        closes.into_iter().for_each(|(link, reason)| self.close(link, reason));
        ready.into_iter().for_each(|link| self.ready(link));
        false
    }

    /// Delivers every message in flight between the shards of a node.
    pub(super) fn deliver_all_mail(&mut self, at: usize) {
        self.carry_out(at);
        let local = self.nodes[at].local(self.now);
        while let Some(running) = self.nodes[at].running()
            && running.in_flight.iter().any(|in_flight| !in_flight.is_empty())
        {
            (0..running.shards.len()).for_each(|shard| deliver_mail(running, shard, Time::NEVER, local));
            self.carry_out(at);
        }
    }
}

/// Delivers the messages of other shards that have arrived. A shard has one queue: later inputs from the store or the
/// bus do not overtake them, but commands and timers may.
fn deliver_mail(running: &mut Running, to: usize, now: Time, local: Time) {
    while let Some((due, _)) = running.in_flight[to].front()
        && *due <= now
        && let Some((_, in_flight)) = running.in_flight[to].pop_front()
    {
        match in_flight {
            InFlightInput::Message(message) => running.shards[to].handle(local, ShardEvent::Message(message)),
            InFlightInput::Presence(update) => running.shards[to].handle(local, ShardEvent::Presence(update)),
            InFlightInput::Status(update) => running.shards[to].handle(local, ShardEvent::Status(update)),
        }
    }
}

/// Sends a message to another shard. It keeps its place behind those already in flight.
fn send_between_shards(cluster: &mut Cluster, at: usize, from: usize, to: usize, in_flight: InFlightInput) {
    let delay = cluster.faults.shard_delay(&cluster.nodes[at].name, from, to, cluster.shard_delay_ms);
    let (now, local) = (cluster.now, cluster.nodes[at].local(cluster.now));
    let Some(running) = cluster.nodes[at].running() else { return };
    let last = running.in_flight[to].back().map_or(now, |(due, _)| *due);
    running.in_flight[to].push_back((last.max(now + delay), in_flight));
    tamper::shard_queue(&mut cluster.planted, &mut running.in_flight[to]);
    deliver_mail(running, to, now, local);
}

fn submit(cluster: &mut Cluster, at: usize, shard: usize, ticket: Ticket, work: Work) {
    let name = cluster.nodes[at].name.clone();
    let tampered = match work {
        Work::Commit(commit) => {
            let conflict = cluster.faults.conflicts(&name, &commit);
            tamper::commit(&mut cluster.planted, &cluster.engine, cluster.now, commit, conflict)
        }
        read => Ok(read),
    };
    let Some(running) = cluster.nodes[at].running() else { return };
    match tampered {
        Ok(work) => running.port.submit(Asker::Shard(shard), ticket, work),
        Err(answer) => running.port.answer(Asker::Shard(shard), ticket, *answer),
    }
}

fn take_answers(cluster: &mut Cluster, at: usize) {
    let (now, local) = (cluster.now, cluster.nodes[at].local(cluster.now));
    let Some(running) = cluster.nodes[at].running() else { return };
    for (asker, ticket, answer) in running.port.take_answers() {
        cluster.trace.say(now, || format!("n{at}: {asker:?} {} is answered {answer:?}", ticket.0));
        if tamper::loses_answer(&mut cluster.planted, asker) {
            continue;
        }
        let answer = tamper::answer(&mut cluster.planted, answer);
        let Some(running) = cluster.nodes[at].running() else { return };
        match asker {
            Asker::Shard(shard) => {
                deliver_mail(running, shard, Time::NEVER, local);
                running.shards[shard].handle(local, ShardEvent::Answer(ticket, answer));
            }
            Asker::Liveness => running.liveness.answered(now, ticket, answer),
            Asker::SimDelivery => {
                if let Some(delivery) = &mut running.delivery {
                    delivery.worker.answered(local, ticket, answer);
                }
            }
            Asker::Adoption => adoption::adoption_answered(cluster, at, ticket, answer),
            Asker::Process => process::process_answered(cluster, at, answer),
        }
    }
}

fn take_messages(cluster: &mut Cluster, at: usize) {
    let local = cluster.nodes[at].local(cluster.now);
    let Some(running) = cluster.nodes[at].running() else { return };
    let arrived = running.port.take_messages();
    if !arrived.is_empty() {
        (0..running.shards.len()).for_each(|shard| deliver_mail(running, shard, Time::NEVER, local));
    }
    for arrived in arrived {
        let Some(running) = cluster.nodes[at].running() else { return };
        match arrived {
            Arrived::Message(message) => receive(cluster, at, local, message),
            Arrived::Confirmed(ticket, outcome) => {
                for (shard, link) in running.hub.bus_interests.confirmed(ticket, outcome) {
                    running.shards[shard].handle(local, ShardEvent::BusReady(vec![link]));
                }
            }
            Arrived::Lost(lost) => {
                let channel = match &lost {
                    BusLoss::Everything => None,
                    BusLoss::On(subject) => match subject.channel() {
                        Some(name) => Some(name),
                        None => continue,
                    },
                };
                let channel: Option<Arc<[u8]>> = channel.map(Arc::from);
                for shard in &mut running.shards {
                    shard.handle(local, ShardEvent::BusLost(channel.clone()));
                }
            }
        }
    }
}

/// A message of another node.
fn receive(cluster: &mut Cluster, at: usize, local: Time, message: BusPacket) {
    for message in tamper::bus_message(&mut cluster.planted, at, message) {
        cluster
            .trace
            .say(cluster.now, || format!("n{at} receives {:?} from {}", message.subject, message.from.node));
        let moves = cluster.moves;
        let Some(running) = cluster.nodes[at].running() else { return };
        let shards = &mut running.shards;
        match running.hub.receive(&message) {
            Some(ReceivedMessage::Message { space, message, mask }) => shards_of(mask).for_each(|shard| {
                shards[shard].handle(
                    local,
                    ShardEvent::Message(ShardMessage { namespace: space, message: message.clone() }),
                );
            }),
            Some(ReceivedMessage::Presence { update, mask }) => shards_of(mask)
                .for_each(|shard| shards[shard].handle(local, ShardEvent::Presence(update.clone()))),
            Some(ReceivedMessage::Person { update, mask }) => {
                shards_of(mask)
                    .for_each(|shard| shards[shard].handle(local, ShardEvent::Status(update.clone())));
            }
            Some(ReceivedMessage::Session { shard, from, request }) if moves => {
                shards[shard].handle(local, ShardEvent::Migration { from, request });
            }
            Some(ReceivedMessage::Subscription(name)) => {
                if let Some(delivery) = &mut running.delivery {
                    delivery.worker.nudged(local, &name);
                }
            }
            Some(ReceivedMessage::NodeLeft) if moves => adoption::look_for_sessions(cluster, at),
            _ => {}
        }
    }
}

/// Store requests and liveness tasks. True: there were none.
fn carry_out_tasks(cluster: &mut Cluster, at: usize) -> bool {
    let local = cluster.nodes[at].local(cluster.now);
    let Some(running) = cluster.nodes[at].running() else { return true };
    let effects = std::mem::take(&mut running.liveness.effects);
    let quiet = effects.work.is_empty() && effects.tasks.is_empty();
    let hub = running.hub.clone();
    for (ticket, work) in effects.work {
        running.port.submit(Asker::Liveness, ticket, work);
    }
    for task in effects.tasks {
        let Some(task) =
            tamper::liveness_task(&mut cluster.planted, &cluster.engine, cluster.now, &hub, task)
        else {
            continue;
        };
        if !matches!(task, LivenessTask::Compare) {
            cluster.trace.say(cluster.now, || format!("n{at}: {task:?}"));
        }
        cluster.new_epochs += usize::from(matches!(task, LivenessTask::Announce));
        let Some(running) = cluster.nodes[at].running() else { return true };
        let shards = &mut running.shards;
        match task {
            // Every shard compares its watched channels with the store, or announces its clients.
            LivenessTask::Compare => {
                shards
                    .iter_mut()
                    .for_each(|shard| shard.handle(local, ShardEvent::Liveness(LivenessTask::Compare)));
            }
            LivenessTask::Announce => {
                shards
                    .iter_mut()
                    .for_each(|shard| shard.handle(local, ShardEvent::Liveness(LivenessTask::Announce)));
            }
            LivenessTask::Overdue(deadline) if &*deadline.kind == DELIVERY => {
                if let Some(delivery) = &mut running.delivery {
                    delivery.worker.overdue(local, &deadline);
                }
            }
            // Any one shard does the rest.
            task => shards[0].handle(local, ShardEvent::Liveness(task)),
        }
    }
    quiet
}
