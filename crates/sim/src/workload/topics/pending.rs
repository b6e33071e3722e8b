//! The commands of one administrator: one at a time. A command without an answer is sent again, to another node, under
//! a new number.

use super::{NODES, RETRY_MS};
use crate::cluster::Cluster;
use tavern_domain::Time;
use tavern_hub::topics::{TopicCaller, TopicCommand};

/// How many numbers each administrator has.
const NUMBERS: u64 = 1 << 40;

pub struct PendingCommand<C> {
    first: u64,
    sent: u64,
    in_flight: Option<InFlight<C>>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight<C> {
    command: C,
    number: u64,
    node: usize,
    /// When it is sent again; none: it is under way.
    retry_at: Option<Time>,
}

impl<C: Copy + std::fmt::Debug> PendingCommand<C> {
    /// Numbers from 1 on are those of events, so administrators count from 1.
    pub fn new(administrator: u64) -> PendingCommand<C> {
        PendingCommand { first: administrator * NUMBERS, sent: 0, in_flight: None }
    }

    pub fn owns(&self, number: u64) -> bool {
        (self.first..self.first + NUMBERS).contains(&number)
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    pub fn command(&self) -> Option<C> {
        self.in_flight.as_ref().map(|sent| sent.command)
    }

    /// The command that this is an answer to. A late answer to an earlier attempt has another number.
    pub fn answered(&self, number: u64) -> Option<C> {
        self.in_flight.as_ref().filter(|sent| sent.number == number).map(|sent| sent.command)
    }

    pub fn begin(&mut self, command: C, node: usize) {
        self.in_flight = Some(InFlight { command, number: 0, node, retry_at: None });
    }

    pub fn send(&mut self, cluster: &mut Cluster, caller: TopicCaller, command: TopicCommand) {
        let Some(sent) = &mut self.in_flight else { return };
        self.sent += 1;
        sent.number = self.first + self.sent;
        if !cluster.command_topic(sent.node, sent.number, caller, command) {
            self.put_off(cluster);
        }
    }

    /// To the next node, after a delay.
    pub fn put_off(&mut self, cluster: &Cluster) {
        if let Some(sent) = &mut self.in_flight {
            sent.node = (sent.node + 1) % NODES;
            sent.retry_at = Some(cluster.now + RETRY_MS);
        }
    }

    pub fn end(&mut self) {
        self.in_flight = None;
    }

    /// Requests in flight at a node will not be answered.
    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        if self.in_flight.as_ref().is_some_and(|sent| sent.node == node && sent.retry_at.is_none()) {
            self.put_off(cluster);
        }
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.in_flight.as_ref().and_then(|sent| sent.retry_at)
    }

    /// Whether the command must be sent again now.
    pub fn take_due(&mut self, now: Time) -> bool {
        let sent = self.in_flight.as_mut();
        sent.is_some_and(|sent| sent.retry_at.take_if(|due| *due <= now).is_some())
    }

    pub fn check_end(&self) -> Result<(), String> {
        match &self.in_flight {
            Some(sent) => Err(format!("a command was never answered: {sent:?}")),
            None => Ok(()),
        }
    }
}
