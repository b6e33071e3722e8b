//! A connection to the bus of a process that is not a node: it asks the nodes and waits for their answers. Blocks.

use crate::config::Config;
use anyhow::bail;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tavern_engines::{BusOptions, LogBounds};
use tavern_store::{Bus, BusError, BusLoss, BusPacket, BusReceiver, Interest, SystemClock, Ticket};

pub struct BusProbe {
    bus: Arc<dyn Bus>,
    events: Receiver<ProbeEvent>,
}

enum ProbeEvent {
    Confirmed(Result<(), BusError>),
    Message(BusPacket),
}

struct ProbeInbox(Mutex<Sender<ProbeEvent>>);

impl BusProbe {
    /// `name` is used by no node.
    pub fn open(config: &Config, name: &str) -> Result<BusProbe, BusError> {
        let (sender, events) = channel();
        let bounds = LogBounds::default();
        let options = BusOptions { node: name, prefix: &config.prefix, folder: &config.data, bounds };
        let inbox = Arc::new(ProbeInbox(Mutex::new(sender)));
        let bus = tavern_engines::open_bus(&config.bus, &options, Arc::new(SystemClock), inbox)?;
        Ok(BusProbe { bus, events })
    }

    /// Returns when what is published from now on arrives.
    pub fn subscribe(&self, interests: Vec<Interest>, timeout: Duration) -> anyhow::Result<()> {
        if self.bus.subscribe(interests, Ticket(1)) {
            return Ok(());
        }
        loop {
            match self.events.recv_timeout(timeout) {
                Ok(ProbeEvent::Confirmed(outcome)) => return Ok(outcome?),
                Ok(ProbeEvent::Message(_)) => {}
                Err(_) => bail!("a subscription was not confirmed in time"),
            }
        }
    }

    pub fn publish(&self, packet: BusPacket) {
        self.bus.publish(vec![packet]);
    }

    /// The next message; None: there was none in time.
    pub fn message(&self, timeout: Duration) -> Option<BusPacket> {
        let end = Instant::now() + timeout;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(ProbeEvent::Message(packet)) => return Some(packet),
                Ok(ProbeEvent::Confirmed(_)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

impl Drop for BusProbe {
    fn drop(&mut self) {
        self.bus.stop();
    }
}

impl ProbeInbox {
    fn put(&self, event: ProbeEvent) {
        // The receiver is dropped when the probe is over.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(event);
    }
}

impl BusReceiver for ProbeInbox {
    fn confirmed(&self, _ticket: Ticket, outcome: Result<(), BusError>) {
        self.put(ProbeEvent::Confirmed(outcome));
    }

    fn messages(&self, packets: Vec<BusPacket>) {
        packets.into_iter().for_each(|packet| self.put(ProbeEvent::Message(packet)));
    }

    fn lost(&self, _lost: BusLoss) {}
}
